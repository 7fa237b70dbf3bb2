#include "comm/shared/rendezvous.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/shared/wait.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;

// One rank's way through the rendezvous.
class SegmentJoin {
 public:
  explicit SegmentJoin(const RendezvousOptions& options)
      : options_(options), deadline_(deadline_after(options.timeout, options.began)) {}

  std::shared_ptr<SegmentView> run() {
    if (options_.size == 1) return single_rank_view();
    try {
      attach();
      register_rank();
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
    if (is_member_) view_->fail(cause, error.what());
  }

  std::shared_ptr<SegmentView> single_rank_view() {
    const SegmentGeometry geometry = SegmentGeometry::of(1, 0);
    void* memory = mmap(nullptr, static_cast<size_t>(geometry.total_bytes()), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw OutOfMemory(fmt::format("shared memory: {}", std::strerror(errno)));
    auto view = std::make_shared<SegmentView>(memory, geometry.total_bytes(), 0);
    view->initialize(geometry, "single");
    view->load_geometry();
    return view;
  }

  void attach() {
    view_ = options_.segment->map(options_.rank);
    is_member_ = options_.rank < view_->size();
    if (view_->size() != options_.size)
      throw_error(
          "shared memory: \"{}\" has {} ranks according to rank 0 and {} according to rank {}; give all ranks the same "
          "size",
          options_.name, view_->size(), options_.size, options_.rank);
  }

  void register_rank() {
    RankState& state = view_->own_state();
    if (uint32_t free = 0; !state.claimed.compare_exchange_strong(free, 1)) {
      is_member_ = false;  // another process is this rank: do not fail its group
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
      options_.check(*view_);
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
      const uint32_t wake_count = view_->begin_wait(SegmentView::kAnyRank);
      if (!all_joined() && !view_->failed()) view_->sleep(wake_count, time);
      view_->end_wait();
    }
    if (!is_creator) return;
    view_->header().all_joined.store(1);
    view_->wake_waiting();
  }

  void check_peer_processes() const {
    for (int rank = 0; rank < view_->size(); ++rank) {
      const RankState& state = view_->rank_state(rank);
      const bool registered = state.registered.load() != 0;
      if (!registered && rank != 0) continue;
      const ProcessId process = registered ? state.process : view_->header().creator;
      if (!is_gone(process)) continue;
      view_->fail(FailureCause::aborted,
                  fmt::format("rank {} (process {}) is gone", options_.label(rank), process.pid));
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
  bool is_member_ = false;  // view_ can be used to fail the group
};

}  // namespace

std::shared_ptr<SegmentView> join_segment(const RendezvousOptions& options) { return SegmentJoin(options).run(); }

}  // namespace lockstep::detail
