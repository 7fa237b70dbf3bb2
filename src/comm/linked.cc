#include "comm/linked.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "base/check.h"
#include "comm/exchange.h"
#include "comm/linked_group.h"
#include "comm/queued.h"

namespace lockstep {

namespace {

using detail::LinkedGroup;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr auto kSlice = milliseconds(50);                     // between two looks at whether the group is well
constexpr auto kNoteTime = milliseconds(20);                  // for a note that may be there
constexpr auto kLongestSplit = std::chrono::hours(24 * 365);  // added to the clock without overflow

std::string ranks_text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

class LinkedComm final : public QueuedComm {
 public:
  LinkedComm(std::shared_ptr<LinkedGroup> group, nanoseconds timeout)
      : QueuedComm(group->identity().rank, group->identity().size, group->identity().name, timeout),
        group_(std::move(group)),
        exchange_(group_->links(), rank(), size()) {}

  ~LinkedComm() override { stop(); }

  // The ranks meet for the first time. Whoever goes on from there may fail the group, or leave it, without disturbing
  // those who are still connecting.
  void open(Time deadline) {
    run({.kind = Operation::Kind::split}, 0, deadline);
    group_->links().met();
  }

  void abort(const std::string& reason) override {
    group_->fail(LinkedGroup::Cause::aborted, fmt::format("rank {}: {}", group_->label(rank()), reason));
  }

 private:
  void run(const Operation& operation, int64_t number, Time deadline) override {
    const std::string_view kind = lockstep::name(operation.kind);
    group_->check(kind, number);
    try {
      return exchange_.run(operation, number, deadline);
    } catch (const LinkTimeout&) {
      std::rethrow_exception(group_->expire(kind, number, started(), timeout()));
    } catch (const LinkBroken& broken) {
      group_->learn(broken, started());
    } catch (const CommError& error) {
      group_->learn({-1, error.what()}, started());
    } catch (const Exchange::Disagreement& found) {
      group_->fail(LinkedGroup::Cause::mismatch,
                   fmt::format("operation {} on \"{}\": rank {} asked for {}, rank {} asked for {}; the ranks of a "
                               "group must make the same calls with the same sizes in the same order",
                               number, name(), group_->label(found.ranks[0]), found.texts[0],
                               group_->label(found.ranks[1]), found.texts[1]));
    }
    group_->throw_failure(kind, number);
  }

  std::exception_ptr expire(const Operation& operation, int64_t number) noexcept override {
    return group_->expire(lockstep::name(operation.kind), number, started(), timeout());
  }

