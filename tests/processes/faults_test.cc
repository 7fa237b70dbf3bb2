// Processes that die, hang, are slow or run another program: the others exit soon and name that process. With
// restarts the job ends with the same result.
#include <thread>

#include "base/crc32c.h"
#include "processes/processes.h"
#include "support/variable.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

const Words kRun = {"--steps", "200", "--log-every", "1"};

// All processes except the victim exit with the retry code and name the victim.
void expect_others_name(Processes& job, int victim) {
  for (int p = 0; p < job.count(); ++p) {
    if (p == victim) continue;
    SCOPED_TRACE(p);
    const RunningProgram::Result result = job.wait(p);
    EXPECT_EQ(result.exit_code, 75) << result.err;
    EXPECT_EQ(named_in(last_words(result)), victim) << result.err;
  }
}

int random_step(std::mt19937& random) { return std::uniform_int_distribution<int>(2, 60)(random); }

TEST(Fault, DeadProcessIsNamedByAllOthers) {
  std::mt19937 random(1);
  for (int round = 0; round < fault_rounds(1); ++round)
    for (const int signal : {SIGKILL, SIGSEGV}) {
      const int victim = (round + (signal == SIGSEGV)) % 3, step = random_step(random);
      SCOPED_TRACE(fmt::format("signal {} to process {} at step {}", signal, victim, step));
      Processes job(3, {.command = train_words(kRun)});
      ASSERT_TRUE(job.reach(step)) << job.wait(0).err;
      job.send(victim, signal);
      expect_others_name(job, victim);
      EXPECT_EQ(job.wait(victim).exit_code, 128 + signal);
    }
}

TEST(Fault, HungProcessIsNamedByAllOthers) {
  std::mt19937 random(2);
  for (int round = 0; round < fault_rounds(); ++round) {
    const int victim = round % 3, step = random_step(random);
    SCOPED_TRACE(fmt::format("process {} at step {}", victim, step));
    Processes job(3, {.variables = {"LOCKSTEP_HEARTBEAT_TIMEOUT=1", "LOCKSTEP_COLLECTIVE_TIMEOUT=20"},
                      .command = train_words(kRun)});
    ASSERT_TRUE(job.reach(step)) << job.wait(0).err;
    job.send(victim, SIGSTOP);
    expect_others_name(job, victim);
    // The victim is notified when it continues.
    job.send(victim, SIGCONT);
    EXPECT_EQ(job.wait(victim).exit_code, 75);
  }
}

// Two lanes in each process, and groups whose ranks differ from the process numbers.
TEST(Fault, ProcessesOfSeveralLanesAreNamedAsProcesses) {
  for (const char* const collectives : {"auto", "tcp"}) {
    for (const int victim : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} {}", collectives, victim));
      Processes job(2, {.variables = {"LOCKSTEP_CPU_LANES=2", fmt::format("LOCKSTEP_COLLECTIVES={}", collectives),
                                      "LOCKSTEP_HEARTBEAT_TIMEOUT=2"},
                        .command = train_words(kRun + Words{"--devices", "2", "--zero", "3"})});
      ASSERT_TRUE(job.reach(3)) << job.wait(0).err;
      job.send(victim, SIGKILL);
      const RunningProgram::Result result = job.wait(1 - victim);
      EXPECT_EQ(result.exit_code, 75);
      const std::string words = last_words(result);
      expect_contains(words, fmt::format("process {} (host ", victim));
      expect_contains(words, fmt::format(", pid {})", job.pid(victim)));
      expect_contains(words, fmt::format("; process {} was in step ", 1 - victim));
      expect_lacks(words, "rank");
    }
  }
}

