#include "cluster/grpc/server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cluster/grpc/auth_listener.h"
#include "cluster/grpc/connection.h"
#include "cluster/grpc/wire.h"
#include "cluster/listen_addresses.h"
#include "cluster/security.h"
#include "cluster/token.h"
#include "control.grpc.pb.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAnswerFlush(1000);  // to send the last answers
constexpr milliseconds kResolvePause(250);
constexpr int kHandshakeMs = 10'000;
constexpr int kMaxStreams = 256;               // concurrent calls of one connection
constexpr size_t kMaxServerBytes = 512 << 20;  // gRPC's memory quota for all connections

// "10.0.0.7" of "ipv4:10.0.0.7:4711", "fd00::1" of "ipv6:%5Bfd00::1%5D:4711".
std::string peer_ip(std::string peer) {
  peer.erase(0, peer.find(':') + 1);
  peer.erase(std::min(peer.rfind(':'), peer.size()));
  for (const char* bracket : {"%5B", "%5D", "[", "]"}) {
    const std::string_view text = bracket;
    if (const size_t at = peer.find(text); at != std::string::npos) peer.erase(at, text.size());
  }
  return peer;
}

std::vector<std::string> resolve_until(const std::string& host, Clock::time_point deadline, const LogLine& log) {
  bool logged = false;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    try {
      return detail::resolve(host, std::max(left, milliseconds(1)));
    } catch (const IoError& error) {
      if (left <= kResolvePause)
        throw IoError(fmt::format("listen: {}; or set coordinator_bind_address", error.what()));
      if (!std::exchange(logged, true))
        log(fmt::format("the coordinator's name {} does not resolve yet ({}); retrying for {}", host, error.what(),
                        describe(left)));
    }
    std::this_thread::sleep_for(kResolvePause);
  }
}