  // A peer that is gone concerns those who wait for it, and they notice; unless it went because the group has failed.
  void look_after() noexcept override {
    const size_t gone = group_->links().broken().size();
    if (gone <= gone_) return;
    gone_ = gone;
    if (group_->note("abort", kNoteTime) || group_->note("asking", kNoteTime)) group_->links().close();
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;
  int announced_by(int member, const std::vector<int>& ranks, const std::string& name, Time deadline);
  void check_group(const std::vector<int>& ranks);

  const std::shared_ptr<LinkedGroup> group_;
  Exchange exchange_;
  std::atomic<size_t> gone_{0};  // peers, when last looked after
  // By the name of a group to be made: how many this rank has announced, and of every other how many were read.
  std::map<std::string, int> announced_;
  std::map<std::pair<std::string, int>, int> read_;
};

// Throws when the group has failed, here or elsewhere, or one of these ranks is gone.
void LinkedComm::check_group(const std::vector<int>& ranks) {
  if (!group_->failed()) {
    for (const LinkBroken& broken : group_->links().broken())
      if (std::ranges::find(ranks, broken.peer) != ranks.end()) group_->learn(broken, started());
    if (group_->note("abort", milliseconds(1)))
      group_->fail(LinkedGroup::Cause::aborted, "another rank has stopped");  // the note counts, which was first
  }
  if (!group_->failed()) return;
  group_->fail(LinkedGroup::Cause::aborted, {});  // returns when the reason is known
  group_->throw_failure("split", 0);
}

// Every rank leaves a note of the groups it makes, in order, by name: its list. Which note of this member is that of
// the group with these ranks; -1: none was left in time.
int LinkedComm::announced_by(int member, const std::vector<int>& ranks, const std::string& name, Time deadline) {
  int& next = read_[{name, member}];
  while (true) {
    const nanoseconds left = deadline - Clock::now();
    const std::optional<std::string> list =
        group_->note(fmt::format("split/{}/{}/{}", name, member, next), std::min<nanoseconds>(left, kSlice));
    if (!list) {
      if (left <= nanoseconds::zero()) return -1;
      check_group(ranks);
      continue;
    }
    ++next;
    if (*list == ranks_text(ranks)) return next - 1;
    // A group without this rank is none of its business.
    const std::string mine = fmt::format(" {},", rank());
    const std::string padded = fmt::format(" {},", list->substr(1, list->size() - 2));
    if (padded.find(mine) == std::string::npos) continue;
    group_->fail(LinkedGroup::Cause::mismatch,
                 fmt::format("split: rank {} wants \"{}\" to be {}, rank {} {}; the members of a group must give the "
                             "same list",
                             group_->label(rank()), name, ranks_text(ranks), group_->label(member), *list));
    group_->throw_failure("split", 0);
  }
}

std::unique_ptr<Comm> LinkedComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  check_group(ranks);
  const LinkedGroup::Identity& here = group_->identity();
  LinkedGroup::Identity identity{.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin()),
                                 .size = static_cast<int>(ranks.size()),
                                 .name = name,
                                 .members = {},
                                 .origin = here.members.empty() ? here.name : here.origin,
                                 .prefix = {}};
  for (const int member : ranks)
    identity.members.push_back(here.members.empty() ? member : here.members[static_cast<size_t>(member)]);

  const Time deadline = Clock::now() + std::min<nanoseconds>(timeout(), kLongestSplit);
  const int own = announced_[name]++;
  group_->leave(fmt::format("split/{}/{}/{}", name, rank(), own), ranks_text(ranks));
  int of_first = own;
  std::vector<int> missing;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int announced = ranks[i] == rank() ? own : announced_by(ranks[i], ranks, name, deadline);
    if (announced < 0) missing.push_back(static_cast<int>(i));
    if (i == 0) of_first = announced;
  }
  identity.prefix = fmt::format("{}/{}/{}/{}", here.prefix, name, ranks.front(), of_first);
  const LinkedGroup nameless(identity, group_->store(), nullptr);
  const auto give_up = [&](const std::vector<int>& waited_for) {
    throw CommTimeout(nameless.timeout_message("split", 0, timeout(), waited_for));
  };
  if (!missing.empty()) give_up(missing);
  std::unique_ptr<Links> links;
  try {
    links = group_->links().split(ranks, identity.rank, identity.prefix, deadline);
  } catch (const LinkTimeout& late) {
    give_up(late.peer < 0 ? std::vector<int>{} : std::vector<int>{late.peer});
  } catch (const LinkBroken& broken) {
    check_group(ranks);
    throw CommError(fmt::format("split 0 on \"{}\": rank {} of {} cannot connect to rank {}: {}", name,
                                nameless.label(identity.rank), identity.size, nameless.label(broken.peer),
                                broken.what));
  }
  const auto group = std::make_shared<LinkedGroup>(std::move(identity), group_->store(), std::move(links));
  auto comm = std::make_unique<LinkedComm>(group, timeout());
  group_->add(group);
  comm->open(deadline);
  return comm;
}

}  // namespace

std::unique_ptr<Comm> linked_comm(LinkedOptions options) {
  LinkedGroup::Identity identity{.rank = options.rank,
                                 .size = options.size,
                                 .name = options.name,
                                 .members = {},
                                 .origin = {},
                                 .prefix = options.prefix};
  auto group = std::make_shared<LinkedGroup>(std::move(identity), *options.store, std::move(options.links));
  auto comm = std::make_unique<LinkedComm>(std::move(group), options.timeout);
  comm->open(options.deadline);
  return comm;
}

}  // namespace lockstep
