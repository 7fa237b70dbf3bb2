// Control over all transports: in process, gRPC and mailbox.
#include "cluster/control.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "base/throws.h"
#include "cluster/control_job.h"
#include "cluster/naming.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

class ControlOver : public testing::TestWithParam<Transport> {
 protected:
  ControlJob::Options options(int count) const { return {.count = count, .transport = GetParam()}; }
};

TEST_P(ControlOver, AllProcessesJoinAndKnowTheirPeers) {
  ControlJob job(options(3));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(job[i].process_id(), i);
    EXPECT_EQ(job[i].process_count(), 3);
    ASSERT_EQ(job[i].peers().size(), 3u);
    for (int j = 0; j < 3; ++j) {
      const Peer& peer = job[i].peers()[static_cast<size_t>(j)];
      EXPECT_EQ(peer.host, "n" + std::to_string(j));
      EXPECT_EQ(peer.pid, ::getpid());
      EXPECT_EQ(peer.address, GetParam() == Transport::network && j > 0 ? "127.0.0.1" : "");
    }
  }
  job.shutdown();
}

TEST_P(ControlOver, KeysAreVisibleToAllProcesses) {
  ControlJob job(options(2));
  auto waiting = std::async(std::launch::async, [&] { return job[1].get("a", kGenerous); });
  const std::string value("any\0bytes\xff", 10);
  job[0].set("a", value);
  EXPECT_EQ(waiting.get(), value);
  EXPECT_EQ(job[1].try_get("a"), value);
  EXPECT_EQ(job[1].try_get("b"), std::nullopt);
  EXPECT_THROWS(job[1].set("a", "other"), Error, "the key \"a\" is already set");
  job[1].overwrite("a", "other");
  EXPECT_EQ(job[0].get("a", 0s), "other");
  EXPECT_THROWS(job[0].get("never", 30ms), CommTimeout, "get: no process has set the key \"never\" within 30 ms");
  EXPECT_THROWS(job[0].set("", "x"), Error, "set: the key is empty");
  job[0].set("d/x", "1");
  job[0].set("d/y", "2");
  EXPECT_EQ(job[1].list("d"), (std::vector<std::pair<std::string, std::string>>{{"d/x", "1"}, {"d/y", "2"}}));
  EXPECT_EQ(job[1].remove("d"), 2);
  EXPECT_EQ(job[0].try_get("d/x"), std::nullopt);
  KeyStore& store = job[1];
  EXPECT_EQ(store.get("a", kGenerous), "other");
  job.shutdown();
}

TEST_P(ControlOver, LargestValueIsTransferred) {
  ControlJob job(options(2));
  const std::string value(size_t{4} << 20, 'x');
  job[0].set("a", value);
  EXPECT_EQ(job[1].get("a", kGenerous), value);
  EXPECT_THROWS(job[1].set("b", value + "y"), Error, "has 4194305 bytes; at most 4194304 are allowed");
  job.shutdown();
}

TEST_P(ControlOver, IncrementIsAtomic) {
  ControlJob job(options(4));
  std::mutex mutex;
  std::set<int64_t> seen;
  on_all(4, [&](int i) {
    for (int n = 0; n < 10; ++n) {
      const int64_t number = job[i].increment("n");
      const std::lock_guard lock(mutex);
      seen.insert(number);
    }
  });
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_EQ(*seen.rbegin(), 40);
  job.shutdown();
}

TEST_P(ControlOver, BarrierWaitsForAllProcesses) {
  ControlJob job(options(4));
  std::atomic<int> came{0};
  for (int round = 1; round <= 5; ++round) {
    on_all(4, [&](int i) {
      ++came;
      job[i].barrier("x", kGenerous);
      EXPECT_GE(came, 4 * round);
    });
  }
  on_all(2, [&](int i) { job[i * 2].barrier("even", kGenerous, {0, 2}); });
  EXPECT_THROWS(job[1].barrier("even", kGenerous, {0, 2}), Error, "process 1 is not one of the participants 0, 2");
  job.shutdown();
}

// The label of a process in messages; all processes of these jobs have this process's pid.
std::string named(int process) { return process_label(process, "n" + std::to_string(process), ::getpid()); }

TEST_P(ControlOver, BarrierTimeoutListsTheMissing) {
  ControlJob job(options(3));
  EXPECT_THROWS(job[0].barrier("x", 30ms), CommTimeout,
                "barrier \"x\": 1 of 3 processes arrived within 30 ms; missing: " + named(1) + ", " + named(2));
  job.barrier("y");
  job.shutdown();
}