// Counts the calls in flight.
class CallsInFlight {
 public:
  void add(int count) {
    const std::lock_guard lock(mutex_);
    count_ += count;
    changed_.notify_all();
  }
  void wait_none(milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// A pending call. Deletes itself when gRPC calls OnDone().
class Call : public grpc::ServerUnaryReactor {
 public:
  Call(CoordinatorHost& host, CallsInFlight& in_flight, control::Answer& answer)
      : host_(host), in_flight_(in_flight), call_(host.new_call()), answer_(answer) {
    in_flight_.add(1);
  }

  void start(const Request& request, const std::string& address) {
    host_.submit(call_, request, address, [this](const Answer& answer) {
      detail::to_wire(answer, answer_);
      Finish(grpc::Status::OK);
    });
  }

  void OnCancel() override {
    if (host_.cancel(call_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    in_flight_.add(-1);
    delete this;
  }

 private:
  CoordinatorHost& host_;
  CallsInFlight& in_flight_;
  const uint64_t call_;
  control::Answer& answer_;
};

}  // namespace

class ControlServer::Service : public control::Control::CallbackService {
 public:
  Service(CoordinatorHost& host, std::string secret, std::shared_ptr<AddressAuth> addresses)
      : host_(host), secret_(std::move(secret)), addresses_(std::move(addresses)) {}

  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context, const control::Request* request,
                                control::Answer* answer) override {
    const std::string address = peer_ip(context->peer());
    if (!admitted(*context))
      return refuse(*context, {grpc::StatusCode::UNAUTHENTICATED, "the token is missing or wrong"});
    const std::optional<Request> asked = detail::from_wire(*request);
    if (!asked) return refuse(*context, {grpc::StatusCode::INVALID_ARGUMENT, "unknown request"});
    if (addresses_)
      if (const auto refusal = addresses_->refusal(*asked, address))
        return refuse(
            *context,
            {refusal->try_again ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::PERMISSION_DENIED, refusal->why});
    auto* call = new Call(host_, in_flight, *answer);
    call->start(*asked, address);
    return call;
  }

  CallsInFlight in_flight;
  std::unique_ptr<grpc::Server> server;

 private:
  static grpc::ServerUnaryReactor* refuse(grpc::CallbackServerContext& context, const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  // The gate has asked for the job's pass already; this is a second line of defence for what a connection carries.
  bool admitted(const grpc::CallbackServerContext& context) const {
    if (secret_.empty()) return true;
    const auto found = context.client_metadata().find(detail::kSecretKey);
    return found != context.client_metadata().end() &&
           same_token(secret_, std::string_view(found->second.data(), found->second.size()));
  }

  CoordinatorHost& host_;
  const std::string secret_;
  const std::shared_ptr<AddressAuth> addresses_;  // null: processes authenticate by the secret
};

namespace {

std::vector<std::string> listen_ips(const ServerOptions& options) {
  const std::string& name = options.address.host;
  std::vector<std::string> ips =
      detail::listen_addresses(name, resolve_until(name, Clock::now() + options.resolve_timeout, options.log),
                               detail::list_interfaces(), options.log);
  if (options.address.port != 0) return ips;
  // Only one address, because the port chosen for one may be in use on another.
  const auto ipv4 = std::ranges::find_if(ips, [](const auto& ip) { return ip.find(':') == ip.npos; });
  return {ipv4 == ips.end() ? ips.front() : *ipv4};
}

void log_exposure(const std::vector<std::string>& ips, const LogLine& log) {
  log(std::ranges::all_of(ips, detail::is_loopback_ip)
          ? "tls: off; the control plane is not encrypted, and is reachable from this machine only"
          : "tls: off; the control plane's messages cross the network unencrypted, and anyone who can read them can "
            "join "
            "this job; remove LOCKSTEP_TLS=off (--no-tls) to encrypt them");
}

void set_limits(grpc::ServerBuilder& builder, std::chrono::nanoseconds heartbeat_timeout) {
  builder.SetMaxReceiveMessageSize(detail::kMaxRequestBytes);
  builder.SetMaxSendMessageSize(detail::kMaxMessageBytes);
  builder.SetResourceQuota(grpc::ResourceQuota("lockstep coordinator").Resize(kMaxServerBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, detail::keepalive_time_ms(heartbeat_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, detail::keepalive_timeout_ms(heartbeat_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Clients may send keepalive pings at any rate.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

std::shared_ptr<grpc::ServerCredentials> credentials_of(const Security& security) {
  if (!security.tls.any()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = security.tls.ca;
  ssl.pem_key_cert_pairs.push_back({security.tls.key, security.tls.certificate});
  return grpc::SslServerCredentials(ssl);
}

}  // namespace

ControlServer::ControlServer(std::shared_ptr<CoordinatorHost> host, ServerOptions options) : host_(std::move(host)) {
  detail::silence_grpc();
  const Security security = make_security({options.token, options.tls, options.use_tls});
  service_ = std::make_unique<Service>(*host_, security.call_secret, options.addresses);
  const std::vector<std::string> ips = listen_ips(options);
  if (!options.use_tls && !options.token.empty()) log_exposure(ips, options.log);
  listener_ = std::make_unique<AuthListener>(
      AuthListenerOptions{.ips = ips,
                          .port = options.address.port,
                          .pass = security.pass,
                          .user_timeout_ms = detail::keepalive_timeout_ms(options.heartbeat_timeout),
                          .log = options.log});
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  set_limits(builder, options.heartbeat_timeout);
  using Connections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(Connections::FROM_FD, credentials_of(security));
  service_->server = builder.BuildAndStart();
  if (!service_->server)
    throw IoError(fmt::format("listen on {}: the gRPC server did not start; set GRPC_VERBOSITY=info to see why",
                              to_string(options.address)));
  listener_->start([acceptor](int listener, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
}

void ControlServer::flush_failure() {
  host_->wait_failure_delivered();
  service_->in_flight.wait_none(kAnswerFlush);
}

ControlServer::~ControlServer() {
  host_->close("process 0 has exited");
  // A process between two heartbeats, or before its first, must still receive this failure.
  host_->wait_failure_delivered();
  listener_.reset();  // before the server: it passes connections to it
  if (service_->server) service_->server->Shutdown(std::chrono::system_clock::now() + kAnswerFlush);
}

}  // namespace lockstep
