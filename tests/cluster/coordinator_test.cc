// The coordinator's rules: registration, lost and stuck processes, failures and shutdown.
#include "cluster/coordinator.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "cluster/coordinator_job.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

TEST(Coordinator, RegistrationIsAnsweredWhenAllHaveRegistered) {
  Job job({.process_count = 3});
  const auto a = job.register_process(0), b = job.register_process(2, {.pid = 7});
  EXPECT_EQ(job.answer(a), "waiting");
  EXPECT_FALSE(job.coordinator().started());
  const auto c = job.register_process(1);
  for (auto call : {a, b, c}) {
    EXPECT_EQ(job.answer(call), "ok");
    ASSERT_EQ(job.full(call).peers.size(), 3u);
    EXPECT_EQ(job.full(call).peers[2], (Peer{"n2", "10.0.0.2", 7}));
  }
  EXPECT_TRUE(job.coordinator().started());
}

TEST(Coordinator, RegistrationTimeoutCountsAndListsTheMissing) {
  Job job({.process_count = 4, .hosts = {"n0", "n1", "n2", ""}});
  const auto first = job.register_process(0, {.timeout = 5s});
  job.pass(4s);
  const auto second = job.register_process(1, {.timeout = 5s});
  job.pass(1s);
  EXPECT_EQ(job.answer(first),
            "timeout: register: timeout after 5 s: 2 of 4 processes have registered; missing: process 2 (host n2), "
            "process 3; check that they started and that the network lets them reach the coordinator");
  EXPECT_EQ(job.answer(second), "waiting");
  job.pass(4s);
  EXPECT_EQ(
      job.answer(second),
      "timeout: register: timeout after 5 s: 1 of 4 processes have registered; missing: process 0 (host n0), "
      "process 2 (host n2), process 3; check that they started and that the network lets them reach the coordinator");
}

TEST(Coordinator, ListOfMissingProcessesIsLimited) {
  Job job({.process_count = 64});
  const auto call = job.register_process(0, {.timeout = 1s});
  job.pass(1s);
  EXPECT_NE(job.answer(call).find("process 16 and 47 more"), std::string::npos) << job.answer(call);
}

struct Refused {
  const char* name;
  int process;
  uint64_t incarnation;  // 0: of that process
  request::Register what;
  const char* message;
};

class CoordinatorRefuses : public testing::TestWithParam<std::tuple<Refused, bool>> {};

TEST_P(CoordinatorRefuses, RegistrationAndNothingChanges) {
  const auto& [row, late] = GetParam();
  Job job({.process_count = 2});
  const auto first = job.register_process(0);
  if (late) job.register_process(1);
  request::Register what = row.what;
  if (!what.process_count) what.process_count = 2;
  what.host = "evil";
  const auto call = job.ask(row.process, what, row.incarnation);
  const std::string outcome = std::string(row.name) == "IdTaken" ? "taken" : "refused";
  EXPECT_EQ(job.answer(call), outcome + ": register: " + row.message);
  if (!late) {
    EXPECT_EQ(job.answer(first), "waiting");
    job.register_process(1);
  }
  EXPECT_EQ(job.answer(first), "ok");
  const auto a = job.ask(0, request::Barrier{"after", 1s}), b = job.ask(1, request::Barrier{"after", 1s});
  EXPECT_EQ(job.answer(a) + job.answer(b), "okok");
  EXPECT_EQ(job.failure(), "none");
}

INSTANTIATE_TEST_SUITE_P(
    Each, CoordinatorRefuses,
    testing::Combine(
        testing::Values(
            Refused{"IdBeyond",
                    2,
                    5,
                    {.pid = 9},
                    "process 2 (host evil, pid 9): its id is not in 0 ... 1, the ids of a "
                    "job of 2 processes"},
            Refused{"IdNegative",
                    -1,
                    5,
                    {.pid = 9},
                    "process -1 (host evil, pid 9): its id is not in 0 ... 1, the ids "
                    "of a job of 2 processes"},
            Refused{"IdTaken",
                    0,
                    5,
                    {.pid = 9},
                    "process 0 (host evil, pid 9): that id is in use by a running process "
                    "(host n0, pid 0); give every process a different id"},
            Refused{"Replayed", 0, 0, {.pid = 9}, "process 0 (host evil, pid 9): it has already registered"},
            Refused{
                "OtherCount",
                1,
                5,
                {.process_count = 3, .pid = 9},
                "process 1 (host evil, pid 9): it expects 3 processes, the coordinator 2; give all processes the same "
                "number"}),
        testing::Bool()),
    [](const auto& each) {
      return std::string(std::get<0>(each.param).name) + (std::get<1>(each.param) ? "Late" : "Early");
    });