TEST_P(ControlOver, AgreementReportsTheFirstDifferenceToAll) {
  ControlJob job(options(3));
  std::atomic<int> texts{0};
  on_all(3, [&](int i) {
    job[i].agree(
        "step", 5, [&] { return ++texts, std::string(); }, kGenerous);
  });
  EXPECT_EQ(texts, 0);
  on_all(3, [&](int i) {
    const std::string text = i == 2 ? "a = add x x\nb = mul a a" : "a = add x x\nb = add a a";
    EXPECT_THROWS(job[i].agree(
                      "step", i == 2, [&] { return ++texts, text; }, kGenerous, "equation"),
                  Error,
                  "agree \"step\": " + named(0) + " and " + named(2) +
                      " differ at equation 2:\n"
                      "  process 0: b = add a a\n  process 2: b = mul a a\n");
  });
  EXPECT_EQ(texts, 2);
  job.shutdown();
}

TEST_P(ControlOver, FailureReachesEveryProcessOnce) {
  ControlJob job(options(3));
  ReportedFailure first(job[0]), second(job[1]), third(job[2]);
  auto waiting = std::async(std::launch::async, [&] {
    EXPECT_THROWS(job[0].get("never", kGenerous), CommAborted,
                  "get: the job has failed: " + named(2) + ", step 7, load: no such file");
  });
  job[2].progress(7, "load");
  job[2].report_failure({.message = "no such file", .retryable = false});
  job[1].report_failure({.message = "too late"});
  waiting.get();
  for (ReportedFailure* reported : {&first, &second, &third}) {
    const Failure failure = reported->wait();
    EXPECT_EQ(failure, (Failure{.process = 2,
                                .host = "n2",
                                .pid = ::getpid(),
                                .operation = "load",
                                .step = 7,
                                .message = "no such file",
                                .retryable = false}));
  }
  EXPECT_EQ(job[1].failure()->message, "no such file");
  EXPECT_THROWS(job[1].barrier("x", kGenerous), CommAborted,
                "barrier \"x\": the job has failed: " + named(2) + ", step 7, load: no such file");
  EXPECT_THROWS(job[0].shutdown(kGenerous), CommAborted, "shutdown: the job has failed: ");
}

TEST_P(ControlOver, LateCallbackReceivesTheFailure) {
  ControlJob job(options(2));
  ReportedFailure first(job[0]);
  job[1].report_failure({.message = "m"});
  first.wait();
  ReportedFailure late(job[1]);
  EXPECT_EQ(late.wait().message, "m");
}

// A caller may end the process when a call throws the failure.
TEST_P(ControlOver, FailureCallbackReturnsBeforeCallsThrow) {
  ControlJob job(options(2));
  std::promise<void> called;
  std::atomic<bool> done = false;
  job[0].on_failure([&](const Failure&) {
    called.set_value();
    std::this_thread::sleep_for(200ms);
    done = true;
  });
  job[1].report_failure({.message = "m"});
  called.get_future().wait();
  EXPECT_THROWS(job[0].get("never", kGenerous), CommAborted, "get: the job has failed: " + named(1));
  EXPECT_TRUE(done);
}

TEST_P(ControlOver, DestructionWithoutShutdownIsAFailure) {
  ControlJob job(options(2));
  ReportedFailure reported(job[0]);
  job[1].progress(3, "step");
  job.drop(1);
  const Failure failure = reported.wait();
  EXPECT_EQ(failure.process, 1);
  EXPECT_EQ(failure.message, "left the job without shutdown(); see its log");
  EXPECT_TRUE(failure.retryable);
}

TEST_P(ControlOver, ProcessWithoutHeartbeatsIsLost) {
  ControlJob::Options short_life = options(2);
  short_life.heartbeat_timeout = 400ms;
  short_life.not_started = 1;
  ControlJob job(short_life);
  // Registers, and then sends nothing.
  std::unique_ptr<ControlChannel> silent = job.raw_channel();
  const Request registration{.process = 1,
                             .incarnation = 5,
                             .what = request::Register{.process_count = 2, .host = "quiet", .timeout = kGenerous}};
  EXPECT_EQ(silent->call(registration, kGenerous).outcome, Outcome::ok);
  job.wait();
  ReportedFailure reported(job[0]);
  const Failure failure = reported.wait();
  EXPECT_EQ(failure.process, 1);
  EXPECT_EQ(failure.host, "quiet");
  EXPECT_NE(failure.message.find("lost: no heartbeat for 400 ms"), std::string::npos) << failure.message;
  EXPECT_TRUE(failure.retryable);
}

