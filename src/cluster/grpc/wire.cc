#include "cluster/grpc/wire.h"

#include <chrono>
#include <utility>

namespace lockstep::detail {

namespace {

std::chrono::nanoseconds timeout(int64_t count) { return std::chrono::nanoseconds(count); }

void put(const Failure& failure, control::Failure& out) {
  out.set_process(failure.process);
  out.set_host(failure.host);
  out.set_pid(failure.pid);
  out.set_operation(failure.operation);
  out.set_step(failure.step);
  out.set_message(failure.message);
  out.set_retryable(failure.retryable);
}

Failure take(const control::Failure& in) {
  return {.process = in.process(),
          .host = in.host(),
          .pid = in.pid(),
          .operation = in.operation(),
          .step = in.step(),
          .message = in.message(),
          .retryable = in.retryable()};
}

// One overload per request.
struct Put {
  control::Request& out;

  void operator()(const request::Heartbeat& what) const {
    auto& to = *out.mutable_heartbeat();
    to.set_step(what.progress.step);
    to.set_count(what.progress.count);
    to.set_waiting(what.progress.waiting);
    to.set_operation(what.progress.operation);
  }
  void operator()(const request::Register& what) const {
    auto& to = *out.mutable_register_();
    to.set_process_count(what.process_count);
    to.set_protocol(what.protocol);
    to.set_version(what.version);
    to.set_host(what.host);
    to.set_pid(what.pid);
    to.set_timeout_ns(what.timeout.count());
  }
  void operator()(const request::Get& what) const {
    auto& to = *out.mutable_get();
    to.set_key(what.key);
    to.set_wait(what.wait);
    to.set_timeout_ns(what.timeout.count());
  }
  void operator()(const request::Set& what) const {
    auto& to = *out.mutable_set();
    to.set_key(what.key);
    to.set_value(what.value);
    to.set_overwrite(what.overwrite);
  }
  void operator()(const request::Increment& what) const {
    auto& to = *out.mutable_increment();
    to.set_key(what.key);
    to.set_by(what.by);
  }
  void operator()(const request::List& what) const { out.mutable_list()->set_directory(what.directory); }
  void operator()(const request::Remove& what) const { out.mutable_remove()->set_key(what.key); }
  void operator()(const request::Barrier& what) const {
    auto& to = *out.mutable_barrier();
    to.set_name(what.name);
    to.set_timeout_ns(what.timeout.count());
    for (int process : what.participants) to.add_participants(process);
  }
  void operator()(const request::Agree& what) const {
    auto& to = *out.mutable_agree();
    to.set_name(what.name);
    to.set_hash(what.hash);
    to.set_timeout_ns(what.timeout.count());
  }
  void operator()(const request::Explain& what) const {
    auto& to = *out.mutable_explain();
    to.set_name(what.name);
    to.set_text(what.text);
    to.set_line_word(what.line_word);
  }
  void operator()(const request::Fail& what) const {
    auto& to = *out.mutable_fail();
    put(what.failure, *to.mutable_failure());
    to.set_consequence(what.consequence);
  }
  void operator()(const request::Shutdown& what) const { out.mutable_shutdown()->set_timeout_ns(what.timeout.count()); }
  void operator()(const request::Leave&) const { out.mutable_leave(); }
};

}  // namespace

void to_wire(const Request& request, control::Request& out) {
  out.set_process(request.process);
  out.set_incarnation(request.incarnation);
  std::visit(Put{out}, request.what);
}

std::optional<Request> from_wire(const control::Request& in) {
  Request out{.process = in.process(), .incarnation = in.incarnation()};
  switch (in.what_case()) {
    case control::Request::kHeartbeat: {
      const auto& from = in.heartbeat();
      out.what = request::Heartbeat{
          {.step = from.step(), .count = from.count(), .waiting = from.waiting(), .operation = from.operation()}};
      break;
    }
    case control::Request::kRegister: {
      const auto& from = in.register_();
      out.what = request::Register{from.process_count(), from.protocol(), from.version(),
                                   from.host(),          from.pid(),      timeout(from.timeout_ns())};
      break;
    }
    case control::Request::kGet:
      out.what = request::Get{in.get().key(), in.get().wait(), timeout(in.get().timeout_ns())};
      break;
    case control::Request::kSet:
      out.what = request::Set{in.set().key(), in.set().value(), in.set().overwrite()};
      break;
    case control::Request::kIncrement:
      out.what = request::Increment{in.increment().key(), in.increment().by()};
      break;
    case control::Request::kList:
      out.what = request::List{in.list().directory()};
      break;
    case control::Request::kRemove:
      out.what = request::Remove{in.remove().key()};
      break;
    case control::Request::kBarrier: {
      const auto& participants = in.barrier().participants();
      out.what = request::Barrier{
          in.barrier().name(), timeout(in.barrier().timeout_ns()), {participants.begin(), participants.end()}};
      break;
    }
    case control::Request::kAgree:
      out.what = request::Agree{in.agree().name(), in.agree().hash(), timeout(in.agree().timeout_ns())};
      break;
    case control::Request::kExplain:
      out.what = request::Explain{in.explain().name(), in.explain().text(), in.explain().line_word()};
      break;
    case control::Request::kFail:
      out.what = request::Fail{take(in.fail().failure()), in.fail().consequence()};
      break;
    case control::Request::kShutdown:
      out.what = request::Shutdown{timeout(in.shutdown().timeout_ns())};
      break;
    case control::Request::kLeave:
      out.what = request::Leave{};
      break;
    case control::Request::WHAT_NOT_SET:
      return std::nullopt;
  }
  return out;
}

void to_wire(const Answer& answer, control::Answer& out) {
  out.set_outcome(static_cast<int>(answer.outcome));
  out.set_text(answer.text);
  out.set_number(answer.number);
  for (const auto& [key, value] : answer.entries) {
    auto& entry = *out.add_entries();
    entry.set_key(key);
    entry.set_value(value);
  }
  for (const Peer& peer : answer.peers) {
    auto& to = *out.add_peers();
    to.set_host(peer.host);
    to.set_address(peer.address);
    to.set_pid(peer.pid);
  }
  if (answer.failure) put(*answer.failure, *out.mutable_failure());
}

Answer from_wire(const control::Answer& in) {
  const bool known = in.outcome() >= 0 && in.outcome() <= static_cast<int>(Outcome::taken);
  Answer out{.outcome = known ? static_cast<Outcome>(in.outcome()) : Outcome::unreachable,
             .text = in.text(),
             .number = in.number()};
  for (const auto& entry : in.entries()) out.entries.emplace_back(entry.key(), entry.value());
  for (const auto& peer : in.peers()) out.peers.push_back({peer.host(), peer.address(), peer.pid()});
  // `failed` always comes with a failure, even if the sender omitted it.
  if (in.has_failure() || out.outcome == Outcome::failed) out.failure = take(in.failure());
  return out;
}

}  // namespace lockstep::detail
