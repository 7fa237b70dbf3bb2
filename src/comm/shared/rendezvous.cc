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
#include "base/digest.h"
#include "base/text_bytes.h"
#include "comm/shared/segment.h"
#include "comm/shared/wait.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string hash(const std::string& text) {
  return md5_hex(text_bytes(text));
}

// One rank's way through the rendezvous.
class SegmentJoin {
 public:
  explicit SegmentJoin(const RendezvousOptions& options)
      : options_(options), deadline_(deadline_after(options.timeout)) {}

  std::shared_ptr<SegmentView> run() {
    if (options_.size == 1) return single_rank_view();
    try {
      if (options_.rank == 0) {
        create();
        register_rank();
      } else {
        attach();
      }
      wait_for_all();
      return std::move(view_);
    } catch (const Error& error) {
      give_up(FailureCause::mismatch, error);
      throw;
    } catch (const std::exception& error) {
      give_up(FailureCause::aborted, error);
      throw;
    }
  }

 private:
  void give_up(FailureCause cause, const std::exception& error) {
    if (has_geometry_) view_->fail(cause, error.what());
    if (segment_) segment_->close();
  }

  std::shared_ptr<SegmentView> single_rank_view() {
    const SegmentGeometry geometry = SegmentGeometry::of(1, options_.bytes_per_rank);
    void* memory = mmap(nullptr, static_cast<size_t>(geometry.total_bytes()), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw OutOfMemory(fmt::format("shared memory: {}", std::strerror(errno)));
    auto view = std::make_shared<SegmentView>(memory, geometry.total_bytes(), 0);
    view->initialize(geometry, new_id());
    view->load_geometry();
    return view;
  }

  std::string new_id() const {
    return hash(fmt::format("{} {} {}", options_.key, this_process().pid, Clock::now().time_since_epoch().count()));
  }

  void map(const Descriptor& file, int64_t bytes) {
    void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
      throw OutOfMemory(fmt::format("shared memory: \"{}\" could not map {}: {}", options_.name,
                                    mebibytes(static_cast<double>(bytes)), std::strerror(errno)));
    view_ = std::make_shared<SegmentView>(memory, bytes, options_.rank);
  }

  void create() {
    segment_ = options_.segment ? options_.segment : make_segment(options_);
    map(segment_->memory(), segment_->bytes());
    view_->initialize(SegmentGeometry::of(options_.size, options_.bytes_per_rank), new_id());
    view_->load_geometry();
    has_geometry_ = true;
  }

  void attach() {
    SegmentReceiver source(options_.key, options_.name);
    for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(20))) {
      const auto memory = source.receive(kMaxSleep);
      if (memory && try_attach(*memory)) {
        register_rank();
        source.close();
        return;
      }
      if (memory) source.close();
      options_.check(nullptr);
      if (Clock::now() >= deadline_) throw_timeout({0});
      std::this_thread::sleep_for(pause);
    }
  }

  // Maps the memory. False when it is not initialized, or its creator has ended.
  bool try_attach(const Descriptor& memory) {
    struct stat info = {};
    fstat(memory.get(), &info);
    if (info.st_size < static_cast<off_t>(sizeof(SegmentHeader))) return false;
    map(memory, info.st_size);
    const SegmentHeader& header = view_->header();
    if (header.ready.load() != SegmentHeader::kReady || is_gone(header.creator)) return false;
    if (header.version != SegmentHeader::kVersion)
      throw_error("shared memory: \"{}\" was created by another version of lockstep; run the same version on all ranks",
                  options_.name);
    view_->load_geometry();
    has_geometry_ = options_.rank < view_->size();
    if (view_->size() != options_.size)
      throw_error(
          "shared memory: \"{}\" has {} ranks according to rank 0 and {} according to rank {}; give all ranks the same "
          "size",
          options_.name, view_->size(), options_.size, options_.rank);
    return true;
  }

  void register_rank() {
    RankState& state = view_->own_state();
    if (uint32_t free = 0; !state.claimed.compare_exchange_strong(free, 1)) {
      has_geometry_ = false;  // another process is this rank: do not fail its group
      throw_error("shared memory: rank {} of \"{}\" is already in use; start each rank once", options_.rank,
                  options_.name);
    }
    state.process = this_process();
    state.parent_split_version = options_.parent_split_version;
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
      for (size_t i = 0; i < 1024; ++i)
        if (CPU_ISSET(i, &cpus)) view_->header().cpus[i / 64].fetch_or(uint64_t{1} << i % 64);
    state.registered.store(1);
    view_->wake_waiting();
  }

  std::vector<int> unregistered() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < view_->size(); ++rank)
      if (view_->rank_state(rank).registered.load() == 0) ranks.push_back(rank);
    return ranks;
  }

  void wait_for_all() {
    const bool is_creator = options_.rank == 0;
    const auto all_joined = [&] {
      return is_creator ? unregistered().empty() : view_->header().all_joined.load() != 0;
    };
    auto next_check = Clock::now() + kLivenessInterval;
    while (!all_joined()) {
      if (const auto failure = view_->failure()) throw_failure(*failure);
      options_.check(view_.get());
      const auto now = Clock::now();
      if (now >= deadline_) {
        const std::vector<int> absent = unregistered();
        throw_timeout(absent.empty() ? std::vector{0} : absent);
      }
      if (now >= next_check) {
        check_peer_processes();
        next_check = now + kLivenessInterval;
      }
      const auto time = std::min<std::chrono::nanoseconds>(kMaxSleep, deadline_ - now);
      if (is_creator) {
        segment_->serve(time);
        continue;
      }
      const uint32_t wake_count = view_->begin_wait(SegmentView::kAnyRank);
      if (!all_joined() && !view_->failed()) view_->sleep(wake_count, time);
      view_->end_wait();
    }
    if (!is_creator) return;
    segment_->close();
    view_->header().all_joined.store(1);
    view_->wake_waiting();
  }

  void check_peer_processes() const {
    for (int rank = 0; rank < view_->size(); ++rank) {
      const RankState& state = view_->rank_state(rank);
      if (state.registered.load() == 0 || !is_gone(state.process)) continue;
      view_->fail(FailureCause::aborted,
                  fmt::format("rank {} (process {}) is gone", options_.label(rank), state.process.pid));
      return;
    }
  }

  [[noreturn]] void throw_timeout(const std::vector<int>& absent) const {
    throw CommTimeout(timeout_message(options_.operation, 0, options_.name, options_.label(options_.rank),
                                      options_.size, options_.timeout, absent, options_.label));
  }
  [[noreturn]] void throw_failure(const GroupFailure& failure) const {
    lockstep::detail::throw_failure(failure, options_.operation, 0, options_.name, options_.label(options_.rank),
                                    options_.size);
  }

  const RendezvousOptions& options_;
  const Clock::time_point deadline_;
  std::shared_ptr<SegmentView> view_;
  std::shared_ptr<Segment> segment_;  // rank 0 only
  bool has_geometry_ = false;         // view_ can be used to fail the group
};

}  // namespace

std::shared_ptr<Segment> make_segment(const RendezvousOptions& options) {
  const SegmentGeometry geometry = SegmentGeometry::of(options.size, options.bytes_per_rank);
  return std::make_shared<Segment>(options.key, options.name, geometry.total_bytes());
}

std::shared_ptr<SegmentView> join_segment(const RendezvousOptions& options) { return SegmentJoin(options).run(); }

}  // namespace lockstep::detail
