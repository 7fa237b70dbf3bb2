// The network between two hosts fails in part: only the data plane, only in one direction, only large packets. All
// processes name the same first cause and the network, and no process is called crashed that only left.
#include "processes/cable.h"
#include "processes/processes.h"

#if defined(LOCKSTEP_WITH_GRPC)

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHeartbeat(4), kCollective(8), kInitialization(15);

enum class Outcome { fails, completes, either };
enum class Moment { middle, start };
// Which plane is cut. A cut data plane has one cause for all processes; a cut control plane has one on each side.
enum class Plane { data, control };

struct Fault {
  const char* name;
  std::vector<std::string> commands = {};  // of process_faulty_cable
  Outcome outcome = Outcome::fails;
  Plane plane = Plane::control;
  Moment moment = Moment::middle;
  milliseconds heals_after{0};  // 0: never
  const char* shell = nullptr;  // run instead of commands
  int signal = 0;               // sent to the last process, which is the culprit
};

const Fault kFaults[] = {
    {.name = "data plane dropped", .commands = {"both drop_data"}, .plane = Plane::data},
    {.name = "data plane dropped from a to b", .commands = {"ab drop_data"}, .plane = Plane::data},
    {.name = "data plane dropped from b to a", .commands = {"ba drop_data"}, .plane = Plane::data},
    {.name = "hole in the path MTU", .commands = {"both drop_above 900"}, .plane = Plane::data},
    {.name = "hole in the path MTU from a to b", .commands = {"ab drop_above 900"}, .plane = Plane::data},
    {.name = "data connections reset", .commands = {"both reset"}, .plane = Plane::data},
    {.name = "data changed on the way", .commands = {"both change"}, .plane = Plane::data},
    {.name = "data plane dropped at the start",
     .commands = {"both drop_data"},
     .plane = Plane::data,
     .moment = Moment::start},
    {.name = "link down", .shell = "ip -n $0a link set cable down"},
    {.name = "all dropped", .commands = {"both drop"}},
    {.name = "all dropped for 1 s",
     .commands = {"both drop"},
     .outcome = Outcome::completes,
     .heals_after = milliseconds(1000)},
    {.name = "all dropped for longer than the timeout", .commands = {"both drop"}, .heals_after = milliseconds(6000)},
    {.name = "all dropped from a to b", .commands = {"ab drop"}},
    {.name = "all dropped from b to a", .commands = {"ba drop"}},
    {.name = "control plane dropped", .commands = {"both drop_control"}},
    {.name = "control plane dropped from b to a", .commands = {"ba drop_control"}},
    {.name = "all dropped at the start", .commands = {"both drop"}, .moment = Moment::start},
    {.name = "5 % lost", .commands = {"both loss 5"}, .outcome = Outcome::completes},
    {.name = "30 % lost", .commands = {"both loss 30"}, .outcome = Outcome::either},
    {.name = "100 % lost", .commands = {"both loss 100"}},
    {.name = "20 % reordered", .commands = {"both reorder 20"}, .outcome = Outcome::completes},
    {.name = "20 % duplicated", .commands = {"both duplicate 20"}, .outcome = Outcome::completes},
    {.name = "2 MB/s", .commands = {"both rate 2000"}, .outcome = Outcome::completes},
    {.name = "process killed", .signal = SIGKILL},
    {.name = "process stopped", .signal = SIGSTOP},
};

