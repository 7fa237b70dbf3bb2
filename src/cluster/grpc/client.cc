#include "cluster/grpc/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cluster/grpc/auth_listener.h"
#include "cluster/grpc/connection.h"
#include "cluster/grpc/wire.h"
#include "cluster/security.h"
#include "control.grpc.pb.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kFirstPause(10), kLongestPause(200);
constexpr milliseconds kQuiet(3000);  // of trying, before a line in the log
constexpr milliseconds kResolveAttempt(5000);
constexpr int kConnectMs = 3000;  // for one attempt
constexpr milliseconds kKnock(500);

// Once per process: it is the same for all of them.
void log_proxies(const LogLine& log) {
  static std::once_flag once;
  std::call_once(once, [&] {
    for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"})
      if (const char* value = std::getenv(name); value && *value)
        return log(fmt::format("{} is set; the control plane does not use it", name));
  });
}

// Why there is no connection, in words that users know.
std::string reason_of(const std::string& message) {
  for (const char* text : {"SETTINGS frame", "http1.x server", "returned response code"})
    if (message.find(text) != std::string::npos)
      return "what listens there does not answer as a coordinator: another program, one with other TLS settings, or a "
             "process that is stopped";
  return message;
}

// gRPC's name for a number and port.
std::string target(const std::string& number, int port) {
  if (number.find(':') == std::string::npos) return fmt::format("ipv4:{}:{}", number, port);
  std::string escaped = number;
  if (const size_t zone = escaped.find('%'); zone != std::string::npos) escaped.replace(zone, 1, "%25");
  return fmt::format("ipv6:[{}]:{}", escaped, port);
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
    const std::shared_ptr<control::Control::Stub> stub = current();
    if (!stub) return unreachable("there is no connection");
    Reply reply = converse(*stub, request, timeout);
    if (reply.again) reply.answer.connection_refused = connection_refused(timeout);
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
    bool again = false;  // nobody was there
  };

  static Answer unreachable(const std::string& why) { return {.outcome = Outcome::unreachable, .text = why}; }

  std::shared_ptr<control::Control::Stub> current() {
    const std::lock_guard lock(mutex_);
    return stub_;
  }

  // Where the coordinator was. gRPC tells why it has no connection in words only.
  bool connection_refused(nanoseconds timeout) {
    std::string number;
    {
      const std::lock_guard lock(mutex_);
      number = number_;
    }
    const milliseconds wait = std::clamp(std::chrono::duration_cast<milliseconds>(timeout), milliseconds(1), kKnock);
    return !number.empty() &&
           detail::probe_port(number, options_.coordinator.port, wait).result == detail::PortProbe::Result::refused;
  }

  std::shared_ptr<control::Control::Stub> connect(const std::string& number) const {
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
    arguments.SetString(detail::kConnectArgument, security_.pass);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (const TlsFiles& tls = security_.tls; tls.any()) {
      credentials = grpc::SslCredentials({tls.ca, tls.key, tls.certificate});
      // The certificate is of a name, not of the number behind it.
      arguments.SetSslTargetNameOverride(security_.server_name.empty() ? options_.coordinator.host
                                                                       : security_.server_name);
    }
    return control::Control::NewStub(
        grpc::CreateCustomChannel(target(number, options_.coordinator.port), credentials, arguments));
  }

  // The answer to a registration, from whichever address of the coordinator's name has one.
  Answer find_and_register(Request request) {
    const nanoseconds timeout = std::get<request::Register>(request.what).timeout;
    const Clock::time_point begin = Clock::now(), deadline = begin + timeout;
    std::string number, why = "there was no time";
    size_t next = 0;
    bool logged = false;
    milliseconds pause = kFirstPause;
    while (Clock::now() < deadline) {
      try {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
        const auto numbers =
            detail::resolve(options_.coordinator.host, std::clamp(left, milliseconds(1), kResolveAttempt));
        const std::string& chosen = numbers[next % numbers.size()];
        if (chosen != number) {
          number = chosen;
          const auto stub = connect(number);
          const std::lock_guard lock(mutex_);
          stub_ = stub;
          number_ = number;
        }
        const nanoseconds rest = deadline - Clock::now();
        std::get<request::Register>(request.what).timeout = rest;
        Reply reply = converse(*current(), request, rest + options_.heartbeat_timeout);
        const bool previous = options_.restarts_individually &&
                              (reply.answer.outcome == Outcome::taken || reply.answer.outcome == Outcome::failed);
        if (!reply.again && !previous) return reply.answer;
        why = reply.answer.text;
        ++next;
        // A connection in the making is looked at every 5 s only while no call waits for it: a new one, with the call.
        number.clear();
      } catch (const IoError& error) {
        why = error.what();
      }
      if (Clock::now() - begin > kQuiet && !std::exchange(logged, true))
        options_.log(fmt::format("the coordinator at {} cannot be reached yet ({}); trying again for {}", coordinator(),
                                 why, describe(deadline - Clock::now())));
      if (wait(std::min<nanoseconds>(pause, deadline - Clock::now()))) break;
      pause = std::min(pause * 2, kLongestPause);
    }
    return unreachable(fmt::format("in {}: {}", describe(timeout), why));
  }

  // Waits. Whether this was closed.
  bool wait(nanoseconds duration) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, duration, [&] { return closed_; });
  }

  Reply converse(control::Control::Stub& stub, const Request& request, nanoseconds timeout) {
    control::Request asked;
    control::Answer answered;
    detail::to_wire(request, asked);
    grpc::ClientContext context;
    // By the clock that nobody sets.
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN)));
    if (!security_.call_secret.empty()) context.AddMetadata(detail::kSecretKey, security_.call_secret);
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return {unreachable("the channel was closed")};
      active_.insert(&context);
    }
    const grpc::Status status = stub.Ask(&context, asked, &answered);
    {
      const std::lock_guard lock(mutex_);
      active_.erase(&context);
    }
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        return {detail::from_wire(answered)};
      case grpc::StatusCode::UNAVAILABLE:
        if (const std::string why = refusal(status.error_message()); !why.empty())
          return {{.outcome = Outcome::refused, .text = why}};
        return {unreachable(reason_of(status.error_message())), true};
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return {unreachable("no answer in time")};
      case grpc::StatusCode::CANCELLED:
        return {unreachable("the channel was closed")};
      case grpc::StatusCode::UNAUTHENTICATED:
        return {{.outcome = Outcome::refused, .text = wrong_token()}};
      case grpc::StatusCode::PERMISSION_DENIED:
        return {{.outcome = Outcome::refused,
                 .text = fmt::format("coordinator at {}: {}", coordinator(), status.error_message())}};
      default:
        return {{.outcome = Outcome::refused,
                 .text = fmt::format("coordinator at {}: {}; is it a lockstep of the same version?", coordinator(),
                                     status.error_message())}};
    }
  }

  std::string wrong_token() const {
    return fmt::format(
        "token: the coordinator at {} refuses this process: the token is missing or not that of this job; give all "
        "processes of the job the same LOCKSTEP_TOKEN",
        coordinator());
  }

  // Why the gate does not let this process in; empty when the connection failed otherwise.
  std::string refusal(const std::string& error) const {
    // gRPC reports the status of the answer to CONNECT in words only.
    const auto answered = [&](int status) {
      return error.find(fmt::format("returned response code {}", status)) != error.npos;
    };
    if (answered(connect_status::kWrongToken)) return wrong_token();
    if (!answered(connect_status::kOtherSecurity)) return "";
    return fmt::format(
        "tls: the coordinator at {} refuses this process: {} here and not there; give all processes of the job the "
        "same "
        "LOCKSTEP_TLS, tls_ca, tls_certificate and tls_key",
        coordinator(),
        security_.kind == Security::Kind::plain     ? "TLS is off"
        : security_.kind == Security::Kind::derived ? "TLS is on without certificate files"
                                                    : "TLS has certificate files");
  }

  const ClientOptions options_;
  const Security security_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::shared_ptr<control::Control::Stub> stub_;
  std::string number_;  // that it leads to
  std::set<grpc::ClientContext*> active_;
};

}  // namespace

std::unique_ptr<ControlChannel> network_channel(ClientOptions options) {
  return std::make_unique<NetworkChannel>(std::move(options));
}

}  // namespace lockstep
