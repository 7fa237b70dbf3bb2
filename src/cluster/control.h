// Control: one process's place in a job of many. It is made when all processes have met at the coordinator, keeps a
// thread that says "I am alive" and hears of failures, and is how processes leave notes, wait for each other and agree.
//
//   control->set("address/3", "10.0.0.7:4711");
//   std::string theirs = control->get("address/0", 60s);
//   control->barrier("connected", 60s);
//   control->agree("program 7", hash, [&] { return to_string(program); }, 60s, "equation");
//   control->progress(step, "all_reduce", true);
//   control->shutdown(300s);
//
// No wait is endless. Functions that call_coordinator the coordinator throw Error for what it refuses, CommTimeout when others did
// not come in time, CommAborted when the job has failed (the message is the first cause), and CommError when the
// coordinator cannot be reached. Safe from any thread, but for the end: shutdown() and the destructor are called when
// no other call is under way.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/control_channel.h"
#include "cluster/messages.h"
#include "comm/key_store.h"

namespace lockstep {

struct ControlOptions {
  int process_id = 0;
  int process_count = 1;
  std::chrono::nanoseconds initialization_timeout = std::chrono::seconds(300);
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
  std::string host = {};  // empty: this machine's name
};

class Control : public KeyStore {
 public:
  using Timeout = std::chrono::nanoseconds;

  // Registers, and returns when all processes have. Throws Error when the coordinator refuses, IoError when it cannot
  // be reached or the others did not come in time, naming them.
  Control(std::unique_ptr<ControlChannel> channel, ControlOptions options);
  // Without shutdown() before it, this is a failure to the others.
  ~Control() override;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int process_id() const { return options_.process_id; }
  int process_count() const { return options_.process_count; }
  // All processes, by id.
  const std::vector<Peer>& peers() const { return peers_; }

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Timeout timeout) override;
  // Sets, whether or not it was set.
  void overwrite(const std::string& key, const std::string& value);
  std::optional<std::string> try_get(const std::string& key);
  // Adds to a number, 0 where there is none, and returns the sum. No two processes see the same.
  int64_t increment(const std::string& key, int64_t by = 1);
  // All below a directory, sorted by key; "" is everything.
  std::vector<std::pair<std::string, std::string>> list(const std::string& directory);
  // Removes a key and all below it. How many there were.
  int64_t remove(const std::string& key);

  // Returns when all participants (empty: all processes) have called it with that name. The first caller's timeout
  // counts. The name may be used again afterwards.
  void barrier(const std::string& name, Timeout timeout, const std::vector<int>& participants = {});

  // Returns when all processes have called it with that name and the same hash. When hashes differ it throws Error, on
  // all, with the first line in which what was hashed differs between two processes; text() is called only then.
  // `line_word` is what a line is to the reader.
  void agree(const std::string& name, uint64_t hash, const std::function<std::string()>& text, Timeout timeout,
             const std::string& line_word = "line");

  // Says how far this process is; goes out with the next heartbeat. `waiting`: for the others, in an operation all take
  // part in. Takes some nanoseconds and never fails; only the first 64 bytes of the operation's name count.
  void progress(int64_t step, std::string_view operation, bool waiting = false) noexcept;

  // What to do when the job fails: called once, from the background thread, also when it has failed already. REQUIRES:
  // called once.
  void on_failure(std::function<void(const Failure&)> callback);
  std::optional<Failure> failure() const;

  // Tells everybody that the job has failed; the first to be told of counts. Process, host, step and operation, where
  // left out, are this process's own. `consequence`: it looks like the trace of another's failure, which the
  // coordinator then looks for first. Never throws.
  void report_failure(Failure failure, bool consequence = false) noexcept;

  // Waits until all processes have called it; then the job is over for all of them.
  void shutdown(Timeout timeout);

 private:
  struct JobEnd {
    Failure failure;
    bool from_coordinator = false;  // the coordinator has told of it, and from_coordinator those who wait
  };

  Answer call_coordinator(decltype(Request::what) what, const std::string& operation, Timeout timeout);
  [[noreturn]] void throw_failure(std::unique_lock<std::mutex>& lock, const std::string& operation);
  Request request(decltype(Request::what) what) const;
  Progress current_progress() const;
  void run();
  // How the job ended for this process: nothing when it is over or this is being destroyed.
  std::optional<JobEnd> send_heartbeats_until_end();
  JobEnd coordinator_lost(const std::string& why) const;
  bool pause(Timeout timeout);
  void stop();

  const ControlOptions options_;
  const uint64_t incarnation_;
  const std::unique_ptr<ControlChannel> channel_;
  std::vector<Peer> peers_;

  // The current progress. The text may be torn when several threads write at once; it is for people.
  static constexpr size_t kTextWords = 8;
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> waiting_{false};
  std::array<std::atomic<uint64_t>, kTextWords> operation_{};
  std::atomic<uint64_t> count_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  std::function<void(const Failure&)> callback_;
  bool has_callback_ = false, callback_done_ = false;  // is there a callback, and has it been called
  int pending_calls_ = 0;                              // calls that wait for an answer
  bool over_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace lockstep
