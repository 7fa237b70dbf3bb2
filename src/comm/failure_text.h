// Texts that the failure messages of all backends share. Pure; safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

namespace lockstep::detail {

// The remedy of every timeout message.
inline constexpr std::string_view kTimeoutRemedy =
    "check whether they hang or have exited, or raise the timeout if they are only slow";

// Ranks `a` and `b`, given as labels, requested different operations as operation `number` of a group.
inline std::string mismatch_message(int64_t number, std::string_view group, std::string_view a, std::string_view of_a,
                                    std::string_view b, std::string_view of_b) {
  return fmt::format(
      "operation {} on \"{}\": rank {} requested {}, rank {} requested {}; the ranks of a group must make the same "
      "calls with the same sizes in the same order",
      number, group, a, of_a, b, of_b);
}

}  // namespace lockstep::detail