TEST(Coordinator, ProcessThatDiedWhileRegisteringCanRegisterAgain) {
  Job job({.process_count = 2});
  const auto first = job.register_process(0);
  job.cancel(first);
  request::Register again{.process_count = 2, .host = "n0"};
  again.timeout = 300s;
  const auto second = job.ask(0, again, 77);
  const auto other = job.register_process(1);
  EXPECT_EQ(job.answer(first), "waiting");
  EXPECT_EQ(job.answer(second) + job.answer(other), "okok");
}

TEST(Coordinator, RequestsOfUnknownIncarnationsAreRefused) {
  Job job(Job::patient(2));
  const std::string refusal =
      "refused: coordinator: process 1 with this incarnation is not part of the job; it must register first";
  EXPECT_EQ(job.answer(job.ask(1, request::Set{"a", "b"})), refusal);
  const auto early = job.register_process(0);
  EXPECT_EQ(job.answer(job.ask(0, request::Set{"a", "b"})),
            "refused: coordinator: process 0 sent a request before all processes have registered");
  job.register_process(1);
  EXPECT_EQ(job.answer(early), "ok");
  EXPECT_EQ(job.answer(job.ask(1, request::Set{"a", "b"}, 5)), refusal);
  EXPECT_EQ(job.answer(job.ask(1, request::Fail{{.message = "a lie"}}, 5)), refusal);
  EXPECT_EQ(job.answer(job.ask(9, request::Leave{}, 5)),
            "refused: coordinator: process 9 with this incarnation is not part of the job; it must register first");
  EXPECT_EQ(job.failure(), "none");
  EXPECT_EQ(job.answer(job.ask(1, request::Set{"a", "b"})), "ok");
}

TEST(Coordinator, HeartbeatIsHeldForAQuarterOfTheTimeout) {
  Job job({.process_count = 1, .heartbeat_timeout = 8s});
  job.register_all();
  const auto call = job.beat(0);
  job.pass(1900ms);
  EXPECT_EQ(job.answer(call), "waiting");
  job.pass(100ms);
  EXPECT_EQ(job.answer(call), "ok");
}

TEST(Coordinator, ProcessWithoutHeartbeatIsLost) {
  Job job({.process_count = 2, .heartbeat_timeout = 8s});
  job.register_all();
  job.beat(1, {.step = 12, .count = 1, .operation = "all_reduce"});
  for (int i = 0; i < 3; ++i) {
    job.pass(2s);
    job.beat(0);
  }
  const auto waiting = job.ask(0, request::Barrier{"x", 60s});
  const auto held = job.beat(0);
  job.pass(1s);
  EXPECT_EQ(job.failure(), "none");
  job.pass(1s);
  const std::string cause =
      "process 1 (host n1): lost: no heartbeat for 8 s; it has crashed, was suspended, or the network to it is down; 8 "
      "s "
      "earlier it was in step 12, all_reduce";
  EXPECT_EQ(job.failure(), cause);
  EXPECT_EQ(job.answer(waiting), "failed: " + cause);
  EXPECT_EQ(job.answer(held), "failed: " + cause);
  EXPECT_EQ(job.full(held).failure->process, 1);
  EXPECT_TRUE(job.full(held).failure->retryable);
  EXPECT_EQ(job.answer(job.beat(1)), "failed: " + cause);
  EXPECT_EQ(job.answer(job.ask(0, request::Set{"a", "b"})), "failed: " + cause);
  EXPECT_EQ(job.answer(job.register_process(1)), "failed: " + cause);
}

TEST(Coordinator, AnyRequestCountsAsAHeartbeat) {
  Job job({.process_count = 2, .heartbeat_timeout = 8s});
  job.register_all();
  for (int i = 0; i < 10; ++i) {
    job.pass(3s);
    job.ask(0, request::Increment{"a"});
    job.ask(1, request::List{""});
  }
  EXPECT_EQ(job.failure(), "none");
}

TEST(Coordinator, ProcessWithBrokenConnectionIsLostSooner) {
  Job job({.process_count = 2, .heartbeat_timeout = 8s});
  job.register_all();
  job.beat(0);
  job.cancel(job.beat(1, {.step = 3}));
  job.pass(1900ms);
  job.beat(0);
  EXPECT_EQ(job.failure(), "none");
  job.pass(100ms);
  EXPECT_EQ(job.failure(),
            "process 1 (host n1): lost: its connection broke and it did not reconnect; it has probably crashed, see "
            "its log; 2 s "
            "earlier it was in step 3");
}

