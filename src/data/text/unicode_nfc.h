// Unicode normalization form C. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::detail {

bool is_ascii(std::string_view text);

// The text in normalization form C: letters with marks are one character where Unicode has one. Bytes that are not UTF-8
// stay as they are.
std::string to_nfc(std::string_view text);

}  // namespace lockstep::detail
