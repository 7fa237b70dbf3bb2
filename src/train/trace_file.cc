#include "train/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "base/text_bytes.h"

namespace lockstep::detail {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxTraceBytes = int64_t{512} << 20;

std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Microseconds with three decimals: a double would lose them.
std::string microseconds(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

// The name of a process or track.
std::string name_event(const char* what, int rank, int track, const std::string& name) {
  return dumped({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}});
}

std::string name_events(int rank, int lanes) {
  std::string out = name_event("process_name", rank, 0, fmt::format("rank {}", rank));
  for (int lane = 0; lane < lanes; ++lane)
    out += ",\n" + name_event("thread_name", rank, lane, fmt::format("lane {}", lane));
  out += ",\n" + name_event("thread_name", rank, lanes, "training loop");
  return out + ",\n" + name_event("thread_name", rank, lanes + 1, "checkpoint writer");
}

// The events in a file of trace_json(), separated by commas.
std::string events_of(FileSystem& files, const std::string& path) {
  const std::vector<uint8_t> bytes = files.read_file(path, kMaxTraceBytes);
  const std::string text(bytes.begin(), bytes.end());
  const auto whole = parse_json<ordered_json>(
      text, path, {.bytes = static_cast<size_t>(kMaxTraceBytes), .depth = 8, .values = size_t{50'000'000}});
  if (!whole.is_object() || !whole.contains("traceEvents") || !whole["traceEvents"].is_array())
    throw_error("{} has no traceEvents; it is damaged", path);
  const std::string list = dumped(whole["traceEvents"]);
  return list.substr(1, list.size() - 2);
}

}  // namespace

std::string trace_json(const std::vector<TraceSpan>& spans, int rank, int lanes) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  for (const TraceSpan& span : spans) {
    const int track = span.track == TraceSpan::kHost     ? lanes
                      : span.track == TraceSpan::kWriter ? lanes + 1
                                                         : span.track;
    out += fmt::format(R"({}{{"name":{},"cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{}}})", separator,
                       dumped(span.name), to_string(span.kind), microseconds(span.begin),
                       microseconds(std::max<int64_t>(span.end - span.begin, 0)), rank, track);
    separator = ",\n";
  }
  return out + "\n]}\n";
}

std::string rank_trace_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank_{}.json", folder, rank);
}

std::vector<std::string> join_traces(FileSystem& files, const std::string& folder, int ranks, int lanes,
                                     const std::string& file) {
  std::vector<std::string> problems;
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = rank_trace_path(folder, rank);
    try {
      if (!files.exists(path)) throw_error("{} does not exist: rank {} wrote it on another host", path, rank);
      const std::string events = events_of(files, path);
      out += (rank > 0 && !out.ends_with("[\n") ? ",\n" : "") + name_events(rank, lanes);
      if (!events.empty()) out += ",\n" + events;
    } catch (const std::runtime_error& error) {
      problems.emplace_back(error.what());
    }
  }
  files.write(file, text_bytes(out + "\n]}\n"));
  return problems;
}

}  // namespace lockstep::detail
