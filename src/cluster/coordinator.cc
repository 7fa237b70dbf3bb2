#include "cluster/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "cluster/naming.h"

namespace lockstep {

namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kLongest = std::chrono::hours(24 * 365);  // can be added to the clock without overflow

nanoseconds clamp(nanoseconds timeout) { return std::clamp(timeout, nanoseconds(0), kLongest); }

// What a process was doing at its last heartbeat: `step 12, all_reduce`.
std::string doing(const Progress& progress) {
  if (progress.step < 0) return progress.operation.empty() ? "before its first step" : progress.operation;
  return fmt::format("step {}{}{}", progress.step, progress.operation.empty() ? "" : ", ", progress.operation);
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Time now)
    : options_(std::move(options)),
      processes_(static_cast<size_t>(std::max(options_.process_count, 1))),
      keys_(options_.keys, answers_),
      barriers_(
          options_.process_count, [this](int process) { return label(process); }, answers_),
      last_tick_(now) {
  if (options_.process_count < 1)
    throw_error("coordinator: process_count is {}; it must be at least 1", options_.process_count);
  if (options_.heartbeat_timeout <= nanoseconds(0)) throw_error("coordinator: heartbeat_timeout must be positive");
  for (size_t i = 0; i < processes_.size() && i < options_.hosts.size(); ++i)
    processes_[i].peer.host = options_.hosts[i];
}

void Coordinator::answer(uint64_t call, Outcome outcome, std::string text) {
  if (call) answers_.push_back({.call = call, .outcome = outcome, .text = std::move(text)});
}

void Coordinator::answer_failed(uint64_t call) {
  if (call)
    answers_.push_back({.call = call, .outcome = Outcome::failed, .text = describe(*failure_), .failure = failure_});
}

std::string Coordinator::label(int process) const {
  const Peer& peer = at(process).peer;
  return process_label(process, peer.host, peer.pid);
}

void Coordinator::set_failure(Failure failure) {
  if (failure_ || over_) return;
  failure_ = std::move(failure);
  consequence_.reset();
  for (Process& process : processes_) {
    process.notified = process.registration || process.heartbeat;
    answer_failed(std::exchange(process.registration, 0));
    answer_failed(std::exchange(process.heartbeat, 0));
  }
  for (uint64_t call : keys_.take_waiting()) answer_failed(call);
  for (uint64_t call : barriers_.take_waiting()) answer_failed(call);
}

bool Coordinator::failure_delivered() const {
  if (!failure_) return false;
  for (int i = 0; i < options_.process_count; ++i) {
    const Process& process = at(i);
    if (process.registered && !process.notified && !process.disconnected && i != failure_->process) return false;
  }
  return true;
}

bool Coordinator::is_known(const Request& request) const {
  return request.process >= 0 && request.process < options_.process_count && at(request.process).registered &&
         at(request.process).incarnation == request.incarnation;
}

void Coordinator::close(const std::string& reason) {
  if (consequence_) set_failure(*consequence_);  // process 0 leaves because of it
  // Or it has given up while processes were missing: those that still wait repeat which.
  set_failure({.process = 0,
               .host = at(0).peer.host,
               .pid = at(0).peer.pid,
               .operation = "coordinator",
               .message = registration_timeout_.empty() ? reason : registration_timeout_});
}

void Coordinator::handle(uint64_t call, const Request& request, const std::string& address, Time now) {
  LOCKSTEP_CHECK(call != 0);
  if (failure_) {
    if (is_known(request)) at(request.process).notified = true;
    return answer_failed(call);
  }
  if (const auto* what = std::get_if<request::Register>(&request.what))
    return handle_register(call, request, *what, address, now);
  if (!is_known(request))
    return answer(call, Outcome::refused,
                  fmt::format("coordinator: process {} with this incarnation is not part of the job; it must register "
                              "first",
                              request.process));
  Process& process = at(request.process);
  process.last_heard = now;
  process.disconnected.reset();
  if (over_) return answer(call, Outcome::over, "coordinator: the job is over");
  if (!started_)
    return answer(
        call, Outcome::refused,
        fmt::format("coordinator: process {} sent a request before all processes have registered", request.process));
  std::visit(
      [&](const auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, request::Heartbeat>) {
          handle_heartbeat(call, request.process, what, now);
        } else if constexpr (std::is_same_v<What, request::Get>) {
          keys_.get(call, what, now + clamp(what.timeout));
        } else if constexpr (std::is_same_v<What, request::Set>) {
          keys_.set(call, what);
        } else if constexpr (std::is_same_v<What, request::Increment>) {
          keys_.increment(call, what);
        } else if constexpr (std::is_same_v<What, request::List>) {
          keys_.list(call, what);
        } else if constexpr (std::is_same_v<What, request::Remove>) {
          keys_.remove(call, what);
        } else if constexpr (std::is_same_v<What, request::Barrier>) {
          barriers_.join(call, request.process, {what.name, clamp(what.timeout), what.participants}, now);
        } else if constexpr (std::is_same_v<What, request::Agree>) {
          barriers_.agree(call, request.process, {what.name, what.hash, clamp(what.timeout)}, now);
        } else if constexpr (std::is_same_v<What, request::Explain>) {
          barriers_.explain(call, request.process, what);
        } else if constexpr (std::is_same_v<What, request::Fail>) {
          handle_fail(call, request.process, what, now);
        } else if constexpr (std::is_same_v<What, request::Shutdown>) {
          if (barriers_.join_shutdown(call, request.process, {clamp(what.timeout)}, now)) finish();
        } else if constexpr (std::is_same_v<What, request::Leave>) {
          handle_leave(call, request.process, now);
        } else {
          static_assert(std::is_same_v<What, request::Register>, "a request that is not handled");
        }
      },
      request.what);
}

