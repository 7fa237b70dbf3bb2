#include "cluster/flight.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using RecordOutcome = FlightRecord::Outcome;

constexpr const char* kFormat = "lockstep flight 1";
constexpr int kMostProcesses = 1 << 16, kMostLanes = 1 << 20;  // of a job; of a process
constexpr std::array<const char*, 3> kOutcomes = {"under way", "done", "failed"};

template <class Clock>
int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::string own_host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
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
  if (at == kOutcomes.end()) throw std::runtime_error(fmt::format("an outcome is \"{}\"", text));
  return static_cast<RecordOutcome>(at - kOutcomes.begin());
}

// A whole number that fits T: the library itself would round floats and drop bits of large numbers.
template <class T>
T whole_from(const ordered_json& value, const char* name) {
  const bool fits = value.is_number_integer() && (value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                                                                             : std::in_range<T>(value.get<int64_t>()));
  if (!fits) throw std::runtime_error(fmt::format("{} is no whole number of {} bits", name, 8 * sizeof(T)));
  return static_cast<T>(value.get<int64_t>());
}
template <class T = int64_t>
T whole(const ordered_json& object, const char* name) {
  return whole_from<T>(object.at(name), name);
}

// Numbers that index something are in range, so that nobody needs to look again.
void check_ranges(const FlightDump& dump) {
  const auto require = [](bool is_so, const char* what) {
    if (!is_so) throw std::runtime_error(what);
  };
  require(dump.processes <= kMostProcesses && dump.lanes <= kMostLanes, "no job has as many processes or lanes");
  require(dump.processes >= 1 && dump.process >= 0 && dump.process < dump.processes && dump.lanes >= 1,
          "its process or number of lanes makes no sense");
  const int64_t lanes = int64_t{dump.processes} * dump.lanes;
  for (const FlightDump::Group& group : dump.groups) {
    require(group.lane / dump.lanes == dump.process, "a group has a lane of another process");
    for (const int lane : group.lanes) require(lane >= 0 && lane < lanes, "a group has a lane that the job has not");
    require(std::find(group.lanes.begin(), group.lanes.end(), group.lane) != group.lanes.end(),
            "a lane is in a group that does not have it");
  }
  for (const FlightDump::Record& record : dump.records)
    require(record.group >= 0 && record.group < static_cast<int>(dump.groups.size()), "a record has an unknown group");
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
    // In this order: a group is there before its records are.
    const std::vector<FlightRecord> records = lane->records();
    for (const FlightGroup* group : lane->groups())
      out.groups.push_back({group->name(), group->lanes(), lane->lane(), group->next()});
    for (const FlightRecord& r : records)
      out.records.push_back({first + r.group, r.sequence, std::string(name(r.kind)), std::string(name(r.dtype)),
                             r.elements, r.bytes, r.step, r.began, r.waited, r.ended, r.outcome});
  }
  // The steady clock as the wall clock shows it now: steps of the latter meanwhile move all times alike.
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
  // A line per group and record, for people who look inside.
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
    const ordered_json json = ordered_json::parse(text);
    if (const std::string format = json.at("format"); format != kFormat)
      throw std::runtime_error(fmt::format("its format is \"{}\", and this program reads \"{}\"", format, kFormat));
    FlightDump out{.job = json.at("job"),
                   .process = whole<int>(json, "process"),
                   .processes = whole<int>(json, "processes"),
                   .lanes = whole<int>(json, "lanes"),
                   .host = json.at("host"),
                   .clock = json.at("clock"),
                   .pid = whole(json, "pid"),
                   .time = whole(json, "time_ns"),
                   .reason = json.at("reason"),
                   .step = whole(json, "step"),
                   .groups = {},
                   .records = {}};
    for (const ordered_json& group : json.at("groups")) {
      std::vector<int> lanes;
      for (const ordered_json& lane : group.at("lanes")) lanes.push_back(whole_from<int>(lane, "lanes"));
      out.groups.push_back({group.at("name"), std::move(lanes), whole<int>(group, "lane"), whole(group, "next")});
    }
    for (const ordered_json& record : json.at("records"))
      out.records.push_back({whole<int>(record, "group"), whole(record, "sequence"), record.at("operation"),
                             record.at("dtype"), whole(record, "elements"), whole(record, "bytes"),
                             whole(record, "step"), whole(record, "began_ns"), whole(record, "waited_ns"),
                             whole(record, "ended_ns"), outcome_from(record.at("outcome"))});
    check_ranges(out);
    return out;
  } catch (const std::exception& error) {
    throw_error("blame: {} is no whole dump of a flight recorder: {}; leave it out", path, error.what());
  }
}

std::string flight_file_name(const FlightDump& dump) {
  return fmt::format("lockstep_flight_{}_{}.json", dump.job, dump.process);
}

bool is_flight_file_name(const std::string& name) {
  return name.starts_with("lockstep_flight_") && name.ends_with(".json");
}

}  // namespace lockstep
