// MessageComm over links within one process that do what some transports do: carry tag_limit, and send in two parts.
#include "comm/message_comm.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "comm/conformance.h"
#include "comm/file_store.h"

namespace lockstep {
namespace {

struct LinkKind {
  uint64_t tag_limit = 0;
  size_t most_at_once = SIZE_MAX;  // more is sent in two messages
};

// All messages of all groups.
class Switchboard {
 public:
  using Place = std::tuple<std::string, Links::Channel, int, int>;  // group, channel, from, to
  struct Letter {
    std::string bytes;
    uint64_t tag = 0;
  };

  void send(const Place& place, Letter letter) {
    const std::lock_guard lock(mutex_);
    letters_[place].push_back(std::move(letter));
    changed_.notify_all();
  }
  // Waits for the letter with that number.
  Letter receive(const Place& place, size_t number, Links::Time deadline) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return letters_[place].size() > number; };
    const std::string& group = std::get<0>(place);
    const int from = std::get<2>(place), to = std::get<3>(place);
    const auto over = [&] { return there() || closed_.count({group, to}) || closed_.count({group, from}); };
    if (deadline == Links::Time::max())
      changed_.wait(lock, over);
    else if (!changed_.wait_until(lock, deadline, over))
      throw LinkTimeout{from};
    if (closed_.count({group, to})) throw LinkBroken{-1, "closed"};
    if (!there()) throw LinkBroken{from, "it has closed"};
    return letters_[place][number];
  }
  bool closed(const std::string& group, int rank) {
    const std::lock_guard lock(mutex_);
    return closed_.count({group, rank}) > 0;
  }
  void close(const std::string& group, int rank) {
    const std::lock_guard lock(mutex_);
    closed_.insert({group, rank});
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Place, std::deque<Letter>> letters_;
  std::set<std::pair<std::string, int>> closed_;
};

class LocalLinks final : public Links {
 public:
  LocalLinks(std::shared_ptr<Switchboard> board, LinkKind kind, std::string group, int rank)
      : board_(std::move(board)), kind_(kind), group_(std::move(group)), rank_(rank) {}
  ~LocalLinks() override { board_->close(group_, rank_); }

  int send(Channel channel, int to, const void* data, size_t bytes, uint64_t tag) override {
    EXPECT_LT(tag, std::max<uint64_t>(kind_.tag_limit, 1));
    board_->send({group_, channel, rank_, to}, {std::string(static_cast<const char*>(data), bytes), tag});
    return add({});
  }
  int receive(Channel channel, int from, void* data, size_t bytes) override {
    return add({channel, from, data, bytes, received_[{channel, from}]++});
  }
  Arrival wait(int message, Time deadline) override {
    const Awaited one = std::exchange(messages_[static_cast<size_t>(message)], {});
    if (!one.data) return {};
    const Switchboard::Letter letter = board_->receive({group_, one.channel, one.from, rank_}, one.number, deadline);
    EXPECT_LE(letter.bytes.size(), one.bytes);
    std::memcpy(one.data, letter.bytes.data(), letter.bytes.size());
    if (kind_.tag_limit == 0) return {};
    return {letter.bytes.size(), letter.tag};
  }
  std::vector<LinkBroken> broken_links() override { return {}; }
  void close() noexcept override { board_->close(group_, rank_); }
  std::unique_ptr<Links> split(const std::vector<int>&, int rank, const std::string& prefix, Time) override {
    return std::make_unique<LocalLinks>(board_, kind_, prefix, rank);
  }
  size_t first_message_bytes(size_t bytes) const override { return std::min(bytes, kind_.most_at_once); }
  uint64_t tag_limit() const override { return kind_.tag_limit; }

 private:
  struct Awaited {
    Channel channel = Channel::data;
    int from = -1;
    void* data = nullptr;  // null: it was sent
    size_t bytes = 0, number = 0;
  };
  int add(const Awaited& one) {
    messages_.push_back(one);
    return static_cast<int>(messages_.size()) - 1;
  }

  const std::shared_ptr<Switchboard> board_;
  const LinkKind kind_;
  const std::string group_;
  const int rank_;
  std::vector<Awaited> messages_;
  std::map<std::pair<Channel, int>, size_t> received_;
};

conformance::Backend backend(const std::string& name, LinkKind kind) {
  return {name, [kind](int n, const std::function<void(Comm&)>& body) {
            conformance::FileStore store;
            const auto board = std::make_shared<Switchboard>();
            std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(n));
            std::vector<std::thread> threads;
            for (int rank = 0; rank < n; ++rank)
              threads.emplace_back([&, rank] {
                std::unique_ptr<Comm>& comm = comms[static_cast<size_t>(rank)];
                try {
                  comm = message_comm({.rank = rank,
                                       .size = n,
                                       .links = std::make_unique<LocalLinks>(board, kind, "links", rank),
                                       .store = &store,
                                       .prefix = "links",
                                       .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60)});
                  body(*comm);
                } catch (const std::exception& error) {
                  ADD_FAILURE() << "rank " << rank << ": " << error.what();
                  if (comm) comm->abort(error.what());
                }
              });
            for (std::thread& thread : threads) thread.join();
          }};
}

auto cases_on(const conformance::Backend& one, const std::vector<int>& sizes) {
  std::vector<conformance::Case> all;
  for (const auto& checks :
       {conformance::value_checks(), conformance::sequence_checks(), conformance::failure_checks()})
    for (const conformance::Check& check : checks)
      for (const int ranks : sizes)
        if (ranks >= check.least) all.push_back({one, check, ranks});
  return testing::ValuesIn(all);
}

INSTANTIATE_TEST_SUITE_P(PlainLinks, CommConformance, cases_on(backend("plain", {}), {1, 2, 8}), conformance::name_of);
INSTANTIATE_TEST_SUITE_P(StampedLinks, CommConformance, cases_on(backend("stamped", {.tag_limit = 1 << 15}), {1, 2, 3}),
                         conformance::name_of);
INSTANTIATE_TEST_SUITE_P(StampedLinksInTwoParts, CommConformance,
                         cases_on(backend("stamped, in two", {.tag_limit = 1 << 30, .most_at_once = 32}), {2, 3}),
                         conformance::name_of);

}  // namespace
}  // namespace lockstep
