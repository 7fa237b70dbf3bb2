// The token: the secret that the processes of one job share, without which nobody may join. It is never logged and in
// no message. Safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "cluster/control_channel.h"
#include "sharding/device_table.h"  // Environment

namespace lockstep {

// 32 random bytes in hexadecimal. Throws IoError when the system has none.
std::string make_token();

// A token without the spaces at its end. Throws Error, which names `source` and not the value, when it is none: 16 to
// 1024 letters, digits and signs.
std::string checked_token(std::string token, const std::string& source);

// In a time that does not tell where they differ.
bool same_token(std::string_view a, std::string_view b);

// The job's token: the option, or else the variable LOCKSTEP_TOKEN, or else what is in the file that
// LOCKSTEP_TOKEN_FILE names; or "", with a line in the log, when there is none and LOCKSTEP_INSECURE is 1. Throws Error
// when there is none, when it is no token (16 to 1024 letters, digits and signs, no spaces), and when the file belongs
// to somebody else or may be written by others; one that others may read is a line in the log. Throws IoError when it
// cannot be read.
std::string find_token(const std::string& option, const detail::Environment& environment, const LogLine& log);

}  // namespace lockstep
