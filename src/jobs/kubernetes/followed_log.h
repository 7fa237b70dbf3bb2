// The log of a pod that is followed through several connections: each line comes with its time, which is removed, and
// lines that an earlier connection brought are left out. Used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

class FollowedLog {
 public:
  // Gets the text without times; returns false to stop.
  using Sink = std::function<bool(std::string_view)>;
  explicit FollowedLog(Sink sink) : sink_(std::move(sink)) {}

  // A new connection begins.
  void connect();
  // What `kubectl logs --timestamps` has printed. Returns false when the sink does.
  bool add(std::string_view bytes);

  // The time of the last whole line, from which to ask for more; empty: there was none. A line that was cut by the end
  // of its connection is asked for again, and only its rest is given to the sink.
  const std::string& since() const { return last_; }

 private:
  void begin_line(const std::string& time);
  bool give(std::string_view text);

  const Sink sink_;
  std::string head_;             // of a line, until its time is known
  std::string time_;             // of the present line
  std::string last_;             // of the last whole line
  size_t same_ = 0, seen_ = 0;   // whole lines of time last_ so far; of them, in this connection
  size_t given_ = 0, skip_ = 0;  // bytes of the present line; those that an earlier connection gave
  bool in_line_ = false, old_ = false, catching_up_ = false;
};

}  // namespace lockstep
