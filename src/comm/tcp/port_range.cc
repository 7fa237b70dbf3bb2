#include "comm/tcp/port_range.h"

#include <charconv>

#include "base/check.h"

namespace lockstep {

PortRange parse_port_range(const std::string& text, const std::string& what) {
  PortRange out;
  if (text.empty()) return out;
  constexpr int kLastPossible = 65535;
  const char* const end = text.data() + text.size();
  const auto [dash, error] = std::from_chars(text.data(), end, out.first);
  const bool has_dash = error == std::errc() && dash != end && *dash == '-';
  const auto [last, again] = std::from_chars(has_dash ? dash + 1 : end, end, out.last);
  if (!has_dash || again != std::errc() || last != end || out.first < 1 || out.first > out.last ||
      out.last > kLastPossible)
    throw_error("{} is \"{}\"; set it to a range of ports such as 61000-64999", what, text);
  return out;
}

}  // namespace lockstep
