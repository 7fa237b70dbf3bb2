#include "comm/shared/rendezvous.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/md5.h"
#include "comm/shared/segment.h"
#include "comm/shared/wait.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string hash(const std::string& text) {
  return md5_hex({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

class Arrival {
 public:
  explicit Arrival(const Rendezvous& wanted) : wanted_(wanted), deadline_(deadline_after(wanted.timeout)) {}

  std::shared_ptr<Board> run() {
    if (wanted_.size == 1) return alone();
    try {
      if (wanted_.rank == 0) {
        create();
        take_place();
      } else {
        attach();
      }
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
    if (segment_) segment_->close();
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
  }

  void create() {
    segment_ = wanted_.segment ? wanted_.segment : make_segment(wanted_);
    map(segment_->memory(), segment_->bytes());
    board_->initialise(Geometry::of(wanted_.size, wanted_.bytes_per_rank), new_id());
    board_->locate();
    located_ = true;
  }

  void attach() {
    SegmentSource source(wanted_.key, wanted_.name);
    for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(20))) {
      const auto memory = source.receive(kNap);
      if (memory && usable(*memory)) {
        take_place();
        source.close();
        return;
      }
      if (memory) source.close();
      wanted_.check(nullptr);
      if (Clock::now() >= deadline_) throw_timeout({0});
      std::this_thread::sleep_for(pause);
    }
  }

  // Whether its maker lives.
  bool usable(const File& memory) {
    struct stat info = {};
    fstat(memory.number(), &info);
    if (info.st_size < static_cast<off_t>(sizeof(Control))) return false;
    map(memory, info.st_size);
    const Control& control = board_->control();
    if (control.ready.load() != Control::kReady || is_gone(control.creator)) return false;
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
      const auto nap = std::min<std::chrono::nanoseconds>(kNap, deadline_ - now);
      if (maker) {
        segment_->serve(nap);
        continue;
      }
      const uint32_t ticket = board_->announce(Board::kAnybody);
      if (!met() && !board_->failed()) board_->sleep(ticket, nap);
      board_->withdraw();
    }
    if (!maker) return;
    segment_->close();
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

  [[noreturn]] void throw_timeout(const std::vector<int>& absent) const {
    throw CommTimeout(timeout_text(wanted_.operation, 0, wanted_.name, wanted_.label(wanted_.rank), wanted_.size,
                                   wanted_.timeout, absent, wanted_.label));
  }
  [[noreturn]] void throw_failure(const Failure& failure) const {
    lockstep::detail::throw_failure(failure, wanted_.operation, 0, wanted_.name, wanted_.label(wanted_.rank),
                                    wanted_.size);
  }

  const Rendezvous& wanted_;
  const Clock::time_point deadline_;
  std::shared_ptr<Board> board_;
  std::shared_ptr<Segment> segment_;  // of rank 0, until all ranks have registered
  bool located_ = false;
};

}  // namespace

std::shared_ptr<Segment> make_segment(const Rendezvous& rendezvous) {
  const Geometry geometry = Geometry::of(rendezvous.size, rendezvous.bytes_per_rank);
  return std::make_shared<Segment>(rendezvous.key, rendezvous.name, geometry.total_bytes());
}

std::shared_ptr<Board> meet(const Rendezvous& rendezvous) { return Arrival(rendezvous).run(); }

}  // namespace lockstep::detail
