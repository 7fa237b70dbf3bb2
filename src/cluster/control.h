// Control: a process's client of the coordinator. The constructor registers the process and waits for all others. A
// background thread then sends heartbeats and receives failures. Offers a key-value store, barriers and agreements:
//
//   control->set("address/3", "10.0.0.7:4711");
//   std::string theirs = control->get("address/0", 60s);
//   control->barrier("connected", 60s);
//   control->agree("program 7", hash, [&] { return to_string(program); }, 60s, "equation");
//   control->progress(step, "all_reduce", true);
//   control->shutdown(300s);
//
// Every wait has a timeout. Functions that call the coordinator throw Error if it refuses the request, CommTimeout if
// other processes did not arrive in time, CommAborted if the job has failed (the message is the first cause), and
// CommError if the coordinator cannot be reached. Thread-safe, except that no other call may be in progress during
// shutdown() and the destructor.
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

  // Registers, and returns when all processes have registered. Throws Error if the coordinator refuses, and IoError if
  // it cannot be reached or processes are missing when the timeout expires; the message lists them.
  Control(std::unique_ptr<ControlChannel> channel, ControlOptions options);
  // Without a preceding shutdown() this is reported to the other processes as a failure.
  ~Control() override;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int process_id() const { return options_.process_id; }
  int process_count() const { return options_.process_count; }
  // All processes, by id.
  const std::vector<Peer>& peers() const { return peers_; }

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Timeout timeout) override;
  // Sets the key, even if it is already set.
  void overwrite(const std::string& key, const std::string& value);
  std::optional<std::string> try_get(const std::string& key);
  // Atomically adds to the number under `key` (0 if unset) and returns the sum.
  int64_t increment(const std::string& key, int64_t by = 1);
  // All entries below a directory, sorted by key; "" lists everything.
  std::vector<std::pair<std::string, std::string>> list(const std::string& directory);
  // Removes a key and all keys below it. Returns the number of removed keys.
  int64_t remove(const std::string& key);

  // Returns when all participants (empty: all processes) have called it with this name. The first caller's timeout
  // applies. The name can be used again afterwards.
  void barrier(const std::string& name, Timeout timeout, const std::vector<int>& participants = {});

  // Returns when all processes have called it with this name and the same hash. If the hashes differ, throws Error on
  // all processes, showing the first line in which the hashed texts of two processes differ; text() is called only
  // then. `line_word` is what the message calls a line.
  void agree(const std::string& name, uint64_t hash, const std::function<std::string()>& text, Timeout timeout,
             const std::string& line_word = "line");

  // Records the progress of this process; the next heartbeat sends it. `waiting`: blocked in a collective, waiting for
  // other processes. Takes nanoseconds and never fails. The operation's name is cut to 64 bytes.
  void progress(int64_t step, std::string_view operation, bool waiting = false) noexcept;

  // Sets the callback for a failure of the job. The background thread calls it once, also if the job has already
  // failed. REQUIRES: called at most once.
  void on_failure(std::function<void(const Failure&)> callback);
  std::optional<Failure> failure() const;

  // Reports to the coordinator that the job has failed; only the first failure counts. Unset fields of `failure` are
  // filled with this process's values. `consequence`: it looks like the consequence of another process's failure, so
  // the coordinator waits briefly for that one. Never throws.
  void report_failure(Failure failure, bool consequence = false) noexcept;

  // Waits until all processes have called it; then the job is over.
  void shutdown(Timeout timeout);

 private:
  struct JobEnd {
    Failure failure;
    bool from_coordinator = false;  // the coordinator reported it, and answers the pending calls itself
  };

  Answer call_coordinator(decltype(Request::what) what, const std::string& operation, Timeout timeout);
  [[noreturn]] void throw_failure(std::unique_lock<std::mutex>& lock, const std::string& operation);
  Request request(decltype(Request::what) what) const;
  Progress current_progress() const;
  void run();
  // Sends heartbeats until the job ends. Returns its failure; nullopt if it is over or this object is being destroyed.
  std::optional<JobEnd> send_heartbeats_until_end();
  JobEnd coordinator_lost(const std::string& why) const;
  bool pause(Timeout timeout);
  void stop();

  const ControlOptions options_;
  const uint64_t incarnation_;
  const std::unique_ptr<ControlChannel> channel_;
  std::vector<Peer> peers_;

  // The current progress. Concurrent writers may tear the text; it is only shown in messages.
  static constexpr size_t kTextWords = 8;
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> waiting_{false};
  std::array<std::atomic<uint64_t>, kTextWords> operation_{};
  std::atomic<uint64_t> count_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  std::function<void(const Failure&)> callback_;
  bool has_callback_ = false, callback_done_ = false;
  int pending_calls_ = 0;  // calls without an answer yet
  bool over_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace lockstep
