#include "cluster/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/check.h"
#include "base/hash.h"
#include "cluster/data_plane.h"
#include "cluster/token.h"
#include "comm/world.h"
#include "lane/lanes.h"
#include "lockstep/version.h"
#include "sharding/device_table.h"
#ifdef LOCKSTEP_WITH_GRPC
#include "cluster/grpc/client.h"
#include "cluster/grpc/server.h"
#endif

namespace lockstep {
namespace {

using detail::Address;
using detail::DeviceTable;

#ifdef LOCKSTEP_WITH_GRPC
TlsFiles tls_of(const distributed::Options& options) {
  return {options.tls_ca, options.tls_certificate, options.tls_key};
}
#endif

}  // namespace

#ifndef LOCKSTEP_WITH_GRPC
class ControlServer {};
#endif

Session::Session(const distributed::Options& options, const detail::ClusterInfo& info) : options_(options) {
#ifdef LOCKSTEP_WITH_GRPC
  const Address coordinator = detail::parse_address(info.coordinator, "the coordinator's address");
  const std::string token = find_token(options.token, detail::surroundings().environment, log_to_stderr);
  std::unique_ptr<ControlChannel> channel;
  if (info.process_id == 0) {
    auto host =
        std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = info.process_count,
                                                             .version = LOCKSTEP_VERSION,
                                                             .heartbeat_timeout = options.heartbeat_timeout,
                                                             .first_step_timeout = options.first_collective_timeout,
                                                             .step_timeout = options.collective_timeout});
    const Address bind =
        info.bind_address.empty() ? coordinator : detail::parse_address(info.bind_address, "the address to listen at");
    server_ = std::make_unique<ControlServer>(host, ServerOptions{.address = bind,
                                                                  .token = token,
                                                                  .tls = tls_of(options),
                                                                  .heartbeat_timeout = options.heartbeat_timeout,
                                                                  .resolve_timeout = options.initialization_timeout});
    channel = in_process_channel(std::move(host));
  } else {
    channel = network_channel({.coordinator = coordinator,
                               .token = token,
                               .tls = tls_of(options),
                               .heartbeat_timeout = options.heartbeat_timeout});
  }
  control_ = std::make_unique<Control>(std::move(channel),
                                       ControlOptions{.process_id = info.process_id,
                                                      .process_count = info.process_count,
                                                      .initialization_timeout = options.initialization_timeout,
                                                      .heartbeat_timeout = options.heartbeat_timeout});
  control_->on_failure([this](const Failure& failure) { on_failure(failure); });

  const std::string address = info.process_id == 0
                                  ? coordinator.host
                                  : detail::local_address_towards(coordinator, options.initialization_timeout);
  const ProcessFacts own{host_identity(), address, static_cast<int>(Lanes::local().count()),
                         DeviceTable::instance().own_count()};
  if (info.process_id == 0) control_->set("data plane/segment", make_token());
  const std::vector<ProcessFacts> facts = exchange_facts(*control_, own, options.initialization_timeout);
  DataPlane plane = connect(*control_, facts, options, info.mpi);
  const std::lock_guard lock(mutex_);
  if (const auto failure = control_->failure()) throw CommAborted(describe(*failure));
  World::instance().join(
      {.process_index = info.process_id,
       .process_count = info.process_count,
       .lanes = std::move(plane.lanes),
       .agree = [this](std::string_view name, std::string_view text) { agree(name, text); },
       .failed = [this](const std::string& reason) { control_->report_failure({.message = reason}, true); },
       .progress = [this](int64_t step, const char* what) { control_->progress(step, what); }});
  std::vector<int> counts;
  for (const ProcessFacts& each : facts) counts.push_back(each.devices);
  DeviceTable::instance().join(info.process_id, counts);
#else
  throw_error(
      "initialize: {} processes, and the control plane is not built in; install libgrpc++-dev, libprotobuf-dev, "
      "protobuf-compiler and protobuf-compiler-grpc, and build again",
      info.process_count);
#endif
}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  World::instance().leave();
  DeviceTable::instance().leave();
  control_.reset();  // from here on nobody calls on_failure()
  if (executioner_.joinable()) executioner_.join();
}

void Session::shutdown() { control_->shutdown(options_.shutdown_timeout); }

void Session::sync(const std::string& name) { control_->barrier("sync/" + name, options_.first_collective_timeout); }

void Session::report_failure(const std::string& message, bool retryable) {
  control_->report_failure({.message = message, .retryable = retryable});
}

int Session::failure_code() const {
  const std::optional<Failure> failure = control_->failure();
  return !failure ? 0 : failure->retryable ? distributed::kRetry : 1;
}

void Session::agree(std::string_view name, std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  control_->agree(
      fmt::format("{} {}", name, agreements_++), hasher.value(), [&] { return std::string(text); },
      options_.first_collective_timeout, "equation");
}

void Session::on_failure(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  World::instance().abort(describe(failure));
  executioner_ = std::thread([this, failure] {
    std::unique_lock own(mutex_);
    if (changed_.wait_for(own, options_.failure_grace, [this] { return ending_; })) return;
    std::fprintf(stderr, "lockstep: %s; this process did not stop by itself and is ended\n", describe(failure).c_str());
    _exit(failure.retryable ? distributed::kRetry : 1);
  });
}

}  // namespace lockstep
