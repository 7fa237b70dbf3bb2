// RankTrace: the events that one rank of a run has recorded with `lockstep train --trace`, read from
// trace/rank_<n>.json. docs/reference/run-folder.md has the format. Plain values, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::board {

enum class TraceCategory : uint8_t { step, data, dispatch, compute, collective, checkpoint, evaluation, other };
inline constexpr size_t kTraceCategories = 8;
std::string_view to_string(TraceCategory category);

struct TraceEvent {
  double begin = 0, duration = 0;  // seconds
  uint32_t name = 0;               // in RankTrace::names
  uint32_t lane = 0;               // in RankTrace::lanes
  uint32_t depth = 0;              // the number of events of the same lane around it
  TraceCategory category = TraceCategory::other;
  double end() const { return begin + duration; }
};

struct RankTrace {
  int64_t rank = 0;
  std::vector<std::string> names;
  std::vector<int64_t> lanes;      // their numbers in the file, in ascending order
  std::vector<TraceEvent> events;  // by lane and begin; an event is before those that it contains
  std::vector<std::string> problems;
};

// The number of a step: the first number in the name of its event.
std::optional<int64_t> step_number(std::string_view event_name);

inline constexpr int64_t kMaxTraceBytes = int64_t{64} << 20;
inline constexpr size_t kMaxTraceEvents = 1'000'000;

// Reads the events of a text. What is damaged or beyond the limits is left out, and named in `problems`. `name`: of the
// file.
RankTrace parse_trace(std::string_view text, int64_t rank, const std::string& name);

// Reads a file. If it is too large or not readable, the trace has no events, and a problem.
RankTrace read_trace(const std::string& path, int64_t rank);

}  // namespace lockstep::board