// In the run folder; without one, where `lockstep blame` searches by default.
TEST(Fault, DumpsAreWrittenWhereBlameFindsThem) {
  const TempDir dir;
  const ScopedVariable nowhere("LOCKSTEP_FLIGHT_DIR", std::nullopt);
  const auto dumped = [&](const Words& flags) {
    Processes job(
        2, {.variables = {"LOCKSTEP_FLIGHT_DIR=", "TMPDIR=" + dir.path()}, .command = train_words(kRun + flags)});
    EXPECT_TRUE(job.reach(3)) << job.wait(0).err;
    job.send(1, SIGKILL);
    EXPECT_EQ(job.wait(1).exit_code, 128 + SIGKILL);
    return job.wait(0).err;
  };
  const std::string run = dir.path() + "/run";
  expect_contains(dumped({"--checkpoint-dir", run}),
                  "flight record of process 0 written to " + run + "/flight/lockstep_flight_");
  EXPECT_EQ(FileSystem::real().list(run + "/flight").size(), 1u);
  const std::string log = dir.path() + "/log";
  expect_contains(dumped({"--checkpoint-dir", run, "--resume", "none", "--log-dir", log}),
                  "; run `lockstep blame " + log + "/flight` to find");

  const auto blame = [&] { return RunningProgram({"env", "TMPDIR=" + dir.path(), program_path(), "blame"}).wait(); };
  const RunningProgram::Result nothing = blame();
  EXPECT_EQ(nothing.exit_code, 1);
  expect_contains(nothing.err,
                  "lockstep: blame: no dumps found among the temporary files of this host; give the folder ");
  expect_contains(dumped({}), " written to " + dir.path() + "/lockstep-flight-");
  const RunningProgram::Result found = blame();
  EXPECT_EQ(found.exit_code, 0) << found.err;
  expect_contains(found.err, "lockstep: reading dumps from " + dir.path() + "/lockstep-flight-");
  expect_contains(found.out, "  => process 1\n");
}

// The others wait for it, and SIGUSR2 shows which process they wait for. The result is unchanged.
TEST(Fault, SlowProcessIsNamedInDumpsAndWaitedFor) {
  const TempDir dir;
  const Words flags = {"--steps", "200", "--log-every", "1", "--checkpoint-dir"};
  ASSERT_EQ(launch({"-n", "2"}, train_words(flags + Words{dir.path() + "/wanted"})).exit_code, 0);
  std::mt19937 random(6);
  for (int round = 0; round < fault_rounds(); ++round) {
    const int victim = round % 2, step = random_step(random);
    SCOPED_TRACE(fmt::format("process {} at step {}", victim, step));
    const std::string run = fmt::format("{}/run_{}", dir.path(), round);
    Processes job(2, {.command = train_words(flags + Words{run})});
    ASSERT_TRUE(job.reach(step)) << job.wait(0).err;
    job.send(victim, SIGSTOP);
    EXPECT_TRUE(comes_true([&] {
      job.send(1 - victim, SIGUSR2);
      const RunningProgram::Result blame = RunningProgram({program_path(), "blame", "--json", job.flights()}).wait();
      return blame.exit_code == 0 && nlohmann::json::parse(blame.out)["missing"] == nlohmann::json({victim});
    }));
    job.send(victim, SIGCONT);
    for (const int p : {0, 1}) EXPECT_EQ(job.wait(p).exit_code, 0);
    expect_same_result(run, dir.path() + "/wanted");
  }
}

#ifndef LOCKSTEP_SANITIZED  // sanitized programs need the full address space
// A process that runs out of memory reports it and exits, and the others name it.
TEST(Fault, ProcessWithoutMemoryIsNamedByAllOthers) {
  std::mt19937 random(7);
  for (int round = 0; round < fault_rounds(); ++round) {
    const int victim = (round + 1) % 3, step = random_step(random);
    SCOPED_TRACE(fmt::format("process {} at step {}", victim, step));
    Processes job(3, {.command = {std::to_string(victim), std::to_string(step)},
                      .program = std::string(LOCKSTEP_BINARY_DIR) + "/tests/process_exhaust"});
    for (int p = 0; p < 3; ++p) {
      const RunningProgram::Result result = job.wait(p);
      EXPECT_EQ(result.exit_code, 1) << result.err;  // a restart does not help
      expect_contains(result.err, " bytes requested, ");
      if (p == victim) continue;
      EXPECT_EQ(named_in(last_words(result)), victim) << result.err;
    }
  }
}
#endif

// In the middle of a run, one process computes something other than its peers.
TEST(Fault, DivergingProgramIsRejectedWithTheFirstEquation) {
  std::mt19937 random(8);
  for (int round = 0; round < fault_rounds(); ++round) {
    const int victim = round % 3, step = random_step(random);
    SCOPED_TRACE(fmt::format("process {} at step {}", victim, step));
    Processes job(3, {.command = {std::to_string(victim), std::to_string(step)},
                      .program = std::string(LOCKSTEP_BINARY_DIR) + "/tests/process_diverge"});
    const int other = victim == 0 ? 1 : 0;  // the first that differs from process 0
    for (int p = 0; p < 3; ++p) {
      const RunningProgram::Result result = job.wait(p);
      EXPECT_EQ(result.exit_code, 1);
      expect_contains(result.err, "agree \"program ");
      expect_contains(result.err, "\": process 0 (host ");
      expect_contains(result.err, fmt::format(") and process {} (host ", victim == 0 ? other : victim));
      expect_contains(result.err, victim == 0 ? ") differ (2 of 3 processes differ from process 0) at equation "
                                              : ") differ at equation ");
      expect_contains(result.err, fmt::format("at step {}\n", step));
    }
  }
}

