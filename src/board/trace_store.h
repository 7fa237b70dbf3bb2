// TraceStore: the traces of the runs that pages show, kept in memory while their files do not change, and as JSON for
// the page. Safe from any thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "board/trace.h"

namespace lockstep::board {

class TraceStore {
 public:
  // The trace of a run. `version`: changes with its files. Throws Error when the run has none.
  std::shared_ptr<const Trace> get(const std::string& run_folder, const std::string& version);

 private:
  static constexpr size_t kMost = 2;  // the trace used least recently is dropped
  struct Entry {
    std::string version;
    std::shared_ptr<const Trace> trace;
    std::chrono::steady_clock::time_point used;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

// `{"end", "ranks": [...], "steps": [...], "problems": [...], ...}`: everything but the events.
std::string trace_json(const Trace& trace);

// The events in a part of the time axis, in seconds, for a drawing of `width` pixels: events that are shorter than a
// pixel are joined with their neighbors.
struct TraceWindow {
  double from = 0, to = 0;
  int64_t width = 1000;
  size_t first = 0, count = kMaxTracedRanks;  // in Trace::ranks
};
// `{"names": [...], "rows": [{"rank", "lane", "depth", "slices": [begin, duration, name, category, count, ...]}]}`.
std::string slices_json(const Trace& trace, const TraceWindow& window);

}  // namespace lockstep::board
