// A name for this machine, which not every machine has: without /etc/hosts and a name server even "localhost" is none.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "cluster/address.h"

namespace lockstep {

inline constexpr const char* kNoName =
    "no name of this machine has an address here: neither \"localhost\" nor what it calls itself";

inline bool is_own_number(const std::string& number) {
  return number.starts_with("127.") ||
         std::ranges::any_of(detail::list_interfaces(), [&](const auto& each) { return each.address == number; });
}

// A name that stands for this machine alone, or nothing.
inline std::string own_resolvable_name() {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  for (const std::string name : {"localhost", static_cast<const char*>(own.data())}) {
    try {
      if (std::ranges::all_of(detail::resolve(name, std::chrono::seconds(5)), is_own_number)) return name;
    } catch (const IoError&) {
    }
  }
  return "";
}

}  // namespace lockstep
