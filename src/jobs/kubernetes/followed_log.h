// FollowedLog: merges the log of a pod from several connections. It removes the timestamp of each line and skips lines
// that an earlier connection delivered. Used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

class FollowedLog {
 public:
  // Receives the text without timestamps; returns false to stop.
  using Sink = std::function<bool(std::string_view)>;
  explicit FollowedLog(Sink sink) : sink_(std::move(sink)) {}

  // Call before the first add() of each connection.
  void start_connection();
  // Adds output of `kubectl logs --timestamps`. Returns false if the sink does.
  bool add(std::string_view bytes);

  // The timestamp of the last complete line, for --since-time of the next connection; empty: none yet. If a connection
  // ended within a line, the next one delivers that line again; the sink gets only the rest of it.
  const std::string& since() const { return last_; }

 private:
  void begin_line(const std::string& time);
  bool emit(std::string_view text);

  const Sink sink_;
  std::string head_;               // start of a line whose timestamp is not complete yet
  std::string time_;               // timestamp of the current line
  std::string last_;               // timestamp of the last complete line
  size_t same_ = 0, seen_ = 0;     // complete lines with timestamp last_: in all connections, and in this one
  size_t emitted_ = 0, skip_ = 0;  // bytes of the current line: received, and already passed to the sink before
  bool in_line_ = false;           // the timestamp of the current line is complete
  bool old_ = false;               // an earlier connection delivered the current line
  bool catching_up_ = false;       // only old lines were received in this connection
};

}  // namespace lockstep
