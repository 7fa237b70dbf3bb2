// Which connection to end when there are too many: so that no address can lock out others. A pure function.
#pragma once

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Returns the index of the oldest entry of the address with the most entries, and their number. Entries have a member
// `address`; the oldest is first. REQUIRES: there are some.
template <class Entry>
std::pair<size_t, size_t> find_crowding(const std::vector<Entry>& entries) {
  std::map<std::string_view, size_t> counts;
  for (const Entry& each : entries) ++counts[each.address];
  const size_t most = std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; })->second;
  const auto found = std::ranges::find_if(entries, [&](const Entry& each) { return counts[each.address] == most; });
  return {static_cast<size_t>(found - entries.begin()), most};
}

}  // namespace lockstep
