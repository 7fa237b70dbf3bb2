#include "cluster/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/hash.h"
#include "base/os/blocked_signals.h"
#include "base/print_stderr.h"
#include "base/start_thread.h"
#include "cluster/address_auth.h"
#include "cluster/cpu_binding.h"
#include "cluster/exit_code.h"
#include "cluster/flight_dumper.h"
#include "cluster/gpus.h"
#include "cluster/join.h"
#include "cluster/mpi_job.h"
#include "cluster/naming.h"
#include "cluster/token.h"
#include "comm/world.h"
#include "lane/lane.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

using detail::DeviceTable;

constexpr std::chrono::seconds kCauseArrival(1);
constexpr std::chrono::milliseconds kPollInterval(20);

JoinOptions join_options(const distributed::Options& options, const detail::ClusterInfo& info) {
  JoinOptions join{.process_id = info.process_id,
                   .process_count = info.process_count,
                   .tls = {options.tls_ca, options.tls_certificate, options.tls_key},
                   .use_tls = options.tls,
                   .initialization_timeout = options.initialization_timeout,
                   .heartbeat_timeout = options.heartbeat_timeout,
                   .first_step_timeout = options.first_collective_timeout,
                   .step_timeout = options.collective_timeout,
                   .make_mailbox = mailbox_factory(info)};
  if (join.make_mailbox) return join;  // MPI authenticates the processes itself
  join.coordinator = detail::parse_address(info.coordinator, "the coordinator's address");
  if (!info.bind_address.empty())
    join.bind_address = detail::parse_address(info.bind_address, "the address to listen at");
  const detail::Environment environment = detail::read_launch_environment(options).environment;
  Admission admission = find_admission(options.token, info, environment, log_to_stderr);
  join.token = std::move(admission.token);
  join.replica_names = std::move(admission.replica_names);
  join.restarts_individually = info.method != "explicit" && environment.contains("KUBERNETES_SERVICE_HOST");
  return join;
}

// The exit code of a process after the job has failed. A failure of no particular process counts as that of process 0,
// so that exactly one process exits with the code of the first cause.
int exit_code_after(const Failure& failure, int process) {
  if (!failure.retryable) return 1;
  return std::max(failure.process, 0) == process ? first_cause_code() : distributed::retry_code();
}

}  // namespace

Session::Session(const distributed::Options& options)
    : options_(options), world_(World::current()), devices_(DeviceTable::current()) {}

Session::Session(const distributed::Options& options, const detail::ClusterInfo& info) : Session(options) {
  {
    const BlockedSignals blocked;
    kill_timer_ = start_thread([this, process = info.process_id] { run_kill_timer(process); });
  }
  control_ = join_control(join_options(options, info));
  control_->on_failure([this](const Failure& failure) { on_failure(failure); });
}

void Session::join(const detail::ClusterInfo& info) {
  try {
    join_world(info);
  } catch (const Error& error) {
    control_->report_failure({.message = error.what(), .retryable = false});
    throw;
  } catch (const CommAborted& error) {
    throw_first_cause(error);
    throw;
  } catch (const CommTimeout& error) {
    // No consequence of a crash: the coordinator would have noticed that before.
    control_->report_failure({.message = error.what()});
    throw_first_cause(error);
    throw;
  } catch (const std::exception& error) {
    control_->report_failure({.message = error.what()}, true);
    throw;
  }
}

void Session::throw_first_cause(const CommError& error) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kCauseArrival, [this] { return failure_.has_value(); });
  const std::optional<Failure> failure = control_->failure();
  if (!failure || failure->message == error.what()) return;
  if (!failure->retryable) throw Error(describe(*failure));
  throw CommAborted(describe(*failure));
}

