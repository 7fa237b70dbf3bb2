// The control plane over loopback: addresses, unauthorized clients, many processes, and broken networks.
#ifdef LOCKSTEP_WITH_GRPC

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/throws.h"
#include "cluster/control_job.h"
#include "cluster/grpc/client.h"
#include "cluster/grpc/server.h"
#include "cluster/own_name.h"
#include "cluster/sockets.h"
#include "lockstep/error.h"
#include "support/variable.h"

namespace lockstep {
namespace {

ControlJob::Options over_network(int count) { return {.count = count, .transport = Transport::network}; }

TEST(ControlNetwork, SixtyFourProcessesJoin) {
  ControlJob job(over_network(64));
  job.barrier("x");
  on_all(64, [&](int i) { job[i].set("address/" + std::to_string(i), std::to_string(i)); });
  EXPECT_EQ(job[63].list("address").size(), 64u);
  job.barrier("x");
  job.shutdown();
}

// Runs a job of two processes with the coordinator at `host`. Returns the address of process 1 as process 0 sees it.
std::string meet_at(const std::string& host) {
  ControlJob::Options options = over_network(2);
  options.host = host;
  ControlJob job(options);
  job.barrier("x");
  job.shutdown();
  return job[0].peers()[1].address;
}

TEST(ControlNetwork, Ipv6Works) {
  if (!std::ranges::any_of(detail::list_interfaces(), [](const auto& each) { return each.address == "::1"; }))
    GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_EQ(meet_at("::1"), "::1");
}

TEST(ControlNetwork, NamesWork) {
  const std::string name = own_host_name_or_empty();
  if (name.empty()) GTEST_SKIP() << kNoName;
  EXPECT_TRUE(is_own_ip(meet_at(name)));
}

class UnauthorizedClient : public testing::Test {
 protected:
  UnauthorizedClient() : job_({.count = 3, .transport = Transport::network}) {}
  // The job still works.
  void TearDown() override {
    job_.barrier("after");
    EXPECT_EQ(job_[0].failure(), std::nullopt);
    for (const std::string& line : job_.lines.take())
      EXPECT_EQ(line.find(kTestToken), std::string::npos) << "the token was logged";
    job_.shutdown();
  }
  std::unique_ptr<ControlChannel> channel(const std::string& token) {
    return network_channel({.coordinator = {"127.0.0.1", job_.port()}, .token = token, .log = job_.lines.log()});
  }
  Answer register_process(int process, uint64_t incarnation, const std::string& token, int count = 3) {
    return channel(token)->call(
        {.process = process,
         .incarnation = incarnation,
         .what = request::Register{.process_count = count, .host = "evil", .timeout = kGenerous}},
        kGenerous);
  }
  void expect_refused(const Answer& answer, const std::string& part, Outcome outcome = Outcome::refused) {
    EXPECT_EQ(answer.outcome, outcome);
    EXPECT_NE(answer.text.find(part), std::string::npos) << answer.text;
    EXPECT_EQ(answer.text.find(kTestToken), std::string::npos) << "the token is in the message";
  }

