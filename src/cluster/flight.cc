#include "cluster/flight.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <limits>

#include "base/check.h"
#include "base/json.h"
#include "base/os/host_name.h"
#include "base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using RecordOutcome = FlightRecord::Outcome;

constexpr const char* kFormat = "lockstep flight 1";
constexpr std::array<const char*, 3> kOutcomes = {"under way", "done", "failed"};

template <class Clock>
int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::string boot() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

ordered_json json_of(const FlightDump::Record& record) {
  return {{"group", record.group},
          {"sequence", record.sequence},
          {"operation", record.operation},
          {"dtype", record.dtype},
          {"elements", record.elements},
          {"bytes", record.bytes},
          {"step", record.step},
          {"began_ns", record.began},
          {"waited_ns", record.waited},
          {"ended_ns", record.ended},
          {"outcome", kOutcomes[static_cast<size_t>(record.outcome)]}};
}

RecordOutcome outcome_from(const std::string& text) {
  const auto at = std::find(kOutcomes.begin(), kOutcomes.end(), text);
  if (at == kOutcomes.end()) throw_error("unknown outcome \"{}\"", printable(text));
  return static_cast<RecordOutcome>(at - kOutcomes.begin());
}

// Times of records must be this close to the time of the dump, so that their sums and differences fit 64 bits.
constexpr int64_t kMaxNanoseconds = int64_t{1} << 58;  // 9 years
constexpr int kMaxProcesses = 1 << 20, kMaxLanes = 1 << 12;

int64_t count_from(const ordered_json& object, const char* key) {
  return integer_in(object.at(key), key, 0, std::numeric_limits<int64_t>::max());
}

int small_count_from(const ordered_json& object, const char* key, int low, int high) {
  return static_cast<int>(integer_in(object.at(key), key, low, high));
}

// 0 (not yet), or a time close to that of the dump.
int64_t time_from(const ordered_json& record, const char* key, int64_t dumped) {
  const ordered_json& value = record.at(key);
  if (value == 0) return 0;
  return integer_in(value, key, std::max(int64_t{1}, dumped - kMaxNanoseconds), dumped + kMaxNanoseconds);
}

FlightDump::Group group_from(const ordered_json& json) {
  FlightDump::Group out{.name = json.at("name"),
                        .lanes = {},
                        .lane = small_count_from(json, "lane", 0, std::numeric_limits<int>::max()),
                        .next = count_from(json, "next")};
  for (const ordered_json& lane : json.at("lanes"))
    out.lanes.push_back(static_cast<int>(integer_in(lane, "a lane", 0, std::numeric_limits<int>::max())));
  return out;
}

FlightDump::Record record_from(const ordered_json& json, int64_t dumped) {
  return {small_count_from(json, "group", 0, std::numeric_limits<int>::max()),
          count_from(json, "sequence"),
          json.at("operation"),
          json.at("dtype"),
          count_from(json, "elements"),
          count_from(json, "bytes"),
          integer_in(json.at("step"), "step"),
          time_from(json, "began_ns", dumped),
          time_from(json, "waited_ns", dumped),
          time_from(json, "ended_ns", dumped),
          outcome_from(json.at("outcome"))};
}

// Checks that all indices are in range.
void check_ranges(const FlightDump& dump) {
  const auto require = [](bool is_so, const char* what) {
    if (!is_so) throw Error(what);
  };
  require(dump.process < dump.processes, "its process number is not below the number of processes");
  const int64_t lanes = int64_t{dump.processes} * dump.lanes;
  for (const FlightDump::Group& group : dump.groups) {
    require(group.lane / dump.lanes == dump.process, "a group belongs to a lane of another process");
    for (const int lane : group.lanes)
      require(lane >= 0 && lane < lanes, "a group contains a lane that the job does not have");
    require(std::find(group.lanes.begin(), group.lanes.end(), group.lane) != group.lanes.end(),
            "a group does not contain its own lane");
  }
  for (const FlightDump::Record& record : dump.records)
    require(record.group >= 0 && record.group < static_cast<int>(dump.groups.size()),
            "a record refers to an unknown group");
}

}  // namespace