void Session::join_world(const detail::ClusterInfo& info) {
  ProcessFacts own{.host = host_identity(),
                   .address = own_address(*control_, info.coordinator, options_),
                   .platform = to_string(platform()),
                   .cpus = cpu_list(affinity_cpus()),
                   .mpi = info.mpi && mpi_is_available(),
                   .data_security = options_.data_security};
  const auto count = [&] {
    own.lanes = static_cast<int>(local_lane_count());
    own.devices = devices_.local_count();
  };
  const bool gpus = platform() == Platform::cuda;
  if (!gpus) count();
  if (info.process_id == 0) control_->set("flight/job", make_token().substr(0, 8));
  std::vector<ProcessFacts> facts = exchange_facts(*control_, own, options_.initialization_timeout);
  if (gpus) {  // the local rank, known after the exchange, decides which GPUs this process uses
    const LocalRank place = local_rank(facts, info.process_id);
    detail::select_own_gpus(info, place.id, place.count);
    own.platform = to_string(platform());
    count();
    facts = exchange_facts(*control_, own, options_.initialization_timeout, "gpus of process");
  }
  cpu_share_.emplace(own_cpu_share(facts, info.process_id));  // threads that start from here on have this share
  lanes_ = own.lanes;
  DataPlane plane = connect_data_plane(facts, info.mpi);
  unprotected_data_ = std::move(plane.unprotected);
  const std::string job = control_->get("flight/job", options_.initialization_timeout);
  auto recorder = std::make_shared<FlightRecorder>(own.lanes * info.process_id, own.lanes);
  const std::lock_guard lock(mutex_);
  if (const auto failure = control_->failure()) throw CommAborted(describe(*failure));
  flight_ = std::make_unique<FlightDumper>(recorder,
                                           FlightDumper::Options{.origin = {job, info.process_id, info.process_count},
                                                                 .folder = flight_folder(options_.flight_dir, job),
                                                                 .log = log_to_stderr});
  flight_->handle_signal();
  world_.join({.process_index = info.process_id,
               .process_count = info.process_count,
               .lanes = std::move(plane.lanes),
               .timeout_after_warmup = options_.collective_timeout,
               .agree = [this](std::string_view name, std::string_view text) { agree(name, text); },
               .report_failure =
                   [this](const std::string& reason) {
                     const std::string named = name_processes(split_cause(reason).cause);
                     flight_->dump_failure(named);
                     control_->report_failure({.message = named}, true);
                   },
               .throw_cause = [this](const std::exception& error) { throw_cause(error); },
               .progress =
                   [this](int64_t step, const char* what) {
                     step_ = step;
                     control_->progress(step, what);
                   },
               .recorder = std::move(recorder)});
  std::vector<int> counts;
  for (const ProcessFacts& each : facts) counts.push_back(each.devices);
  devices_.join(info.process_id, counts);
}

DataPlane Session::connect_data_plane(const std::vector<ProcessFacts>& facts, bool mpi) {
  // Connecting cannot be interrupted. After a failure the thread is detached, so it owns everything that it uses.
  struct Connecting {
    std::shared_ptr<Control> control;
    distributed::Options options;
    std::vector<ProcessFacts> facts;
    std::mutex mutex;
    std::condition_variable done;
    bool over = false;
    DataPlane plane;
    std::exception_ptr failure;
  };
  if (mpi) return connect(*control_, facts, options_, mpi);
  const auto state = std::make_shared<Connecting>();
  state->control = control_;
  state->options = options_;
  state->facts = facts;
  std::thread thread = start_thread([state] {
    DataPlane plane;
    std::exception_ptr failure;
    try {
      plane = connect(*state->control, state->facts, state->options, false);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(state->mutex);
    state->plane = std::move(plane);
    state->failure = failure;
    state->over = true;
    state->done.notify_all();
  });
  const auto is_over = [&] {
    const std::lock_guard lock(state->mutex);
    return state->over;
  };
  {
    std::unique_lock lock(state->mutex);
    while (!state->over && !control_->failure()) state->done.wait_for(lock, kPollInterval, [&] { return state->over; });
    // Usually the thread then finishes, or receives the failure itself.
    if (!state->over) state->done.wait_for(lock, kCauseArrival, [&] { return state->over; });
  }
  if (!is_over()) {
    thread.detach();
    throw CommAborted(fmt::format("connect: the job has failed: {}", describe(*control_->failure())));
  }
  thread.join();
  if (!state->failure) return std::move(state->plane);
  try {
    std::rethrow_exception(state->failure);
  } catch (const CommAborted&) {
    throw;
  } catch (const CommTimeout& error) {
    throw CommTimeout(name_processes(error.what()));
  } catch (const CommError& error) {
    throw CommError(name_processes(error.what()));
  }
}

std::string Session::name_processes(const std::string& error) const {
  return replace_ranks_with_processes(error, control_->peers(), lanes_);
}

std::string Session::describe_cause(const std::string& error) {
  const CommCause own = split_cause(error);
  std::string out;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kCauseArrival, [this] { return failure_.has_value(); });
    out = failure_ ? describe(*failure_) : name_processes(own.cause);
  }
  std::string where = step_ >= 0 ? fmt::format("step {}", step_.load()) : "";
  if (!own.operation.empty()) where += fmt::format("{}{}", where.empty() ? "" : ", ", own.operation);
  return where.empty() ? out : fmt::format("{}; process {} was in {}", out, control_->process_id(), where);
}

