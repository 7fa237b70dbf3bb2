// MpiSession: MPI in this process: that it is initialized, who may call it when, and notes between processes.
// Safe from any thread.
#pragma once

#include <mpi.h>

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
#include "comm/mpi/mpi_funnel.h"

namespace lockstep {

// Notes go to all processes as messages, and are read by whoever looks for one or polls. Set once by each: when two
// set the same, each sees its own.
class MpiSession final : public KeyStore {
 public:
  // The one of this process, which is made by the first call. Throws as mpi_comm() does.
  static MpiSession& instance();
  static void finalize();

  static constexpr int kFirstTag = 1;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm messages() const { return messages_; }
  // Of the group with kFirstTag, whose messages are told apart by nothing else.
  MPI_Comm stamped() const { return stamped_; }
  MPI_Comm letters() const { return letters_; }
  int greatest_tag() const { return greatest_tag_; }

  // Calls MPI: f() returns an error code and throws nothing. Throws CommError unless it is MPI_SUCCESS.
  template <class F>
  void call(const char* what, F&& f) {
    if (const int code = where_allowed(f); code != MPI_SUCCESS) [[unlikely]]
      throw_mpi_error(what, code);
  }

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::nanoseconds timeout) override;

  // Takes in the notes that have arrived.
  void poll();
  // Takes them in, and looks.
  std::optional<std::string> look(const std::string& key);

  // A number that no group of this process has, nor will have.
  int next_tag();
  // The same for several processes: all give their next, and the greatest is taken.
  void take_tag(int tag);

  // For threads that may outlive MPI: while they hold this it is not finalized. Throws CommError when it is already.
  std::shared_lock<std::shared_mutex> stay();

  // A group has failed: the others may not come to end MPI.
  void failed() { failed_.store(true); }
  // They will come after all.
  static void recovered();

 private:
  MpiSession();
  void initialize();
  template <class F>
  int where_allowed(F& f) {
    if (allowed_ == Allowed::any_thread) return f();
    if (allowed_ == Allowed::one_thread) return funnel_->run(f);
    const std::lock_guard lock(turn_);
    return f();
  }
  [[noreturn]] void throw_mpi_error(const char* what, int code);
  static void at_exit();
  void end(bool finalize);

  struct Note {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  enum class Allowed { any_thread, one_at_a_time, one_thread };

  Allowed allowed_ = Allowed::any_thread;
  std::unique_ptr<MpiFunnel> funnel_;  // the thread that has initialized MPI; null: the program has
  int rank_ = 0, size_ = 1;
  int greatest_tag_ = 0;
  MPI_Comm messages_ = MPI_COMM_NULL, stamped_ = MPI_COMM_NULL, notes_comm_ = MPI_COMM_NULL, letters_ = MPI_COMM_NULL;
  std::mutex turn_;
  std::atomic<bool> failed_{false};
  std::shared_mutex staying_;
  bool ended_ = false;  // guarded by that

  std::mutex mutex_;  // of what follows
  std::map<std::string, std::string> notes_;
  std::list<Note> leaving_;
  int next_tag_ = kFirstTag;
};

}  // namespace lockstep
