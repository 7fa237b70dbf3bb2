// Calls over gRPC as bytes: peers of other versions, peers that do not follow the protocol, and cancelled calls.
#ifdef LOCKSTEP_WITH_GRPC

#include "cluster/grpc/call_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <array>
#include <future>

#include "cluster/control_job.h"
#include "cluster/grpc/client.h"
#include "cluster/grpc/connect_pass.h"
#include "cluster/grpc/connection.h"
#include "cluster/grpc/server.h"
#include "cluster/message_bytes.h"
#include "cluster/other_version.h"

namespace lockstep {
namespace {

const Security kTestSecurity = make_security({.token = kTestToken, .tls = false});

// A client that sends any bytes to any method.
class RawClient {
 public:
  explicit RawClient(int port) {
    grpc::ChannelArguments arguments;
    arguments.SetString(detail::kConnectArgument,
                        connect_argument(kTestSecurity, ask_challenge("127.0.0.1", port, kGenerous)));
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        "ipv4:127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
  }

  grpc::Status call(std::string bytes, const std::string& method = detail::kAskMethod,
                    const std::string& secret = kTestSecurity.call_secret) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGenerous);
    if (!secret.empty()) context.AddMetadata(detail::kSecretKey, secret);
    const grpc::ByteBuffer request = detail::to_buffer(std::move(bytes));
    grpc::ByteBuffer answer;
    std::promise<grpc::Status> done;
    stub_->UnaryCall(&context, method, {}, &request, &answer,
                     [&](const grpc::Status& status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    if (status.ok()) last_answer = detail::read_buffer(answer, answer_from);
    return status;
  }

  // Opens a call and ends it without a request.
  grpc::Status call_without_request() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGenerous);
    context.AddMetadata(detail::kSecretKey, kTestSecurity.call_secret);
    grpc::CompletionQueue queue;
    void* tag = nullptr;
    bool ok = false;
    grpc::Status status;
    const auto call = stub_->PrepareCall(&context, detail::kAskMethod, &queue);
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    call->WritesDone(nullptr);
    queue.Next(&tag, &ok);
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    return status;
  }

  Answer last_answer = {};

 private:
  std::unique_ptr<grpc::GenericStub> stub_;
};

// A coordinator of one process, which has registered.
class RawCalls : public testing::Test {
 protected:
  // The coordinator still answers.
  void TearDown() override {
    EXPECT_TRUE(client_.call(to_bytes({.incarnation = 5, .what = request::Set{"after", "x", true}})).ok());
    EXPECT_EQ(client_.last_answer.outcome, Outcome::ok) << client_.last_answer.text;
  }
  RawCalls() {
    EXPECT_TRUE(client_.call(to_bytes(registration_)).ok());
    EXPECT_EQ(client_.last_answer.outcome, Outcome::ok) << client_.last_answer.text;
  }
  void expect_refused(const grpc::Status& status, grpc::StatusCode code, const std::string& message) {
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(status.error_message(), message);
  }

  const Request registration_{.incarnation = 5, .what = request::Register{.process_count = 1, .timeout = kGenerous}};
  const std::shared_ptr<CoordinatorHost> host_ =
      std::make_shared<CoordinatorHost>(CoordinatorOptions{.heartbeat_timeout = kGenerous});
  ControlServer server_{host_,
                        {.address = {"127.0.0.1", 0},
                         .token = kTestToken,
                         .use_tls = false,
                         .heartbeat_timeout = kGenerous,
                         .log = [](const std::string&) {}}};
  RawClient client_{server_.port()};
};

TEST_F(RawCalls, MalformedRequestsAreRefused) {
  const std::string good = to_bytes(registration_);
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(100'000, '\xff'), good + "x",
                                   good.substr(0, good.size() - 1), message_prefix(), to_bytes(Answer{})})
    expect_refused(client_.call(bytes), grpc::StatusCode::INVALID_ARGUMENT,
                   "control plane: received a malformed message; run the same version of lockstep in all processes");
}

TEST_F(RawCalls, RequestsOfOtherVersionsAreRefusedWithBothVersions) {
  for (const SentVersion& other : kOtherVersions)
    expect_refused(client_.call(sent_by(other, to_bytes(registration_))), grpc::StatusCode::INVALID_ARGUMENT,
                   version_sentence(other, kOwnVersion));
}

