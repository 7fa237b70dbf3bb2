// DaemonClient: sends requests to the daemon, and starts it if it is not running. Used by one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jobs/local/state.h"

namespace lockstep {

// Starts the daemon of a state folder unless it is running. Does not wait until it is ready. Throws IoError.
void ensure_daemon(const std::string& state, const std::string& program, const detail::Environment& environment);

class DaemonClient {
 public:
  // `program` is the path of `lockstep`. REQUIRES: `state` outlives this object.
  DaemonClient(const StateDir& state, std::string program, const detail::Environment& environment);

  // Starts the daemon unless it is running. Does not wait until it is ready.
  void ensure();

  // Sends a request for Supervisor::handle() and returns the result. Sends it again if the daemon dies. Throws the
  // Error or IoError of the daemon; IoError if the daemon cannot be reached.
  std::string request(const nlohmann::ordered_json& request);

 private:
  const StateDir& state_;
  std::string program_;
  detail::Environment environment_;
};

}  // namespace lockstep
