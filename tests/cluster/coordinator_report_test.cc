// What the coordinator concludes when a process reports a failure and then leaves.
#include <gtest/gtest.h>

#include "cluster/coordinator_job.h"

namespace lockstep {
namespace {

// A broken data plane: the process that reports it and then exits has not crashed.
TEST(Coordinator, ProcessThatLeavesAfterItsReportIsNotLost) {
  const Failure trace{.operation = "all_reduce", .step = 4, .message = "waited 60 s; check the network"};
  const std::string expected = "process 1 (host n1), step 4, all_reduce: waited 60 s; check the network";
  enum class Exit { connection_closed, left, coordinator_closed };
  for (const Exit exit : {Exit::connection_closed, Exit::left, Exit::coordinator_closed}) {
    SCOPED_TRACE(static_cast<int>(exit));
    Job job({.process_count = 3, .heartbeat_timeout = 8s});
    job.register_all();
    const auto held = job.beat(1), other = job.beat(2);
    job.ask(1, request::Fail{trace, true});
    if (exit == Exit::connection_closed) job.cancel(held);
    if (exit == Exit::left) job.ask(1, request::Leave{});
    if (exit == Exit::coordinator_closed) job.coordinator().close("process 0 has exited");
    if (exit != Exit::coordinator_closed) {
      EXPECT_EQ(job.failure(), "none");
      job.beat(0);
      job.pass(2s);
    } else {
      job.pass(0s);
    }
    EXPECT_EQ(job.failure(), expected);
    EXPECT_EQ(job.answer(other), "failed: " + expected);
  }
}

// Process 0, with the coordinator, waits for processes that never come. Another one waits a little longer.
TEST(Coordinator, MissingProcessesAreNamedToThoseThatWaitLonger) {
  Job job({.process_count = 3});
  const auto first = job.register_process(0, {.timeout = 5s}), second = job.register_process(1, {.timeout = 6s});
  job.pass(5s);
  const std::string text =
      "register: timeout after 5 s: 2 of 3 processes have registered; missing: process 2; check that they started and "
      "that the network lets them reach the coordinator";
  EXPECT_EQ(job.answer(first), "timeout: " + text);
  EXPECT_EQ(job.answer(second), "waiting");
  job.coordinator().close("process 0 has exited");
  job.pass(0s);
  EXPECT_EQ(job.answer(second), "failed: process 0 (host n0), coordinator: " + text);
}

TEST(Coordinator, ProcessThatCrashesAfterTheReportOfAnotherIsTheCause) {
  Job job({.process_count = 3, .heartbeat_timeout = 8s});
  job.register_all();
  const auto first = job.beat(1), second = job.beat(2);
  job.ask(1, request::Fail{{.message = "lost its connection to process 2"}, true});
  job.cancel(first);
  job.cancel(second);
  EXPECT_NE(job.failure().find("process 2 (host n2): lost: its connection broke"), std::string::npos) << job.failure();
}

}  // namespace
}  // namespace lockstep
