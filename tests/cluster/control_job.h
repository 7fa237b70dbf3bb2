// Jobs for tests: several Controls in one process, each acting as a process of the job.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/control.h"
#include "cluster/coordinator_host.h"
#include "cluster/join.h"
#include "cluster/local_mailbox.h"
#include "cluster/mailbox_channel.h"
#ifdef LOCKSTEP_WITH_GRPC
#include "cluster/grpc/client.h"
#endif

namespace lockstep {

using namespace std::chrono_literals;

inline const std::string kTestToken = "0123456789abcdef0123456789abcdef";

// A timeout that no test reaches, even on a slow machine.
inline constexpr auto kGenerous = 60s;

// Collects log lines. Thread-safe.
class Lines {
 public:
  LogLine log() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Calls f(i) concurrently for all i. Rethrows the exception of the lowest i.
inline void on_all(int count, const std::function<void(int)>& f) {
  std::vector<std::future<void>> done;
  for (int i = 0; i < count; ++i) done.push_back(std::async(std::launch::async, f, i));
  for (auto& each : done) each.wait();
  for (auto& each : done) each.get();
}

// The failure that a Control reports to its callback.
class ReportedFailure {
 public:
  explicit ReportedFailure(Control& control) {
    control.on_failure([promise = promise_](const Failure& failure) { promise->set_value(failure); });
  }
  Failure wait() {
    // Every failure arrives within heartbeat_timeout, which is kGenerous in most tests.
    if (failure_.wait_for(2 * kGenerous) != std::future_status::ready) return {.message = "no failure was reported"};
    return failure_.get();
  }

 private:
  std::shared_ptr<std::promise<Failure>> promise_ = std::make_shared<std::promise<Failure>>();
  std::future<Failure> failure_ = promise_->get_future();
};

// The answer to the first heartbeat of process 1 of a job of two, sent while end() destroys the coordinator.
inline Answer first_heartbeat_while_exiting(CoordinatorHost& host, ControlChannel& worker,
                                            const std::function<void()>& end) {
  const auto enrolled = [](int process) {
    return Request{
        .process = process, .incarnation = 5, .what = request::Register{.process_count = 2, .timeout = kGenerous}};
  };
  host.submit(host.new_call(), enrolled(0), "", [](const Answer&) {});
  EXPECT_EQ(worker.call(enrolled(1), kGenerous).outcome, Outcome::ok);
  std::promise<void> closed;
  host.submit(host.new_call(),
              {.process = 0, .incarnation = 5, .what = request::Get{.key = "never", .timeout = kGenerous}}, "",
              [&](const Answer&) { closed.set_value(); });
  const auto ending = std::async(std::launch::async, end);
  EXPECT_EQ(closed.get_future().wait_for(kGenerous), std::future_status::ready);
  return worker.call({.process = 1, .incarnation = 5, .what = request::Heartbeat{}}, kGenerous);
}

enum class Transport { in_process, network, mailbox };

class ControlJob {
 public:
  struct Options {
    int count = 2;
    Transport transport = Transport::in_process;
    std::string host = "127.0.0.1";
    std::chrono::nanoseconds heartbeat_timeout = kGenerous;
    std::chrono::nanoseconds step_timeout = kGenerous;
    TlsFiles tls = {};
    bool use_tls = true;
    int not_started = 0;  // the last ones; the test starts them itself
    std::shared_ptr<LocalMailboxes> mailboxes = LocalMailboxes::create();
  };

  explicit ControlJob(Options options) : options_(std::move(options)), controls_(static_cast<size_t>(options_.count)) {
    if (options_.transport == Transport::in_process)
      host_ = std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = options_.count,
                                                                   .heartbeat_timeout = options_.heartbeat_timeout,
                                                                   .first_step_timeout = options_.step_timeout,
                                                                   .step_timeout = options_.step_timeout});
    for (int i = 0; i < options_.count - options_.not_started; ++i)
      starting_.push_back(std::async(std::launch::async, [this, i] { controls_[static_cast<size_t>(i)] = make(i); }));
    if (!options_.not_started) wait();
  }

  // Waits until all have registered.
  void wait() {
    for (auto& each : starting_) each.get();
    starting_.clear();
  }
  Control& operator[](int i) { return *controls_[static_cast<size_t>(i)]; }
  int count() const { return options_.count; }
  // Destroys one Control without shutdown().
  void drop(int i) { controls_[static_cast<size_t>(i)].reset(); }

  // Joins the job as process i.
  std::unique_ptr<Control> make(int i) {
    if (host_)
      return std::make_unique<Control>(in_process_channel(host_),
                                       ControlOptions{.process_id = i,
                                                      .process_count = options_.count,
                                                      .initialization_timeout = kGenerous,
                                                      .heartbeat_timeout = options_.heartbeat_timeout,
                                                      .host = "n" + std::to_string(i)});
    try {
      return join_control(join_options(i));
    } catch (...) {
      if (i == 0 && !is_listening_) listening_.set_exception(std::current_exception());  // unblocks port()
      throw;
    }
  }
  JoinOptions join_options(int i) {
    JoinOptions join{.process_id = i,
                     .process_count = options_.count,
                     .coordinator = {options_.host, i == 0 || options_.transport == Transport::mailbox ? 0 : port()},
                     .token = kTestToken,
                     .tls = options_.tls,
                     .use_tls = options_.use_tls,
                     .initialization_timeout = kGenerous,
                     .heartbeat_timeout = options_.heartbeat_timeout,
                     .first_step_timeout = options_.step_timeout,
                     .step_timeout = options_.step_timeout,
                     .host = "n" + std::to_string(i),
                     .log = lines.log()};
    if (options_.transport == Transport::mailbox) join.make_mailbox = [this, i] { return options_.mailboxes->open(i); };
    if (i == 0)
      join.on_listening = [this](int number) {
        is_listening_ = true;
        listening_.set_value(number);
      };
    return join;
  }
  int port() { return port_.get(); }
  // A new channel to the coordinator, without a Control.
  std::unique_ptr<ControlChannel> raw_channel() {
    if (options_.transport == Transport::mailbox) return mailbox_channel(options_.mailboxes->open(next_address_++));
#ifdef LOCKSTEP_WITH_GRPC
    if (!host_)
      return network_channel({.coordinator = {options_.host, port()},
                              .token = kTestToken,
                              .use_tls = options_.use_tls,
                              .heartbeat_timeout = options_.heartbeat_timeout,
                              .log = lines.log()});
#endif
    return in_process_channel(host_);
  }

  void barrier(const std::string& name) {
    on_all(count(), [&](int i) { (*this)[i].barrier(name, kGenerous); });
  }
  void shutdown() {
    on_all(count(), [&](int i) { (*this)[i].shutdown(kGenerous); });
  }

  Lines lines;

 private:
  const Options options_;
  std::shared_ptr<CoordinatorHost> host_;
  int next_address_ = 1000;
  bool is_listening_ = false;  // used by process 0's thread only
  std::promise<int> listening_;
  std::shared_future<int> port_ = listening_.get_future().share();
  std::vector<std::unique_ptr<Control>> controls_;
  std::vector<std::future<void>> starting_;
};

}  // namespace lockstep
