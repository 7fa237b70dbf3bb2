// Access control of a board: a token in a cookie or header, and the Host header. Pure functions except new_token(); safe
// from any thread.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::board {

// 32 random hexadecimal digits.
std::string new_token();

// The value of a cookie of a Cookie header; empty if there is none.
std::string_view cookie_value(std::string_view header, std::string_view name);

// Whether the Host header names this machine's loopback or `host`, with any port. Requests with another name come from a
// page that made its own name resolve to this machine.
bool host_is_allowed(std::string_view header, std::string_view host);

// Whether a token can be part of a URL and a cookie: letters, digits, '-', '_', '.', at most 256 of them.
bool is_valid_token(std::string_view token);

}  // namespace lockstep::board
