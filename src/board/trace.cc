#include "board/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "base/check.h"
#include "base/names.h"

namespace lockstep::board {
namespace {

constexpr double kNoticeable = 0.02;  // share of the work of a step
constexpr auto kOther = static_cast<size_t>(TraceCategory::other),
               kDispatch = static_cast<size_t>(TraceCategory::dispatch),
               kCollective = static_cast<size_t>(TraceCategory::collective);

// Sets of points in time, as disjoint intervals in ascending order.
struct Interval {
  double begin, end;
};
using Intervals = std::vector<Interval>;

Intervals united(Intervals all) {
  std::ranges::sort(all, {}, &Interval::begin);
  Intervals out;
  for (const Interval& each : all) {
    if (each.end <= each.begin) continue;
    if (!out.empty() && each.begin <= out.back().end)
      out.back().end = std::max(out.back().end, each.end);
    else
      out.push_back(each);
  }
  return out;
}

double length(const Intervals& set) {
  double out = 0;
  for (const Interval& each : set) out += each.end - each.begin;
  return out;
}

// The length of what is in `set` but not in `without`. REQUIRES: both are united.
double length_without(const Intervals& set, const Intervals& without) {
  double out = length(set);
  size_t next = 0;
  for (const Interval& each : set) {
    while (next < without.size() && without[next].end <= each.begin) ++next;
    for (size_t i = next; i < without.size() && without[i].begin < each.end; ++i)
      out -= std::min(each.end, without[i].end) - std::max(each.begin, without[i].begin);
  }
  return out;
}

using EventRange = std::span<const TraceEvent>;

// The events of each lane.
std::vector<EventRange> lanes_of(const RankTrace& trace) {
  std::vector<EventRange> out;
  for (size_t begin = 0, end = 0; begin < trace.events.size(); begin = end) {
    while (end < trace.events.size() && trace.events[end].lane == trace.events[begin].lane) ++end;
    out.emplace_back(trace.events.data() + begin, end - begin);
  }
  return out;
}

// Adds the parts of a lane's events in [begin, end) to the intervals of their categories, each without what is nested in
// it. Events that begin before are left out.
void add_own_times(EventRange lane, double begin, double end, std::array<Intervals, kTraceCategories>& out) {
  struct Open {
    size_t category;
    double end, from;  // its own time continues at `from`
  };
  std::vector<Open> open;
  const auto close = [&] {
    const Open last = open.back();
    open.pop_back();
    out[last.category].push_back({last.from, last.end});
    if (!open.empty()) open.back().from = std::max(open.back().from, last.end);
  };
  for (auto event = std::ranges::lower_bound(lane, begin, {}, &TraceEvent::begin);
       event != lane.end() && event->begin < end; ++event) {
    if (event->category == TraceCategory::step) continue;
    while (!open.empty() && open.back().end <= event->begin) close();
    if (!open.empty()) out[open.back().category].push_back({open.back().from, event->begin});
    open.push_back({static_cast<size_t>(event->category), std::min(event->end(), end), event->begin});
  }
  while (!open.empty()) close();
}

RankStep rank_step(const std::vector<EventRange>& lanes, const TraceEvent& step) {
  std::array<Intervals, kTraceCategories> own;
  for (const EventRange& lane : lanes) add_own_times(lane, step.begin, step.end(), own);
  RankStep out{.begin = step.begin, .end = step.end()};
  Intervals work, lanes_busy, all;
  const auto add = [](Intervals& to, const Intervals& more) { to.insert(to.end(), more.begin(), more.end()); };
  for (size_t c = 0; c < kTraceCategories; ++c) {
    own[c] = united(std::move(own[c]));
    out.times[c] = length(own[c]);
    add(all, own[c]);
    if (c == kDispatch) continue;
    add(lanes_busy, own[c]);
    if (c != kCollective) add(work, own[c]);
  }
  out.times[kDispatch] = length_without(own[kDispatch], united(lanes_busy));
  out.work = step.duration - length_without(own[kCollective], united(work));
  out.times[kOther] += std::max(0.0, step.duration - length(united(all)));
  return out;
}

// The steps of a rank by number. Steps without a number in their name are counted.
std::map<int64_t, RankStep> steps_of(const RankTrace& trace) {
  const std::vector<EventRange> lanes = lanes_of(trace);
  std::map<int64_t, RankStep> out;
  int64_t count = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.category != TraceCategory::step) continue;
    const int64_t number = step_number(trace.names[event.name]).value_or(count);
    if (!out.contains(number)) out.emplace(number, rank_step(lanes, event));
    ++count;
  }
  return out;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// `steps`: of each rank; null where a rank has not traced this step.
TracedStep compare(int64_t number, const std::vector<const RankStep*>& steps) {
  TracedStep out{.step = number, .begin = std::numeric_limits<double>::infinity()};
  const RankStep* slowest = nullptr;
  for (size_t r = 0; r < steps.size(); ++r) {
    if (!steps[r]) continue;
    out.begin = std::min(out.begin, steps[r]->begin), out.end = std::max(out.end, steps[r]->end);
    if (!slowest || steps[r]->work > slowest->work) slowest = steps[r], out.slowest = r;
  }
  LOCKSTEP_CHECK(slowest, "a step of no rank");
  const auto others = [&](const auto& value) {
    std::vector<double> all;
    for (const RankStep* each : steps)
      if (each && each != slowest) all.push_back(value(*each));
    return median(std::move(all));
  };
  out.work = slowest->work;
  out.others = others([](const RankStep& each) { return each.work; });
  out.excess = -std::numeric_limits<double>::infinity();
  for (size_t c = 0; c < kTraceCategories; ++c) {
    const auto category = static_cast<TraceCategory>(c);
    if (category == TraceCategory::step || category == TraceCategory::collective) continue;
    const double excess = slowest->times[c] - others([&](const RankStep& each) { return each.times[c]; });
    if (excess > out.excess) out.excess = excess, out.category = category;
  }
  const auto traced = std::ranges::count_if(steps, [](const RankStep* each) { return each != nullptr; });
  out.is_even = traced < 2 || out.work - out.others < kNoticeable * out.work;
  return out;
}

void move_by(RankTrace& trace, double seconds) {
  for (TraceEvent& event : trace.events) event.begin += seconds;
}

Interval extent_of(const RankTrace& trace) {
  Interval out{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const TraceEvent& event : trace.events)
    out.begin = std::min(out.begin, event.begin), out.end = std::max(out.end, event.end());
  return out;
}

// The ends of the steps by number.
std::map<int64_t, double> step_ends(const RankTrace& trace) {
  std::map<int64_t, double> out;
  for (const TraceEvent& event : trace.events)
    if (event.category == TraceCategory::step)
      out.emplace(step_number(trace.names[event.name]).value_or(std::ssize(out)), event.end());
  return out;
}

// Moves the traces of ranks that do not overlap that of the first rank.
void align(Trace& trace) {
  const auto first = std::ranges::find_if(trace.ranks, [](const RankTrace& each) { return !each.events.empty(); });
  if (first == trace.ranks.end()) return;
  const Interval extent = extent_of(*first);
  const std::map<int64_t, double> ends = step_ends(*first);
  std::vector<int64_t> moved;
  for (RankTrace& rank : trace.ranks) {
    if (rank.events.empty()) continue;
    const Interval own = extent_of(rank);
    if (own.begin < extent.end && extent.begin < own.end) continue;
    double by = extent.begin - own.begin;
    for (const auto& [step, end] : step_ends(rank))
      if (const auto common = ends.find(step); common != ends.end()) {
        by = common->second - end;
        break;
      }
    move_by(rank, by);
    moved.push_back(rank.rank);
  }
  if (!moved.empty())
    trace.problems.push_back(fmt::format(
        "the clocks of the hosts differ: {} moved so that the first step that each has in common with rank {} ends at "
        "the same time",
        moved.size() == 1 ? fmt::format("rank {} was", moved[0])
                          : fmt::format("{} ranks, the first of them {}, were", moved.size(), moved[0]),
        first->rank));
}

void add_to(RankSummary& summary, const RankStep& step) {
  ++summary.steps;
  summary.seconds += step.end - step.begin;
  summary.work += step.work;
  for (size_t c = 0; c < kTraceCategories; ++c) summary.times[c] += step.times[c];
}

}  // namespace