TEST_P(ControlOver, StuckProcessIsDetected) {
  ControlJob::Options short_steps = options(2);
  short_steps.heartbeat_timeout = 2s;
  short_steps.step_timeout = 300ms;
  ControlJob job(short_steps);
  ReportedFailure first(job[0]), second(job[1]);
  job[0].progress(4, "all_reduce", true);
  job[1].progress(4, "read data");
  for (ReportedFailure* reported : {&first, &second}) {
    const Failure failure = reported->wait();
    EXPECT_EQ(failure.process, 1);
    EXPECT_EQ(failure.host, "n1");
    EXPECT_EQ(failure.operation, "read data");
    EXPECT_EQ(failure.step, 4);
    EXPECT_NE(failure.message.find("stuck: it is alive"), std::string::npos) << failure.message;
  }
}

TEST_P(ControlOver, LongOperationNamesAreCut) {
  ControlJob job(options(2));
  ReportedFailure reported(job[0]);
  job[1].progress(1, std::string(100, 'x'));
  job[1].report_failure({.message = "m"});
  EXPECT_EQ(reported.wait().operation, std::string(64, 'x'));
}

TEST_P(ControlOver, ProgressIsSafeFromManyThreads) {
  ControlJob::Options lively = options(2);
  lively.heartbeat_timeout = 1s;  // the background thread reads the progress four times per timeout
  ControlJob job(lively);
  on_all(4, [&](int i) {
    for (int step = 0; step < 1000; ++step) job[i % 2].progress(step, i < 2 ? "here" : "there", i % 2);
  });
  job.shutdown();
}

TEST_P(ControlOver, CallsFailAfterShutdown) {
  ControlJob job(options(2));
  job.shutdown();
  EXPECT_THROWS(job[0].set("a", "b"), CommError, "set: no answer from the coordinator");
}

std::vector<Transport> transports() {
#ifdef LOCKSTEP_WITH_GRPC
  return {Transport::in_process, Transport::mailbox, Transport::network};
#else
  return {Transport::in_process, Transport::mailbox};
#endif
}

INSTANTIATE_TEST_SUITE_P(Each, ControlOver, testing::ValuesIn(transports()), [](const auto& each) {
  return std::string(each.param == Transport::network   ? "Network"
                     : each.param == Transport::mailbox ? "Mail"
                                                        : "InProcess");
});

TEST(Control, SingleProcessWorksAlone) {
  const auto control = join_control({.host = "here"});
  control->barrier("x", 1s);
  control->agree(
      "y", 1, [] { return std::string(); }, 1s);
  control->set("a", "b");
  EXPECT_EQ(control->get("a", 0s), "b");
  EXPECT_EQ(control->peers().at(0).host, "here");
  control->shutdown(1s);
}

TEST(Control, HostDefaultsToTheHostName) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(join_control({})->peers().at(0).host, name);
}

TEST(Control, RefusedRegistrationThrows) {
  EXPECT_THROWS(join_control({.process_id = 1, .process_count = 1}), Error,
                "initialize: process id 1 is not in 0 ... 0");
  EXPECT_THROWS(join_control({.process_id = 0, .process_count = 0}), Error,
                "initialize: the number of processes is 0; it must be at least 1");
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{});
  EXPECT_THROWS(Control(in_process_channel(host), {.process_id = 3, .host = "h"}), Error,
                "register: process 3 (host h, pid ");
}

TEST(Control, MissingProcessesThrowIoError) {
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = 2});
  EXPECT_THROWS(Control(in_process_channel(host), {.process_count = 2, .initialization_timeout = 30ms}), IoError,
                "register: timeout after 30 ms: 1 of 2 processes have registered; missing: process 1");
}

// A channel that forwards to another one; subclasses disturb some calls.
class ForwardingChannel : public ControlChannel {
 public:
  explicit ForwardingChannel(std::unique_ptr<ControlChannel> channel) : channel_(std::move(channel)) {}

  void close() override { channel_->close(); }
  std::string coordinator() const override { return channel_->coordinator(); }

 protected:
  const std::unique_ptr<ControlChannel> channel_;
};

