#include "board/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/file.h"
#include "base/names.h"
#include "lockstep/error.h"

namespace lockstep::board {
namespace {

constexpr std::string_view kCategoryNames[] = {"step",       "data",       "dispatch",   "compute",
                                               "collective", "checkpoint", "evaluation", "other"};
constexpr double kSecondsPerUnit = 1e-6;  // the format counts in microseconds
constexpr double kMaxTime = 1e18, kMaxLane = 1e9;
constexpr size_t kMaxNames = 100'000, kMaxNameBytes = 200;

TraceCategory category_of(std::string_view name) {
  const auto* found = std::ranges::find(kCategoryNames, name);
  return found == std::end(kCategoryNames) ? TraceCategory::other
                                           : static_cast<TraceCategory>(found - std::begin(kCategoryNames));
}

// Reads {"traceEvents": [{...}, ...]} event by event, without a tree of values.
class TraceReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TraceReader(RankTrace& out) : out_(out) {}

  bool start_object(size_t) override {
    if (++depth_ == kEventDepth && in_events_) event_ = {};
    return true;
  }
  bool end_object() override {
    if (depth_-- == kEventDepth && in_events_) add();
    return out_.events.size() < kMaxTraceEvents;
  }
  bool start_array(size_t) override {
    if (++depth_ == 2 && key_ == "traceEvents") in_events_ = found_ = true;
    return true;
  }
  bool end_array() override {
    if (depth_-- == 2) in_events_ = false;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1 || depth_ == kEventDepth) key_ = name;
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool string(std::string& value) override {
    if (!in_events_ || depth_ != kEventDepth) return true;
    if (key_ == "name") event_.name = value.substr(0, kMaxNameBytes);
    if (key_ == "cat") event_.category = category_of(value);
    if (key_ == "ph") event_.complete = value == "X";
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_at_ = position;
    return false;
  }

  bool found_events() const { return found_; }
  size_t ignored() const { return ignored_; }
  std::optional<size_t> error_at() const { return error_at_; }

 private:
  static constexpr int kEventDepth = 3;
  struct Event {
    std::string name;
    double begin = NAN, duration = NAN, lane = 0;
    TraceCategory category = TraceCategory::other;
    bool complete = false;
  };

  bool number(double value) {
    if (!in_events_ || depth_ != kEventDepth) return true;
    if (key_ == "ts") event_.begin = value;
    if (key_ == "dur") event_.duration = value;
    if (key_ == "tid") event_.lane = value;
    return true;
  }

  void add() {
    if (!event_.complete) return;  // names of processes and threads
    const bool good = std::abs(event_.begin) < kMaxTime && event_.duration >= 0 && event_.duration < kMaxTime &&
                      std::abs(event_.lane) < kMaxLane;  // false for NaN
    if (!good || (names_.size() >= kMaxNames && !names_.contains(event_.name))) {
      ++ignored_;
      return;
    }
    const auto [name, is_new] = names_.emplace(event_.name, static_cast<uint32_t>(names_.size()));
    if (is_new) out_.names.push_back(event_.name);
    const auto lane =
        lanes_.emplace(static_cast<int64_t>(event_.lane), static_cast<uint32_t>(lanes_.size())).first->second;
    if (lane == out_.lanes.size()) out_.lanes.push_back(static_cast<int64_t>(event_.lane));
    out_.events.push_back({.begin = event_.begin * kSecondsPerUnit,
                           .duration = event_.duration * kSecondsPerUnit,
                           .name = name->second,
                           .lane = lane,
                           .category = event_.category});
  }

  RankTrace& out_;
  int depth_ = 0;
  bool in_events_ = false, found_ = false;
  std::string key_;
  Event event_;
  size_t ignored_ = 0;
  std::optional<size_t> error_at_;
  std::unordered_map<std::string, uint32_t> names_;
  std::unordered_map<int64_t, uint32_t> lanes_;
};

// Orders lanes by their numbers, and events by lane and begin; then finds what contains what.
void arrange(RankTrace& trace) {
  std::map<int64_t, uint32_t> places;
  for (const int64_t lane : trace.lanes) places[lane] = 0;
  uint32_t next = 0;
  for (auto& [lane, place] : places) place = next++;
  for (TraceEvent& event : trace.events) event.lane = places[trace.lanes[event.lane]];
  std::ranges::sort(trace.lanes);
  std::ranges::stable_sort(trace.events, [](const TraceEvent& a, const TraceEvent& b) {
    if (a.lane != b.lane) return a.lane < b.lane;
    return a.begin != b.begin ? a.begin < b.begin : a.duration > b.duration;
  });
  std::vector<const TraceEvent*> around;
  for (TraceEvent& event : trace.events) {
    if (!around.empty() && around.back()->lane != event.lane) around.clear();
    while (!around.empty() && around.back()->end() <= event.begin) around.pop_back();
    event.depth = static_cast<uint32_t>(around.size());
    around.push_back(&event);
  }
}

}  // namespace

std::string_view to_string(TraceCategory category) { return kCategoryNames[static_cast<size_t>(category)]; }

std::optional<int64_t> step_number(std::string_view event_name) {
  const size_t at = event_name.find_first_of("0123456789");
  if (at == event_name.npos) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(event_name.data() + at, event_name.data() + event_name.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

RankTrace parse_trace(std::string_view text, int64_t rank, const std::string& name) {
  RankTrace out{.rank = rank, .names = {}, .lanes = {}, .events = {}, .problems = {}};
  TraceReader reader(out);
  nlohmann::json::sax_parse(text, &reader);
  if (out.events.size() >= kMaxTraceEvents)
    out.problems.push_back(
        fmt::format("{} has more than {} events; the others are not shown; trace fewer steps", name, kMaxTraceEvents));
  else if (reader.error_at())
    out.problems.push_back(fmt::format("{} is damaged at byte {} of {}; {}", name,
                                       std::min(*reader.error_at(), text.size()), text.size(),
                                       out.events.empty() ? "nothing of it is shown" : "the events before are shown"));
  else if (!reader.found_events())
    out.problems.push_back(fmt::format("{} has no list \"traceEvents\"", name));
  if (reader.ignored() > 0)
    out.problems.push_back(fmt::format("{} has {} without a time, which are not shown", name,
                                       counted(static_cast<int64_t>(reader.ignored()), "event")));
  arrange(out);
  return out;
}

RankTrace read_trace(const std::string& path, int64_t rank) {
  const std::string name = fmt::format("trace/rank_{}.json", rank);
  const auto failed = [&](const std::string& problem) {
    return RankTrace{.rank = rank, .names = {}, .lanes = {}, .events = {}, .problems = {problem}};
  };
  try {
    FileSystem& files = FileSystem::real();
    if (const int64_t bytes = files.size(path); bytes > kMaxTraceBytes)
      return failed(fmt::format("{} has {} MB, but the board reads at most {} MB of a rank; trace fewer steps", name,
                                bytes >> 20, kMaxTraceBytes >> 20));
    const std::vector<uint8_t> bytes = files.read_file(path, kMaxTraceBytes);
    return parse_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, rank, name);
  } catch (const IoError& error) {
    return failed(error.what());
  }
}

}  // namespace lockstep::board