FlightDump take_dump(const FlightRecorder& recorder, const FlightOrigin& origin, const std::string& reason) {
  FlightDump out{.job = origin.job,
                 .process = origin.process,
                 .processes = origin.processes,
                 .lanes = static_cast<int>(recorder.lanes().size()),
                 .host = own_host_name(),
                 .clock = boot(),
                 .pid = ::getpid(),
                 .time = 0,
                 .reason = reason,
                 .step = recorder.step(),
                 .groups = {},
                 .records = {}};
  for (const auto& lane : recorder.lanes()) {
    const int first = static_cast<int>(out.groups.size());
    // Records first: a group exists before its records do.
    const std::vector<FlightRecord> records = lane->records();
    for (const FlightGroup* group : lane->groups())
      out.groups.push_back({group->name(), group->lanes(), lane->lane(), group->next()});
    for (const FlightRecord& r : records)
      out.records.push_back({first + r.group, r.sequence, std::string(name(r.kind)), std::string(name(r.dtype)),
                             r.elements, r.bytes, r.step, r.began, r.waited, r.ended, r.outcome});
  }
  // Converts steady-clock times to wall-clock times with one offset, so that clock adjustments shift all times equally.
  const int64_t before = nanoseconds_of<std::chrono::steady_clock>();
  out.time = nanoseconds_of<std::chrono::system_clock>();
  const int64_t ahead = out.time - (before + (nanoseconds_of<std::chrono::steady_clock>() - before) / 2);
  for (FlightDump::Record& record : out.records)
    for (int64_t* time : {&record.began, &record.waited, &record.ended})
      if (*time != 0) *time += ahead;
  return out;
}

std::string to_json(const FlightDump& dump) {
  const ordered_json head = {{"format", kFormat},           {"job", dump.job},     {"process", dump.process},
                             {"processes", dump.processes}, {"lanes", dump.lanes}, {"host", dump.host},
                             {"clock", dump.clock},         {"pid", dump.pid},     {"time_ns", dump.time},
                             {"reason", dump.reason},       {"step", dump.step}};
  const auto text = [](const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  // One line per group and record, for readability.
  std::string out = text(head);
  out.pop_back();
  out += ",\n\"groups\":[";
  for (const FlightDump::Group& group : dump.groups)
    out +=
        fmt::format("{}\n{}", &group == dump.groups.data() ? "" : ",",
                    text({{"name", group.name}, {"lanes", group.lanes}, {"lane", group.lane}, {"next", group.next}}));
  out += "],\n\"records\":[";
  for (const FlightDump::Record& record : dump.records)
    out += fmt::format("{}\n{}", &record == dump.records.data() ? "" : ",", text(json_of(record)));
  return out + "]}\n";
}

FlightDump flight_dump_from(const std::string& text, const std::string& path) {
  try {
    const auto json = parse_json<ordered_json>(text, "its text", {.bytes = kMaxFlightBytes, .values = 5'000'000});
    if (const std::string format = json.at("format"); format != kFormat)
      throw_error("its format is \"{}\", but this version reads \"{}\"", printable(format), kFormat);
    FlightDump out{.job = json.at("job"),
                   .process = small_count_from(json, "process", 0, kMaxProcesses),
                   .processes = small_count_from(json, "processes", 1, kMaxProcesses),
                   .lanes = small_count_from(json, "lanes", 1, kMaxLanes),
                   .host = json.at("host"),
                   .clock = json.at("clock"),
                   .pid = count_from(json, "pid"),
                   .time = integer_in(json.at("time_ns"), "time_ns", 0, std::numeric_limits<int64_t>::max() / 2),
                   .reason = json.at("reason"),
                   .step = integer_in(json.at("step"), "step"),
                   .groups = {},
                   .records = {}};
    for (const ordered_json& group : json.at("groups")) out.groups.push_back(group_from(group));
    for (const ordered_json& record : json.at("records")) out.records.push_back(record_from(record, out.time));
    check_ranges(out);
    return out;
  } catch (const JsonSyntaxError& error) {
    throw_error("blame: {} is not a flight record: line {} is not JSON; give files named lockstep_flight_*.json", path,
                error.line);
  } catch (const ordered_json::exception& error) {
    throw_error("blame: {} is not a flight record: {}; omit it", path, json_error_text(error));
  } catch (const Error& error) {
    throw_error("blame: {} is not a flight record: {}; omit it", path, error.what());
  }
}

std::string flight_file_name(const FlightDump& dump) {
  return fmt::format("lockstep_flight_{}_{}.json", dump.job, dump.process);
}

bool is_flight_file_name(const std::string& name) {
  return name.starts_with("lockstep_flight_") && name.ends_with(".json");
}

}  // namespace lockstep
