#include "cluster/blame.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cluster/flight_dumper.h"
#include "command/help.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using RecordOutcome = FlightRecord::Outcome;

struct BlameArguments {
  std::vector<std::string> paths;
  bool json = false;
};

// The files and folders to read, and whether the user gave them.
struct DumpPaths {
  std::vector<std::string> paths;
  bool named = true;
};

// Returns the dumps of the job that wrote last. Other dumps in the folder come from earlier starts.
std::vector<std::string> dumps_of_last_job(const std::string& folder, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> jobs;
  std::string last;
  std::filesystem::file_time_type newest;
  for (const std::string& name : names) {
    if (!is_flight_file_name(name)) continue;
    const std::string path = folder + "/" + name, job = name.substr(0, name.rfind('_'));
    jobs[job].push_back(path);
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path, error);
    if (error || (!last.empty() && time <= newest)) continue;
    last = job;
    newest = time;
  }
  return last.empty() ? std::vector<std::string>{} : jobs[last];
}

// Returns the dumps of the last job in a folder or, if it has none, in its subfolder "flight", to which a run with
// checkpoints or logs writes them.
std::vector<std::string> dumps_in(FileSystem& files, const std::string& folder) {
  const std::vector<std::string> here = dumps_of_last_job(folder, files.list(folder));
  const std::string flight = folder + (folder.ends_with('/') ? "flight" : "/flight");
  if (!here.empty() || !std::filesystem::is_directory(flight)) return here;
  return dumps_of_last_job(flight, files.list(flight));
}

FlightDump dump_of(const std::string& path, const std::vector<uint8_t>& bytes) {
  return flight_dump_from(std::string(bytes.begin(), bytes.end()), path);
}

std::vector<FlightDump> read(const DumpPaths& from) {
  FileSystem& files = FileSystem::real();
  std::vector<std::string> found;
  std::vector<FlightDump> out;
  for (const std::string& path : from.paths) {
    if (!std::filesystem::is_directory(path)) {
      out.push_back(flight_dump_from(read_user_file(path, kMaxFlightBytes), path));
      continue;
    }
    const std::vector<std::string> last = dumps_in(files, path);
    found.insert(found.end(), last.begin(), last.end());
    if (last.empty())
      throw_error(
          "blame: neither {} nor its subfolder flight contains lockstep_flight_*.json; processes write such files when "
          "the job fails or on SIGUSR2, and print where",
          path);
  }
  for (const std::string& path : found) {
    if (!from.named && !is_own_path(path))
      throw_error("blame: {} belongs to another user; if you trust it, give its folder: lockstep blame {}", path,
                  parent_dir(path));
    out.push_back(dump_of(path, files.read_file(path, kMaxFlightBytes)));
  }
  return out;
}

std::string duration(int64_t nanoseconds) {
  const auto number = static_cast<double>(nanoseconds);
  if (nanoseconds < 1'000'000) return fmt::format("{:.0f} us", number / 1e3);
  if (nanoseconds < 1'000'000'000) return fmt::format("{:.1f} ms", number / 1e6);
  return fmt::format("{:.2f} s", number / 1e9);
}

std::string size_text(int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000 * 1000) return fmt::format("{:.1f} kB", number / 1e3);
  return fmt::format("{:.1f} MB", number / 1e6);
}

std::string clock_text(int64_t time) {
  const int64_t seconds = time / 1'000'000'000;
  return fmt::format("{:%H:%M:%S}.{:03}", fmt::gmtime(static_cast<std::time_t>(seconds)), time / 1'000'000 % 1000);
}

// `all_reduce #41 of "world" (f32, 4.0 kB)`.
std::string op_text(const BlameReport::Collective& op) {
  std::string out = fmt::format("{} #{} of \"{}\"", printable(op.operation), op.sequence, printable(op.group));
  if (op.bytes > 0) out += fmt::format(" ({}, {})", printable(op.dtype), size_text(op.bytes));
  return out;
}

// `process 2`, `process 2 (lane 5)` where processes have several.
std::string lane_text(const BlameReport& found, int lane) {
  const std::string process = fmt::format("process {}", found.process_of(lane));
  return found.lanes == 1 ? process : fmt::format("{} (lane {})", process, lane);
}

template <class Range, class Function>
std::string listed(const Range& range, const Function& text) {
  std::string out;
  for (const auto& each : range) out += fmt::format("{}{}", out.empty() ? "" : ", ", text(each));
  return out;
}

