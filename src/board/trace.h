// Trace: the events of all ranks of a run on one time axis, and which rank was the slowest in each step. Plain values and
// pure functions except for the files, safe from any thread.
//
// Ranks that train together end each step together, because each waits for the others in a collective. So the slowest
// rank is not the one with the longest step, but the one that works for the longest time and waits the least. The work of
// a rank in a step is the step without the time in which it does nothing but communicate. The call that starts a step may
// return only when its lane has completed it, so dispatch counts where no lane is busy.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "board/trace_file.h"

namespace lockstep::board {

// Seconds in each category, without what is nested in it. `other` is what no event covers.
using CategoryTimes = std::array<double, kTraceCategories>;

// A step of one rank.
struct RankStep {
  double begin = 0, end = 0;
  double work = 0;  // seconds
  CategoryTimes times = {};
};

struct TracedStep {
  int64_t step = 0;
  double begin = 0, end = 0;    // of all ranks
  size_t slowest = 0;           // in Trace::ranks
  double work = 0, others = 0;  // of the slowest rank, and the median of the others
  TraceCategory category = {};  // where the slowest rank differs most from the median of the others
  double excess = 0;            // by how many seconds
  bool is_even = false;         // no rank is noticeably slower than the others
};

// What a rank did in all steps.
struct RankSummary {
  int64_t steps = 0, slowest = 0;  // steps, and those in which it was noticeably slower than the others
  double seconds = 0, work = 0;    // sums over its steps
  CategoryTimes times = {};
};

struct Trace {
  std::vector<RankTrace> ranks;        // in ascending order; times begin at 0
  std::vector<RankSummary> summaries;  // of each rank
  std::vector<TracedStep> steps;       // in ascending order
  std::vector<std::string> problems;
  double end = 0;
};

// Moves the ranks to one time axis, and finds the slowest rank of each step. If the clocks of two ranks differ so much
// that their traces do not overlap, the first step that both have ends at the same time, and a problem says so.
Trace make_trace(std::vector<RankTrace> ranks);

inline constexpr size_t kMaxTracedRanks = 256;
inline constexpr int64_t kMaxTracedBytes = int64_t{512} << 20;  // of all ranks

// Reads trace/rank_<n>.json of a run, up to `most` bytes. A problem says which ranks are left out. Throws Error when there
// are no such files.
Trace read_traces(const std::string& run_folder, int64_t most = kMaxTracedBytes);

}  // namespace lockstep::board
