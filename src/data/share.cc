#include "data/share.h"

#include <charconv>

#include "base/check.h"

namespace lockstep::detail {

std::optional<double> parse_share(const std::string& text) {
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  if (!(share > 0 && share < 1))
    throw_error("data: a validation share of {}; give a number greater than 0 and less than 1", text);
  return share;
}

}  // namespace lockstep::detail
