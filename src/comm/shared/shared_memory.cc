#include "comm/shared/shared_memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/printable.h"
#include "comm/shared/group.h"
#include "comm/shared/rendezvous.h"
#include "comm/shared/wait.h"

namespace lockstep {

namespace {

using detail::FailureCause;
using detail::RankState;
using detail::RendezvousOptions;
using detail::Segment;
using detail::SegmentGeometry;
using detail::SegmentView;
using detail::SharedGroup;

std::string members_text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

class SharedMemoryComm final : public Comm {
 public:
  SharedMemoryComm(std::shared_ptr<SegmentView> view, const std::string& name, SharedGroup::Ancestry ancestry,
                   std::chrono::nanoseconds timeout)
      : Comm(view->rank(), view->size(), name, timeout),
        joined_splits_(static_cast<size_t>(view->size())),
        group_(std::move(view), name, std::move(ancestry)) {}

  void abort(const std::string& reason) override {
    group_.fail(FailureCause::aborted, fmt::format("rank {}: {}", group_.label(rank()), reason));
  }

 private:
  void* start(const Operation& operation) override { return group_.start(operation, false); }
  void perform(const Operation& operation) override { group_.finish(group_.start(operation, true), timeout(), pool()); }
  void finish(void* state) override {
    group_.finish(static_cast<SharedGroup::PendingOperation*>(state), timeout(), pool());
  }
  void abandon(void* state) noexcept override {
    group_.abandon(static_cast<SharedGroup::PendingOperation*>(state), timeout());
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;
  uint64_t announce_split(const std::vector<int>& ranks, uint64_t name_hash);
  void end_split() {
    group_.view()->withdraw_offer();
    announce_split({}, 0);
  }
  void check_others(const std::vector<int>& ranks, const std::string& name, uint64_t name_hash,
                    const SegmentView* made);
  std::shared_ptr<Segment> open_offered(int creator, uint64_t key, const RendezvousOptions& split,
                                        const std::function<void()>& check);

  std::map<std::pair<std::vector<int>, std::string>, int> splits_;  // number of splits so far, by members and name
  std::vector<uint64_t> joined_splits_;  // by rank: the split_version of its last split that included this rank
  std::chrono::steady_clock::time_point next_check_ = {};  // of the processes of members that have not joined
  SharedGroup group_;
};

// Announces in the segment which group this rank is splitting off; an empty list ends the announcement. Returns the
// split_version.
uint64_t SharedMemoryComm::announce_split(const std::vector<int>& ranks, uint64_t name_hash) {
  RankState& state = group_.view()->own_state();
  std::atomic<int32_t>* list = group_.view()->split_list(rank());
  state.split_version.fetch_add(1);
  state.split_name.store(name_hash);
  state.split_count.store(static_cast<int32_t>(ranks.size()));
  for (size_t i = 0; i < ranks.size(); ++i) list[i].store(ranks[i]);
  return state.split_version.fetch_add(1) + 1;
}

// Throws when another rank is splitting off a different list with overlapping members under this name, or when a member
// has ended. Each rank announces its list before it checks the others, so of two ranks that differ at least one
// notices.
void SharedMemoryComm::check_others(const std::vector<int>& ranks, const std::string& name, uint64_t name_hash,
                                    const SegmentView* made) {
  // A rank that has joined the new group agreed with this list, and may already announce its next split.
  const auto has_joined = [&](int other) {
    const auto member = std::ranges::find(ranks, other);
    return made && member != ranks.end() &&
           made->rank_state(static_cast<int>(member - ranks.begin())).registered.load() != 0;
  };
  std::vector<int> theirs;
  for (int other = 0; other < size(); ++other) {
    const RankState& state = group_.view()->rank_state(other);
    const uint64_t version = state.split_version.load();
    if (other == rank() || version % 2 != 0 || version <= joined_splits_[static_cast<size_t>(other)]) continue;
    if (state.split_name.load() != name_hash) continue;
    theirs.clear();
    for (int32_t i = 0; i < std::min(state.split_count.load(), size()); ++i)
      theirs.push_back(group_.view()->split_list(other)[i].load());
    if (state.split_version.load() != version || theirs == ranks || has_joined(other)) continue;
    if (std::ranges::find_first_of(theirs, ranks) == theirs.end()) continue;
    group_.fail(
        FailureCause::mismatch,
        fmt::format("split: rank {} gave {} as the members of \"{}\", others gave {}; the members of a group must give "
                    "the same list",
                    group_.label(rank()), members_text(ranks), name, members_text(theirs)));
  }
  if (const auto now = std::chrono::steady_clock::now(); now >= next_check_) {
    next_check_ = now + detail::kLivenessInterval;
    for (const int other : ranks)
      if (const auto& process = group_.view()->rank_state(other).process;
          !has_joined(other) && detail::is_gone(process))
        group_.fail_dead_rank(other);
  }
  group_.check_failure("split", 0);
}

// Opens the memory of a new group when rank `creator` of this group, the new group's rank 0, has offered it. `check`
// throws when the members disagree or have ended.
std::shared_ptr<Segment> SharedMemoryComm::open_offered(int creator, uint64_t key, const RendezvousOptions& split,
                                                        const std::function<void()>& check) {
  using std::chrono::microseconds;
  const auto deadline = detail::deadline_after(split.timeout, split.began);
  for (microseconds pause(20);; pause = std::min(pause * 2, microseconds(20'000))) {
    if (const auto address = group_.view()->offered_memory(creator, key))
      if (std::shared_ptr<Segment> memory = Segment::open(split.name, *address)) return memory;
    check();
    if (std::chrono::steady_clock::now() >= deadline)
      throw CommTimeout(detail::timeout_message(split.operation, 0, split.name, split.label(split.rank), split.size,
                                                split.timeout, {0}, split.label));
    std::this_thread::sleep_for(pause);
  }
}

std::unique_ptr<Comm> SharedMemoryComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  const std::shared_ptr<SegmentView>& view = group_.view();
  group_.check_failure("split", 0);
  const uint64_t name_hash = std::hash<std::string>{}(name);
  const int earlier = splits_[{ranks, name}]++;
  const SharedGroup::Ancestry& here = group_.ancestry();
  SharedGroup::Ancestry there{{}, here.origin_ranks.empty() ? this->name() : here.origin_name, here.ancestors};
  there.ancestors.push_back(view);
  for (const int member : ranks)
    there.origin_ranks.push_back(here.origin_ranks.empty() ? member : here.origin_ranks[static_cast<size_t>(member)]);
  RendezvousOptions rendezvous;
  rendezvous.name = name;
  rendezvous.operation = "split";
  rendezvous.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  rendezvous.size = static_cast<int>(ranks.size());
  rendezvous.timeout = timeout();
  rendezvous.parent_split_version = announce_split(ranks, name_hash);
  rendezvous.label = [&](int member) {
    return fmt::format("{} ({} of \"{}\")", member, there.origin_ranks[static_cast<size_t>(member)], there.origin_name);
  };
  rendezvous.check = [&](const SegmentView& partial) { check_others(ranks, name, name_hash, &partial); };
  const auto check = [&] { check_others(ranks, name, name_hash, nullptr); };
  // Identifies this split in the group: `earlier` counts the splits with the same members and name.
  const uint64_t key = std::hash<std::string>{}(fmt::format("{} {} {}", members_text(ranks), earlier, name)) | 1;
  std::shared_ptr<SegmentView> made;
  try {
    check();
    if (rendezvous.size > 1 && rendezvous.rank > 0) {
      rendezvous.segment = open_offered(ranks[0], key, rendezvous, check);
    } else if (rendezvous.size > 1) {
      rendezvous.segment = Segment::create(name, SegmentGeometry::of(rendezvous.size, 0));
      view->offer_memory(key, rendezvous.segment->address());
    }
    made = detail::join_segment(rendezvous);
  } catch (const IoError& error) {
    abort(error.what());  // the other members wait for this rank
    end_split();
    throw;
  } catch (...) {
    end_split();
    throw;
  }
  for (size_t i = 0; i < ranks.size(); ++i)
    joined_splits_[static_cast<size_t>(ranks[i])] = made->rank_state(static_cast<int>(i)).parent_split_version;
  end_split();
  return std::make_unique<SharedMemoryComm>(std::move(made), name, std::move(there), timeout());
}

}  // namespace

namespace {

RendezvousOptions rendezvous_of(const SharedMemoryOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw_error("shared_memory_comm: rank {} of {} does not exist; ranks are 0 to size - 1", options.rank,
                options.size);
  if (!options.memory && options.size > 1)
    throw_error(
        "shared_memory_comm: the memory of {} ranks is missing; create it in the process of rank 0 and open it in the "
        "others",
        options.size);
  if (options.timeout <= options.timeout.zero())
    throw_error("shared_memory_comm: invalid timeout of {} s; the timeout must be positive",
                std::chrono::duration<double>(options.timeout).count());
  RendezvousOptions rendezvous;
  rendezvous.segment = options.memory;
  rendezvous.name = options.name;
  rendezvous.rank = options.rank;
  rendezvous.size = options.size;
  rendezvous.timeout = options.timeout;
  rendezvous.label = [](int rank) { return fmt::format("{}", rank); };
  return rendezvous;
}

}  // namespace

std::shared_ptr<detail::Segment> create_shared_memory(int size, int64_t bytes_per_rank, const std::string& name) {
  if (size < 1 || bytes_per_rank < 0)
    throw_error(
        "create_shared_memory: invalid memory for {} ranks with {} bytes each; give at least 1 rank and 0 bytes", size,
        bytes_per_rank);
  return Segment::create(name, SegmentGeometry::of(size, bytes_per_rank));
}

std::string address_of(const detail::Segment& segment) { return to_text(segment.address()); }

std::shared_ptr<detail::Segment> open_shared_memory(const std::string& address, const std::string& name) {
  const std::optional<DescriptorAddress> parsed = descriptor_address_from(address);
  if (!parsed)
    throw_error("shared memory: \"{}\" has no address \"{}\"; use one that rank 0 created", name, printable(address));
  std::shared_ptr<Segment> out = Segment::open(name, *parsed);
  if (!out)
    throw IoError(
        fmt::format("shared memory: \"{}\" is not in process {} any more, or that process is in another container; run "
                    "the processes of a host in one container, or use --collectives tcp",
                    name, parsed->pid));
  return out;
}

std::unique_ptr<Comm> shared_memory_comm(const SharedMemoryOptions& options) {
  return std::make_unique<SharedMemoryComm>(detail::join_segment(rendezvous_of(options)), options.name,
                                            SharedGroup::Ancestry{}, options.timeout);
}

}  // namespace lockstep