// Why a registration is refused, with the outcome of the answer; empty if it is accepted.
std::string Coordinator::refusal(const Request& request, const request::Register& what, Outcome& outcome) const {
  outcome = Outcome::refused;
  if (what.process_count != options_.process_count)
    return fmt::format("it expects {} processes, the coordinator {}; give all processes the same number",
                       what.process_count, options_.process_count);
  if (request.process < 0 || request.process >= options_.process_count)
    return fmt::format("its id is not in 0 ... {}, the ids of a job of {} processes", options_.process_count - 1,
                       options_.process_count);
  if (over_) return "the job is over";
  const Process& process = at(request.process);
  if (!process.registered) return "";
  if (process.incarnation == request.incarnation) return "it has already registered";
  outcome = Outcome::taken;
  return fmt::format("that id is in use by a running process (host {}, pid {}); give every process a different id",
                     process.peer.host, process.peer.pid);
}

void Coordinator::handle_register(uint64_t call, const Request& request, const request::Register& what,
                                  const std::string& address, Time now) {
  Outcome outcome = Outcome::ok;
  if (const std::string why = refusal(request, what, outcome); !why.empty())
    return answer(call, outcome,
                  fmt::format("register: process {} (host {}, pid {}): {}", request.process, what.host, what.pid, why));
  Process& process = at(request.process);
  process.registered = true;
  process.incarnation = request.incarnation;
  process.peer = {what.host, address, what.pid};
  process.registration = call;
  process.register_timeout = clamp(what.timeout);
  process.register_deadline = now + process.register_timeout;
  if (std::ranges::all_of(processes_, &Process::registered)) start(now);
}

void Coordinator::start(Time now) {
  started_ = true;
  std::vector<Peer> peers;
  for (const Process& process : processes_) peers.push_back(process.peer);
  for (Process& process : processes_) {
    process.last_heard = process.last_progress = process.progress_received = now;
    answers_.push_back({.call = std::exchange(process.registration, 0), .peers = peers});
  }
}

// `3 of 4 processes have registered; missing: process 2 (host n03)`.
std::string Coordinator::describe_registrations() const {
  constexpr size_t kMaxMissing = 16;
  size_t missing = 0;
  std::string names;
  for (int i = 0; i < options_.process_count; ++i) {
    if (at(i).registered) continue;
    if (++missing <= kMaxMissing) names += fmt::format("{}{}", missing > 1 ? ", " : "", label(i));
  }
  if (missing > kMaxMissing) names += fmt::format(" and {} more", missing - kMaxMissing);
  return fmt::format("{} of {} processes have registered; missing: {}", processes_.size() - missing, processes_.size(),
                     names);
}

