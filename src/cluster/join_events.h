// JoinEvent: sent by a process to the launcher that started it, when it begins to join the job and when it has joined.
// Until it has joined, the coordinator cannot notify it that another process exited, but the launcher can terminate it.
// The launcher listens on a Unix datagram socket in the abstract namespace (no file is created); processes find its
// name in LOCKSTEP_LAUNCHER.
#pragma once

#include <string>
#include <vector>

#include "base/os/descriptor.h"

namespace lockstep {

inline constexpr const char* kLauncherVariable = "LOCKSTEP_LAUNCHER";

struct JoinEvent {
  int process = 0;
  bool joined = false;  // false: it begins to join

  bool operator==(const JoinEvent&) const = default;
};

// Sends an event. No effect if no launcher listens. Thread-safe.
void notify_launcher(const JoinEvent& event);

// The launcher's receiving socket. Not thread-safe.
class JoinEventReceiver {
 public:
  // Throws IoError.
  JoinEventReceiver();

  // The value of LOCKSTEP_LAUNCHER for the processes.
  const std::string& name() const { return name_; }
  // Readable if events are pending.
  int fd() const { return socket_.get(); }
  // Returns all pending events in order. Drops messages of other users.
  std::vector<JoinEvent> receive();

 private:
  std::string name_;
  Descriptor socket_;
};

}  // namespace lockstep
