#include "comm/shared/rendezvous.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/md5.h"
#include "comm/shared/wait.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string hash(const std::string& text) {
  return md5_hex({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

class File {
 public:
  explicit File(int number) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

struct stat stat_of(const File& file) {
  struct stat info = {};
  fstat(file.number(), &info);
  return info;
}

std::string mebibytes(double bytes) { return fmt::format("{:.3g} MiB", bytes / (1 << 20)); }

class Arrival {
 public:
  explicit Arrival(const Rendezvous& wanted)
      : wanted_(wanted), name_(segment_name(wanted.key)), deadline_(deadline_after(wanted.timeout)) {}

  std::shared_ptr<Board> run() {
    if (wanted_.size == 1) return alone();
    try {
      if (wanted_.rank == 0)
        create();
      else
        attach();
      take_place();
      await_everybody();
      return std::move(board_);
    } catch (const Error& error) {
      give_up(Cause::mismatch, error);
      throw;
    } catch (const std::exception& error) {
      give_up(Cause::aborted, error);
      throw;
    }
  }

 private:
  void give_up(Cause cause, const std::exception& error) {
    if (located_) board_->fail(cause, error.what());
    if (inode_ != 0) remove_name();
  }

  std::shared_ptr<Board> alone() {
    const Geometry geometry = Geometry::of(1, wanted_.bytes_per_rank);
    void* memory = mmap(nullptr, static_cast<size_t>(geometry.total_bytes()), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw OutOfMemory(fmt::format("shared memory: {}", std::strerror(errno)));
    auto board = std::make_shared<Board>(memory, geometry.total_bytes(), 0);
    board->initialise(geometry, new_id());
    board->locate();
    return board;
  }

  std::string new_id() const {
    return hash(fmt::format("{} {} {}", wanted_.key, this_process().pid, Clock::now().time_since_epoch().count()));
  }

  void map(const File& file, int64_t bytes) {
    void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
    if (memory == MAP_FAILED)
      throw OutOfMemory(fmt::format("shared memory: \"{}\" could not map {}: {}", wanted_.name,
                                    mebibytes(static_cast<double>(bytes)), std::strerror(errno)));
    board_ = std::make_shared<Board>(memory, bytes, wanted_.rank);
    inode_ = stat_of(file).st_ino;
  }

  // Pages are taken now: one that is missing later would be a signal in the middle of a copy.
  void reserve(const File& file, int64_t bytes) {
    struct statvfs info = {};
    fstatvfs(file.number(), &info);
    const double block = static_cast<double>(info.f_frsize), free = block * static_cast<double>(info.f_bavail);
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    if (limit.rlim_cur < static_cast<rlim_t>(bytes))
      throw IoError(fmt::format("shared memory: \"{}\" needs {}, files may have {} (ulimit -f); raise that limit",
                                wanted_.name, mebibytes(static_cast<double>(bytes)),
                                mebibytes(static_cast<double>(limit.rlim_cur))));
    int error = info.f_blocks > 0 && static_cast<double>(bytes) > free ? ENOSPC : EINTR;
    while (error == EINTR) error = posix_fallocate(file.number(), 0, bytes);
    if (error == ENOSPC || error == ENOMEM)
      throw IoError(fmt::format(
          "shared memory: \"{}\" needs {} in /dev/shm, where {} of {} are free; make it larger (docker run --shm-size; "
          "in Kubernetes an emptyDir of medium Memory mounted there), or run fewer ranks on this host",
          wanted_.name, mebibytes(static_cast<double>(bytes)), mebibytes(free),
          mebibytes(block * static_cast<double>(info.f_blocks))));
    if (error != 0)
      throw IoError(fmt::format("shared memory: \"{}\" got no {} in /dev/shm: {}", wanted_.name,
                                mebibytes(static_cast<double>(bytes)), std::strerror(error)));
  }

  void create() {
    for (int attempt = 0;; ++attempt) {
      const File file(shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
      if (!file && errno == EEXIST && attempt < 10) {
        remove_stale();
        continue;
      }
      if (!file)
        throw IoError(fmt::format("shared memory: \"{}\" could not make {} in /dev/shm: {}", wanted_.name, name_,
                                  std::strerror(errno)));
      inode_ = stat_of(file).st_ino;
      const Geometry geometry = Geometry::of(wanted_.size, wanted_.bytes_per_rank);
      reserve(file, geometry.total_bytes());
      map(file, geometry.total_bytes());
      board_->initialise(geometry, new_id());
      board_->locate();
      located_ = true;
      return;
    }
  }

  // What a job with this key left that was killed before all its ranks had come.
  void remove_stale() {
    const File file(shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0));
    if (!file) {
      if (errno == ENOENT) return;
      throw_error("shared memory: {} in /dev/shm cannot be opened ({}); remove it, or use another key", name_,
                  std::strerror(errno));
    }
    check_owner(file);
    ProcessId creator = creator_of(file);
    // One that is being made has a maker in a moment.
    for (int look = 0; look < 50 && creator.pid == 0; ++look) {
      std::this_thread::sleep_for(milliseconds(10));
      creator = creator_of(file);
    }
    if (creator.pid != 0 && creator.pid_namespace == this_process().pid_namespace && !is_gone(creator))
      throw_error(
          "shared memory: process {} is already rank 0 of a group with this key; give every run a key of its own",
          creator.pid);
    shm_unlink(name_.c_str());
  }

  void check_owner(const File& file) const {
    const struct stat info = stat_of(file);
    if (info.st_uid != geteuid() || (info.st_mode & 077) != 0)
      throw_error(
          "shared memory: {} in /dev/shm belongs to user {} with mode {:o}, expected user {} with mode 600; remove it",
          name_, info.st_uid, info.st_mode & 07777, geteuid());
  }

  // Nobody, while it is being made.
  static ProcessId creator_of(const File& file) {
    if (stat_of(file).st_size < static_cast<off_t>(sizeof(Control))) return {};
    void* memory = mmap(nullptr, sizeof(Control), PROT_READ, MAP_SHARED, file.number(), 0);
    if (memory == MAP_FAILED) return {};
    const auto& control = *static_cast<const Control*>(memory);
    const ProcessId creator = control.ready.load() == Control::kReady ? control.creator : ProcessId{};
    munmap(memory, sizeof(Control));
    return creator;
  }

  void attach() {
    for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(20))) {
      const File file(shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0));
      if (file && usable(file)) return;
      if (!file && errno != ENOENT)
        throw IoError(fmt::format("shared memory: \"{}\" could not open {} in /dev/shm: {}", wanted_.name, name_,
                                  std::strerror(errno)));
      // What its maker left when it was killed goes with this rank.
      if (file) inode_ = stat_of(file).st_ino;
      wanted_.check(nullptr);
      if (Clock::now() >= deadline_) throw_timeout({0});
      std::this_thread::sleep_for(pause);
    }
  }

  bool usable(const File& file) {
    check_owner(file);
    const ProcessId creator = creator_of(file);
    if (creator.pid == 0 || is_gone(creator)) return false;
    map(file, stat_of(file).st_size);
    const Control& control = board_->control();
    if (control.version != Control::kVersion)
      throw_error("shared memory: \"{}\" was made by another version of lockstep; run the same on all ranks",
                  wanted_.name);
    board_->locate();
    located_ = wanted_.rank < board_->size();
    if (board_->size() != wanted_.size)
      throw_error("shared memory: \"{}\" has {} ranks for rank 0 and {} for rank {}; give all the same size",
                  wanted_.name, board_->size(), wanted_.size, wanted_.rank);
    return true;
  }

  void take_place() {
    Place& place = board_->mine();
    if (uint32_t free = 0; !place.taken.compare_exchange_strong(free, 1)) {
      located_ = false;  // the group is none of ours
      inode_ = 0;
      throw_error("shared memory: rank {} of \"{}\" is taken already; give each rank once", wanted_.rank, wanted_.name);
    }
    place.process = this_process();
    place.came_from = wanted_.came_from;
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
      for (size_t i = 0; i < 1024; ++i)
        if (CPU_ISSET(i, &cpus)) board_->control().cpus[i / 64].fetch_or(uint64_t{1} << i % 64);
    place.registered.store(1);
    board_->wake_waiting();
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < board_->size(); ++rank)
      if (board_->place(rank).registered.load() == 0) ranks.push_back(rank);
    return ranks;
  }

  void await_everybody() {
    const bool maker = wanted_.rank == 0;
    const auto met = [&] { return maker ? missing().empty() : board_->control().open.load() != 0; };
    auto next_look = Clock::now() + kLookInterval;
    while (!met()) {
      if (const auto failure = board_->failure()) throw_failure(*failure);
      wanted_.check(board_.get());
      const auto now = Clock::now();
      if (now >= deadline_) {
        const std::vector<int> absent = missing();
        throw_timeout(absent.empty() ? std::vector{0} : absent);
      }
      if (now >= next_look) {
        look_after_peers();
        next_look = now + kLookInterval;
      }
      const uint32_t ticket = board_->announce(Board::kAnybody);
      if (!met() && !board_->failed()) board_->sleep(ticket, std::min<std::chrono::nanoseconds>(kNap, deadline_ - now));
      board_->withdraw();
    }
    if (!maker) return;
    remove_name();
    board_->control().open.store(1);
    board_->wake_waiting();
  }

  void look_after_peers() const {
    for (int rank = 0; rank < board_->size(); ++rank) {
      const Place& place = board_->place(rank);
      if (place.registered.load() == 0 || !is_gone(place.process)) continue;
      board_->fail(Cause::aborted, fmt::format("rank {} (process {}) is gone", wanted_.label(rank), place.process.pid));
      return;
    }
  }

  // Only what is ours: the name may belong to the next job by now.
  void remove_name() {
    if (const File file(shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0)); file && stat_of(file).st_ino == inode_)
      shm_unlink(name_.c_str());
  }

  [[noreturn]] void throw_timeout(const std::vector<int>& absent) const {
    throw CommTimeout(timeout_text(wanted_.operation, 0, wanted_.name, wanted_.label(wanted_.rank), wanted_.size,
                                   wanted_.timeout, absent, wanted_.label));
  }
  [[noreturn]] void throw_failure(const Failure& failure) const {
    lockstep::detail::throw_failure(failure, wanted_.operation, 0, wanted_.name, wanted_.label(wanted_.rank),
                                    wanted_.size);
  }

  const Rendezvous& wanted_;
  const std::string name_;
  const Clock::time_point deadline_;
  std::shared_ptr<Board> board_;
  bool located_ = false;
  ino_t inode_ = 0;
};

}  // namespace

std::string segment_name(const std::string& key) { return fmt::format("/lockstep-{}-{}", geteuid(), hash(key)); }

bool is_segment_name(const std::string& name) {
  const std::string beginning = fmt::format("/lockstep-{}-", geteuid());
  return name.starts_with(beginning) && name.size() == beginning.size() + hash("").size() &&
         name.find('/', 1) == std::string::npos;
}

std::shared_ptr<Board> meet(const Rendezvous& rendezvous) { return Arrival(rendezvous).run(); }

}  // namespace lockstep::detail
