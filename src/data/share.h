// The share of a data set that is set aside for validation. Pure function, safe from any thread.
#pragma once

#include <optional>
#include <string>

namespace lockstep::detail {

// The number of a text such as "0.1"; nothing if the text is not a number. Throws Error unless it is between 0 and 1.
std::optional<double> parse_share(const std::string& text);

}  // namespace lockstep::detail
