#include "cluster/grpc/server.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cluster/grpc/call_server.h"
#include "cluster/listen_addresses.h"
#include "cluster/message_bytes.h"
#include "cluster/security.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kResolvePause(250);

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
            "join this job; remove LOCKSTEP_TLS=off (--no-tls) to encrypt them");
}

// A call that passes its request to the coordinator.
class CoordinatorCall final : public ServerCall {
 public:
  CoordinatorCall(CoordinatorHost& host, AddressAuth* addresses, std::string address)
      : host_(host), addresses_(addresses), address_(std::move(address)), number_(host.new_call()) {}

 private:
  void handle(std::string_view bytes) override {
    Request request;
    try {
      request = request_from(bytes);
    } catch (const CommError& error) {
      return refuse({grpc::StatusCode::INVALID_ARGUMENT, error.what()});
    }
    if (addresses_)
      if (const auto refusal = addresses_->refusal(request, address_))
        return refuse(
            {refusal->try_again ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::PERMISSION_DENIED, refusal->why});
    host_.submit(number_, request, address_, [this](const Answer& answered) { answer(to_bytes(answered)); });
  }
  bool cancel() override { return host_.cancel(number_); }

  CoordinatorHost& host_;
  AddressAuth* const addresses_;  // null: processes authenticate by the secret
  const std::string address_;
  const uint64_t number_;
};

}  // namespace

ControlServer::ControlServer(std::shared_ptr<CoordinatorHost> host, ServerOptions options) : host_(std::move(host)) {
  const Security security = make_security({options.token, options.tls, options.use_tls});
  const std::vector<std::string> ips = listen_ips(options);
  if (!options.use_tls && !options.token.empty()) log_exposure(ips, options.log);
  calls_ = std::make_unique<CallServer>(
      CallServerOptions{.listener = {.ips = ips, .port = options.address.port, .log = options.log},
                        .security = security,
                        .heartbeat_timeout = options.heartbeat_timeout},
      [host = host_, addresses = options.addresses](const std::string& address) {
        return std::make_unique<CoordinatorCall>(*host, addresses.get(), address);
      });
}

int ControlServer::port() const { return calls_->port(); }

void ControlServer::flush_failure() {
  host_->wait_failure_delivered();
  calls_->flush();
}

ControlServer::~ControlServer() {
  host_->close("process 0 has exited");
  // A process between two heartbeats, or before its first, must still receive this failure.
  host_->wait_failure_delivered();
}

}  // namespace lockstep