TEST(Coordinator, ProcessWithBrokenConnectionCanReconnect) {
  Job job({.process_count = 2, .heartbeat_timeout = 8s});
  job.register_all();
  job.beat(0);
  job.cancel(job.beat(1));
  job.pass(1s);
  job.beat_all();
  job.pass_with_beats(20s, 1s);
  EXPECT_EQ(job.failure(), "none");
}

TEST(Coordinator, SuspensionOfTheCoordinatorLosesNoProcess) {
  Job job({.process_count = 2, .heartbeat_timeout = 8s});
  job.register_all();
  job.pass_with_beats(4s, 1s);
  job.sleep(60s);
  job.pass(0s);
  EXPECT_EQ(job.failure(), "none");
  job.beat(0);
  job.pass(7s);
  EXPECT_EQ(job.failure(), "none");
  job.beat(0);
  job.pass(1s);
  EXPECT_NE(job.failure().find("process 1 (host n1): lost: no heartbeat"), std::string::npos) << job.failure();
}

struct StuckRow {
  const char* name;
  Progress first[3], then[3];  // of three processes: at first, and from then on
  int after_s;                 // when a process counts as stuck; 0: never
  const char* failure;
};

class CoordinatorStuck : public testing::TestWithParam<StuckRow> {};

TEST_P(CoordinatorStuck, IsTheProcessWithoutProgressThatOthersWaitFor) {
  const StuckRow& row = GetParam();
  Job job({.process_count = 3, .heartbeat_timeout = 10s, .first_step_timeout = 300s, .step_timeout = 60s});
  job.register_all();
  for (int i = 0; i < 3; ++i) job.set_progress(i, row.first[i]);
  job.pass_with_beats(10s, 1s);
  for (int i = 0; i < 3; ++i) job.set_progress(i, row.then[i]);
  job.beat_all();
  const int quiet = row.after_s ? row.after_s - 1 : 1000;
  job.pass_with_beats(std::chrono::seconds(quiet), 1s);
  EXPECT_EQ(job.failure(), "none");
  job.pass_with_beats(2s, 1s);
  EXPECT_EQ(job.failure(), row.failure);
}