class CutInPart : public FaultyCable {
 protected:
  void expect_named(const Fault& fault, int count) {
    SCOPED_TRACE(fmt::format("{}, {} processes", fault.name, count));
    set_fault("both none");
    if (fault.moment == Moment::start) begin(fault);
    const bool ends = fault.outcome == Outcome::fails;
    Processes all(count,
                  {.variables = {fmt::format("LOCKSTEP_HEARTBEAT_TIMEOUT={}", kHeartbeat.count()),
                                 fmt::format("LOCKSTEP_COLLECTIVE_TIMEOUT={}", kCollective.count()),
                                 fmt::format("LOCKSTEP_INITIALIZATION_TIMEOUT={}", kInitialization.count())},
                   .command = train_words({"--steps", ends ? "1000000" : "60", "--log-every", "1", "--no-save"}),
                   .before = [this, count](int p) { return on(p < count / 2 ? "a" : "b"); },
                   .coordinator = kCoordinator});
    if (fault.moment == Moment::middle) {
      ASSERT_TRUE(all.reach(10)) << all.wait(0).err;
      if (fault.signal != 0) all.send(count - 1, fault.signal);
      begin(fault);
    }
    const auto began = std::chrono::steady_clock::now();
    if (fault.heals_after.count() > 0) {
      comes_true([&] { return std::chrono::steady_clock::now() - began >= fault.heals_after; });
      set_fault("both none");
    }
    std::vector<RunningProgram::Result> results;
    const int survivors = fault.signal == 0 ? count : count - 1;
    for (int p = 0; p < survivors; ++p) results.push_back(all.wait(p, std::chrono::minutes(3)));
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (fault.signal != 0) all.send(count - 1, SIGKILL);
    run("ip -n $0a link set cable up");
    set_fault("both none");
    check(fault, count, results, took);
  }

 private:
  void begin(const Fault& fault) const {
    for (const std::string& command : fault.commands) set_fault(command);
    if (!fault.shell) return;
    EXPECT_EQ(run(fault.shell).exit_code, 0);
  }

  static void check(const Fault& fault, int count, const std::vector<RunningProgram::Result>& results, double took) {
    const bool failed = results[0].exit_code != 0;
    std::string cause;
    for (size_t p = 0; p < results.size(); ++p) {
      SCOPED_TRACE(p);
      const RunningProgram::Result& result = results[p];
      EXPECT_EQ(result.exit_code, failed ? 75 : 0) << result.err;
      if (!failed) continue;
      const std::string words = last_words(result);
      if (p == 0) cause = words;
      if (fault.signal == SIGKILL) {
        EXPECT_EQ(named_in(words), count - 1) << words;
        continue;
      }
      expect_contains(words, "network");
      expect_lacks(words, "probably crashed");
      expect_lacks(words, "did not exit within the grace period");
      if (fault.plane == Plane::data) {
        EXPECT_EQ(cause_in(words), cause_in(cause));
      }
    }
    if (fault.outcome != Outcome::either) {
      EXPECT_EQ(failed, fault.outcome == Outcome::fails) << results[0].err;
    }
    if (!long_tests()) return;
    fmt::print("| {} | {} | {} | {:.1f} s | {} |\n", fault.name, count, failed ? "75" : "0", took, cause);
    const seconds timeout = fault.moment == Moment::start   ? kInitialization
                            : fault.plane == Plane::control ? kHeartbeat
                                                            : kCollective;
    if (fault.outcome == Outcome::fails) {
      EXPECT_LE(took, static_cast<double>((timeout + seconds(5)).count()));
    }
  }

  // What happened, without the names of the operation and of the process that reports it.
  static std::string cause_in(const std::string& words) {
    for (const char* const verb : {" waited ", " lost its connection "})
      if (const size_t at = words.find(verb); at != words.npos)
        return words.substr(at, words.find("; process ", at) - at);
    return "no cause: " + words;
  }
};

TEST_F(CutInPart, DataPlaneAloneIsNamedByAllProcesses) {
  for (const Fault& fault : kFaults)
    if (fault.name == std::string("data plane dropped")) expect_named(fault, 4);
}

TEST_F(CutInPart, HoleInThePathMtuIsNamedByAllProcesses) {
  for (const Fault& fault : kFaults)
    if (fault.name == std::string("hole in the path MTU")) expect_named(fault, 4);
}

TEST_F(CutInPart, ChangedDataIsNamedByAllProcesses) {
  for (const Fault& fault : kFaults)
    if (fault.name == std::string("data changed on the way")) expect_named(fault, 2);
}

TEST_F(CutInPart, EveryKindOfFaultIsNamedByAllProcesses) {
  if (!long_tests()) GTEST_SKIP() << "runs with LOCKSTEP_LONG_TESTS=1";
  for (const Fault& fault : kFaults)
    for (const int count : {2, 4}) expect_named(fault, count);
}

}  // namespace
}  // namespace lockstep

#endif
