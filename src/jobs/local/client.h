// DaemonClient: how commands reach the daemon, which they start when there is none. Used by one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jobs/local/state.h"

namespace lockstep {

// Starts a daemon for a state folder when there is none. Does not wait for it. Throws IoError.
void ensure_daemon(const std::string& state, const std::string& program, const detail::Environment& environment);

class DaemonClient {
 public:
  // `program` is `lockstep`, by its path. REQUIRES: state outlives this.
  DaemonClient(const StateDir& state, std::string program, const detail::Environment& environment);

  // Starts one when there is none. Does not wait for it.
  void ensure();

  // The daemon's answer to a request of Supervisor::handle(), which may be sent again when the daemon dies. Throws what
  // it threw; IoError when it cannot be reached.
  std::string request(const nlohmann::ordered_json& request);

 private:
  const StateDir& state_;
  std::string program_;
  detail::Environment environment_;
};

}  // namespace lockstep