INSTANTIATE_TEST_SUITE_P(
    Each, CoordinatorStuck,
    testing::Values(
        StuckRow{"LaterStep",
                 {{1, 1}, {1, 1}, {1, 1}},
                 {{5, 9, true, "all_reduce"}, {5, 8, false, "data"}, {5, 9, true, "all_reduce"}},
                 60,
                 "process 1 (host n1), step 5, data: stuck: it is alive, but has made no progress (step 5, data) for "
                 "60 s, and other processes wait for it"},
        StuckRow{"FirstStep",
                 {{1, 1}, {1, 1}, {1, 1}},
                 {{1, 9, true, "all_reduce"}, {1, 8, false, "compile"}, {1, 9, true, "all_reduce"}},
                 300,
                 "process 1 (host n1), step 1, compile: stuck: it is alive, but has made no progress (step 1, compile) "
                 "for 5 min, and other processes wait for it"},
        StuckRow{"BeforeTheFirstStep",
                 {{}, {}, {}},
                 {{0, 2, true, "all_reduce"}, {0, 2, true, "all_reduce"}, {}},
                 300,
                 "process 2 (host n2): stuck: it is alive, but has made no progress (before its first step) for 5.17 "
                 "min, and other processes wait for it"},
        StuckRow{"StepBehind",
                 {{1, 1}, {1, 1}, {1, 1}},
                 {{6, 9}, {5, 8, false, "log"}, {6, 9}},
                 60,
                 "process 1 (host n1), step 5, log: stuck: it is alive, but has made no progress (step 5, log) for 60 "
                 "s, and other processes wait for it"},
        StuckRow{"FurthestBehind",
                 {{1, 1}, {1, 1}, {1, 1}},
                 {{5, 9, true}, {4, 8, false, "a"}, {3, 7, false, "b"}},
                 60,
                 "process 2 (host n2), step 3, b: stuck: it is alive, but has made no progress (step 3, b) for 60 s, "
                 "and other processes wait for it"},
        // Collectives have their own timeout.
        StuckRow{"AllWait", {{1, 1}, {1, 1}, {1, 1}}, {{5, 9, true}, {5, 9, true}, {5, 9, true}}, 0, "none"},
        StuckRow{"NobodyWaits", {{1, 1}, {1, 1}, {1, 1}}, {{5, 9}, {5, 8}, {5, 9}}, 0, "none"},
        StuckRow{"NobodySaysAnything", {{}, {}, {}}, {{}, {}, {}}, 0, "none"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(Coordinator, SlowProcessIsNotStuck) {
  Job job({.process_count = 2, .heartbeat_timeout = 10s, .first_step_timeout = 60s, .step_timeout = 60s});
  job.register_all();
  for (uint64_t i = 1; i < 10; ++i) {
    job.set_progress(0, {.step = 5, .count = 100, .waiting = true});
    job.set_progress(1, {.step = 5, .count = i});
    job.pass_with_beats(50s, 1s);
  }
  EXPECT_EQ(job.failure(), "none");
}

// The timeout counts from when both stop making progress, not from the last progress of the slow one.
TEST(Coordinator, StuckTimeoutStartsWhenBothStopMakingProgress) {
  Job job({.process_count = 2, .heartbeat_timeout = 10s, .first_step_timeout = 60s, .step_timeout = 60s});
  job.register_all();
  for (int i = 0; i < 2; ++i) job.set_progress(i, {.step = 5, .count = 1});
  job.pass_with_beats(100s, 1s);
  job.set_progress(0, {.step = 5, .count = 2, .waiting = true});
  job.pass_with_beats(50s, 1s);
  EXPECT_EQ(job.failure(), "none");
  job.pass_with_beats(12s, 1s);
  EXPECT_NE(job.failure().find("process 1 (host n1), step 5: stuck"), std::string::npos) << job.failure();
}

TEST(Coordinator, FirstFailureCountsAndIsSentToAll) {
  Job job(Job::patient(3));
  job.register_all();
  const auto get = job.ask(0, request::Get{"never", true, 60s});
  const auto beat = job.beat(2);
  const Failure cause{.operation = "load", .step = 4, .message = "no such file", .retryable = false};
  EXPECT_EQ(job.answer(job.ask(1, request::Fail{cause})), "ok");
  const std::string expected = "failed: process 1 (host n1), step 4, load: no such file";
  EXPECT_EQ(job.answer(get), expected);
  EXPECT_EQ(job.answer(beat), expected);
  EXPECT_FALSE(job.full(beat).failure->retryable);
  EXPECT_EQ(job.answer(job.ask(2, request::Fail{{.message = "me too"}})), expected);
  EXPECT_EQ(job.answer(job.ask(0, request::Shutdown{1s})), expected);
}

TEST(Coordinator, TracksDeliveryOfTheFailure) {
  Job job(Job::patient(4));
  job.register_all();
  job.beat(0);
  job.cancel(job.beat(3));
  EXPECT_FALSE(job.coordinator().failure_delivered());
  job.ask(1, request::Fail{{.message = "m"}});
  EXPECT_FALSE(job.coordinator().failure_delivered());
  job.beat(2);
  EXPECT_TRUE(job.coordinator().failure_delivered());
}

TEST(Coordinator, FailureReportCanNameAnotherProcess) {
  Job job(Job::patient(3));
  job.register_all();
  job.ask(1, request::Fail{{.process = 2, .operation = "all_reduce", .message = "sent nonsense"}});
  EXPECT_EQ(job.failure(), "process 2 (host n2), all_reduce: sent nonsense");
}

TEST(Coordinator, ConsequenceWaitsForItsCause) {
  const Failure trace{.operation = "all_reduce", .step = 4, .message = "connection closed by peer"};
  {
    Job job({.process_count = 3, .heartbeat_timeout = 8s});
    job.register_all();
    const auto held = job.beat(2);
    job.ask(0, request::Fail{trace, true});
    EXPECT_EQ(job.failure(), "none");
    job.cancel(held);  // the cause
    EXPECT_NE(job.failure().find("process 2 (host n2): lost: its connection broke"), std::string::npos)
        << job.failure();
  }
  {
    Job job({.process_count = 3, .heartbeat_timeout = 8s});
    job.register_all();
    job.cancel(job.beat(2));
    job.ask(0, request::Fail{trace, true});
    EXPECT_NE(job.failure().find("process 2 (host n2): lost: its connection broke"), std::string::npos)
        << job.failure();
  }
  {
    Job job({.process_count = 3, .heartbeat_timeout = 8s});
    job.register_all();
    job.ask(0, request::Fail{trace, true});
    job.ask(1, request::Fail{{.message = "out of memory"}});
    EXPECT_EQ(job.failure(), "process 1 (host n1): out of memory");
  }
  {
    Job job({.process_count = 3, .heartbeat_timeout = 8s});
    job.register_all();
    job.ask(0, request::Fail{trace, true});
    job.pass(1s);
    job.beat_all();
    EXPECT_EQ(job.failure(), "none");
    job.pass(1s);
    EXPECT_EQ(job.failure(), "process 0 (host n0), step 4, all_reduce: connection closed by peer");
  }
}

TEST(Coordinator, ShutdownWaitsForAll) {
  Job job(Job::patient(2));
  job.register_all();
  const auto held = job.beat(0);
  const auto first = job.ask(0, request::Shutdown{60s});
  job.pass(30s);
  EXPECT_EQ(job.answer(first), "waiting");
  EXPECT_EQ(job.answer(job.ask(1, request::Shutdown{1s})), "ok");
  EXPECT_EQ(job.answer(first), "ok");
  EXPECT_EQ(job.answer(held), "over");
  EXPECT_TRUE(job.coordinator().over());
  EXPECT_EQ(job.answer(job.ask(1, request::Set{"a", "b"})), "over: coordinator: the job is over");
  EXPECT_EQ(job.answer(job.register_process(0, {.pid = 1})),
            "refused: register: process 0 (host n0, pid 1): the job is over");
  job.pass(100h);
  EXPECT_EQ(job.failure(), "none");
}

TEST(Coordinator, ShutdownTimeoutIsAFailureOfTheMissing) {
  Job job(Job::patient(3));
  job.register_all();
  const auto held = job.beat(2);
  const auto first = job.ask(0, request::Shutdown{5s}), second = job.ask(1, request::Shutdown{50s});
  job.pass(5s);
  const std::string fact = "shutdown: 2 of 3 processes arrived within 5 s; missing: process 2 (host n2)";
  EXPECT_EQ(job.answer(first), "timeout: " + fact);
  EXPECT_EQ(job.answer(second), "timeout: " + fact);
  EXPECT_EQ(job.answer(held), "failed: process 2 (host n2): " + fact);
}

TEST(Coordinator, LeavingWithoutShutdownIsAFailure) {
  Job job(Job::patient(2));
  job.register_all();
  const auto waiting = job.ask(0, request::Shutdown{5s});
  EXPECT_EQ(job.answer(job.ask(1, request::Leave{})), "ok");
  EXPECT_EQ(job.answer(waiting), "failed: process 1 (host n1): left the job without shutdown(); see its log");
}

TEST(Coordinator, CloseAnswersAllPendingCalls) {
  Job job(Job::patient(2));
  const auto registration = job.register_process(1);
  job.coordinator().close("process 0 has exited");
  job.pass(0s);
  EXPECT_EQ(job.answer(registration), "failed: process 0, coordinator: process 0 has exited");
}

TEST(Coordinator, OptionsAreChecked) {
  const Coordinator::Time now{};
  EXPECT_THROWS(Coordinator({.process_count = 0}, now), Error,
                "coordinator: process_count is 0; it must be at least 1");
  EXPECT_THROWS(Coordinator({.heartbeat_timeout = 0s}, now), Error, "coordinator: heartbeat_timeout must be positive");
}

TEST(Messages, FailureIsOneLine) {
  EXPECT_EQ(describe(Failure{.message = "m"}), "m");
  EXPECT_EQ(describe(Failure{.host = "h", .message = "m"}), "host h: m");
  EXPECT_EQ(describe(Failure{.process = 0, .step = 3, .message = "m"}), "process 0, step 3: m");
  EXPECT_EQ(describe(Failure{.process = 1, .host = "h", .operation = "o", .step = 0, .message = "m"}),
            "process 1 (host h), step 0, o: m");
  EXPECT_EQ(describe(Failure{.process = 1, .host = "h", .pid = 7, .message = "m"}), "process 1 (host h, pid 7): m");
}

TEST(Messages, DurationsAreReadable) {
  EXPECT_EQ(describe(250ms), "250 ms");
  EXPECT_EQ(describe(1500ms), "1.5 s");
  EXPECT_EQ(describe(60s), "60 s");
  EXPECT_EQ(describe(300s), "5 min");
}

}  // namespace
}  // namespace lockstep
