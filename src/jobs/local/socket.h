// The daemon's Unix socket. Every message is one line of JSON: a request, or its response {"result": "created"} or
// {"error": "…", "kind": "Error" | "IoError"}. Only processes of the same user may connect. Used by one thread.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "base/os/descriptor.h"
#include "jobs/local/state.h"

namespace lockstep {

inline constexpr size_t kMaxMessageBytes = 8 << 20;

// Opens a non-blocking listening socket that only this user can access. REQUIRES: the caller holds the daemon's lock.
// Throws IoError.
Descriptor listen_for_clients(const StateDir& state);

// Returns an empty descriptor if no daemon is listening. Throws Error if a process of another user is; IoError.
Descriptor connect_to_daemon(const StateDir& state);

// Whether the peer process has the same user as this one.
bool is_own_user(const Descriptor& socket);

// Sends a request and waits for the response. Throws the daemon's Error or IoError; DaemonGone if the daemon died;
// IoError at the deadline.
std::string send_request(const Descriptor& socket, const nlohmann::ordered_json& request,
                         std::chrono::milliseconds deadline);

// The daemon died before it responded. The request may be sent again.
class DaemonGone : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace lockstep
