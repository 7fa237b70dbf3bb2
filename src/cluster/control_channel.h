// ControlChannel: the connection of a process to the coordinator. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cluster/messages.h"

namespace lockstep {

// Receives the log lines of the control plane, each without a newline. Called from any thread.
using LogLine = std::function<void(const std::string&)>;

// Writes to standard error, with the prefix "lockstep: ".
void log_to_stderr(const std::string& line);

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Sends a request and waits for the answer. Returns `unreachable` if there was none in time, the connection broke, or
  // close() was called; connection_refused is set if the host reports that no process listens on the port.
  virtual Answer call(const Request& request, std::chrono::nanoseconds timeout) = 0;

  // All pending and later calls return `unreachable`.
  virtual void close() = 0;

  // The coordinator's address for messages: "n01:1234".
  virtual std::string coordinator() const = 0;
};

}  // namespace lockstep
