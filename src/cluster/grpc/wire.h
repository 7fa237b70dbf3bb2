// Between the messages of cluster/messages.h and those that travel. Safe from any thread.
#pragma once

#include <optional>

#include "cluster/messages.h"
#include "control.pb.h"

namespace lockstep::detail {

// The most bytes of one message: a value or a directory, and what is around it.
inline constexpr int kMaxMessageBytes = 40 << 20;
// Of one that a stranger may send before his token is looked at: a value, and what is around it.
inline constexpr int kMaxRequestBytes = 5 << 20;

void to_wire(const Request& request, control::Request& out);
void to_wire(const Answer& answer, control::Answer& out);

// Nothing for a message that asks for nothing known.
std::optional<Request> from_wire(const control::Request& request);
Answer from_wire(const control::Answer& answer);

}  // namespace lockstep::detail