void Session::throw_cause(const std::exception& error) {
  if (dynamic_cast<const CommError*>(&error) != nullptr) throw CommAborted(describe_cause(error.what()));
  // The ranks called different operations.
  if (dynamic_cast<const Error*>(&error) != nullptr)
    if (const std::string named = name_processes(error.what()); named != error.what()) throw Error(named);
}

void Session::set_flight_folder(const std::string& folder) {
  if (!options_.flight_dir) flight_->set_folder(folder);
}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  {
    const std::lock_guard lock(abort_mutex_);  // the World must not be left until on_failure() has aborted it
    world_.leave();
  }
  devices_.leave();
  control_.reset();  // from here on, on_failure() is not called
  if (clean_shutdown_) end_mpi_job();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (kill_timer_.joinable()) kill_timer_.join();
}

void Session::shutdown() {
  control_->shutdown(options_.shutdown_timeout);
  clean_shutdown_ = true;
}

void Session::sync(const std::string& name) {
  Hasher hasher;
  hasher.add(std::string_view(name));
  control_->agree(
      fmt::format("sync {}", syncs_++), hasher.value(), [&] { return name; }, options_.first_collective_timeout,
      "name");
}

std::vector<std::string> Session::exchange(const std::string& channel, const std::string& own) {
  int64_t number = 0;
  {
    const std::lock_guard lock(exchange_mutex_);
    number = exchanges_[channel]++;
  }
  const auto key = [&](int64_t n, int process) { return fmt::format("exchange/{}/{}/{}", channel, n, process); };
  control_->set(key(number, control_->process_id()), own);
  std::vector<std::string> all;
  for (int p = 0; p < control_->process_count(); ++p)
    all.push_back(control_->get(key(number, p), options_.first_collective_timeout));
  // A process that has reached this exchange has read all values of the previous one.
  if (number > 0) control_->remove(key(number - 1, control_->process_id()));
  return all;
}

void Session::report_failure(const std::string& message, bool retryable) {
  flight_->dump_failure(message);
  control_->report_failure({.message = message, .retryable = retryable});
}

int Session::failure_code() const {
  const std::optional<Failure> failure = control_->failure();
  return failure ? exit_code_after(*failure, control_->process_id()) : 0;
}

void Session::agree(std::string_view name, std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  control_->agree(
      fmt::format("{} {}", name, agreements_++), hasher.value(), [&] { return std::string(text); },
      options_.first_collective_timeout, "equation");
}

void Session::on_failure(const Failure& failure) {
  const std::string text = describe(failure);
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    failure_ = failure;
  }
  changed_.notify_all();  // starts the kill timer, before anything that may block on a GPU or on the network
  const std::lock_guard abort_lock(abort_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
  }
  if (flight_) flight_->dump_failure(text);
  world_.abort(text);
}

void Session::run_kill_timer(int process) {
  std::unique_lock own(mutex_);
  changed_.wait(own, [this] { return failure_ || ended_; });
  if (ended_) return;
  if (changed_.wait_for(own, options_.failure_grace, [this] { return ending_; }) &&
      changed_.wait_for(own, options_.failure_grace, [this] { return ended_; }))
    return;
  print_stderr("lockstep: {}; this process did not exit within the grace period and is terminated\n",
               describe(*failure_));
  _exit(exit_code_after(*failure_, process));
}

}  // namespace lockstep
