// Serialization of the messages of the control plane, for transports that carry bytes (gRPC and MPI). Each message
// begins with the version of the process that sent it. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "cluster/messages.h"

namespace lockstep {

std::string to_bytes(const Request& request);
std::string to_bytes(const Answer& answer);

// Throw CommError for malformed bytes, and for messages of another version, with a message for the process that sent the
// request: `this is lockstep 0.1 (protocol 2), the coordinator is lockstep 0.2 (protocol 3); use the same version
// everywhere`. Memory is bounded by a multiple of the size.
Request request_from(std::string_view bytes);
Answer answer_from(std::string_view bytes);

// The first bytes of every message of this version.
std::string message_prefix();

}  // namespace lockstep
