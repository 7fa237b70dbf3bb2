// Trace: records what the threads and GPUs of this process do while it is on, as spans of time. Outside of a trace,
// code that could record a span makes one branch. There is one trace of a process: its lanes and threads share it.
// Everything is safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TraceSpan {
  enum class Kind : uint8_t { step, data, dispatch, compute, collective, checkpoint, evaluation };
  // The track of a lane is its number in the process.
  static constexpr int kHost = -1, kWriter = -2;  // the thread that trains; the thread that writes checkpoints

  Kind kind = Kind::step;
  std::string name;
  int64_t begin = 0, end = 0;  // Trace::now()
  int track = kHost;
};
std::string_view to_string(TraceSpan::Kind kind);

class Trace {
 public:
  static bool is_on() { return on_.load(std::memory_order_relaxed); }
  // Nanoseconds of the system's clock, which all processes of a host share.
  static int64_t now();

  static void start();
  // Returns the spans since start(). Waits for GPUs that are traced.
  static std::vector<TraceSpan> stop();
  static void add(TraceSpan span);
  // Calls `finish` once, in the next stop(). It may add spans.
  static void at_stop(std::function<void()> finish);

  // The lane whose work the calling thread does; 0 unless set.
  static int lane() { return lane_; }
  static void set_lane(int lane) { lane_ = lane; }

 private:
  static inline std::atomic<bool> on_ = false;
  static inline thread_local int lane_ = 0;
};

// A span from the construction to the destruction, if the trace is on at both.
class TracedScope {
 public:
  TracedScope(TraceSpan::Kind kind, std::string_view name, int track = TraceSpan::kHost)
      : begin_(Trace::is_on() ? Trace::now() : 0), kind_(kind), track_(track), name_(name) {}
  ~TracedScope() {
    if (begin_ > 0 && Trace::is_on()) Trace::add({kind_, std::string(name_), begin_, Trace::now(), track_});
  }
  TracedScope(const TracedScope&) = delete;
  TracedScope& operator=(const TracedScope&) = delete;

 private:
  const int64_t begin_;
  const TraceSpan::Kind kind_;
  const int track_;
  const std::string_view name_;  // outlives the scope
};

}  // namespace lockstep
