// ControlChannel: how a process reaches the coordinator. Safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cluster/messages.h"

namespace lockstep {

// Where the control plane leaves its few lines for people. Called from any thread, one line, without a newline.
using LogLine = std::function<void(const std::string&)>;

// To standard error, after the program's name.
void log_to_stderr(const std::string& line);

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Asks, and waits for the answer. `unreachable` when there was none in time, the connection broke, or close() was
  // called; connection_refused when its machine says that no process is there.
  virtual Answer call(const Request& request, std::chrono::nanoseconds timeout) = 0;

  // All calls, those that wait and those to come, are answered `unreachable`.
  virtual void close() = 0;

  // Where the coordinator is, for messages: "n01:1234".
  virtual std::string coordinator() const = 0;
};

}  // namespace lockstep
