// JoinEvent: sent by a process to the launcher that started it, when it begins to join the job and when it has joined.
// Until it has joined, the coordinator cannot notify it that another process exited, but the launcher can terminate it.
// The events go through a pipe of the launcher, whose address processes find in LOCKSTEP_LAUNCHER
// (base/os/shared_descriptor.h). Only processes of the same user can open it.
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

// The launcher's end. Not thread-safe.
class JoinEventReceiver {
 public:
  // Throws IoError.
  JoinEventReceiver();

  // The value of LOCKSTEP_LAUNCHER for the processes.
  const std::string& address() const { return address_; }
  // Readable if events are pending.
  int fd() const { return pipe_.reader.get(); }
  // Returns pending events in order: those that one read returns, so that no writer can hold up the launcher. Text that
  // is not an event is dropped.
  std::vector<JoinEvent> receive();

 private:
  Pipe pipe_;  // both ends, so that it never ends
  std::string address_;
  std::string rest_;  // the beginning of an event
};

}  // namespace lockstep
