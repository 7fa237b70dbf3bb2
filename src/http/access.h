// Access to a server: secrets, and whether other machines can connect. Pure functions.
#pragma once

#include <string_view>

namespace lockstep::http {

// Compares in a time that depends only on the lengths.
bool same_token(std::string_view given, std::string_view wanted);

// The token of `Authorization: Bearer TOKEN`; empty for other headers.
std::string_view bearer_token(std::string_view header);

// Whether only programs of this machine can connect to this address.
bool is_loopback(std::string_view host);

}  // namespace lockstep::http
