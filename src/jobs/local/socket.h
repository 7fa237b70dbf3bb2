// The daemon's socket: where it is, and messages on it. A message is one line of JSON, a request or its answer:
// {"result": "created"}, or {"error": "…", "kind": "Error" | "IoError"}. Only processes of the same user may speak.
// Used by one thread.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "jobs/descriptor.h"
#include "jobs/local/state.h"

namespace lockstep {

inline constexpr size_t kMostMessageBytes = 8 << 20;

// Listens, not blocking, for the user alone. REQUIRES: the daemon's lock is held. Throws IoError.
Descriptor listen_at(const StateDir& state);

// Empty when nobody listens. Throws Error when somebody else does, IoError.
Descriptor connect_to(const StateDir& state);

// Whether the process at the other end runs for the user who runs this one.
bool is_own_user(const Descriptor& socket);

// Sends a request and waits for the answer. Throws what the daemon threw; IoError when it died, or does not answer
std::string exchange(const Descriptor& socket, const nlohmann::ordered_json& request,
                     std::chrono::milliseconds deadline);

// The daemon was there, and is gone without an answer: the request may be sent again.
class DaemonGone : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace lockstep
