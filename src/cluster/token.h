// The token: the secret shared by the processes of a job; a process without it cannot join. It never appears in logs or
// messages. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/os/environment.h"
#include "cluster/control_channel.h"

namespace lockstep {

// Returns 32 random bytes in hexadecimal. Throws IoError if the system provides none.
std::string make_token();

// Returns the token without trailing whitespace. Throws Error, naming `source` but not the value, unless it has 16 to
// 1024 printable ASCII characters without spaces.
std::string checked_token(std::string token, const std::string& source);

// Compares in constant time.
bool same_token(std::string_view a, std::string_view b);

// Finds the job's token: the option, else LOCKSTEP_TOKEN, else the content of the file LOCKSTEP_TOKEN_FILE. Without
// any, returns "" and logs a line if LOCKSTEP_INSECURE is 1, and throws Error otherwise. Also throws Error for an
// invalid token (see checked_token()), and for a file that belongs to another user or that others can write. Logs a
// line if others can read the file. Throws IoError if it cannot be read.
std::string find_token(const std::string& option, const detail::Environment& environment, const LogLine& log);

}  // namespace lockstep