void Coordinator::handle_heartbeat(uint64_t call, int process, const request::Heartbeat& what, Time now) {
  Process& sender = at(process);
  // One per process: an older one belongs to a broken connection.
  answer(std::exchange(sender.heartbeat, call), Outcome::ok, "");
  sender.heartbeat_due = now + heartbeat_interval();
  if (what.progress.count != sender.progress.count) sender.last_progress = now;
  if (sender.first_step < 0) sender.first_step = what.progress.step;
  sender.progress = what.progress;
  sender.progress_received = now;
  check_stuck(now);
}

void Coordinator::handle_fail(uint64_t call, int process, const request::Fail& what, Time now) {
  Failure failure = what.failure;
  at(process).reported = true;
  if (failure.process < 0 || failure.process >= options_.process_count) failure.process = process;
  if (failure.host.empty()) failure.host = at(failure.process).peer.host;
  if (failure.pid == 0) failure.pid = at(failure.process).peer.pid;
  if (!what.consequence) {
    set_failure(std::move(failure));
  } else if (!consequence_) {
    consequence_ = std::move(failure);
    consequence_due_ = now + heartbeat_interval();
    check_lost(now);
  }
  answer(call, Outcome::ok, "");
}

void Coordinator::handle_leave(uint64_t call, int process, Time now) {
  if (at(process).reported)
    at(process).disconnected = now;
  else
    set_failure(failure_of(process, "left the job without shutdown(); see its log"));
  answer(call, Outcome::ok, "");
}

void Coordinator::finish() {
  over_ = true;
  for (Process& process : processes_) answer(std::exchange(process.heartbeat, 0), Outcome::over, "");
  for (uint64_t call : keys_.take_waiting()) answer(call, Outcome::over, "coordinator: the job is over");
  for (uint64_t call : barriers_.take_waiting()) answer(call, Outcome::over, "coordinator: the job is over");
}

void Coordinator::cancel(uint64_t call, Time now) {
  for (Process& process : processes_) {
    if (process.registration == call) {
      // It may register again as another incarnation. Its host stays known.
      process.registered = false;
      process.registration = 0;
      return;
    }
    if (process.heartbeat == call) {
      process.heartbeat = 0;
      process.disconnected = now;
      if (!failure_) check_lost(now);
      return;
    }
  }
  keys_.cancel(call);
  barriers_.cancel(call);
}

void Coordinator::tick(Time now) {
  compensate_for_suspension(now);
  if (failure_ || over_) return;
  keys_.expire(now);
  for (const Barriers::Expired& expired : barriers_.expire(now)) {
    // The processes that waited exit now: the missing ones must be notified.
    if (expired.kind == Barriers::Kind::shutdown) set_failure(failure_of(expired.missing.front(), expired.message));
  }
  check_registrations(now);
  if (!started_ || failure_) return;
  check_lost(now);
  if (consequence_ && consequence_due_ <= now) set_failure(*consequence_);
  for (Process& process : processes_)
    if (process.heartbeat && process.heartbeat_due <= now) answer(std::exchange(process.heartbeat, 0), Outcome::ok, "");
}

// If this process was suspended (SIGSTOP, an overloaded machine), heartbeats are waiting unread. Moves all times
// forward by the gap, so that no process counts as lost because of it.
void Coordinator::compensate_for_suspension(Time now) {
  const nanoseconds gap = now - std::exchange(last_tick_, now);
  if (gap < options_.heartbeat_timeout / 2) return;
  for (Process& process : processes_) {
    process.last_heard += gap;
    process.last_progress += gap;
    if (process.disconnected) *process.disconnected += gap;
  }
}

void Coordinator::check_registrations(Time now) {
  const bool any = std::ranges::any_of(
      processes_, [&](const Process& process) { return process.registration && process.register_deadline <= now; });
  if (!any) return;
  const std::string registrations = describe_registrations();  // before expired ones are removed
  const auto timeout_text = [&](const Process& process) {
    return fmt::format(
        "register: timeout after {}: {}; check that they started and that the network lets them reach the coordinator",
        describe(process.register_timeout), registrations);
  };
  if (at(0).registration && at(0).register_deadline <= now) registration_timeout_ = timeout_text(at(0));
  for (Process& process : processes_) {
    if (!process.registration || process.register_deadline > now) continue;
    answer(std::exchange(process.registration, 0), Outcome::timeout, timeout_text(process));
    process.registered = false;
  }
}

