// A resolvable name of this machine. Without /etc/hosts and a name server not even "localhost" resolves.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "cluster/address.h"

namespace lockstep {

inline constexpr const char* kNoName = "neither \"localhost\" nor the host name resolves to this machine";

inline bool is_own_ip(const std::string& number) {
  return number.starts_with("127.") ||
         std::ranges::any_of(detail::list_interfaces(), [&](const auto& each) { return each.address == number; });
}

// A name that resolves only to this machine; empty if there is none.
inline std::string own_host_name_or_empty() {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  for (const std::string name : {"localhost", static_cast<const char*>(own.data())}) {
    try {
      if (std::ranges::all_of(detail::resolve(name, std::chrono::seconds(5)), is_own_ip)) return name;
    } catch (const IoError&) {
    }
  }
  return "";
}

}  // namespace lockstep
