#include "cluster/grpc/call_server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "cluster/address.h"
#include "cluster/grpc/connection.h"
#include "cluster/token.h"

namespace lockstep {

// Counts the requests without an answer.
class CallsInFlight {
 public:
  void add(int count) {
    const std::lock_guard lock(mutex_);
    count_ += count;
    changed_.notify_all();
  }
  void wait_none(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

namespace {

constexpr std::chrono::milliseconds kAnswerFlush(1000);  // to send the last answers
constexpr int kHandshakeMs = 10'000;
constexpr int kMaxStreams = 256;               // concurrent calls of one connection
constexpr size_t kMaxServerBytes = 512 << 20;  // gRPC's memory quota for all connections

// "10.0.0.7" and 4711 of "ipv4:10.0.0.7:4711", "fd00::1" of "ipv6:%5Bfd00::1%5D:4711".
std::string peer_ip(std::string peer, int& port) {
  peer.erase(0, peer.find(':') + 1);
  const size_t colon = std::min(peer.rfind(':'), peer.size());
  port = std::atoi(peer.c_str() + std::min(colon + 1, peer.size()));
  peer.erase(colon);
  for (const char* bracket : {"%5B", "%5D", "[", "]"}) {
    const std::string_view text = bracket;
    if (const size_t at = peer.find(text); at != std::string::npos) peer.erase(at, text.size());
  }
  return peer;
}

// A call that is refused without reading its request.
class RefusedCall : public grpc::ServerGenericBidiReactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

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

AuthListenerOptions listener_options(const CallServerOptions& options) {
  AuthListenerOptions out = options.listener;
  out.security = options.security;
  out.user_timeout_ms = detail::keepalive_timeout_ms(options.heartbeat_timeout);
  return out;
}

}  // namespace

void ServerCall::begin(CallsInFlight& in_flight) {
  in_flight_ = &in_flight;
  StartRead(&request_);
}

// gRPC calls OnDone() only after this returns.
void ServerCall::OnReadDone(bool ok) {
  if (!ok) return refuse({grpc::StatusCode::INVALID_ARGUMENT, "the call has no request"});
  counted_ = true;
  in_flight_->add(1);
  grpc::ByteBuffer request;
  request.Swap(&request_);
  detail::read_buffer(request, [this](std::string_view bytes) { handle(bytes); });
  if (cancelled_) try_cancel();
}

void ServerCall::OnCancel() {
  cancelled_ = true;
  try_cancel();
}

void ServerCall::try_cancel() {
  if (cancel()) Finish(grpc::Status::CANCELLED);
}

void ServerCall::OnDone() {
  if (counted_) in_flight_->add(-1);
  delete this;
}

void ServerCall::answer(std::string bytes) {
  answer_ = detail::to_buffer(std::move(bytes));
  StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
}

class CallServer::Service final : public grpc::CallbackGenericService {
 public:
  Service(std::string secret, NewCall new_call, AuthListener& listener)
      : secret_(std::move(secret)), new_call_(std::move(new_call)), listener_(listener) {}
  ~Service() override {
    if (server) server->Shutdown(std::chrono::system_clock::now() + kAnswerFlush);
  }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    int port = 0;
    const std::string ip = peer_ip(context->peer(), port);
    listener_.mark_established(ip, port);
    if (context->method() != detail::kAskMethod)
      return new RefusedCall({grpc::StatusCode::UNIMPLEMENTED, "unknown method"});
    if (!authenticated(*context))
      return new RefusedCall({grpc::StatusCode::UNAUTHENTICATED, "the token is missing or wrong"});
    ServerCall* call = new_call_(ip).release();
    call->begin(in_flight);
    return call;
  }

  CallsInFlight in_flight;

 private:
  // The AuthListener has checked the pass of the connection; this is a second check, of the call.
  bool authenticated(const grpc::CallbackServerContext& context) const {
    if (secret_.empty()) return true;
    const auto found = context.client_metadata().find(detail::kSecretKey);
    return found != context.client_metadata().end() &&
           same_token(secret_, std::string_view(found->second.data(), found->second.size()));
  }

  const std::string secret_;
  const NewCall new_call_;
  AuthListener& listener_;

 public:
  std::unique_ptr<grpc::Server> server;  // last member: its calls use the others
};

CallServer::CallServer(CallServerOptions options, NewCall new_call)
    : listener_(listener_options(options)),
      service_(std::make_unique<Service>(options.security.call_secret, std::move(new_call), listener_)) {
  detail::silence_grpc();
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(service_.get());
  set_limits(builder, options.heartbeat_timeout);
  using Connections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(Connections::FROM_FD, credentials_of(options.security));
  service_->server = builder.BuildAndStart();
  if (!service_->server)
    throw IoError(fmt::format("listen on port {}: the gRPC server did not start; set GRPC_VERBOSITY=info to see why",
                              listener_.port()));
  listener_.start([acceptor](int listener, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
}

void CallServer::flush() { service_->in_flight.wait_none(kAnswerFlush); }

CallServer::~CallServer() { listener_.stop(); }

}  // namespace lockstep