TEST(Fault, DifferentProgramIsRejectedWithTheFirstEquation) {
  const auto refused = [](const std::string& flag, const Words& values, const std::string& message) {
    SCOPED_TRACE(flag);
    Processes job(3, {.command = train_words({"--steps", "20", "--quiet"}), .own = [&](int p) {
                        return Words{flag, values[p == 2 ? 1 : 0]};
                      }});
    for (int p = 0; p < 3; ++p) {
      const RunningProgram::Result result = job.wait(p);
      EXPECT_EQ(result.exit_code, 1);
      expect_contains(result.err, "lockstep: agree \"program 0\": process 0 (host ");
      expect_contains(result.err, ") and process 2 (host ");
      expect_contains(result.err, ") differ at equation ");
      expect_contains(result.err, message);
      EXPECT_EQ(result.out, "");
    }
  };
  refused("--learning-rate", {"0.001", "0.002"}, "value=0.001]\n");
  refused("--batch-size", {"50", "60"}, "i32[60]");
  refused("--model", {"mlp", "mlp1024"}, "  process 2: program(%0:f32[784,1024], ");
}

void expect_refused(const std::function<Words(int)>& own, const std::string& message, const Words& flags = {}) {
  Processes job(3, {.command = train_words(Words{"--steps", "20", "--quiet"} + flags), .own = own});
  for (int p = 0; p < 3; ++p) {
    const RunningProgram::Result result = job.wait(p);
    EXPECT_EQ(result.exit_code, 1);
    expect_contains(result.err, "lockstep: train: process 0 has " + message + "; use the same in all processes\n");
  }
}

TEST(Fault, DifferentRunIsRejectedWithTheFirstDifference) {
  const auto flag = [](const std::string& name) { return [name](int p) { return Words{name, p == 1 ? "24" : "25"}; }; };
  expect_refused(flag("--seed"), "the seed 25, but process 1 has 24");
  expect_refused(flag("--steps"), "the setting steps 25, but process 1 has 24");
  const TempDir dir;
  expect_refused(flag("--checkpoint-every"), "the setting checkpoint_every 25, but process 1 has 24",
                 {"--checkpoint-dir", dir.path()});
  expect_refused(flag("--checkpoint-seconds"), "the setting checkpoint_seconds 25, but process 1 has 24");
  expect_refused(flag("--eval-every"), "the setting eval_every 25, but process 1 has 24");
  expect_refused(
      [](int p) {
        return p == 2 ? Words{"--dataset", "synthetic"} : Words{};
      },
      "training examples 600, but process 2 has 6000");
}

// The same number of images, but one byte differs in one of the four files.
TEST(Fault, DifferentDataIsRejectedWithTheFirstFile) {
  const char* const names[] = {"training images", "training labels", "test images", "test labels"};
  const size_t headers[] = {16, 8, 16, 8};
  const TempDir dir;
  std::vector<std::string> files;
  std::istringstream all(small_dataset());
  for (std::string path; std::getline(all, path, ',');) files.push_back(path);
  ASSERT_EQ(files.size(), 4u);
  const auto sum = [](const std::string& path, size_t header) {
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
    return crc32c(std::span(bytes).subspan(header));
  };
  for (size_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE(names[i]);
    const std::string changed = fmt::format("{}/{}", dir.path(), i);
    std::vector<uint8_t> bytes = FileSystem::real().read_file(files[i]);
    bytes[bytes.size() / 2] ^= 1;
    FileSystem::real().write(changed, bytes);
    std::vector<std::string> others = files;
    others[i] = changed;
    expect_refused(
        [&](int p) {
          return p == 1 ? Words{"--dataset", fmt::format("{}", fmt::join(others, ","))} : Words{};
        },
        fmt::format("{} with CRC-32C checksum {:08x} ({}), but process 1 has {:08x} ({})", names[i],
                    sum(files[i], headers[i]), files[i], sum(changed, headers[i]), changed));
  }
}

// ---- before the processes are connected

