#include "comm/message_comm.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "base/check.h"
#include "comm/failure_text.h"
#include "comm/message_collectives.h"
#include "comm/message_group.h"
#include "comm/queued.h"

namespace lockstep {

namespace {

using detail::MessageGroup;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr auto kPollInterval = milliseconds(50);  // between two checks for a failure of the group
constexpr auto kKeyReadTime = milliseconds(20);   // for reading a key that may be set
// A rank that has waited for this part of its timeout looks for `timed_out` at this interval.
constexpr int kLongWaitPart = 8;
constexpr auto kMinLookInterval = milliseconds(100), kMaxLookInterval = milliseconds(800);
constexpr auto kMaxSplitTime = std::chrono::hours(24 * 365);  // can be added to the clock without overflow

std::string ranks_text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

class MessageComm final : public QueuedComm {
 public:
  MessageComm(std::shared_ptr<MessageGroup> group, nanoseconds timeout)
      : QueuedComm(group->identity().rank, group->identity().size, group->identity().name, timeout),
        group_(std::move(group)),
        collectives_(group_->links(), rank(), size()) {}

  ~MessageComm() override { stop(); }

  // Operation 0: a barrier of all ranks. A rank that has passed it may fail or leave the group without disturbing ranks
  // that are still connecting.
  void open(Time deadline) {
    run({.kind = Operation::Kind::split}, 0, deadline);
    group_->links().mark_all_connected();
  }

  void abort(const std::string& reason) override {
    group_->fail(MessageGroup::Cause::aborted, fmt::format("rank {}: {}", group_->label(rank()), reason));
  }

 private:
  void run(const Operation& operation, int64_t number, Time deadline) override {
    const std::string_view kind = lockstep::name(operation.kind);
    group_->check(kind, number);
    run_began_.store(Clock::now(), std::memory_order_relaxed);
    try {
      return collectives_.run(operation, number, deadline);
    } catch (const LinkTimeout&) {
      std::rethrow_exception(group_->fail_timeout(kind, number, started(), timeout()));
    } catch (const LinkBroken& broken) {
      group_->fail_broken_link(broken, started(), true);
    } catch (const CommError& error) {
      group_->fail_broken_link({-1, error.what()}, started(), true);
    } catch (const MessageCollectives::Disagreement& found) {
      group_->fail(MessageGroup::Cause::mismatch,
                   detail::mismatch_message(number, name(), group_->label(found.ranks[0]), found.texts[0],
                                            group_->label(found.ranks[1]), found.texts[1]));
    }
    group_->throw_failure(kind, number);
  }

  std::exception_ptr on_timeout(const Operation& operation, int64_t number) noexcept override {
    return group_->fail_timeout(lockstep::name(operation.kind), number, started(), timeout());
  }

  // A closed link concerns only the ranks that wait for that peer, and they notice it themselves. But when the peer
  // closed it because the group has failed, this rank must stop too.
  void check_peers() noexcept override {
    const size_t broken = group_->links().broken_links().size();
    if (broken > known_broken_) {
      known_broken_ = broken;
      if (group_->read_key("abort", kKeyReadTime)) return group_->links().close();
    } else if (!looks_for_timeout()) {
      return;
    }
    if (group_->read_key("timed_out", kKeyReadTime)) group_->links().close();
  }

