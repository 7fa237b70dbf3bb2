// Access control of a board: a token in a cookie or header. Pure functions except new_token(); safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::board {

// 32 random hexadecimal digits.
std::string new_token();

// The value of a cookie of a Cookie header; empty if there is none.
std::string_view cookie_value(std::string_view header, std::string_view name);

// Whether a token can be part of a URL and a cookie: letters, digits, '-', '_', '.', at most 256 of them.
bool is_valid_token(std::string_view token);

}  // namespace lockstep::board