// A command for /bin/sh that runs a prologue in one process.
Words with_first(int process, const std::string& what, const Words& command) {
  return Words{"/bin/sh", "-c", fmt::format("[ $LOCKSTEP_PROCESS_ID = {} ] && {}; exec \"$0\" \"$@\"", process, what),
               program_path()} +
         command;
}

TEST(Fault, ProcessThatDiesBeforeItJoinsEndsTheOthers) {
  for (const int victim : {0, 1}) {
    const RunningProgram::Result result =
        launch({"-n", "2", "--grace", "600"}, with_first(victim, "kill -s KILL $$", {"allreduce"}));
    EXPECT_EQ(result.exit_code, 137) << result.err;
    expect_contains(result.err,
                    fmt::format("lockstep launch: process {} was killed by SIGKILL (out of memory?", victim));
    expect_contains(result.err, "; the other one stopped because of it");
  }
}

TEST(Fault, ProcessThatIsStoppedBeforeItJoinsIsNamed) {
  for (const int victim : {0, 1}) {
    const RunningProgram::Result result = launch({"-n", "2", "--grace", "600", "--heartbeat-timeout", "1"},
                                                 with_first(victim, "kill -s STOP $$", {"allreduce"}));
    EXPECT_EQ(result.exit_code, 75) << result.err;
    expect_contains(result.err, fmt::format("lockstep launch: process {} is stopped (SIGSTOP); the job ends", victim));
    expect_contains(result.err, fmt::format("process {} was stopped by SIGSTOP for ", victim));
  }
}

TEST(Fault, MissingProcessIsNamedWithoutALauncher) {
  for (const int victim : {0, 1}) {
    Processes job(2, {.variables = {"LOCKSTEP_INITIALIZATION_TIMEOUT=1"},
                      .command = {"allreduce"},
                      .before = [&](int p) { return p == victim ? Words{"true"} : Words{}; }});
    const RunningProgram::Result result = job.wait(1 - victim);
    EXPECT_EQ(result.exit_code, 75);
    expect_contains(last_words(result), victim == 0 ? "cannot reach process 0 (the coordinator at 127.0.0.1:"
                                                    : "1 of 2 processes have registered; missing: process 1");
  }
}

// ---- what a restart cannot fix

const Words kWithRestarts = {"-n", "2", "--max-restarts", "2", "--restart-delay", "0"};

TEST(Permanent, UsedPortIsNotRetried) {
  const Listener other;
  const RunningProgram::Result result =
      launch(kWithRestarts + Words{"--port", std::to_string(other.port())}, {"allreduce"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, fmt::format("[0] lockstep: listen on 127.0.0.1:{}: Address already in use: pid {} (",
                                          other.port(), ::getpid()));
  expect_contains(result.err, "lockstep launch: process 0 ended with exit code 1");
  expect_lacks(result.err, "restart");
  expect_lacks(result.err, "SETTINGS");
}

// A file size limit of 50 KiB, too small for shared memory.
Words limited(const Words& flags, const Words& command) {
  return Words{"/bin/sh", "-c", "ulimit -f 100; exec \"$0\" \"$@\"", program_path(), "launch"} + flags + Words{"--"} +
         command;
}

TEST(NoSharedMemory, FallsBackToTcp) {
  const RunningProgram::Result result = RunningProgram(limited(kWithRestarts, {"allreduce"})).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err,
                  "[0] lockstep: processes on one host use TCP instead of shared memory, which is slower: "
                  "process 0 (host ");
  expect_contains(result.err, " MiB; raise `ulimit -f`\n");
  expect_lacks(result.err, "[1]");
}

TEST(NoSharedMemory, IsAnErrorIfItWasRequested) {
  const RunningProgram::Result result =
      RunningProgram(limited(kWithRestarts + Words{"--collectives", "shared"}, {"allreduce"})).wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err,
                  "lockstep: initialize: collectives is shared, but shared memory is not available: process 0 (host ");
  expect_contains(result.err, "lockstep launch: process 0 ended with exit code 1");
  expect_lacks(result.err, "restart");
}

// The default size in containers, and less.
TEST(NoSharedMemory, SizeOfDevShmDoesNotMatter) {
  const Words apart = {"unshare", "-m", "/bin/sh", "-c",
                       "mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 77; exec \"$0\" \"$@\""};
  if (RunningProgram(apart + Words{"true"}).wait().exit_code != 0)
    GTEST_SKIP() << "no permission to mount in a namespace of its own";
  const RunningProgram::Result result =
      RunningProgram(apart + Words{program_path(), "launch", "-n", "2", "--collectives", "shared", "--", "allreduce"})
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const RunningProgram::Result doctor = RunningProgram(apart + Words{program_path(), "doctor"}).wait();
  EXPECT_EQ(doctor.exit_code, 0) << doctor.out;
  expect_contains(doctor.out,
                  "  shared memory         works\n  /dev/shm              64 KiB of 64 KiB free (for NCCL)\n");
}

