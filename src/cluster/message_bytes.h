// Requests and answers as bytes, for ways between processes that carry nothing else. Pure functions, safe from any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "cluster/messages.h"

namespace lockstep {

std::string to_bytes(const Request& request);
std::string to_bytes(const Answer& answer);

// Throw CommError for what is none: processes of one job must be of one version.
Request request_from(std::string_view bytes);
Answer answer_from(std::string_view bytes);

}  // namespace lockstep
