// MpiSession: MPI in this process: its initialization and finalization, the rules for which thread may call it, and a
// KeyStore between the processes. Safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>

#include "comm/key_store.h"
#include "comm/mpi/mpi_functions.h"
#include "comm/mpi/mpi_funnel.h"

namespace lockstep {

// As a KeyStore: set() sends the entry to all processes; get(), find() and poll() receive entries that have arrived.
// When two processes set the same key, each of them sees its own value.
class MpiSession final : public KeyStore {
 public:
  // The session of this process, created by the first call. Throws as mpi_comm() does.
  static MpiSession& instance();
  static void finalize();

  static constexpr int kFirstTag = 1;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // For the messages of all groups, distinguished by the MPI tag of the group.
  MpiHandle data_comm() const { return data_comm_; }
  // For the messages of the group with kFirstTag, whose MPI tags carry the tags of Links.
  MpiHandle tagged_comm() const { return tagged_comm_; }
  MpiHandle mailbox_comm() const { return mailbox_comm_; }
  int max_tag() const { return max_tag_; }
  // To be called inside call().
  const MpiFunctions& mpi() const { return mpi_; }

  // Calls MPI on a thread that may do so: f() returns an MPI error code and does not throw. `what` names the MPI
  // function. Throws CommError unless the code is kMpiSuccess.
  template <class F>
  void call(const char* what, F&& f) {
    if (const int code = on_allowed_thread(f); code != kMpiSuccess) [[unlikely]]
      throw_mpi_error(what, code);
  }

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::nanoseconds timeout) override;

  // Receives the entries that have arrived.
  void poll();
  // The value of a key, if it has arrived. Calls poll() first.
  std::optional<std::string> find(const std::string& key);

  // The lowest MPI tag that no group of this process has used. To agree on a tag, the members of a group take the
  // maximum of their next_tag(), and all of them reserve it.
  int next_tag();
  void reserve_tag(int tag);

  // Keeps MPI from being finalized while the lock is held, for threads that may run at exit. Throws CommError when MPI
  // is finalized already.
  std::shared_lock<std::shared_mutex> hold_open();

  // A group has failed: do not finalize MPI at exit, since other processes may never call MPI_Finalize.
  void mark_failed() { failed_.store(true); }
  // Undoes mark_failed(): all processes will finalize MPI.
  static void clear_failed();

 private:
  MpiSession();
  void initialize();
  template <class F>
  int on_allowed_thread(F& f) {
    if (threads_ == Threads::any) return f();
    if (threads_ == Threads::funnel) return funnel_->run(f);
    const std::lock_guard lock(turn_);
    return f();
  }
  [[noreturn]] void throw_mpi_error(const char* what, int code);
  static void at_exit();
  void end(bool finalize);

  // An entry that is being sent.
  struct SentEntry {
    std::string text;
    MpiHandle request = 0;
  };

  // Which threads may call MPI: any, one at a time, or only the funnel.
  enum class Threads { any, one_at_a_time, funnel };

  const MpiFunctions& mpi_;
  Threads threads_ = Threads::any;
  std::unique_ptr<MpiFunnel> funnel_;  // the thread that initialized MPI; null: the program did
  int rank_ = 0, size_ = 1;
  int max_tag_ = 0;
  MpiHandle data_comm_ = 0, tagged_comm_ = 0, key_comm_ = 0, mailbox_comm_ = 0;
  std::mutex turn_;
  std::atomic<bool> failed_{false};
  std::shared_mutex open_mutex_;
  bool ended_ = false;  // guarded by open_mutex_

  std::mutex mutex_;  // guards what follows
  std::map<std::string, std::string> entries_;
  std::list<SentEntry> sending_;
  int next_tag_ = kFirstTag;
};

}  // namespace lockstep
