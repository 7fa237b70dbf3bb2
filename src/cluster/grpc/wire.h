// Conversion between cluster/messages.h and the protobuf messages of control.proto. Thread-safe.
#pragma once

#include <optional>

#include "cluster/messages.h"
#include "control.pb.h"

namespace lockstep::detail {

// Maximum size of an answer: a value or a directory, and overhead.
inline constexpr int kMaxMessageBytes = 40 << 20;
// Maximum size of a request, which the server reads before it checks the secret: a value, and overhead.
inline constexpr int kMaxRequestBytes = 5 << 20;

void to_wire(const Request& request, control::Request& out);
void to_wire(const Answer& answer, control::Answer& out);

// nullopt for an unknown request.
std::optional<Request> from_wire(const control::Request& request);
Answer from_wire(const control::Answer& answer);

}  // namespace lockstep::detail
