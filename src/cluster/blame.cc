#include "cluster/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/check.h"

namespace lockstep {
namespace {

using RecordOutcome = FlightRecord::Outcome;
using Record = FlightDump::Record;

constexpr size_t kWorst = 5;

// Saturating arithmetic, because a dump file may contain any times. The results are never INT64_MIN, so that their
// absolute values exist.
int64_t plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return b < 0 ? -INT64_MAX : INT64_MAX;
  return std::max(sum, -INT64_MAX);
}
int64_t minus(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (__builtin_sub_overflow(a, b, &difference)) return b > 0 ? -INT64_MAX : INT64_MAX;
  return std::max(difference, -INT64_MAX);
}

// A group is identified by its name and members, because the rows of a mesh may share a name.
struct GroupKey {
  std::string name;
  std::vector<int> lanes;
  auto operator<=>(const GroupKey&) const = default;
};

struct GroupHistory {
  std::map<int, int64_t> next;                             // by lane
  std::map<int64_t, std::map<int, const Record*>> events;  // by sequence number, then by lane
};

using History = std::map<GroupKey, GroupHistory>;

void check_same_job(const std::vector<FlightDump>& dumps) {
  if (dumps.empty()) throw_error("blame: no flight records");
  const FlightDump& first = dumps[0];
  std::set<int> processes;
  for (const FlightDump& dump : dumps) {
    if (dump.job != first.job) {
      const FlightDump& newest =
          *std::max_element(dumps.begin(), dumps.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
      throw_error(
          "blame: flight records of different jobs, {} and {}; give those of one job, such as the newest: "
          "lockstep_flight_{}_*.json",
          first.job, dump.job, newest.job);
    }
    if (dump.processes != first.processes || dump.lanes != first.lanes)
      throw_error("blame: processes {} and {} disagree on the size of job {}; one of the flight records was modified",
                  first.process, dump.process, dump.job);
    if (!processes.insert(dump.process).second)
      throw_error("blame: two flight records of process {}; omit the older one", dump.process);
  }
}

History history_of(const std::vector<FlightDump>& dumps) {
  History out;
  for (const FlightDump& dump : dumps) {
    for (const FlightDump::Group& group : dump.groups) out[{group.name, group.lanes}].next[group.lane] = group.next;
    for (const Record& record : dump.records) {
      const FlightDump::Group& group = dump.groups[static_cast<size_t>(record.group)];
      out[{group.name, group.lanes}].events[record.sequence][group.lane] = &record;
    }
  }
  return out;
}

// Whether no lane can finish the collective before all lanes have started it.
bool waits_for_all(const std::string& operation) {
  return operation != name(Operation::Kind::broadcast) && operation != name(Operation::Kind::permute);
}

int64_t median(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Offset {
  int64_t value = 0;
  std::optional<int64_t> uncertainty = 0;
};

// The offset between two clocks: the median difference of the end times of common collectives, clamped to the range in
// which no lane ends a collective before another one has begun it.
class Alignment {
 public:
  void add(const std::vector<const Record*>& reference, const std::vector<const Record*>& other) {
    int64_t reference_end = INT64_MAX, other_end = INT64_MAX;
    for (const Record* a : reference) {
      reference_end = std::min(reference_end, a->ended);
      for (const Record* b : other) {
        low_ = std::max(low_, minus(a->began, b->ended));
        high_ = std::min(high_, minus(a->ended, b->began));
      }
    }
    for (const Record* b : other) other_end = std::min(other_end, b->ended);
    differences_.push_back(minus(reference_end, other_end));
  }

  Offset offset() const {
    if (differences_.empty()) return {0, std::nullopt};
    int64_t value = median(differences_);
    std::vector<int64_t> deviations;
    for (const int64_t difference : differences_) deviations.push_back(std::abs(minus(difference, value)));
    if (low_ <= high_) value = std::clamp(value, low_, high_);
    return {value, median(deviations)};
  }

 private:
  std::vector<int64_t> differences_;
  int64_t low_ = INT64_MIN, high_ = INT64_MAX;
};

// The clock offset of each process, relative to the first process.
std::map<int, Offset> align(const std::vector<FlightDump>& dumps, const History& history) {
  std::map<int, const FlightDump*> by_process;
  for (const FlightDump& dump : dumps) by_process[dump.process] = &dump;
  const std::string& reference = by_process.begin()->second->clock;
  std::map<std::string, Alignment> alignments;
  for (const auto& [key, group] : history)
    for (const auto& [sequence, lanes] : group.events) {
      std::map<std::string, std::vector<const Record*>> by_clock;
      for (const auto& [lane, record] : lanes)
        if (record->outcome == RecordOutcome::done && waits_for_all(record->operation))
          by_clock[by_process.at(lane / dumps[0].lanes)->clock].push_back(record);
      if (!by_clock.contains(reference)) continue;
      for (const auto& [clock, records] : by_clock)
        if (clock != reference) alignments[clock].add(by_clock[reference], records);
    }
  std::map<int, Offset> out;
  for (const auto& [process, dump] : by_process)
    out[process] = dump->clock == reference ? Offset{} : alignments[dump->clock].offset();
  return out;
}

BlameReport::Collective op_of(const GroupKey& group, const Record& record) {
  return {group.name, group.lanes, record.sequence, record.operation, record.dtype, record.bytes, record.step};
}

bool is_waiting(const Record& record) { return record.waited != 0 && record.outcome != RecordOutcome::done; }

// The time from the start of the wait to the dump, or to the failure that ended it.
int64_t waited_for(const Record& record, const FlightDump& dump) {
  return minus(record.ended != 0 ? record.ended : dump.time, record.waited);
}

std::vector<BlameReport::LaneState> lane_states(const FlightDump& dump) {
  std::map<int, const Record*> last;
  for (const Record& record : dump.records) {
    const Record*& known = last[dump.groups[static_cast<size_t>(record.group)].lane];
    // A collective in which the lane waits is more informative than later ones that it began without waiting.
    if (!known || !is_waiting(*known) || is_waiting(record)) known = &record;
  }
  std::vector<BlameReport::LaneState> out;
  for (const auto& [lane, record] : last) {
    const FlightDump::Group& group = dump.groups[static_cast<size_t>(record->group)];
    const bool waiting = is_waiting(*record);
    const int64_t since = record->ended != 0 ? record->ended : record->began;
    out.push_back({lane, op_of({group.name, group.lanes}, *record), record->outcome, waiting,
                   waiting ? waited_for(*record, dump) : minus(dump.time, since)});
  }
  return out;
}

// The first collective of a group in which some lanes wait and others are missing.
std::optional<BlameReport::StuckCollective> find_stuck(const GroupKey& key, const GroupHistory& group,
                                                       const std::map<int, const FlightDump*>& dumps,
                                                       const std::map<int, Offset>& offsets, int lanes_each) {
  for (const auto& [sequence, lanes] : group.events) {
    BlameReport::StuckCollective stuck;
    const Record* any = nullptr;
    int64_t since = INT64_MAX;
    for (const auto& [lane, record] : lanes)
      if (is_waiting(*record)) {
        any = record;
        since = std::min(since, plus(record->waited, offsets.at(lane / lanes_each).value));
        stuck.waiting.push_back({lane, waited_for(*record, *dumps.at(lane / lanes_each))});
      }
    if (!any) continue;
    for (const int lane : key.lanes) {
      const auto dump = dumps.find(lane / lanes_each);
      const auto next = group.next.find(lane);
      if (dump == dumps.end())
        stuck.unknown.push_back(lane);
      else if (next != group.next.end() && next->second > sequence)
        continue;
      // Dumps on request are not simultaneous: a process that dumped before the others began to wait is not missing.
      else if (dump->second->reason != kDumpRequested ||
               plus(dump->second->time, offsets.at(dump->first).value) >= since)
        stuck.missing.push_back(lane);
    }
    if (stuck.missing.empty() && stuck.unknown.empty()) continue;
    stuck.op = op_of(key, *any);
    return stuck;
  }
  return std::nullopt;
}

// The processes that are missing somewhere and wait nowhere. Processes without a dump are suspected only if there is no
// other culprit.
std::vector<int> culprits_of(const BlameReport& found) {
  std::set<int> waiting, missing, unknown, out;
  for (const BlameReport::StuckCollective& stuck : found.stuck) {
    for (const auto& waiter : stuck.waiting) waiting.insert(waiter.lane);
    missing.insert(stuck.missing.begin(), stuck.missing.end());
    unknown.insert(stuck.unknown.begin(), stuck.unknown.end());
  }
  for (const int lane : missing)
    if (!waiting.contains(lane)) out.insert(found.process_of(lane));
  if (out.empty())
    for (const int lane : unknown) out.insert(found.process_of(lane));
  return {out.begin(), out.end()};
}

// The last lane to start a collective, and the longest wait for it; nullopt if no lane waited.
std::optional<BlameReport::Wait> wait_in(const GroupKey& key, const std::map<int, const Record*>& lanes,
                                         const std::map<int, Offset>& offsets, int lanes_each) {
  const auto moved = [&](int lane, int64_t time) { return plus(time, offsets.at(lane / lanes_each).value); };
  const auto last = std::max_element(lanes.begin(), lanes.end(), [&](const auto& a, const auto& b) {
    return moved(a.first, a.second->began) < moved(b.first, b.second->began);
  });
  const int64_t came = moved(last->first, last->second->began);
  int64_t longest = 0;
  for (const auto& [lane, record] : lanes)
    // A lane that finished before the last one started has not waited for it.
    if (record->waited != 0 && (record->ended == 0 || moved(lane, record->ended) >= came))
      longest = std::max(longest, minus(came, moved(lane, record->waited)));
  if (longest == 0) return std::nullopt;
  return BlameReport::Wait{op_of(key, *last->second), last->first, longest};
}

void measure_lateness(const History& history, const std::map<int, const FlightDump*>& dumps,
                      const std::map<int, Offset>& offsets, BlameReport& out) {
  for (const auto& [process, dump] : dumps) out.late[process] = {};
  for (const auto& [key, group] : history) {
    const auto present =
        std::count_if(key.lanes.begin(), key.lanes.end(), [&](int lane) { return dumps.contains(lane / out.lanes); });
    for (const auto& [sequence, lanes] : group.events) {
      if (present < 2 || static_cast<std::ptrdiff_t>(lanes.size()) != present) continue;
      ++out.compared;
      const auto wait = wait_in(key, lanes, offsets, out.lanes);
      if (!wait) continue;
      BlameReport::Lateness& late = out.late[out.process_of(wait->last)];
      ++late.times;
      late.total = plus(late.total, wait->nanoseconds);
      late.longest = std::max(late.longest, wait->nanoseconds);
      out.worst.push_back(*wait);
    }
  }
  std::stable_sort(out.worst.begin(), out.worst.end(),
                   [](const auto& a, const auto& b) { return a.nanoseconds > b.nanoseconds; });
  if (out.worst.size() > kWorst) out.worst.resize(kWorst);
}

}  // namespace

BlameReport blame(const std::vector<FlightDump>& dumps) {
  check_same_job(dumps);
  const History history = history_of(dumps);
  const std::map<int, Offset> offsets = align(dumps, history);
  std::map<int, const FlightDump*> by_process;
  for (const FlightDump& dump : dumps) by_process[dump.process] = &dump;

  BlameReport out;
  out.job = dumps[0].job;
  out.lanes = dumps[0].lanes;
  out.processes.resize(static_cast<size_t>(dumps[0].processes));
  for (const auto& [process, dump] : by_process)
    out.processes[static_cast<size_t>(process)] = {.dumped = true,
                                                   .host = dump->host,
                                                   .reason = dump->reason,
                                                   .pid = dump->pid,
                                                   .time = dump->time,
                                                   .step = dump->step,
                                                   .offset = offsets.at(process).value,
                                                   .uncertainty = offsets.at(process).uncertainty,
                                                   .lanes = lane_states(*dump)};
  for (const auto& [key, group] : history)
    if (auto stuck = find_stuck(key, group, by_process, offsets, out.lanes)) out.stuck.push_back(std::move(*stuck));
  out.culprits = culprits_of(out);
  measure_lateness(history, by_process, offsets, out);
  return out;
}

}  // namespace lockstep
