// Processes that die, stand still, are slow or run something else: the others end soon, name the one, and with the
// launcher's restarts the job ends as if nothing had happened.
#include <sys/resource.h>

#include <thread>

#include "base/crc32c.h"
#include "processes/launched.h"
#include "support/listener.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

const Words kRun = {"--steps", "200", "--log-every", "1"};

// The processes of a job without a launcher, so that each one's words and exit code can be seen.
class Processes {
 public:
  // Process p is given own(p) beside the flags that are for all.
  Processes(int count, const Words& variables, const Words& flags, const std::function<Words(int)>& own = {}) {
    Listener listener;  // finds a free port
    for (int p = 0; p < count; ++p)
      all_.push_back(std::make_unique<RunningProgram>(
          Words{"env", "LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef",
                fmt::format("LOCKSTEP_COORDINATOR=127.0.0.1:{}", listener.port()),
                fmt::format("LOCKSTEP_NUM_PROCESSES={}", count), fmt::format("LOCKSTEP_PROCESS_ID={}", p),
                "LOCKSTEP_FLIGHT_DIR=" + dir_.path()} +
          variables + Words{program_path()} + train_words(flags) + (own ? own(p) : Words{})));
  }
  bool reach(int step) {
    const std::string text = fmt::format("\nstep {}/", step);
    bool found = false;
    comes_true([&] { return (found = all_[0]->err().find(text) != std::string::npos) || ended(0); });
    return found;
  }
  void send(int process, int signal) { all_[static_cast<size_t>(process)]->send(signal); }
  RunningProgram::Result wait(int process) {
    if (!comes_true([&] { return ended(process); })) {
      ADD_FAILURE() << "process " << process << " hangs:\n" << all_[static_cast<size_t>(process)]->err();
      send(process, SIGKILL);
    }
    return all_[static_cast<size_t>(process)]->wait();
  }
  pid_t pid(int process) const { return all_[static_cast<size_t>(process)]->pid(); }
  int count() const { return static_cast<int>(all_.size()); }

 private:
  bool ended(int process) const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(all_[static_cast<size_t>(process)]->pid()), &info,
                    WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }

  const TempDir dir_;
  std::vector<std::unique_ptr<RunningProgram>> all_;
};

// By the control plane, the data plane, its own report, or as the coordinator that does not answer.
bool names(const std::string& text, int process) {
  for (const char* form : {"process {} (", "first cause: rank {} (", "first cause: rank {}: std::bad_alloc",
                           "coordinator (process {} at "})
    if (text.find(fmt::format(fmt::runtime(form), process)) != text.npos) return true;
  return false;
}

// All but the one that was hit end with the code for "start again", and say which it was.
void expect_others_name(Processes& job, int victim) {
  for (int p = 0; p < job.count(); ++p) {
    if (p == victim) continue;
    SCOPED_TRACE(p);
    const RunningProgram::Result result = job.wait(p);
    EXPECT_EQ(result.exit_code, 75) << result.err;
    EXPECT_TRUE(names(result.err, victim)) << result.err;
    for (int other = 0; other < job.count(); ++other)
      if (other != victim) expect_lacks(result.err, fmt::format("first cause: rank {} (", other));
  }
}

int random_step(std::mt19937& random) { return std::uniform_int_distribution<int>(2, 60)(random); }

TEST(Fault, DeadProcessIsNamedByAllOthers) {
  std::mt19937 random(1);
  for (int round = 0; round < fault_rounds(); ++round)
    for (const int signal : {SIGKILL, SIGSEGV}) {
      const int victim = (round + (signal == SIGSEGV)) % 3, step = random_step(random);
      SCOPED_TRACE(fmt::format("signal {} to process {} at step {}", signal, victim, step));
      Processes job(3, {}, kRun);
      ASSERT_TRUE(job.reach(step)) << job.wait(0).err;
      job.send(victim, signal);
      expect_others_name(job, victim);
      EXPECT_EQ(job.wait(victim).exit_code, 128 + signal);
    }
}