// Delivers the answer to an agreement only after the job's failure has arrived, like a thread that is scheduled late.
class DelayedAgreementChannel final : public ForwardingChannel {
 public:
  using ForwardingChannel::ForwardingChannel;

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    Answer answer = channel_->call(request, timeout);
    std::unique_lock lock(mutex_);
    if (answer.outcome == Outcome::failed) {
      failed_ = true;
      changed_.notify_all();
    } else if (std::holds_alternative<request::Agree>(request.what)) {
      EXPECT_TRUE(changed_.wait_for(lock, kGenerous, [&] { return failed_; }));
      if (changed_.wait_for(lock, 200ms, [&] { return closed_; }))
        return {.outcome = Outcome::unreachable, .text = "the channel was closed"};
    }
    return answer;
  }
  void close() override {
    ForwardingChannel::close();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false, closed_ = false;
};

// Process 0 receives the same refusal and exits, which fails the job. The others still get the refusal.
TEST(Control, PendingCallGetsItsOwnAnswerBeforeTheFailure) {
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = 3});
  on_all(3, [&](int i) {
    std::unique_ptr<ControlChannel> channel = in_process_channel(host);
    if (i == 1) channel = std::make_unique<DelayedAgreementChannel>(std::move(channel));
    Control control(std::move(channel), {.process_id = i, .process_count = 3, .host = "n" + std::to_string(i)});
    ReportedFailure reported(control);
    EXPECT_THROWS(control.agree(
                      "step", i == 2, [&] { return std::to_string(i); }, kGenerous),
                  Error, "agree \"step\": " + named(0) + " and " + named(2) + " differ at line 1:");
    if (i == 0) control.report_failure({.message = "we differ"});
    EXPECT_EQ(reported.wait().message, "we differ");
  });
}

// Process 0 of a job of two fails while process 1, which uses a `Channel`, waits for a value.
template <typename Channel>
void expect_cause_over() {
  const auto host =
      std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = 2, .heartbeat_timeout = kGenerous});
  on_all(2, [&](int i) {
    std::unique_ptr<ControlChannel> channel = in_process_channel(host);
    if (i == 1) channel = std::make_unique<Channel>(std::move(channel));
    Control control(
        std::move(channel),
        {.process_id = i, .process_count = 2, .heartbeat_timeout = kGenerous, .host = "n" + std::to_string(i)});
    ReportedFailure reported(control);
    if (i == 0) {
      control.report_failure({.message = "no such file", .retryable = false});
    } else {
      EXPECT_THROWS(control.get("never", kGenerous), CommAborted, "get: the job has failed: ");
      ASSERT_TRUE(control.failure());  // immediately
    }
    const Failure failure = reported.wait();
    EXPECT_EQ(failure.message, "no such file");
    EXPECT_FALSE(failure.retryable);
  });
}

// Heartbeats do not reach the coordinator, as if it exited after it answered one call.
class NoHeartbeatChannel final : public ForwardingChannel {
 public:
  using ForwardingChannel::ForwardingChannel;

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    if (std::holds_alternative<request::Heartbeat>(request.what))
      return {.outcome = Outcome::unreachable, .text = "the connection broke"};
    return channel_->call(request, timeout);
  }
};

TEST(Control, FailureIsRememberedWithoutHeartbeats) { expect_cause_over<NoHeartbeatChannel>(); }

// Calls get no answer when the job fails, but a heartbeat receives the failure a little later, as if the coordinator
// exited meanwhile.
class DelayedHeartbeatChannel final : public ForwardingChannel {
 public:
  using ForwardingChannel::ForwardingChannel;

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    Answer answer = channel_->call(request, timeout);
    if (answer.outcome != Outcome::failed) return answer;
    if (!std::holds_alternative<request::Heartbeat>(request.what))
      return {.outcome = Outcome::unreachable, .text = "the channel was closed"};
    std::this_thread::sleep_for(200ms);
    return answer;
  }
};

TEST(Control, UnansweredCallThrowsTheCauseFromTheHeartbeat) { expect_cause_over<DelayedHeartbeatChannel>(); }

TEST(Control, FailedJobCannotBeJoined) {
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{});
  host->close("enough");
  EXPECT_THROWS(Control(in_process_channel(host), {}), CommAborted,
                "register: the job has failed: process 0, coordinator: enough");
}

}  // namespace
}  // namespace lockstep
