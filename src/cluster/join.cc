#include "cluster/join.h"

#include <utility>

#include "base/check.h"
#include "cluster/coordinator_host.h"
#include "cluster/join_events.h"
#include "cluster/mailbox_channel.h"
#ifdef LOCKSTEP_WITH_GRPC
#include "cluster/grpc/client.h"
#include "cluster/grpc/server.h"
#endif

namespace lockstep {

namespace {

std::shared_ptr<CoordinatorHost> make_host(const JoinOptions& options) {
  return std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = options.process_count,
                                                              .heartbeat_timeout = options.heartbeat_timeout,
                                                              .first_step_timeout = options.first_step_timeout,
                                                              .step_timeout = options.step_timeout,
                                                              .hosts = options.hosts});
}

#ifdef LOCKSTEP_WITH_GRPC

std::shared_ptr<AddressAuth> address_auth(const JoinOptions& options) {
  if (options.replica_names.empty()) return nullptr;
  return std::make_shared<AddressAuth>(options.replica_names, system_resolver(), options.log);
}

// Process 0's channel: calls the coordinator in this process, and owns the server through which the others reach it.
class CoordinatorChannel : public ControlChannel {
 public:
  explicit CoordinatorChannel(const JoinOptions& options)
      : host_(make_host(options)),
        inner_(in_process_channel(host_)),
        server_(host_, {.address = options.bind_address.value_or(options.coordinator),
                        .token = options.token,
                        .addresses = address_auth(options),
                        .tls = options.tls,
                        .use_tls = options.use_tls,
                        .heartbeat_timeout = options.heartbeat_timeout,
                        .resolve_timeout = options.initialization_timeout,
                        .log = options.log}) {
    if (options.on_listening) options.on_listening(server_.port());
  }

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    Answer answer = inner_->call(request, timeout);
    // The caller may end this process after a failure, and the coordinator with it: deliver the failure first.
    if (answer.outcome == Outcome::failed || std::holds_alternative<request::Fail>(request.what))
      server_.flush_failure();
    return answer;
  }
  void close() override { inner_->close(); }
  std::string coordinator() const override { return inner_->coordinator(); }

 private:
  const std::shared_ptr<CoordinatorHost> host_;
  const std::unique_ptr<ControlChannel> inner_;
  ControlServer server_;
};

std::unique_ptr<ControlChannel> network_channel_of(const JoinOptions& options) {
  if (options.process_id == 0) return std::make_unique<CoordinatorChannel>(options);
  return network_channel({.coordinator = options.coordinator,
                          .token = options.token,
                          .tls = options.tls,
                          .use_tls = options.use_tls,
                          .heartbeat_timeout = options.heartbeat_timeout,
                          .restarts_individually = options.restarts_individually,
                          .log = options.log});
}

#else

std::unique_ptr<ControlChannel> network_channel_of(const JoinOptions& options) {
  throw_error(
      "initialize: {} processes need the control plane, but this build of lockstep does not include it; install "
      "libgrpc++-dev and pkg-config and rebuild, or start the processes with mpirun",
      options.process_count);
}

#endif

std::unique_ptr<ControlChannel> channel_of(const JoinOptions& options) {
  if (options.process_count == 1) return in_process_channel(make_host(options));
  if (!options.make_mailbox) return network_channel_of(options);
  return options.process_id == 0 ? coordinator_mailbox_channel(make_host(options), options.make_mailbox())
                                 : mailbox_channel(options.make_mailbox());
}

}  // namespace

std::unique_ptr<Control> join_control(const JoinOptions& options) {
  if (options.process_count < 1)
    throw_error("initialize: the number of processes is {}; it must be at least 1", options.process_count);
  if (options.process_id < 0 || options.process_id >= options.process_count)
    throw_error("initialize: process id {} is not in 0 ... {}; give every process its own id", options.process_id,
                options.process_count - 1);
  const ControlOptions own{.process_id = options.process_id,
                           .process_count = options.process_count,
                           .initialization_timeout = options.initialization_timeout,
                           .heartbeat_timeout = options.heartbeat_timeout,
                           .host = options.host};
  notify_launcher({.process = options.process_id, .joined = false});
  auto control = std::make_unique<Control>(channel_of(options), own);
  notify_launcher({.process = options.process_id, .joined = true});
  return control;
}

}  // namespace lockstep