TEST(Fault, StandingProcessIsNamedByAllOthers) {
  std::mt19937 random(2);
  for (int round = 0; round < fault_rounds(); ++round) {
    const int victim = round % 3, step = random_step(random);
    SCOPED_TRACE(fmt::format("process {} at step {}", victim, step));
    Processes job(3, {"LOCKSTEP_HEARTBEAT_TIMEOUT=1", "LOCKSTEP_COLLECTIVE_TIMEOUT=20"}, kRun);
    ASSERT_TRUE(job.reach(step)) << job.wait(0).err;
    job.send(victim, SIGSTOP);
    expect_others_name(job, victim);
    // It learns of it when it comes back.
    job.send(victim, SIGCONT);
    EXPECT_EQ(job.wait(victim).exit_code, 75);
  }
}

TEST(Fault, SlowProcessIsWaitedFor) {
  for (const int victim : {0, 1}) {
    const TempDir dir;
    Processes job(2, {}, {"--steps", "60", "--log-every", "1", "--checkpoint-dir", dir.path() + "/run"});
    ASSERT_TRUE(job.reach(5)) << job.wait(0).err;
    job.send(victim, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // how slow it is
    job.send(victim, SIGCONT);
    for (const int p : {0, 1}) EXPECT_EQ(job.wait(p).exit_code, 0);
    ASSERT_EQ(launch({"-n", "2"}, train_words({"--steps", "60", "--checkpoint-dir", dir.path() + "/wanted"})).exit_code,
              0);
    expect_same_result(dir.path() + "/run", dir.path() + "/wanted");
  }
}

#ifndef LOCKSTEP_SANITIZED  // whose programs need all addresses
// A process that gets no more memory says so and ends, and the others say that it was this one.
TEST(Fault, ProcessWithoutMemoryIsNamedByAllOthers) {
  Processes job(3, {}, {"--steps", "100000", "--eval-every", "100000", "--log-every", "1"});
  ASSERT_TRUE(job.reach(3)) << job.wait(0).err;
  const rlimit nothing_more = {1, 1};
  ASSERT_EQ(::prlimit(job.pid(1), RLIMIT_AS, &nothing_more, nullptr), 0);
  job.send(1, SIGUSR2);
  for (const int p : {0, 2}) {
    const RunningProgram::Result result = job.wait(p);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_TRUE(names(result.err, 1)) << result.err;
  }
  EXPECT_NE(job.wait(1).exit_code, 0);
}
#endif

TEST(Fault, OtherProgramIsRefusedByAllWithTheFirstEquation) {
  const auto refused = [](const std::string& flag, const Words& values, const std::string& message) {
    SCOPED_TRACE(flag);
    Processes job(3, {}, {"--steps", "20", "--quiet"}, [&](int p) { return Words{flag, values[p == 2 ? 1 : 0]}; });
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

TEST(Fault, OtherRunIsRefusedByAllWithTheFirstFact) {
  const auto refused = [](const std::function<Words(int)>& own, const std::string& message) {
    Processes job(3, {}, {"--steps", "20", "--quiet"}, own);
    for (int p = 0; p < 3; ++p) {
      const RunningProgram::Result result = job.wait(p);
      EXPECT_EQ(result.exit_code, 1);
      expect_contains(result.err, "lockstep: train: process 0 has " + message + "; all processes must have the same\n");
    }
  };
  const auto flag = [](const std::string& name) { return [name](int p) { return Words{name, p == 1 ? "24" : "25"}; }; };
  refused(flag("--seed"), "the seed 25 and process 1 has 24");
  refused(flag("--steps"), "the setting steps 25 and process 1 has 24");
  const TempDir dir;
  refused(
      [&](int p) {
        return Words{"--checkpoint-every", p == 1 ? "24" : "25", "--checkpoint-dir", dir.path()};
      },
      "the setting checkpoint_every 25 and process 1 has 24");
  refused(flag("--eval-every"), "the setting eval_every 25 and process 1 has 24");
  refused(
      [](int p) {
        return p == 2 ? Words{"--dataset", "synthetic"} : Words{};
      },
      "training images 600 and process 2 has 6000");

  // As many images, and another label.
  std::string other = small_dataset();
  const size_t begin = other.find(',') + 1, end = other.find(',', begin);
  const std::string labels = other.substr(begin, end - begin), changed = dir.path() + "/labels";
  FileSystem::real().write(changed, FileSystem::real().read_file(labels));
  flip_byte(changed);
  other.replace(begin, end - begin, changed);
  const auto sum = [](const std::string& path) {
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
    return crc32c(std::span(bytes).subspan(8));
  };
  refused(
      [&](int p) {
        return p == 1 ? Words{"--dataset", other} : Words{};
      },
      fmt::format("training labels with the CRC-32C sum {:08x} and process 1 has {:08x}", sum(labels), sum(changed)));
}

// ---- restarts

const Words kPatient = {"--max-restarts",      "3", "--restart-delay",      "0", "--grace", "0.3",
                        "--heartbeat-timeout", "1", "--collective-timeout", "20"};
const Words kSaving = {"--steps", "200", "--log-every", "1", "--checkpoint-every", "20"};

class Restart : public testing::Test {
 protected:
  void SetUp() override { ::setenv("LOCKSTEP_FLIGHT_DIR", dir_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("LOCKSTEP_FLIGHT_DIR"); }

  // What the job leaves when nothing happens.
  const std::string& undisturbed(const Words& flags) {
    const auto [at, missing] = wanted_.try_emplace(flags, fmt::format("{}/wanted_{}", dir_.path(), wanted_.size()));
    if (missing) {
      EXPECT_EQ(launch({"-n", "2"}, train_words(kSaving + flags + Words{"--checkpoint-dir", at->second})).exit_code, 0);
    }
    return at->second;
  }

  void expect_no_harm(int signal, int victim, int step, const Words& flags = {}) {
    SCOPED_TRACE(fmt::format("signal {} to process {} at step {}", signal, victim, step));
    const std::string run = fmt::format("{}/run_{}", dir_.path(), runs_++);
    LaunchedJob job(Words{"-n", "2"} + kPatient, train_words(kSaving + flags + Words{"--checkpoint-dir", run}));
    ASSERT_TRUE(job.says(fmt::format("] step {}/", step)));
    ASSERT_TRUE(comes_true([&] { return !list_checkpoints(run).empty() || job.ended(); }));
    ASSERT_TRUE(job.send(victim, signal));
    const RunningProgram::Result result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_contains(result.err, "lockstep: going on from step ");
    expect_contains(result.err, fmt::format("\nlockstep launch: process {} ", victim));
    expect_same_result(run, undisturbed(flags));
  }

  const TempDir dir_;
  std::map<Words, std::string> wanted_;
  int runs_ = 0;
};

TEST_F(Restart, AfterAnyFaultEndsByteEqual) {
  std::mt19937 random(3);
  const auto step = [&] { return std::uniform_int_distribution<int>(15, 80)(random); };
  for (int round = 0; round < fault_rounds(); ++round)
    for (const int signal : {SIGKILL, SIGSEGV, SIGSTOP})
      expect_no_harm(signal, (round + (signal == SIGSEGV)) % 2, step());
}

TEST_F(Restart, OfCutParametersWithDropoutEndsByteEqual) {
  std::mt19937 random(4);
  for (int round = 0; round < fault_rounds(); ++round)
    expect_no_harm(SIGKILL, 1 - round % 2, std::uniform_int_distribution<int>(15, 80)(random),
                   {"--zero", "3", "--dropout", "0.2"});
}

TEST_F(Restart, IsNotTriedForAProgramThatIsWrong) {
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