Trace make_trace(std::vector<RankTrace> ranks) {
  Trace out{.ranks = std::move(ranks), .summaries = {}, .steps = {}, .problems = {}};
  for (RankTrace& rank : out.ranks)
    for (std::string& problem : rank.problems) out.problems.push_back(std::move(problem));
  align(out);
  double begin = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : out.ranks) begin = std::min(begin, extent_of(rank).begin);
  std::vector<std::map<int64_t, RankStep>> steps;
  std::set<int64_t> numbers;
  out.summaries.resize(out.ranks.size());
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    RankTrace& rank = out.ranks[r];
    if (!rank.events.empty()) move_by(rank, -begin), out.end = std::max(out.end, extent_of(rank).end);
    steps.push_back(steps_of(rank));
    for (const auto& [number, step] : steps.back()) {
      numbers.insert(number);
      add_to(out.summaries[r], step);
    }
  }
  for (const int64_t number : numbers) {
    std::vector<const RankStep*> each;
    for (const auto& of_rank : steps) {
      const auto found = of_rank.find(number);
      each.push_back(found == of_rank.end() ? nullptr : &found->second);
    }
    out.steps.push_back(compare(number, each));
    if (!out.steps.back().is_even) ++out.summaries[out.steps.back().slowest].slowest;
  }
  return out;
}

Trace read_traces(const std::string& run_folder, int64_t most) {
  constexpr std::string_view kPrefix = "rank_", kSuffix = ".json";
  std::map<int64_t, std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder + "/trace", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    int64_t rank = 0;
    const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size() - kSuffix.size();
    if (const auto [at, problem] = std::from_chars(begin, end, rank); problem == std::errc() && at == end && rank >= 0)
      paths[rank] = entry.path().string();
  }
  if (paths.empty()) throw_error("the run has no trace/rank_0.json; `lockstep train --trace` writes it");
  std::vector<RankTrace> ranks;
  int64_t bytes = 0;
  for (const auto& [rank, path] : paths) {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
    bytes += error || size > kMaxTraceBytes ? 0 : size;
    if (bytes > most || ranks.size() == kMaxTracedRanks) break;
    ranks.push_back(read_trace(path, rank));
  }
  const auto read = std::ssize(ranks);
  Trace out = make_trace(std::move(ranks));
  if (read < std::ssize(paths))
    out.problems.push_back(fmt::format("the first {} of {} are shown: the board reads at most {} ranks and {} MB", read,
                                       counted(std::ssize(paths), "rank"), kMaxTracedRanks, most >> 20));
  return out;
}

}  // namespace lockstep::board