std::string lane_state_text(const BlameReport::LaneState& seen) {
  const std::string op = fmt::format("{}, step {}", op_text(seen.op), seen.op.step);
  if (seen.waiting)
    return fmt::format("{} in {}{} {}", seen.outcome == RecordOutcome::failed ? "failed" : "waiting", op,
                       seen.outcome == RecordOutcome::failed ? ", after" : ", for", duration(seen.nanoseconds));
  const char* what = seen.outcome == RecordOutcome::done     ? "completed"
                     : seen.outcome == RecordOutcome::failed ? "failed in"
                                                             : "started, without waiting for,";
  return fmt::format("{} {}, {} earlier", what, op, duration(seen.nanoseconds));
}

void print_processes(const BlameReport& found) {
  int64_t dumped = 0;
  for (const BlameReport::Process& process : found.processes) dumped += process.dumped;
  fmt::print("job {}: {} {}, {}\n", printable(found.job), found.processes.size(),
             found.processes.size() == 1 ? "process" : "processes", counted(dumped, "dump"));
  for (size_t p = 0; p < found.processes.size(); ++p) {
    const BlameReport::Process& process = found.processes[p];
    if (!process.dumped) {
      fmt::print("  process {}  has no dump: it was killed or stopped, or wrote the dump elsewhere\n", p);
      continue;
    }
    fmt::print("  process {}  on {}, pid {}, at {}, step {}: {}\n", p, printable(process.host), process.pid,
               clock_text(process.time), process.step, printable(process.reason, 4000));
    if (!process.uncertainty)
      fmt::print("             its clock cannot be compared with those of other processes\n");
    else if (process.offset != 0)
      fmt::print("             its clock is {} {}, +- {}\n", duration(std::abs(process.offset)),
                 process.offset > 0 ? "behind" : "ahead", duration(*process.uncertainty));
    for (const BlameReport::LaneState& seen : process.lanes)
      fmt::print("             {}{}\n", found.lanes == 1 ? "" : fmt::format("lane {}: ", seen.lane),
                 lane_state_text(seen));
    if (process.lanes.empty()) fmt::print("             no collective yet\n");
  }
}

void print_stuck(const BlameReport& found) {
  const auto lane = [&](int each) { return lane_text(found, each); };
  fmt::print("\nmissing processes\n");
  if (found.stuck.empty()) fmt::print("  none: no collective waits for a process that has not started it\n");
  for (const BlameReport::StuckCollective& stuck : found.stuck) {
    fmt::print("  {}, step {}\n", op_text(stuck.op), stuck.op.step);
    fmt::print("    waiting  {}\n", listed(stuck.waiting, [&](const BlameReport::StuckCollective::Waiter& waiter) {
                 return fmt::format("{} for {}", lane(waiter.lane), duration(waiter.nanoseconds));
               }));
    if (!stuck.missing.empty()) fmt::print("    missing  {}\n", listed(stuck.missing, lane));
    if (!stuck.unknown.empty()) fmt::print("    unknown  {}: no dump\n", listed(stuck.unknown, lane));
  }
  if (!found.culprits.empty())
    fmt::print("  => {}\n", listed(found.culprits, [](int process) { return fmt::format("process {}", process); }));
  else if (!found.stuck.empty())
    fmt::print("  => deadlock: processes start collectives of different groups in different orders\n");
}

void print_late(const BlameReport& found) {
  fmt::print("\nlate processes, in {} that all processes started\n", counted(found.compared, "collective"));
  if (found.compared == 0) return;
  fmt::print("  {:<11}  {:>6}  {:>10}  {:>10}  {:>10}\n", "", "last", "total", "mean", "longest");
  for (const auto& [process, late] : found.late)
    fmt::print("  {:<11}  {:>6}  {:>10}  {:>10}  {:>10}\n", fmt::format("process {}", process), late.times,
               duration(late.total), late.times == 0 ? "-" : duration(late.total / late.times), duration(late.longest));
  if (found.late.size() < found.processes.size())
    fmt::print("  only processes with dumps are compared; others may have been later\n");
  if (found.worst.empty()) return;
  fmt::print("\nlongest waits\n");
  for (const BlameReport::Wait& wait : found.worst)
    fmt::print("  {:>10}  for {} in {}, step {}\n", duration(wait.nanoseconds), lane_text(found, wait.last),
               op_text(wait.op), wait.op.step);
}

