#include "cluster/grpc/client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/os/environment.h"
#include "cluster/grpc/connect_pass.h"
#include "cluster/grpc/connection.h"
#include "cluster/message_bytes.h"
#include "cluster/security.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kFirstPause(10), kLongestPause(200);
constexpr milliseconds kQuiet(3000);  // retries silently for this long, then logs a line
constexpr milliseconds kResolveAttempt(5000);
constexpr int kConnectMs = 3000;  // timeout of one connection attempt
constexpr milliseconds kProbe(500);

// Logs once per process that proxy variables are ignored.
void log_proxies(const LogLine& log) {
  static std::once_flag once;
  std::call_once(once, [&] {
    for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"})
      if (environment_variable(name))
        return log(fmt::format("{} is set, but the control plane does not use proxies", name));
  });
}

// Why a connection failed, in terms that users know.
std::string reason_of(const std::string& message) {
  for (const char* text : {"SETTINGS frame", "http1.x server", "returned response code"})
    if (message.find(text) != std::string::npos)
      return "the process that listens there does not answer as a coordinator: it is another program, has different "
             "TLS settings, or is suspended";
  return message;
}

// Whether the AuthListener answered a CONNECT request with this status. gRPC reports it only in its error text.
bool was_answered(const std::string& error, int status) {
  return error.find(fmt::format("returned response code {}", status)) != error.npos;
}

// gRPC's URI of an IP address and port.
std::string target(const std::string& ip, int port) {
  if (ip.find(':') == std::string::npos) return fmt::format("ipv4:{}:{}", ip, port);
  std::string escaped = ip;
  if (const size_t zone = escaped.find('%'); zone != std::string::npos) escaped.replace(zone, 1, "%25");
  return fmt::format("ipv6:[{}]:{}", escaped, port);
}

