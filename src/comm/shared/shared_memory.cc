#include "comm/shared/shared_memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/shared/group.h"
#include "comm/shared/rendezvous.h"
#include "comm/shared/wait.h"

namespace lockstep {

namespace {

using detail::Board;
using detail::Cause;
using detail::Place;
using detail::Rendezvous;
using detail::SharedGroup;

std::string members_text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

class SharedMemoryComm final : public Comm {
 public:
  SharedMemoryComm(std::shared_ptr<Board> board, const std::string& name, SharedGroup::Ancestry ancestry,
                   std::chrono::nanoseconds timeout)
      : Comm(board->rank(), board->size(), name, timeout),
        met_(static_cast<size_t>(board->size())),
        group_(std::move(board), name, std::move(ancestry)) {}

  void abort(const std::string& reason) override {
    group_.fail(Cause::aborted, fmt::format("rank {}: {}", group_.label(rank()), reason));
  }

 private:
  void* start(const Operation& operation) override { return group_.start(operation, false); }
  void perform(const Operation& operation) override { group_.finish(group_.start(operation, true), timeout()); }
  void finish(void* state) override { group_.finish(static_cast<SharedGroup::Pending*>(state), timeout()); }
  void abandon(void* state) noexcept override { group_.abandon(static_cast<SharedGroup::Pending*>(state), timeout()); }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;
  uint64_t announce(const std::vector<int>& ranks, uint64_t name_hash);
  void check_others(const std::vector<int>& ranks, const std::string& name, uint64_t name_hash, const Board* made);

  std::map<std::pair<std::vector<int>, std::string>, int> splits_;  // how often
  std::vector<uint64_t> met_;  // of each rank: the version of its split that this rank was part of
  std::chrono::steady_clock::time_point next_look_ = {};  // whether those live who are split off
  SharedGroup group_;
};

// Says on the board what this rank is splitting off; an empty list: nothing any more.
uint64_t SharedMemoryComm::announce(const std::vector<int>& ranks, uint64_t name_hash) {
  Place& place = group_.board()->mine();
  std::atomic<int32_t>* list = group_.board()->split_list(rank());
  place.split_version.fetch_add(1);
  place.split_name.store(name_hash);
  place.split_count.store(static_cast<int32_t>(ranks.size()));
  for (size_t i = 0; i < ranks.size(); ++i) list[i].store(ranks[i]);
  return place.split_version.fetch_add(1) + 1;
}

// Each says what it wants before it looks, so of two who differ one at least sees it.
void SharedMemoryComm::check_others(const std::vector<int>& ranks, const std::string& name, uint64_t name_hash,
                                    const Board* made) {
  // Whoever came to the board of the new group wanted the same, and may be splitting off the next by now.
  const auto came = [&](int other) {
    const auto member = std::ranges::find(ranks, other);
    return made && member != ranks.end() &&
           made->place(static_cast<int>(member - ranks.begin())).registered.load() != 0;
  };
  std::vector<int> theirs;
  for (int other = 0; other < size(); ++other) {
    const Place& place = group_.board()->place(other);
    const uint64_t version = place.split_version.load();
    if (other == rank() || version % 2 != 0 || version <= met_[static_cast<size_t>(other)]) continue;
    if (place.split_name.load() != name_hash) continue;
    theirs.clear();
    for (int32_t i = 0; i < std::min(place.split_count.load(), size()); ++i)
      theirs.push_back(group_.board()->split_list(other)[i].load());
    if (place.split_version.load() != version || theirs == ranks || came(other)) continue;
    if (std::ranges::find_first_of(theirs, ranks) == theirs.end()) continue;
    group_.fail(
        Cause::mismatch,
        fmt::format("split: rank {} wants \"{}\" to be {}, others {}; the members of a group must give the same "
                    "list",
                    group_.label(rank()), name, members_text(ranks), members_text(theirs)));
  }
  if (const auto now = std::chrono::steady_clock::now(); now >= next_look_) {
    next_look_ = now + detail::kLookInterval;
    for (const int other : ranks)
      if (const auto& process = group_.board()->place(other).process; !came(other) && detail::is_gone(process))
        group_.mourn(other);
  }
  group_.check_failure("split", 0);
}

std::unique_ptr<Comm> SharedMemoryComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  const std::shared_ptr<Board>& board = group_.board();
  group_.check_failure("split", 0);
  const uint64_t name_hash = std::hash<std::string>{}(name);
  const int earlier = splits_[{ranks, name}]++;
  const SharedGroup::Ancestry& here = group_.ancestry();
  SharedGroup::Ancestry there{{}, here.members.empty() ? this->name() : here.origin, here.above};
  there.above.push_back(board);
  for (const int member : ranks)
    there.members.push_back(here.members.empty() ? member : here.members[static_cast<size_t>(member)]);
  Rendezvous rendezvous;
  rendezvous.key = fmt::format("{} {} {} {}", board->id(), members_text(ranks), earlier, name);
  rendezvous.name = name;
  rendezvous.operation = "split";
  rendezvous.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  rendezvous.size = static_cast<int>(ranks.size());
  rendezvous.timeout = timeout();
  rendezvous.came_from = announce(ranks, name_hash);
  rendezvous.label = [&](int member) {
    return fmt::format("{} ({} of \"{}\")", member, there.members[static_cast<size_t>(member)], there.origin);
  };
  rendezvous.check = [&](const Board* made_so_far) { check_others(ranks, name, name_hash, made_so_far); };
  std::shared_ptr<Board> made;
  try {
    rendezvous.check(nullptr);
    made = detail::meet(rendezvous);
  } catch (const IoError& error) {
    abort(error.what());  // the others would wait for a segment that cannot be
    announce({}, 0);
    throw;
  } catch (...) {
    announce({}, 0);
    throw;
  }
  for (size_t i = 0; i < ranks.size(); ++i)
    met_[static_cast<size_t>(ranks[i])] = made->place(static_cast<int>(i)).came_from;
  announce({}, 0);
  return std::make_unique<SharedMemoryComm>(std::move(made), name, std::move(there), timeout());
}

}  // namespace

namespace {

Rendezvous rendezvous_of(const SharedMemoryOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw_error("shared_memory_comm: rank {} of {} was asked for; ranks are 0 to size - 1", options.rank, options.size);
  if (options.key.empty())
    throw_error("shared_memory_comm: the key is empty; give the ranks of a group a string that nobody else uses");
  if (options.timeout <= options.timeout.zero() || options.bytes_per_rank < 0)
    throw_error("shared_memory_comm: a timeout of {} s and {} bytes per rank were given; give positive ones",
                std::chrono::duration<double>(options.timeout).count(), options.bytes_per_rank);
  Rendezvous rendezvous;
  rendezvous.key = options.key;
  rendezvous.name = options.name;
  rendezvous.rank = options.rank;
  rendezvous.size = options.size;
  rendezvous.timeout = options.timeout;
  rendezvous.bytes_per_rank = options.bytes_per_rank;
  rendezvous.segment = options.segment;
  rendezvous.label = [](int rank) { return fmt::format("{}", rank); };
  return rendezvous;
}

}  // namespace

std::shared_ptr<detail::Segment> reserve_shared_memory(const SharedMemoryOptions& options) {
  return detail::make_segment(rendezvous_of(options));
}

std::unique_ptr<Comm> shared_memory_comm(const SharedMemoryOptions& options) {
  return std::make_unique<SharedMemoryComm>(detail::meet(rendezvous_of(options)), options.name, SharedGroup::Ancestry{},
                                            options.timeout);
}

}  // namespace lockstep