ordered_json json_of(const BlameReport::Collective& op) {
  return {{"group", op.group}, {"lanes", op.lanes}, {"sequence", op.sequence}, {"operation", op.operation},
          {"dtype", op.dtype}, {"bytes", op.bytes}, {"step", op.step}};
}

ordered_json json_of(const BlameReport::Process& process) {
  if (!process.dumped) return {{"dumped", false}};
  ordered_json lanes = ordered_json::array();
  for (const BlameReport::LaneState& seen : process.lanes)
    lanes.push_back(
        {{"lane", seen.lane}, {"operation", json_of(seen.op)}, {"waiting", seen.waiting}, {"ns", seen.nanoseconds}});
  ordered_json out = {{"dumped", true},
                      {"host", process.host},
                      {"pid", process.pid},
                      {"time_ns", process.time},
                      {"step", process.step},
                      {"reason", process.reason},
                      {"clock_offset_ns", nullptr},
                      {"clock_uncertainty_ns", nullptr},
                      {"last_seen", lanes}};
  if (process.uncertainty) {
    out["clock_offset_ns"] = process.offset;
    out["clock_uncertainty_ns"] = *process.uncertainty;
  }
  return out;
}

void print_json(const BlameReport& found) {
  ordered_json processes = ordered_json::array(), stuck = ordered_json::array(), late = ordered_json::array(),
               worst = ordered_json::array();
  for (const BlameReport::Process& process : found.processes) processes.push_back(json_of(process));
  for (const BlameReport::StuckCollective& each : found.stuck) {
    ordered_json waiting = ordered_json::array();
    for (const auto& waiter : each.waiting) waiting.push_back({{"lane", waiter.lane}, {"ns", waiter.nanoseconds}});
    stuck.push_back({{"operation", json_of(each.op)},
                     {"waiting", waiting},
                     {"missing_lanes", each.missing},
                     {"unknown_lanes", each.unknown}});
  }
  for (const auto& [process, each] : found.late)
    late.push_back(
        {{"process", process}, {"times", each.times}, {"total_ns", each.total}, {"longest_ns", each.longest}});
  for (const BlameReport::Wait& wait : found.worst)
    worst.push_back({{"operation", json_of(wait.op)},
                     {"lane", wait.last},
                     {"process", found.process_of(wait.last)},
                     {"ns", wait.nanoseconds}});
  const ordered_json out = {
      {"job", found.job},          {"lanes_per_process", found.lanes}, {"processes", processes}, {"stuck", stuck},
      {"missing", found.culprits}, {"compared", found.compared},       {"late", late},           {"worst", worst}};
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

// Returns the paths of the command line, else $LOCKSTEP_FLIGHT_DIR, else the newest folder of dumps on this host.
DumpPaths paths_of(const BlameArguments& arguments) {
  if (!arguments.paths.empty()) return {.paths = arguments.paths};
  if (const std::optional<std::string> variable = environment_variable("LOCKSTEP_FLIGHT_DIR")) {
    print_stderr("lockstep: reading dumps from {}\n", *variable);
    return {.paths = {*variable}};
  }
  std::string others;
  const std::string folder = latest_flight_folder(&others);
  if (folder.empty() && !others.empty())
    throw_error("blame: {} belongs to another user; if you trust it, run `lockstep blame {}`", others, others);
  if (folder.empty())
    throw_error(
        "blame: no dumps found among the temporary files of this host; give the folder that the processes printed, "
        "such as RUN/flight for a run with checkpoints or logs");
  print_stderr("lockstep: reading dumps from {}\n", folder);
  return {.paths = {folder}, .named = false};
}

int run(const BlameArguments& arguments) {
  const BlameReport found = blame(read(paths_of(arguments)));
  if (arguments.json) {
    print_json(found);
    return kDone;
  }
  print_processes(found);
  print_stuck(found);
  print_late(found);
  return kDone;
}

}  // namespace

void add_blame_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("blame", "find the slow or missing process from flight-recorder dumps");
  auto arguments = std::make_shared<BlameArguments>();
  command
      ->add_option("DUMPS", arguments->paths,
                   "lockstep_flight_*.json of one job, folders of them, or run folders (default: $LOCKSTEP_FLIGHT_DIR, "
                   "else the newest dumps among the temporary files)")
      ->type_name("FILE|DIR");
  command->add_flag("--json", arguments->json, "print JSON");
  add_examples(*command, {"lockstep blame run", "lockstep blame lockstep_flight_3f9a0c21_*.json"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