// Sends a request and waits for the answer, until the deadline of the context.
grpc::Status ask(grpc::GenericStub& stub, grpc::ClientContext& context, const grpc::ByteBuffer& request,
                 grpc::ByteBuffer& answer) {
  grpc::CompletionQueue queue;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  const auto call = stub.PrepareUnaryCall(&context, detail::kAskMethod, request, &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

class NetworkChannel : public ControlChannel {
 public:
  explicit NetworkChannel(ClientOptions options)
      : options_(std::move(options)), security_(make_security({options_.token, options_.tls, options_.use_tls})) {
    detail::silence_grpc();
    log_proxies(options_.log);
  }

  Answer call(const Request& request, nanoseconds timeout) override {
    if (std::holds_alternative<request::Register>(request.what)) return find_and_register(request);
    const std::shared_ptr<grpc::GenericStub> stub = current();
    if (!stub) return unreachable("not connected");
    Reply reply = send_request(*stub, request, timeout);
    // gRPC has connected again, with a proof that was used before.
    if (reply.challenged && renew(std::min<nanoseconds>(timeout, milliseconds(kConnectMs))))
      reply = send_request(*current(), request, timeout);
    if (reply.retry) reply.answer.connection_refused = is_connection_refused(timeout);
    return std::move(reply.answer);
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : active_) context->TryCancel();
    changed_.notify_all();
  }

  std::string coordinator() const override { return to_string(options_.coordinator); }

 private:
  struct Reply {
    Answer answer = {};
    bool retry = false;       // no coordinator was reached
    bool challenged = false;  // it asks for a new proof
  };

  static Answer unreachable(const std::string& why) { return {.outcome = Outcome::unreachable, .text = why}; }

  std::shared_ptr<grpc::GenericStub> current() {
    const std::lock_guard lock(mutex_);
    return stub_;
  }

  // Probes the coordinator's port, because gRPC reports a refused connection only in its error text.
  bool is_connection_refused(nanoseconds timeout) {
    std::string ip;
    {
      const std::lock_guard lock(mutex_);
      ip = ip_;
    }
    const milliseconds wait = std::clamp(std::chrono::duration_cast<milliseconds>(timeout), milliseconds(1), kProbe);
    return !ip.empty() &&
           detail::probe_port(ip, options_.coordinator.port, wait).result == detail::PortProbe::Result::refused;
  }

  // Replaces the connection. False if the coordinator does not answer in time.
  bool renew(nanoseconds timeout) {
    std::string ip;
    {
      const std::lock_guard lock(mutex_);
      ip = ip_;
    }
    try {
      const auto stub = connect(ip, timeout);
      const std::lock_guard lock(mutex_);
      stub_ = stub;
      return true;
    } catch (const IoError&) {
      return false;
    }
  }

  // Throws IoError when the coordinator does not answer in time. gRPC itself connects with the first call.
  std::shared_ptr<grpc::GenericStub> connect(const std::string& ip, nanoseconds timeout) const {
    const auto patience =
        std::clamp(std::chrono::duration_cast<milliseconds>(timeout), milliseconds(1), milliseconds(kConnectMs));
    const std::string challenge = ask_challenge(ip, options_.coordinator.port, patience);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstPause.count()));
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(kLongestPause.count()));
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, detail::keepalive_time_ms(options_.heartbeat_timeout));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, detail::keepalive_timeout_ms(options_.heartbeat_timeout));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetMaxReceiveMessageSize(detail::kMaxMessageBytes);
    arguments.SetMaxSendMessageSize(detail::kMaxMessageBytes);
    arguments.SetString(detail::kConnectArgument, connect_argument(security_, challenge));
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (const TlsFiles& tls = security_.tls; tls.any()) {
      credentials = grpc::SslCredentials({tls.ca, tls.key, tls.certificate});
      // The certificate contains a name, not the IP address.
      arguments.SetSslTargetNameOverride(security_.server_name.empty() ? options_.coordinator.host
                                                                       : security_.server_name);
    }
    return std::make_shared<grpc::GenericStub>(
        grpc::CreateCustomChannel(target(ip, options_.coordinator.port), credentials, arguments));
  }

  // Registers, trying all addresses of the coordinator's name until one answers.
  Answer find_and_register(Request request) {
    const nanoseconds timeout = std::get<request::Register>(request.what).timeout;
    const Clock::time_point begin = Clock::now(), deadline = begin + timeout;
    std::string ip, why = "no time left";
    size_t next = 0;
    bool logged = false;
    milliseconds pause = kFirstPause;
    while (Clock::now() < deadline) {
      try {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
        const auto ips = detail::resolve(options_.coordinator.host, std::clamp(left, milliseconds(1), kResolveAttempt));
        const std::string& chosen = ips[next % ips.size()];
        if (chosen != ip) {
          const auto stub = connect(chosen, deadline - Clock::now());
          ip = chosen;
          const std::lock_guard lock(mutex_);
          stub_ = stub;
          ip_ = ip;
        }
        const nanoseconds rest = deadline - Clock::now();
        std::get<request::Register>(request.what).timeout = rest;
        Reply reply = send_request(*current(), request, rest + options_.heartbeat_timeout);
        const bool previous = options_.restarts_individually &&
                              (reply.answer.outcome == Outcome::taken || reply.answer.outcome == Outcome::failed);
        if (!reply.retry && !previous) return reply.answer;
        why = reply.answer.text;
        ++next;
        // Reconnects with the next call: gRPC polls a pending connection only every 5 s while no call waits for it.
        ip.clear();
      } catch (const IoError& error) {
        why = error.what();
        ++next;
      }
      if (Clock::now() - begin > kQuiet && !std::exchange(logged, true))
        options_.log(fmt::format("cannot reach the coordinator at {} yet ({}); retrying for {}", coordinator(), why,
                                 describe(deadline - Clock::now())));
      if (wait(std::min<nanoseconds>(pause, deadline - Clock::now()))) break;
      pause = std::min(pause * 2, kLongestPause);
    }
    return unreachable(fmt::format("in {}: {}", describe(timeout), why));
  }

  // Waits. Returns whether the channel was closed.
  bool wait(nanoseconds duration) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, duration, [&] { return closed_; });
  }

  Reply send_request(grpc::GenericStub& stub, const Request& request, nanoseconds timeout) {
    const grpc::ByteBuffer asked = detail::to_buffer(to_bytes(request));
    grpc::ByteBuffer answered;
    grpc::ClientContext context;
    // The monotonic clock, which is never adjusted.
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN)));
    if (!security_.call_secret.empty()) context.AddMetadata(detail::kSecretKey, security_.call_secret);
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return {unreachable("the channel was closed")};
      active_.insert(&context);
    }
    const grpc::Status status = ask(stub, context, asked, answered);
    bool closed = false;
    {
      const std::lock_guard lock(mutex_);
      active_.erase(&context);
      closed = closed_;
    }
    return reply_of(status, answered, closed);
  }

  // `closed`: this channel was closed during the call.
  Reply reply_of(const grpc::Status& status, const grpc::ByteBuffer& answered, bool closed) const {
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        try {
          return {detail::read_buffer(answered, answer_from)};
        } catch (const CommError& error) {
          return refused(error.what());
        }
      case grpc::StatusCode::UNAVAILABLE:
        if (const std::string why = refusal(status.error_message()); !why.empty())
          return {{.outcome = Outcome::refused, .text = why}};
        return {unreachable(reason_of(status.error_message())), true,
                was_answered(status.error_message(), connect_status::kChallenge)};
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return {unreachable("no answer in time")};
      case grpc::StatusCode::CANCELLED:
      case grpc::StatusCode::INTERNAL:
      case grpc::StatusCode::UNKNOWN:
        if (closed) return {unreachable("the channel was closed")};
        // Our service never answers with these: gRPC reports a server that shuts down during the call.
        return {unreachable(fmt::format("the coordinator ended the call ({})", status.error_message())), true};
      case grpc::StatusCode::UNAUTHENTICATED:
        return {{.outcome = Outcome::refused, .text = wrong_token()}};
      case grpc::StatusCode::PERMISSION_DENIED:
      case grpc::StatusCode::INVALID_ARGUMENT:  // a malformed request, or one of another version
        return refused(status.error_message());
      default:
        return refused(status.error_message() + "; check that it runs the same version of lockstep");
    }
  }

  Reply refused(const std::string& why) const {
    return {{.outcome = Outcome::refused, .text = fmt::format("coordinator at {}: {}", coordinator(), why)}};
  }

  std::string wrong_token() const {
    return fmt::format(
        "token: the coordinator at {} refused this process: its token is missing or wrong; give all "
        "processes of the job the same LOCKSTEP_TOKEN",
        coordinator());
  }

  // Why the AuthListener refused this process; empty if the connection failed for another reason.
  std::string refusal(const std::string& error) const {
    if (was_answered(error, connect_status::kWrongToken)) return wrong_token();
    if (!was_answered(error, connect_status::kOtherSecurity)) return "";
    return fmt::format(
        "tls: the coordinator at {} refused this process: {} here, but not there; give all processes of the job the "
        "same LOCKSTEP_TLS, tls_ca, tls_certificate and tls_key",
        coordinator(),
        security_.kind == Security::Kind::plain     ? "TLS is off"
        : security_.kind == Security::Kind::derived ? "TLS is on without certificate files"
                                                    : "TLS uses certificate files");
  }

  const ClientOptions options_;
  const Security security_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::shared_ptr<grpc::GenericStub> stub_;
  std::string ip_;  // of the coordinator that stub_ connects to
  std::set<grpc::ClientContext*> active_;
};

}  // namespace

std::unique_ptr<ControlChannel> network_channel(ClientOptions options) {
  return std::make_unique<NetworkChannel>(std::move(options));
}

}  // namespace lockstep
