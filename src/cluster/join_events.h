// What a process tells the launcher that started it: that it is joining the job, and that it has joined. Until it has
// joined, the coordinator cannot tell it that another process ended; the launcher can end it. The launcher listens at a
// Unix socket in the abstract namespace, whose name processes find in LOCKSTEP_LAUNCHER; it leaves no file behind.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

inline constexpr const char* kLauncherVariable = "LOCKSTEP_LAUNCHER";

struct JoinEvent {
  int process = 0;
  bool joined = false;  // false: it is joining

  bool operator==(const JoinEvent&) const = default;
};

// Does nothing when no launcher listens. Safe from any thread.
void notify_launcher(const JoinEvent& event);

// The launcher's end. Used by one thread.
class JoinEventReceiver {
 public:
  // Throws IoError.
  JoinEventReceiver();
  ~JoinEventReceiver();
  JoinEventReceiver(const JoinEventReceiver&) = delete;
  JoinEventReceiver& operator=(const JoinEventReceiver&) = delete;

  // The value of LOCKSTEP_LAUNCHER for the processes.
  const std::string& name() const { return name_; }
  // Readable when there is news.
  int fd() const { return fd_; }
  // All news so far, in order. What other users send is dropped.
  std::vector<JoinEvent> receive();

 private:
  std::string name_;
  int fd_ = -1;
};

}  // namespace lockstep
