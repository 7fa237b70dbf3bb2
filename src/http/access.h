// Access to a server: secrets, the Host header, and whether other machines can connect. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::http {

// Compares in a time that depends only on the lengths.
bool same_token(std::string_view given, std::string_view wanted);

// The token of `Authorization: Bearer TOKEN`; empty for other headers. The case of "Bearer" does not matter.
std::string_view bearer_token(std::string_view header);

// Whether only programs of this machine can connect to this address: 127.0.0.0/8, ::1 or "localhost". No other name is,
// even one that begins with "127.".
bool is_loopback(std::string_view host);

// The name or address in a Host header, in lower case, without port and brackets. Empty optional: it is malformed.
std::optional<std::string> host_name(std::string_view header);

// Whether a request with this Host header may be meant for a server that listens on the loopback address `host`.
// Requests with another name come from a page that made its own name resolve to this machine.
bool host_is_allowed(std::string_view header, std::string_view host);

}  // namespace lockstep::http
