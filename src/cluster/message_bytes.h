// Serialization of requests and answers, for transports that carry bytes (MPI). Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "cluster/messages.h"

namespace lockstep {

std::string to_bytes(const Request& request);
std::string to_bytes(const Answer& answer);

// Throw CommError for malformed bytes: all processes of a job must run the same version.
Request request_from(std::string_view bytes);
Answer answer_from(std::string_view bytes);

}  // namespace lockstep
