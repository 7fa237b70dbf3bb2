#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "lockstep/sharding.h"

namespace lockstep {
namespace {

size_t trimmed_size(const PartitionSpec& spec) {
  size_t n = spec.entries.size();
  while (n > 0 && spec.entries[n - 1].axes.empty()) --n;
  return n;
}

std::string entry_text(const SpecEntry& entry) {
  if (entry.axes.empty()) return "None";
  if (entry.axes.size() == 1) return fmt::format("'{}'", entry.axes[0]);
  return fmt::format("('{}')", fmt::join(entry.axes, "', '"));
}

}  // namespace

SpecEntry::SpecEntry() = default;
SpecEntry::SpecEntry(std::nullptr_t) {}
SpecEntry::SpecEntry(std::nullopt_t) {}
SpecEntry::SpecEntry(const char* axis) : axes{axis} {}
SpecEntry::SpecEntry(std::string axis) : axes{std::move(axis)} {}
SpecEntry::SpecEntry(std::initializer_list<std::string_view> list) : axes(list.begin(), list.end()) {}
SpecEntry::SpecEntry(std::vector<std::string> list) : axes(std::move(list)) {}
SpecEntry::SpecEntry(const SpecEntry&) = default;
SpecEntry::SpecEntry(SpecEntry&&) noexcept = default;
SpecEntry& SpecEntry::operator=(const SpecEntry&) = default;
SpecEntry& SpecEntry::operator=(SpecEntry&&) noexcept = default;
SpecEntry::~SpecEntry() = default;

PartitionSpec P() { return {}; }
PartitionSpec P(SpecEntry a) { return {{std::move(a)}}; }
PartitionSpec P(SpecEntry a, SpecEntry b) { return {{std::move(a), std::move(b)}}; }
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c) { return {{std::move(a), std::move(b), std::move(c)}}; }
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d)}};
}
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d, SpecEntry e) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d), std::move(e)}};
}
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d, SpecEntry e, SpecEntry f) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d), std::move(e), std::move(f)}};
}

PartitionSpec PartitionSpec::trimmed() const {
  return {{entries.begin(), entries.begin() + static_cast<ptrdiff_t>(trimmed_size(*this))}, unreduced};
}

bool PartitionSpec::operator==(const PartitionSpec& other) const {
  const size_t n = trimmed_size(*this);
  return n == trimmed_size(other) &&
         std::equal(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(n), other.entries.begin()) &&
         unreduced == other.unreduced;
}

std::string to_string(const PartitionSpec& spec) {
  std::vector<std::string> parts;
  for (const SpecEntry& entry : spec.entries) parts.push_back(entry_text(entry));
  if (!spec.unreduced.empty()) parts.push_back(fmt::format("unreduced={{'{}'}}", fmt::join(spec.unreduced, "', '")));
  return fmt::format("P({})", fmt::join(parts, ", "));
}

}  // namespace lockstep

size_t std::hash<lockstep::PartitionSpec>::operator()(const lockstep::PartitionSpec& spec) const noexcept {
  lockstep::Hasher hasher;
  const size_t n = lockstep::trimmed_size(spec);
  for (size_t i = 0; i < n; ++i) {
    hasher.add(static_cast<uint64_t>(spec.entries[i].axes.size()));
    for (const std::string& axis : spec.entries[i].axes) hasher.add(axis);
  }
  for (const std::string& axis : spec.unreduced) hasher.add(axis);
  return hasher.value();
}