// ---- restarts

const Words kPatient = {"--max-restarts",      "3", "--restart-delay",      "0", "--grace", "0.3",
                        "--heartbeat-timeout", "1", "--collective-timeout", "20"};
const Words kSaving = {"--steps", "200", "--log-every", "1", "--checkpoint-every", "20"};

class Restart : public testing::Test {
 protected:
  // The checkpoint of a job without faults.
  const std::string& undisturbed(const Words& flags, const char* processes) {
    const auto [at, missing] = wanted_.try_emplace(flags, fmt::format("{}/wanted_{}", dir_.path(), wanted_.size()));
    if (missing) {
      const Words command = train_words(kSaving + flags + Words{"--checkpoint-dir", at->second});
      EXPECT_EQ(launch({"-n", processes}, command).exit_code, 0);
    }
    return at->second;
  }

  void expect_no_harm(int signal, int victim, int step, const Words& flags = {}, const char* processes = "2") {
    SCOPED_TRACE(fmt::format("signal {} to process {} at step {}", signal, victim, step));
    const std::string run = fmt::format("{}/run_{}", dir_.path(), runs_++);
    LaunchedJob job(Words{"-n", processes} + kPatient, train_words(kSaving + flags + Words{"--checkpoint-dir", run}));
    ASSERT_TRUE(job.says(fmt::format("] step {}/", step)));
    ASSERT_TRUE(comes_true([&] { return !list_checkpoints(run).empty() || job.ended(); }));
    ASSERT_TRUE(job.send(victim, signal));
    const RunningProgram::Result result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (signal == SIGSTOP) expect_contains(result.err, fmt::format("process {} is stopped (SIGSTOP)", victim));
    expect_contains(result.err, "lockstep: resuming from step ");
    expect_contains(result.err, fmt::format("\nlockstep launch: process {} ", victim));
    expect_same_result(run, undisturbed(flags, processes));
  }

  const TempDir dir_;
  const ScopedVariable flight_{"LOCKSTEP_FLIGHT_DIR", dir_.path()};
  std::map<Words, std::string> wanted_;
  int runs_ = 0;
};

TEST_F(Restart, AfterAnyFaultEndsByteEqual) {
  std::mt19937 random(3);
  const auto step = [&] { return std::uniform_int_distribution<int>(15, 80)(random); };
  for (int round = 0; round < fault_rounds(1); ++round) {
    for (const int signal : {SIGKILL, SIGSEGV, SIGSTOP})
      expect_no_harm(signal, (round + (signal == SIGSEGV)) % 2, step());
    expect_no_harm(SIGKILL, (round + 1) % 2, step());
  }
}

TEST_F(Restart, OfShardedParametersWithDropoutEndsByteEqual) {
  std::mt19937 random(4);
  for (int round = 0; round < fault_rounds(1); ++round)
    expect_no_harm(SIGKILL, 1 - round % 2, std::uniform_int_distribution<int>(15, 80)(random),
                   {"--zero", "3", "--dropout", "0.2"});
}

TEST_F(Restart, OnTextEndsByteEqual) {
  const ScopedVariable cache("LOCKSTEP_CACHE_DIR", dir_.path());
  std::mt19937 random(5);
  for (const char* stream : {"off", "on"})
    expect_no_harm(SIGKILL, std::uniform_int_distribution<int>(0, 2)(random),
                   std::uniform_int_distribution<int>(15, 80)(random), text_flags() + Words{"--stream", stream}, "3");
}

TEST_F(Restart, IsNotTriedAfterAProgramError) {
  const RunningProgram::Result result = launch(
      Words{"-n", "2"} + kPatient,
      Words{"/bin/sh", "-c", "exec \"$0\" \"$@\" --learning-rate 0.00$((LOCKSTEP_PROCESS_ID + 1))", program_path()} +
          train_words({"--steps", "20", "--quiet"}));
  EXPECT_EQ(result.exit_code, 1);
  expect_contains(result.err, "differ at equation ");
  expect_lacks(result.err, "again");
}

}  // namespace
}  // namespace lockstep

#endif
