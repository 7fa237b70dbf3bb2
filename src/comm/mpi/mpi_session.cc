#include "comm/mpi/mpi_session.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "base/runtime_settings.h"

namespace lockstep {

namespace {

constexpr int kEntryTag = 1;

std::mutex instance_mutex;
std::unique_ptr<MpiSession> the_instance;
bool finalized = false;

// The thread level to request: the highest, unless the options set a lower one.
int wanted_threads() {
  const std::string level = detail::runtime_option(&RuntimeOptions::mpi_threads);
  return level == "multiple"     ? MPI_THREAD_MULTIPLE
         : level == "serialized" ? MPI_THREAD_SERIALIZED
                                 : MPI_THREAD_FUNNELED;
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
  int initialized = 0, ended = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&ended);
  if (ended)
    throw_error(
        "mpi: MPI was already finalized in this process and cannot be initialized again; finalize it after its last "
        "use");
  if (initialized) {
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_SERIALIZED)
      throw_error(
          "mpi: the program initialized MPI for calls from one thread only; call MPI_Init_thread with "
          "MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED, let lockstep initialize MPI, or use tcp");
  } else {
    const int wanted = wanted_threads();
    funnel_ = std::make_unique<MpiFunnel>();
    const int code = funnel_->run([&] { return MPI_Init_thread(nullptr, nullptr, wanted, &provided); });
    if (code != MPI_SUCCESS) throw_mpi_error("MPI_Init_thread", code);
    provided = std::min(provided, wanted);  // some libraries provide more than was requested
  }
  threads_ = provided >= MPI_THREAD_MULTIPLE     ? Threads::any
             : provided == MPI_THREAD_SERIALIZED ? Threads::one_at_a_time
                                                 : Threads::funnel;
}

MpiSession::MpiSession() {
  initialize();
  call("MPI_Comm_dup", [&] {
    for (MPI_Comm* comm : {&data_comm_, &tagged_comm_, &key_comm_, &mailbox_comm_}) {
      if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, comm); code != MPI_SUCCESS) return code;
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    MPI_Comm_rank(data_comm_, &rank_);
    MPI_Comm_size(data_comm_, &size_);
    void* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(data_comm_, MPI_TAG_UB, &bound, &found);
    max_tag_ = found ? *static_cast<int*>(bound) : 32767;
    return MPI_SUCCESS;
  });
}

void MpiSession::throw_mpi_error(const char* what, int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  auto describe = [&] {
    int length = 0;
    return MPI_Error_string(code, text, &length);
  };
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
  if (funnel_ && finalize) funnel_->run([] { return MPI_Finalize(); });
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
      return MPI_Isend(entry.text.data(), static_cast<int>(entry.text.size()), MPI_BYTE, other, kEntryTag, key_comm_,
                       &entry.request);
    });
  }
}

void MpiSession::poll() {
  const std::lock_guard lock(mutex_);
  while (true) {
    int arrived = 0;
    MPI_Message message;
    MPI_Status status;
    int bytes = 0;
    call("MPI_Improbe", [&] {
      const int code = MPI_Improbe(MPI_ANY_SOURCE, kEntryTag, key_comm_, &arrived, &message, &status);
      return code == MPI_SUCCESS && arrived ? MPI_Get_count(&status, MPI_BYTE, &bytes) : code;
    });
    if (!arrived) break;
    std::string text(static_cast<size_t>(bytes), '\0');
    call("MPI_Mrecv", [&] { return MPI_Mrecv(text.data(), bytes, MPI_BYTE, &message, &status); });
    const size_t end = text.find('\0');
    entries_.emplace(text.substr(0, end), text.substr(end + 1));
  }
  std::erase_if(sending_, [&](SentEntry& entry) {
    int done = 0;
    call("MPI_Test", [&] { return MPI_Test(&entry.request, &done, MPI_STATUS_IGNORE); });
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