TEST_F(RawCalls, UnknownMethodsAreRefused) {
  for (const char* method : {"/lockstep.control.Control/Other", "/grpc.health.v1.Health/Check", "/", "Ask"})
    EXPECT_EQ(client_.call(to_bytes(registration_), method).error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
}

TEST_F(RawCalls, CallsWithoutTheSecretAreRefused) {
  for (const char* secret : {"", "x"})
    expect_refused(client_.call(to_bytes(registration_), detail::kAskMethod, secret), grpc::StatusCode::UNAUTHENTICATED,
                   "the token is missing or wrong");
}

TEST_F(RawCalls, CallsWithoutARequestAreRefused) {
  expect_refused(client_.call_without_request(), grpc::StatusCode::INVALID_ARGUMENT, "the call has no request");
}

TEST_F(RawCalls, RequestsThatAreTooLargeAreRefused) {
  const std::string large(detail::kMaxRequestBytes + 1, 'x');
  EXPECT_EQ(client_.call(large).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// The deadline of each call expires at another moment, from before its request arrives to while the coordinator holds it.
TEST_F(RawCalls, CallsCanBeCancelledAtAnyMoment) {
  constexpr int kThreads = 8, kCalls = 100;
  on_all(kThreads, [&](int thread) {
    const auto channel = network_channel({.coordinator = {"127.0.0.1", server_.port()},
                                          .token = kTestToken,
                                          .use_tls = false,
                                          .heartbeat_timeout = kGenerous});
    channel->call({.process = 9, .what = request::Register{.timeout = kGenerous}}, kGenerous);  // connects
    const Request waits{.incarnation = 5, .what = request::Get{.key = "never", .timeout = kGenerous}};
    for (int i = 0; i < kCalls; ++i)
      EXPECT_EQ(channel->call(waits, std::chrono::microseconds(20 * i + thread)).outcome, Outcome::unreachable);
  });
}

// A server that answers its calls with the results of a function of their number.
class ScriptedServer {
 public:
  struct Reply {
    grpc::Status status = {};
    std::string bytes = to_bytes(Answer{});
  };

  explicit ScriptedServer(std::function<Reply(size_t)> reply)
      : server_({.listener = {.ips = {"127.0.0.1"}, .log = [](const std::string&) {}}, .security = make_security({})},
                [this, reply = std::move(reply)](const std::string&) {
                  return std::make_unique<ScriptedCall>(reply(calls_++));
                }) {}

  Answer register_process() {
    const auto worker = network_channel({.coordinator = {"127.0.0.1", server_.port()}, .heartbeat_timeout = kGenerous});
    return worker->call(
        {.process = 1, .incarnation = 5, .what = request::Register{.process_count = 2, .timeout = kGenerous}},
        kGenerous);
  }
  std::string name() const { return "coordinator at 127.0.0.1:" + std::to_string(server_.port()); }

 private:
  class ScriptedCall final : public ServerCall {
   public:
    explicit ScriptedCall(Reply reply) : reply_(std::move(reply)) {}

   private:
    void handle(std::string_view) override { reply_.status.ok() ? answer(reply_.bytes) : refuse(reply_.status); }
    const Reply reply_;
  };

  std::atomic<size_t> calls_{0};
  CallServer server_;
};

// gRPC answers so while a server shuts down.
TEST(NetworkChannel, RegistrationRefusedByAnExitingCoordinatorIsRepeated) {
  ScriptedServer server([](size_t call) -> ScriptedServer::Reply {
    constexpr std::array kFirst = {grpc::StatusCode::CANCELLED, grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL};
    if (call < kFirst.size()) return {.status = {kFirst[call], "shutting down"}};
    return {};
  });
  const Answer answer = server.register_process();
  EXPECT_EQ(answer.outcome, Outcome::ok) << answer.text;
}

TEST(NetworkChannel, AnswersOfOtherVersionsAreRefusedWithBothVersions) {
  for (const SentVersion& other : kOtherVersions) {
    ScriptedServer server(
        [&](size_t) -> ScriptedServer::Reply { return {.bytes = sent_by(other, to_bytes(Answer{}))}; });
    const Answer answer = server.register_process();
    EXPECT_EQ(answer.outcome, Outcome::refused);
    EXPECT_EQ(answer.text, server.name() + ": " + version_sentence(kOwnVersion, other));
  }
}

TEST(NetworkChannel, MalformedAnswersAreRefused) {
  for (const std::string& bytes : {std::string(), to_bytes(Answer{}) + "x", to_bytes(Request{})}) {
    ScriptedServer server([&](size_t) -> ScriptedServer::Reply { return {.bytes = bytes}; });
    const Answer answer = server.register_process();
    EXPECT_EQ(answer.outcome, Outcome::refused);
    EXPECT_EQ(answer.text, server.name() +
                               ": control plane: received a malformed message; run the same version of lockstep in all "
                               "processes");
  }
}

}  // namespace
}  // namespace lockstep

#endif