  ControlJob job_;
};

TEST_F(UnauthorizedClient, MissingOrWrongTokenIsRefusedAndLoggedOnce) {
  for (const char* token : {"", "0123456789abcdef0123456789abcdeX", "0123456789abcdef", "x"})
    expect_refused(register_process(1, 5, token),
                   "token: the coordinator at 127.0.0.1:" + std::to_string(job_.port()) +
                       " refused this process: its token is missing or wrong; give all processes of the job the same "
                       "LOCKSTEP_TOKEN");
  EXPECT_EQ(job_.lines.take(),
            std::vector<std::string>{"the coordinator refused a connection from 127.0.0.1: its token is missing "
                                     "or wrong (logged once per address)"});
}

TEST_F(UnauthorizedClient, IdOutOfRangeIsRefused) {
  expect_refused(register_process(3, 5, kTestToken), "its id is not in 0 ... 2");
}

TEST_F(UnauthorizedClient, IdInUseIsRefused) {
  expect_refused(register_process(1, 5, kTestToken), "that id is in use by a running process (host n1, pid ",
                 Outcome::taken);
}

TEST_F(UnauthorizedClient, ProcessOfAnotherJobIsRefused) {
  expect_refused(register_process(1, 5, kTestToken, 4), "it expects 4 processes, the coordinator 3");
}

TEST_F(UnauthorizedClient, RequestInTheNameOfAnotherProcessIsRefused) {
  const auto own = channel(kTestToken);
  // A channel connects with its registration, even if that is refused.
  own->call({.process = 9, .what = request::Register{.timeout = kGenerous}}, kGenerous);
  expect_refused(own->call({.process = 1, .incarnation = 5, .what = request::Leave{}}, kGenerous),
                 "process 1 with this incarnation is not part of the job");
}

TEST_F(UnauthorizedClient, ConnectionWithGarbageIsClosed) {
  std::string noise;
  for (int i = 0; i < 5000; ++i) noise += static_cast<char>((i * 7919 + 13) % 256);
  for (const std::string& bytes :
       {noise, std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + noise,
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise}) {
    TestSocket socket;
    ASSERT_TRUE(socket.connect(job_.port()));
    socket.send(bytes);  // may fail: the listener can close early
    EXPECT_TRUE(socket.wait_closed(60'000));
    job_.barrier("between");
  }
}

TEST_F(UnauthorizedClient, IdleConnectionDoesNotDisturbTheJob) {
  std::vector<TestSocket> sockets(50);
  for (TestSocket& socket : sockets) ASSERT_TRUE(socket.connect(job_.port()));
  job_.barrier("between");
}

TEST(ControlNetwork, ReplayedRegistrationIsRefused) {
  ControlJob::Options options = over_network(3);
  options.not_started = 1;
  ControlJob job(options);
  const Request registration{.process = 2,
                             .incarnation = 5,
                             .what = request::Register{.process_count = 3, .host = "n2", .timeout = kGenerous}};
  const auto own = job.raw_channel(), thief = job.raw_channel();
  EXPECT_EQ(own->call(registration, kGenerous).outcome, Outcome::ok);
  job.wait();
  const Answer replayed = thief->call(registration, kGenerous);
  EXPECT_EQ(replayed.outcome, Outcome::refused);
  EXPECT_NE(replayed.text.find("it has already registered"), std::string::npos) << replayed.text;
  auto barrier = std::async(std::launch::async, [&] {
    return own->call({.process = 2, .incarnation = 5, .what = request::Barrier{"after", kGenerous}}, kGenerous);
  });
  on_all(2, [&](int i) { job[i].barrier("after", kGenerous); });
  EXPECT_EQ(barrier.get().outcome, Outcome::ok);
  own->call({.process = 2, .incarnation = 5, .what = request::Leave{}}, kGenerous);
}

TEST(ControlNetwork, WorkersCanStartBeforeTheCoordinator) {
  int port;
  {
    TestSocket socket;
    port = socket.listen();
  }
  Lines lines;
  const auto options = [&](int i) {
    return JoinOptions{.process_id = i,
                       .process_count = 2,
                       .coordinator = {"127.0.0.1", port},
                       .token = kTestToken,
                       .initialization_timeout = kGenerous,
                       .log = lines.log()};
  };
  auto worker = std::async(std::launch::async, [&] {
    const auto control = join_control(options(1));
    control->shutdown(kGenerous);
  });
  // Waits until it logs that it cannot reach the coordinator.
  const auto deadline = std::chrono::steady_clock::now() + kGenerous;
  std::vector<std::string> logged;
  while (logged.empty() && std::chrono::steady_clock::now() < deadline) {
    logged = lines.take();
    std::this_thread::yield();
  }
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_NE(logged[0].find("cannot reach the coordinator at 127.0.0.1:" + std::to_string(port) + " yet ("),
            std::string::npos)
      << logged[0];
  const auto control = join_control(options(0));
  control->shutdown(kGenerous);
  worker.get();
  EXPECT_TRUE(lines.take().empty());
}

TEST(ControlNetwork, UnresolvableNameIsRetriedUntilTheTimeout) {
  Lines lines;
  const JoinOptions worker{.process_id = 1,
                           .process_count = 2,
                           .coordinator = {"no-such-host.invalid", 1234},
                           .token = kTestToken,
                           .initialization_timeout = 1500ms,
                           .log = lines.log()};
  EXPECT_THROWS(
      join_control(worker), IoError,
      "register: process 1 cannot reach process 0 (the coordinator at no-such-host.invalid:1234): in 1.5 s: resolve "
      "no-such-host.invalid: ");
  EXPECT_LE(lines.take().size(), 1u);
  JoinOptions first = worker;
  first.process_id = 0;
  EXPECT_THROWS(join_control(first), IoError, "listen: resolve no-such-host.invalid: ");
  const auto logged = lines.take();
  EXPECT_LE(logged.size(), 1u);
}

TEST(ControlNetwork, ErrorForAPortInUseNamesTheProcess) {
  TestSocket socket;
  const int port = socket.listen();
  EXPECT_THROWS(join_control({.process_id = 0, .process_count = 2, .coordinator = {"127.0.0.1", port}}), Error,
                "listen on 127.0.0.1:" + std::to_string(port) + ": Address already in use: pid " +
                    std::to_string(::getpid()) + " (");
}

TEST(ControlNetwork, AnotherProgramOnThePortIsRecognized) {
  TestSocket web;
  const int port = web.listen();
  std::jthread serving([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting = {.fd = web.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      TestSocket client(::accept4(web.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      client.send("HTTP/1.0 400 Bad Request\r\n\r\n");
    }
  });
  EXPECT_THROWS(join_control({.process_id = 1,
                              .process_count = 2,
                              .coordinator = {"127.0.0.1", port},
                              .token = kTestToken,
                              .initialization_timeout = 500ms}),
                IoError, "the process that listens there does not answer as a coordinator: it is another program");
}

TEST(ControlNetwork, ListensOnlyOnTheGivenAddress) {
  ControlJob job(over_network(2));
  EXPECT_EQ(detail::listen_error("127.0.0.1", job.port()), "Address already in use");
  // An address that no other test uses: elsewhere the port may be in use.
  EXPECT_EQ(detail::listen_error("127.0.3.2", job.port()), "");
  job.shutdown();
}

TEST(ControlNetwork, ProxyVariablesAreIgnored) {
  const std::string nowhere = "http://127.0.0.1:1";
  const ScopedVariable http("http_proxy", nowhere), https("https_proxy", nowhere), grpc("grpc_proxy", nowhere);
  ControlJob job(over_network(2));
  job.barrier("x");
  job.shutdown();
}

// No connection is closed and nothing is answered: both ends must detect it by timeouts.
TEST(ControlNetwork, SilentlyBrokenNetworkIsDetectedAtBothEnds) {
  ControlJob::Options options = over_network(2);
  options.heartbeat_timeout = 1s;
  options.not_started = 1;
  ControlJob job(options);
  TcpRelay wire(job.port());
  JoinOptions far = job.join_options(1);
  far.coordinator.port = wire.port();
  const auto worker = join_control(far);
  job.wait();
  ReportedFailure here(job[0]), there(*worker);
  // Detected by the keepalive of the connection or by the missing heartbeat, whichever comes first.
  auto waiting = std::async(std::launch::async, [&] { EXPECT_THROW(worker->get("never", kGenerous), CommError); });
  wire.cut();
  const Failure lost = here.wait();
  EXPECT_EQ(lost.process, 1);
  EXPECT_NE(lost.message.find("lost: "), std::string::npos) << lost.message;
  const Failure alone = there.wait();
  EXPECT_EQ(alone.process, 0);
  EXPECT_EQ(alone.host, "n0");
  EXPECT_EQ(alone.operation, "coordinator at 127.0.0.1:" + std::to_string(wire.port()));
  EXPECT_NE(alone.message.find("lost: no answer for 1 s"), std::string::npos) << alone.message;
  EXPECT_TRUE(alone.retryable);
  waiting.get();
}

// Connections that are refused for a moment do not mean that the coordinator has exited.
TEST(ControlNetwork, BriefNetworkInterruptionIsNotAFailure) {
  ControlJob::Options options = over_network(2);
  options.not_started = 1;
  ControlJob job(options);
  auto wire = std::make_unique<TcpRelay>(job.port());
  const int port = wire->port();
  JoinOptions far = job.join_options(1);
  far.coordinator.port = port;
  const auto worker = join_control(far);
  job.wait();
  wire.reset();
  wire = std::make_unique<TcpRelay>(job.port(), port);
  ASSERT_EQ(wire->port(), port);
  const auto answers = [&] {
    try {
      worker->set("here", "yes");
      return true;
    } catch (const CommError&) {  // while the connection is broken
      return false;
    }
  };
  for (int tries = 0; tries < 10 && !answers(); ++tries) {
  }
  EXPECT_EQ(job[0].try_get("here"), "yes");
  EXPECT_EQ(worker->failure(), std::nullopt);
  EXPECT_EQ(job[0].failure(), std::nullopt);
}

TEST(ControlNetwork, ExitingCoordinatorAnswersTheNextHeartbeat) {
  const auto host =
      std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = 2, .heartbeat_timeout = kGenerous});
  auto server = std::make_unique<ControlServer>(host, ServerOptions{.address = {"127.0.0.1", 0}});
  const auto worker = network_channel({.coordinator = {"127.0.0.1", server->port()}, .heartbeat_timeout = kGenerous});
  const Answer reported = first_heartbeat_while_exiting(*host, *worker, [&] { server.reset(); });
  EXPECT_EQ(reported.outcome, Outcome::failed);
  EXPECT_EQ(reported.text, "process 0, coordinator: process 0 has exited");
}

TEST(ControlNetwork, ExitingCoordinatorNotifiesAllProcesses) {
  ControlJob job(over_network(3));
  ReportedFailure first(job[1]), second(job[2]);
  job.drop(0);
  for (ReportedFailure* reported : {&first, &second}) {
    const Failure failure = reported->wait();
    EXPECT_EQ(failure.process, 0);
    EXPECT_EQ(failure.message, "left the job without shutdown(); see its log");
  }
}

}  // namespace
}  // namespace lockstep

#endif