Failure Coordinator::failure_of(int process, const std::string& fact) const {
  const Process& of = at(process);
  return {.process = process,
          .host = of.peer.host,
          .pid = of.peer.pid,
          .operation = of.progress.operation,
          .step = of.progress.step,
          .message = fact,
          .retryable = true};
}

Coordinator::Time Coordinator::lost_at(const Process& process) const {
  Time at = process.last_heard + options_.heartbeat_timeout;
  // If another process reported a broken connection, a process whose connection is gone is the cause.
  if (process.disconnected && !process.reported)
    at = std::min(at, consequence_ ? *process.disconnected : *process.disconnected + heartbeat_interval());
  return at;
}

void Coordinator::check_lost(Time now) {
  if (!started_ || over_ || failure_) return;
  const auto first =
      std::ranges::min_element(processes_, [&](const Process& a, const Process& b) { return lost_at(a) < lost_at(b); });
  if (lost_at(*first) > now) return;
  const int process = static_cast<int>(first - processes_.begin());
  Failure failure = failure_of(
      process,
      first->disconnected && first->last_heard + options_.heartbeat_timeout > now
          ? std::string("lost: its connection broke and it did not reconnect; it has probably crashed, see its log")
          : fmt::format("lost: no heartbeat for {}; it has crashed, was suspended, or the network to it "
                        "is down",
                        describe(options_.heartbeat_timeout)));
  // It may have advanced many steps since its last heartbeat.
  if (failure.step >= 0 || !failure.operation.empty())
    failure.message +=
        fmt::format("; {} earlier it was in {}", describe(now - first->progress_received), doing(first->progress));
  failure.step = -1;
  failure.operation.clear();
  set_failure(std::move(failure));
}

// Whether a process makes no progress while another process waits for it and makes no progress either. Only the process
// furthest behind can be stuck. Progress is as old as the last heartbeat, so both heartbeats must have arrived after
// the deadline.
bool Coordinator::is_stuck(const Process& process) const {
  const bool last = std::ranges::none_of(processes_, [&](const Process& other) {
    return !other.progress.waiting && other.progress.step < process.progress.step;
  });
  if (process.progress.waiting || !last) return false;
  const bool first = process.progress.step < 0 || process.progress.step == process.first_step;
  const nanoseconds timeout = clamp(first ? options_.first_step_timeout : options_.step_timeout);
  return std::ranges::any_of(processes_, [&](const Process& other) {
    const bool waits = other.progress.step > process.progress.step ||
                       (other.progress.step == process.progress.step && other.progress.waiting);
    return waits && &other != &process &&
           std::min(process.progress_received, other.progress_received) >=
               std::max(process.last_progress, other.last_progress) + timeout;
  });
}

void Coordinator::check_stuck(Time now) {
  const auto found = std::ranges::find_if(processes_, [&](const Process& process) { return is_stuck(process); });
  if (found == processes_.end()) return;
  set_failure(failure_of(
      static_cast<int>(found - processes_.begin()),
      fmt::format("stuck: it is alive, but has made no progress ({}) for {}, and other processes wait for it",
                  doing(found->progress), describe(now - found->last_progress))));
}

Coordinator::Time Coordinator::next_deadline() const {
  if (failure_ || over_) return Time::max();
  Time next = std::min(keys_.next_deadline(), barriers_.next_deadline());
  // Ticks regularly, so that idle time does not look like a suspension.
  next = std::min(next, last_tick_ + heartbeat_interval());
  if (consequence_) next = std::min(next, consequence_due_);
  for (const Process& process : processes_) {
    if (process.registration) next = std::min(next, process.register_deadline);
    if (!started_) continue;
    next = std::min(next, lost_at(process));
    if (process.heartbeat) next = std::min(next, process.heartbeat_due);
  }
  return next;
}

}  // namespace lockstep
