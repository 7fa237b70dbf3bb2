#include "comm/mpi/mpi_session.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "base/runtime_settings.h"
#include "comm/mpi/mpi_library.h"

namespace lockstep {

namespace {

constexpr int kEntryTag = 1;

std::mutex instance_mutex;
std::unique_ptr<MpiSession> the_instance;
bool finalized = false;

// The thread level to request: the highest, unless the options set a lower one.
MpiThreads wanted_threads() {
  const std::string level = detail::runtime_option(&RuntimeOptions::mpi_threads);
  return level == "multiple"     ? MpiThreads::multiple
         : level == "serialized" ? MpiThreads::serialized
                                 : MpiThreads::funneled;
}

}  // namespace

MpiSession& MpiSession::instance() {
  const std::lock_guard lock(instance_mutex);
  if (finalized)
    throw_error(
        "mpi: MPI was already finalized in this process and cannot be initialized again; finalize it after its last "
        "use");
  if (!the_instance) {
    the_instance.reset(new MpiSession());
    std::atexit(at_exit);
  }
  return *the_instance;
}

void MpiSession::initialize() {
  int initialized = 0, ended = 0;
  MpiThreads provided = MpiThreads::single;
  mpi_.initialized(&initialized);
  mpi_.finalized(&ended);
  if (ended)
    throw_error(
        "mpi: MPI was already finalized in this process and cannot be initialized again; finalize it after its last "
        "use");
  if (initialized) {
    mpi_.query_thread(&provided);
    if (provided < MpiThreads::serialized)
      throw_error(
          "mpi: the program initialized MPI for calls from one thread only; call MPI_Init_thread with "
          "MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED, let lockstep initialize MPI, or use tcp");
  } else {
    const MpiThreads wanted = wanted_threads();
    funnel_ = std::make_unique<MpiFunnel>();
    const int code = funnel_->run([&] { return mpi_.init_thread(wanted, &provided); });
    if (code != kMpiSuccess) throw_mpi_error("MPI_Init_thread", code);
    provided = std::min(provided, wanted);  // some libraries provide more than was requested
  }
  threads_ = provided == MpiThreads::multiple     ? Threads::any
             : provided == MpiThreads::serialized ? Threads::one_at_a_time
                                                  : Threads::funnel;
}

MpiSession::MpiSession() : mpi_(mpi_functions()) {
  initialize();
  call("MPI_Comm_dup", [&] {
    for (MpiHandle* comm : {&data_comm_, &tagged_comm_, &key_comm_, &mailbox_comm_})
      if (const int code = mpi_.duplicate_world(comm); code != kMpiSuccess) return code;
    return mpi_.place(data_comm_, &rank_, &size_, &max_tag_);
  });
}

void MpiSession::throw_mpi_error(const char* what, int code) {
  char text[512] = {};
  auto describe = [&] { return mpi_.describe_error(code, text, sizeof text); };
  on_allowed_thread(describe);
  throw CommError(fmt::format("{} failed: {}", what, text));
}

void MpiSession::at_exit() {
  const std::lock_guard lock(instance_mutex);
  if (!the_instance || finalized) return;
  the_instance->end(!the_instance->failed_.load());
  finalized = true;
}

void MpiSession::clear_failed() {
  const std::lock_guard lock(instance_mutex);
  if (the_instance) the_instance->failed_.store(false);
}

void MpiSession::finalize() {
  const std::lock_guard lock(instance_mutex);
  if (!the_instance || finalized) return;
  the_instance->end(true);
  finalized = true;
}

void MpiSession::end(bool finalize) {
  {
    const std::lock_guard lock(open_mutex_);
    ended_ = true;
  }
  if (funnel_ && finalize) funnel_->run([this] { return mpi_.finalize(); });
}

std::shared_lock<std::shared_mutex> MpiSession::hold_open() {
  std::shared_lock lock(open_mutex_);
  if (ended_) throw CommError("mpi: MPI is already finalized in this process");
  return lock;
}

int MpiSession::next_tag() {
  const std::lock_guard lock(mutex_);
  if (next_tag_ >= max_tag_)
    throw_error("mpi: {} groups were created, which is the limit of this MPI library (MPI_TAG_UB); create fewer groups",
                next_tag_);
  return next_tag_;
}

void MpiSession::reserve_tag(int tag) {
  const std::lock_guard lock(mutex_);
  next_tag_ = std::max(next_tag_, tag + 1);
}

void MpiSession::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  if (!entries_.emplace(key, value).second) throw_error("mpi: the key \"{}\" is already set; choose another", key);
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    SentEntry& entry = sending_.emplace_back();
    entry.text = key + '\0' + value;
    call("MPI_Isend", [&] {
      return mpi_.send(entry.text.data(), static_cast<int>(entry.text.size()), other, kEntryTag, key_comm_,
                       &entry.request);
    });
  }
}

void MpiSession::poll() {
  const std::lock_guard lock(mutex_);
  while (true) {
    int arrived = 0;
    MpiHandle message = 0;
    MpiArrival arrival;
    call("MPI_Improbe", [&] { return mpi_.find_message(kEntryTag, key_comm_, &arrived, &message, &arrival); });
    if (!arrived) break;
    std::string text(static_cast<size_t>(arrival.bytes), '\0');
    call("MPI_Mrecv", [&] { return mpi_.receive_message(text.data(), arrival.bytes, &message); });
    const size_t end = text.find('\0');
    entries_.emplace(text.substr(0, end), text.substr(end + 1));
  }
  std::erase_if(sending_, [&](SentEntry& entry) {
    int done = 0;
    call("MPI_Test", [&] { return mpi_.test(&entry.request, 1, &done, nullptr); });
    return done != 0;
  });
}

std::optional<std::string> MpiSession::find(const std::string& key) {
  poll();
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

std::string MpiSession::get(const std::string& key, std::chrono::nanoseconds timeout) {
  const auto end =
      std::chrono::steady_clock::now() + std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24 * 365));
  while (true) {
    if (std::optional<std::string> value = find(key)) return *std::move(value);
    if (std::chrono::steady_clock::now() >= end)
      throw CommTimeout(fmt::format("mpi: no process has set the key \"{}\" in {:.3g} s", key,
                                    std::chrono::duration<double>(timeout).count()));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace lockstep
