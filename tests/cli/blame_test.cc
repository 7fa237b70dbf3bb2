// `lockstep blame` on dumps that the test writes, and on dumps of processes that were stopped.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/training.h"
#include "cluster/flight.h"
#include "support/listener.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Outcome = FlightRecord::Outcome;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kNoon = 1'800'014'400LL * 1000 * kMs;  // noon UTC

// Dumps of three processes on two hosts. The clock of the second host is 5 s ahead.
class RecordedJob {
 public:
  explicit RecordedJob(int processes, int lanes = 1) {
    for (int p = 0; p < processes; ++p) {
      dumps_.push_back({.job = "3f9a0c21",
                        .process = p,
                        .processes = processes,
                        .lanes = lanes,
                        .host = p < 2 ? "n001" : "n002",
                        .clock = p < 2 ? "boot 1" : "boot 2",
                        .pid = 100 + p,
                        .time = at(p, 60'000),
                        .reason = "SIGUSR2",
                        .step = 0,
                        .groups = {},
                        .records = {}});
    }
  }

  FlightDump& dump(int process) { return dumps_[static_cast<size_t>(process)]; }

  // Adds a lane's record of the next collective of a group. ended: 0 if the lane still waits.
  void add(int lane, const std::string& group, const std::vector<int>& lanes, const std::string& operation,
           int64_t began_ms, int64_t ended_ms) {
    const int process = lane / dumps_[0].lanes;
    FlightDump& to = dump(process);
    size_t g = 0;
    while (g < to.groups.size() && (to.groups[g].name != group || to.groups[g].lane != lane)) ++g;
    if (g == to.groups.size()) to.groups.push_back({group, lanes, lane, 0});
    const int64_t began = at(process, began_ms);
    to.records.push_back({static_cast<int>(g), to.groups[g].next++, operation, "f32", operation == "barrier" ? 0 : 1000,
                          operation == "barrier" ? 0 : 4000, to.step, began, began,
                          ended_ms == 0 ? 0 : at(process, ended_ms),
                          ended_ms == 0 ? Outcome::in_flight : Outcome::done});
  }

  // Writes the dumps of these processes and returns their paths.
  std::vector<std::string> write(const std::string& folder, const std::vector<int>& processes) {
    std::vector<std::string> out;
    for (const int p : processes) {
      const std::string text = to_json(dump(p));
      out.push_back(folder + "/" + flight_file_name(dump(p)));
      FileSystem::real().write(out.back(), std::vector<uint8_t>(text.begin(), text.end()));
    }
    return out;
  }

 private:
  static int64_t at(int process, int64_t ms) { return kNoon + ms * kMs + (process < 2 ? 0 : 5000 * kMs); }

  std::vector<FlightDump> dumps_;
};

const std::vector<int> kAll = {0, 1, 2};

// Each process is the last one once, process 1 by the longest time. Then process 2 is missing.
RecordedJob stuck_job() {
  RecordedJob job(3);
  for (int step = 0; step < 4; ++step) {
    const int64_t begin = 1000 * step;
    for (int p = 0; p < 3; ++p) {
      job.dump(p).step = step;
      const int64_t late = p == step % 3 ? (p == 1 ? 200 : 20) : 0;
      job.add(p, "world", kAll, "all_reduce", begin + late, begin + (step % 3 == 1 ? 210 : 30));
    }
  }
  job.add(0, "world", kAll, "barrier", 10'000, 0);
  job.add(1, "world", kAll, "barrier", 10'500, 0);
  return job;
}

TEST(BlameCommand, NamesMissingAndLateProcesses) {
  const TempDir dir;
  stuck_job().write(dir.path(), {0, 1, 2});
  const ProcessResult result = run_lockstep({"blame", dir.path()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output,
            R"(job 3f9a0c21: 3 processes, 3 dumps
  process 0  on n001, pid 100, at 12:01:00.000, step 3: SIGUSR2
             waiting in barrier #4 of "world", step 3, for 50.00 s
  process 1  on n001, pid 101, at 12:01:00.000, step 3: SIGUSR2
             waiting in barrier #4 of "world", step 3, for 49.50 s
  process 2  on n002, pid 102, at 12:01:05.000, step 3: SIGUSR2
             its clock is 5.00 s ahead, +- 0 us
             completed all_reduce #3 of "world" (f32, 4.0 kB), step 3, 56.97 s earlier

missing processes
  barrier #4 of "world", step 3
    waiting  process 0 for 50.00 s, process 1 for 49.50 s
    missing  process 2
  => process 2

late processes, in 4 collectives that all processes started
                 last       total        mean     longest
  process 0         2     40.0 ms     20.0 ms     20.0 ms
  process 1         1    200.0 ms    200.0 ms    200.0 ms
  process 2         1     20.0 ms     20.0 ms     20.0 ms

longest waits
    200.0 ms  for process 1 in all_reduce #1 of "world" (f32, 4.0 kB), step 1
     20.0 ms  for process 0 in all_reduce #0 of "world" (f32, 4.0 kB), step 0
     20.0 ms  for process 2 in all_reduce #2 of "world" (f32, 4.0 kB), step 2
     20.0 ms  for process 0 in all_reduce #3 of "world" (f32, 4.0 kB), step 3
)");
}

TEST(BlameCommand, FindsTheDumpsOfARun) {
  const TempDir dir;
  FileSystem::real().make_dirs(dir.path() + "/run/flight");
  FileSystem::real().make_dirs(dir.path() + "/empty/flight");
  RecordedJob job = stuck_job();
  job.write(dir.path() + "/run/flight", kAll);
  for (const char* name : {"/run", "/run/", "/run/flight"}) {
    const ProcessResult result = run_lockstep({"blame", dir.path() + name});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_NE(result.output.find("=> process 2\n"), std::string::npos) << result.output;
  }
  const ProcessResult none = run_lockstep({"blame", dir.path() + "/empty"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.output.find("/empty nor its subfolder flight contains lockstep_flight_*.json; processes write"),
            std::string::npos)
      << none.output;
}

TEST(BlameCommand, ProcessWithoutADumpIsSuspected) {
  const TempDir dir;
  std::vector<std::string> arguments = stuck_job().write(dir.path(), {0, 1});
  arguments.insert(arguments.begin(), "blame");
  const std::string text = run_lockstep(arguments).output;
  EXPECT_NE(text.find("job 3f9a0c21: 3 processes, 2 dumps\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  process 2  has no dump: it was killed or stopped, or wrote the dump elsewhere\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("    unknown  process 2: no dump\n  => process 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  only processes with dumps are compared; others may have been later\n"), std::string::npos)
      << text;
}

TEST(BlameCommand, ProcessThatWaitsElsewhereIsNotBlamed) {
  RecordedJob job(3, 2);  // lanes 0 to 5
  const std::vector<int> all = {0, 1, 2, 3, 4, 5};
  for (const int lane : {0, 1, 2, 5}) job.add(lane, "world", all, "barrier", 1000, 0);
  job.add(3, "pair", {3, 4}, "broadcast", 2000, 0);
  job.add(4, "pair", {3, 4}, "split", 10, 20);
  job.dump(1).groups[1].next = 2;
  job.dump(1).records.back().sequence = 1;
  const TempDir dir;
  job.write(dir.path(), {0, 1, 2});
  const std::string text = run_lockstep({"blame", dir.path()}).output;
  EXPECT_NE(text.find(R"(missing processes
  broadcast #1 of "pair" (f32, 4.0 kB), step 0
    waiting  process 1 (lane 3) for 58.00 s
    missing  process 2 (lane 4)
  barrier #0 of "world", step 0
    waiting  process 0 (lane 0) for 59.00 s, process 0 (lane 1) for 59.00 s, process 1 (lane 2) for 59.00 s, process 2 (lane 5) for 59.00 s
    missing  process 1 (lane 3), process 2 (lane 4)
  => process 2
)"),
            std::string::npos)
      << text;
}

TEST(BlameCommand, CollectivesInDifferentOrdersAreADeadlock) {
  RecordedJob job(2);
  job.add(0, "a", {0, 1}, "barrier", 1000, 0);
  job.add(1, "b", {0, 1}, "barrier", 1000, 0);
  const TempDir dir;
  job.write(dir.path(), {0, 1});
  const std::string text = run_lockstep({"blame", dir.path()}).output;
  EXPECT_NE(text.find("  => deadlock: processes start collectives of different groups in different orders\n"),
            std::string::npos)
      << text;
}

TEST(BlameCommand, ProcessThatDumpedBeforeTheOthersWaitedIsNotMissing) {
  RecordedJob job(2);
  job.add(0, "world", {0, 1}, "barrier", 1000, 1001);
  job.add(1, "world", {0, 1}, "barrier", 1000, 1001);
  job.add(0, "world", {0, 1}, "barrier", 60'001, 0);
  job.dump(0).time += 2 * kMs;
  const TempDir dir;
  job.write(dir.path(), {0, 1});
  const std::string text = run_lockstep({"blame", dir.path()}).output;
  EXPECT_NE(text.find("  none: no collective waits for a process that has not started it\n"), std::string::npos)
      << text;
}

TEST(BlameCommand, PrintsJson) {
  const TempDir dir;
  stuck_job().write(dir.path(), {0, 2});
  const auto json = nlohmann::json::parse(run_lockstep({"blame", "--json", dir.path()}).output);
  EXPECT_EQ(json["job"], "3f9a0c21");
  EXPECT_EQ(json["missing"], nlohmann::json({2}));
  EXPECT_EQ(json["processes"][1]["dumped"], false);
  EXPECT_EQ(json["processes"][2]["clock_offset_ns"], -5000 * kMs);
  EXPECT_EQ(json["stuck"][0]["operation"]["sequence"], 4);
  EXPECT_EQ(json["stuck"][0]["unknown_lanes"], nlohmann::json({1}));
  EXPECT_EQ(json["late"][0]["times"], 2);
  EXPECT_EQ(json["worst"][0]["process"], 0);
}

void expect_failure(std::vector<std::string> arguments, const std::string& message) {
  arguments.insert(arguments.begin(), "blame");
  const ProcessResult result = run_lockstep(arguments);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output, "lockstep: " + message + "\n");
}

TEST(BlameCommand, DumpsOfDifferentJobsAreRejected) {
  const TempDir dir;
  expect_failure({dir.path()}, "blame: neither " + dir.path() +
                                   " nor its subfolder flight contains lockstep_flight_*.json; processes write such "
                                   "files when the job fails or on SIGUSR2, and print where");
  RecordedJob job = stuck_job();
  const std::string first = job.write(dir.path(), {0})[0];
  expect_failure({first, first}, "blame: two flight records of process 0; omit the older one");
  job.dump(2).processes = 4;
  const std::string third = job.write(dir.path(), {2})[0];
  expect_failure(
      {first, third},
      "blame: processes 0 and 2 disagree on the size of job 3f9a0c21; one of the flight records was modified");
  job.dump(1).job = "77777777";
  const std::string other = job.write(dir.path(), {1})[0];
  expect_failure(
      {other, first},
      "blame: flight records of different jobs, 77777777 and 3f9a0c21; give those of one job, such as the newest: "
      "lockstep_flight_77777777_*.json");
  // A folder holds the dumps of all starts of a run; only those of the last start are used.
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const std::string& path : {first, third}) std::filesystem::last_write_time(path, now - std::chrono::hours(1));
  const ProcessResult last = run_lockstep({"blame", dir.path()});
  EXPECT_EQ(last.exit_code, 0);
  EXPECT_EQ(last.output.rfind("job 77777777: ", 0), 0u) << last.output;
  FileSystem::real().write(first, std::vector<uint8_t>{'{'});
  const ProcessResult result = run_lockstep({"blame", first});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output.rfind("lockstep: blame: " + first + " is not a flight record: ", 0), 0u) << result.output;
}

TEST(BlameCommand, OtherFilesAreRejected) {
  const ProcessResult result = run_lockstep({"blame", "/etc/passwd"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output,
            "lockstep: blame: /etc/passwd is not a flight record: line 1 is not JSON; give files named "
            "lockstep_flight_*.json\n");
}

TEST(BlameCommand, DumpsOfOtherUsersAreReadOnlyWhenGiven) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const TempDir dir;
  const std::string folder = dir.path() + "/lockstep-flight-3f9a0c21";
  FileSystem::real().make_dirs(folder);
  RecordedJob job(1);
  const std::string dump = job.write(folder, {0})[0];
  const auto blame = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"env",          "-u",   "LOCKSTEP_FLIGHT_DIR", "TMPDIR=" + dir.path(),
                                      program_path(), "blame"};
    words.insert(words.end(), more.begin(), more.end());
    return run_process(words, std::chrono::seconds(60));
  };
  EXPECT_EQ(blame().exit_code, 0);
  ASSERT_EQ(::chown(dump.c_str(), 12345, 12345), 0);
  expect_contains(blame().output, dump + " belongs to another user; if you trust it, give its folder");
  ASSERT_EQ(::chown(folder.c_str(), 12345, 12345), 0);
  expect_contains(blame().output, folder + " belongs to another user; if you trust it, run `lockstep blame");
  EXPECT_EQ(blame({folder}).exit_code, 0);
}

#ifdef LOCKSTEP_WITH_GRPC

// `lockstep train` in one of three processes.
std::vector<std::string> training_command(int process, int port, const std::string& folder) {
  return {"env",
          "LOCKSTEP_COORDINATOR=127.0.0.1:" + std::to_string(port),
          "LOCKSTEP_NUM_PROCESSES=3",
          "LOCKSTEP_PROCESS_ID=" + std::to_string(process),
          "LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef",
          "LOCKSTEP_CPU_LANES=1",
          "LOCKSTEP_FLIGHT_DIR=" + folder,
          program_path(),
          "train",
          "--no-save",
          "--dataset",
          "synthetic",
          "--steps",
          "100000000"};
}

TEST(BlameCommand, NamesAProcessThatWasStopped) {
  const TempDir dir;
  const int port = unused_port();
  RunningProgram first(training_command(0, port, dir.path())), second(training_command(1, port, dir.path())),
      third(training_command(2, port, dir.path()));
  ASSERT_TRUE(first.says("step 1/")) << first.err();
  third.send(SIGSTOP);
  // The other processes may need some time to reach the collective in which they wait.
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  do {
    first.send(SIGUSR2);
    second.send(SIGUSR2);
    ASSERT_TRUE(first.says("flight record of process 0 written to " + dir.path())) << first.err();
    ASSERT_TRUE(second.says("flight record of process 1 written to " + dir.path())) << second.err();
    text = run_lockstep({"blame", dir.path()}).output;
  } while (text.find("=> process 2\n") == std::string::npos && std::chrono::steady_clock::now() < deadline);
  EXPECT_NE(text.find("3 processes, 2 dumps\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n    unknown  process 2: no dump\n  => process 2\n"), std::string::npos) << text;
  third.send(SIGUSR2);
  third.send(SIGCONT);
  EXPECT_TRUE(third.says("flight record of process 2 written to " + dir.path())) << third.err();
}

TEST(BlameCommand, RemainingProcessesWriteDumps) {
  const TempDir dir;
  const int port = unused_port();
  RunningProgram first(training_command(0, port, dir.path())), second(training_command(1, port, dir.path())),
      third(training_command(2, port, dir.path()));
  ASSERT_TRUE(first.says("step 1/")) << first.err();
  third.send(SIGKILL);
  EXPECT_EQ(first.wait().exit_code, 75);
  EXPECT_EQ(second.wait().exit_code, 75);
  const std::string text = run_lockstep({"blame", dir.path()}).output;
  EXPECT_NE(text.find("3 processes, 2 dumps\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  => process 2\n"), std::string::npos) << text;
}

#endif

}  // namespace
}  // namespace lockstep
