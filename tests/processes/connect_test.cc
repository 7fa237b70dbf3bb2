// A process that exits while others connect to it: they stop waiting for it.
#include "cluster/data_plane.h"
#include "cluster/join.h"
#include "processes/processes.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

// Process 0 is a real process. This program plays process 1 until `then` returns, and then leaves the job.
void expect_left(const std::string& collectives, const std::function<void(Control&)>& then) {
  const int port = unused_port();
  RunningProgram first({"env", std::string("LOCKSTEP_TOKEN=") + kToken,
                        fmt::format("LOCKSTEP_COORDINATOR=127.0.0.1:{}", port), "LOCKSTEP_NUM_PROCESSES=2",
                        "LOCKSTEP_PROCESS_ID=0", "LOCKSTEP_CPU_LANES=1", "LOCKSTEP_COLLECTIVES=" + collectives,
                        program_path(), "allreduce"});
  {
    const auto control = join_control(
        {.process_id = 1, .process_count = 2, .coordinator = {"127.0.0.1", port}, .token = kToken, .host = "away"});
    exchange_facts(*control, {host_identity(), "127.0.0.1", 1, 1, "cpu"}, std::chrono::seconds(60));
    then(*control);
  }
  const RunningProgram::Result result = first.wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  expect_contains(result.err,
                  fmt::format("process 1 (host away, pid {}): left the job without shutdown()", ::getpid()));
  expect_lacks(result.err, "did not exit within the grace period");
}

// Process 0 is a real process. This program plays a process on a GPU.
TEST(Connecting, RejectsAMixOfCpuAndGpu) {
  const int port = unused_port();
  RunningProgram first({"env", std::string("LOCKSTEP_TOKEN=") + kToken,
                        fmt::format("LOCKSTEP_COORDINATOR=127.0.0.1:{}", port), "LOCKSTEP_NUM_PROCESSES=2",
                        "LOCKSTEP_PROCESS_ID=0", "LOCKSTEP_CPU_LANES=1", "LOCKSTEP_PLATFORM=cpu", program_path(),
                        "allreduce"});
  const std::string wanted =
      "initialize: process 0 uses cpu and process 1 uses cuda; give all processes the same --platform "
      "(LOCKSTEP_PLATFORM), or each one a GPU";
  const auto control = join_control(
      {.process_id = 1, .process_count = 2, .coordinator = {"127.0.0.1", port}, .token = kToken, .host = "away"});
  try {
    exchange_facts(*control, {host_identity(), "127.0.0.1", 1, 1, "cuda"}, std::chrono::seconds(60));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {  // the error of this process or of process 0, whichever is first
    expect_contains(error.what(), wanted);
  }
  const RunningProgram::Result result = first.wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, wanted);
}

TEST(Connecting, EndsWhenAPeerLeavesBeforeItsMemoryIsShared) {
  expect_left("shared", [](Control&) {});
}

TEST(Connecting, EndsWhenAPeerLeavesBeforeItOpensTheMemory) {
  expect_left("shared", [](Control& control) {
    EXPECT_TRUE(control.get("data plane/shared memory/0/address", std::chrono::seconds(60)).starts_with("+"));
  });
}

TEST(Connecting, EndsWhenAPeerLeavesBeforeItJoinsTheMemory) {
  expect_left("shared", [](Control& control) {
    control.set("data plane/shared memory/0/1", "+");
    EXPECT_EQ(control.get("data plane/shared memory/0/result", std::chrono::seconds(60)).substr(0, 1), "+");
  });
}

// Process 0 is a real process. This program plays one that finds other memory at the address.
TEST(Connecting, UsesTcpWhenAPeerCannotOpenTheMemory) {
  expect_left("auto", [](Control& control) {
    control.get("data plane/shared memory/0/address", std::chrono::seconds(60));
    control.set("data plane/shared memory/0/1", "-process 1: no such memory");
    EXPECT_EQ(control.get("data plane/shared memory/0/result", std::chrono::seconds(60)), "-process 1: no such memory");
    control.get("data plane/tcp/flat/address/0", std::chrono::seconds(60));
  });
}

TEST(Connecting, EndsWhenAPeerLeavesBeforeItPublishesItsAddress) {
  expect_left("tcp", [](Control& control) { control.get("data plane/tcp/flat/address/0", std::chrono::seconds(60)); });
}

// The higher rank connects: process 0 waits for the connection.
TEST(Connecting, EndsWhenAPeerLeavesBeforeItConnects) {
  expect_left("tcp", [](Control& control) {
    control.get("data plane/tcp/flat/secret", std::chrono::seconds(60));
    control.set("data plane/tcp/flat/address/1", "0 127.0.0.1 plain aes-128-gcm");
  });
}

}  // namespace
}  // namespace lockstep

#endif