  // Whether this rank has waited long, and last looked long ago.
  bool looks_for_timeout() noexcept {
    const Time now = Clock::now(), began = run_began_.load(std::memory_order_relaxed);
    Time last = last_look_.load(std::memory_order_relaxed);
    const nanoseconds long_wait = timeout() / kLongWaitPart;
    const nanoseconds interval = std::clamp<nanoseconds>(long_wait, kMinLookInterval, kMaxLookInterval);
    return now - began >= long_wait && now - last >= interval && last_look_.compare_exchange_strong(last, now);
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;
  int find_announcement(int member, const std::vector<int>& ranks, const std::string& name, Time deadline);
  void check_members(const std::vector<int>& ranks);

  const std::shared_ptr<MessageGroup> group_;
  MessageCollectives collectives_;
  std::atomic<size_t> known_broken_{0};                      // broken links at the last check
  std::atomic<Time> run_began_{Time{}}, last_look_{Time{}};  // of the running operation; for `timed_out`
  // By the name of a group to split off: how many this rank has announced, and how many announcements of each other
  // rank it has read.
  std::map<std::string, int> announced_;
  std::map<std::pair<std::string, int>, int> announcements_read_;
};

// Throws when the group has failed, on this or another rank, or when the link to one of these ranks is broken.
void MessageComm::check_members(const std::vector<int>& ranks) {
  if (!group_->failed()) {
    for (const LinkBroken& broken : group_->links().broken_links())
      if (std::ranges::find(ranks, broken.peer) != ranks.end()) group_->fail_broken_link(broken, started(), false);
    if (group_->read_key("abort", milliseconds(1)))
      group_->fail(MessageGroup::Cause::aborted,
                   "another rank has stopped");  // the key is set already, so its cause is used
  }
  if (!group_->failed()) return;
  group_->fail(MessageGroup::Cause::aborted, {});  // returns when the cause is known
  group_->throw_failure("split", 0);
}

// Every rank announces the groups it splits off, as keys that are numbered by name. Returns the index of the
// announcement of `member` for the group with these ranks; -1: not announced before the deadline.
int MessageComm::find_announcement(int member, const std::vector<int>& ranks, const std::string& name, Time deadline) {
  int& next = announcements_read_[{name, member}];
  while (true) {
    const nanoseconds left = deadline - Clock::now();
    const std::optional<std::string> list =
        group_->read_key(fmt::format("split/{}/{}/{}", name, member, next), std::min<nanoseconds>(left, kPollInterval));
    if (!list) {
      if (left <= nanoseconds::zero()) return -1;
      check_members(ranks);
      continue;
    }
    ++next;
    if (*list == ranks_text(ranks)) return next - 1;
    // Skip groups that do not include this rank.
    const std::string mine = fmt::format(" {},", rank());
    const std::string padded = list->size() < 2 ? "" : fmt::format(" {},", list->substr(1, list->size() - 2));
    if (padded.find(mine) == std::string::npos) continue;
    group_->fail(
        MessageGroup::Cause::mismatch,
        fmt::format("split: rank {} gave {} as the members of \"{}\", rank {} gave {}; the members of a group must "
                    "give the same list",
                    group_->label(rank()), ranks_text(ranks), name, group_->label(member), *list));
    group_->throw_failure("split", 0);
  }
}

std::unique_ptr<Comm> MessageComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  check_members(ranks);
  const MessageGroup::Identity& here = group_->identity();
  MessageGroup::Identity identity{.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin()),
                                  .size = static_cast<int>(ranks.size()),
                                  .name = name,
                                  .origin_ranks = {},
                                  .origin_name = here.origin_ranks.empty() ? here.name : here.origin_name,
                                  .prefix = {}};
  for (const int member : ranks)
    identity.origin_ranks.push_back(here.origin_ranks.empty() ? member
                                                              : here.origin_ranks[static_cast<size_t>(member)]);

  const Time deadline = Clock::now() + std::min<nanoseconds>(timeout(), kMaxSplitTime);
  const int own_index = announced_[name]++;
  group_->set_key(fmt::format("split/{}/{}/{}", name, rank(), own_index), ranks_text(ranks));
  int first_index = own_index;
  std::vector<int> missing;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int index = ranks[i] == rank() ? own_index : find_announcement(ranks[i], ranks, name, deadline);
    if (index < 0) missing.push_back(static_cast<int>(i));
    if (i == 0) first_index = index;
  }
  identity.prefix = fmt::format("{}/{}/{}/{}", here.prefix, name, ranks.front(), first_index);
  const MessageGroup unconnected(identity, group_->store(), nullptr);
  const auto throw_timeout = [&](const std::vector<int>& waited_for) {
    throw CommTimeout(unconnected.timeout_message("split", 0, timeout(), waited_for));
  };
  if (!missing.empty()) throw_timeout(missing);
  std::unique_ptr<Links> links;
  try {
    links = group_->links().split(ranks, identity.rank, identity.prefix, deadline);
  } catch (const LinkTimeout& late) {
    throw_timeout(late.peer < 0 ? std::vector<int>{} : std::vector<int>{late.peer});
  } catch (const LinkBroken& broken) {
    check_members(ranks);
    throw CommError(fmt::format("split 0 on \"{}\": rank {} of {} cannot connect to rank {}: {}", name,
                                unconnected.label(identity.rank), identity.size, unconnected.label(broken.peer),
                                broken.what));
  }
  const auto group = std::make_shared<MessageGroup>(std::move(identity), group_->store(), std::move(links));
  auto comm = std::make_unique<MessageComm>(group, timeout());
  group_->add_child(group);
  comm->open(deadline);
  return comm;
}

}  // namespace

std::unique_ptr<Comm> message_comm(MessageCommOptions options) {
  MessageGroup::Identity identity{.rank = options.rank,
                                  .size = options.size,
                                  .name = options.name,
                                  .origin_ranks = {},
                                  .origin_name = {},
                                  .prefix = options.prefix};
  auto group = std::make_shared<MessageGroup>(std::move(identity), *options.store, std::move(options.links));
  auto comm = std::make_unique<MessageComm>(std::move(group), options.timeout);
  comm->open(options.deadline);
  return comm;
}

}  // namespace lockstep
