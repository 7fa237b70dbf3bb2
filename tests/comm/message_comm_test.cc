// MessageComm over in-process links, with the optional features of transports: tags, and payloads in two messages.
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

// The optional features of a transport.
struct LinkFeatures {
  uint64_t tag_limit = 0;
  size_t max_first_message = SIZE_MAX;  // longer payloads are sent in two messages
};

// The messages of all groups.
class MessageBoard {
 public:
  using MessageKey = std::tuple<std::string, Links::Channel, int, int>;  // group, channel, from, to
  struct StoredMessage {
    std::string bytes;
    uint64_t tag = 0;
  };

  void send(const MessageKey& key, StoredMessage message) {
    const std::lock_guard lock(mutex_);
    messages_[key].push_back(std::move(message));
    changed_.notify_all();
  }
  // Waits for the message with this number.
  StoredMessage receive(const MessageKey& key, size_t number, Links::Time deadline) {
    std::unique_lock lock(mutex_);
    const auto arrived = [&] { return messages_[key].size() > number; };
    const std::string& group = std::get<0>(key);
    const int from = std::get<2>(key), to = std::get<3>(key);
    const auto over = [&] { return arrived() || closed_.count({group, to}) || closed_.count({group, from}); };
    if (deadline == Links::Time::max())
      changed_.wait(lock, over);
    else if (!changed_.wait_until(lock, deadline, over))
      throw LinkTimeout{from};
    if (closed_.count({group, to})) throw LinkBroken{-1, "closed"};
    if (!arrived()) throw LinkBroken{from, "it closed its links"};
    return messages_[key][number];
  }
  void close(const std::string& group, int rank) {
    const std::lock_guard lock(mutex_);
    closed_.insert({group, rank});
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<MessageKey, std::deque<StoredMessage>> messages_;
  std::set<std::pair<std::string, int>> closed_;
};

class LocalLinks final : public Links {
 public:
  LocalLinks(std::shared_ptr<MessageBoard> board, LinkFeatures features, std::string group, int rank)
      : board_(std::move(board)), features_(features), group_(std::move(group)), rank_(rank) {}
  ~LocalLinks() override { board_->close(group_, rank_); }

  int send(Channel channel, int to, const void* data, size_t bytes, uint64_t tag) override {
    EXPECT_LT(tag, std::max<uint64_t>(features_.tag_limit, 1));
    board_->send({group_, channel, rank_, to}, {std::string(static_cast<const char*>(data), bytes), tag});
    return add({});
  }
  int receive(Channel channel, int from, void* data, size_t bytes) override {
    return add({channel, from, data, bytes, received_[{channel, from}]++});
  }
  Arrival wait(int message, Time deadline) override {
    const Awaited one = std::exchange(messages_[static_cast<size_t>(message)], {});
    if (!one.data) return {};
    const MessageBoard::StoredMessage received =
        board_->receive({group_, one.channel, one.from, rank_}, one.number, deadline);
    EXPECT_LE(received.bytes.size(), one.bytes);
    std::memcpy(one.data, received.bytes.data(), received.bytes.size());
    if (features_.tag_limit == 0) return {};
    return {received.bytes.size(), received.tag};
  }
  std::vector<LinkBroken> broken_links() override { return {}; }
  void close() noexcept override { board_->close(group_, rank_); }
  std::unique_ptr<Links> split(const std::vector<int>&, int rank, const std::string& prefix, Time) override {
    return std::make_unique<LocalLinks>(board_, features_, prefix, rank);
  }
  size_t first_message_bytes(size_t bytes) const override { return std::min(bytes, features_.max_first_message); }
  uint64_t tag_limit() const override { return features_.tag_limit; }

 private:
  struct Awaited {
    Channel channel = Channel::data;
    int from = -1;
    void* data = nullptr;  // null: a message to send
    size_t bytes = 0, number = 0;
  };
  int add(const Awaited& one) {
    messages_.push_back(one);
    return static_cast<int>(messages_.size()) - 1;
  }

  const std::shared_ptr<MessageBoard> board_;
  const LinkFeatures features_;
  const std::string group_;
  const int rank_;
  std::vector<Awaited> messages_;
  std::map<std::pair<Channel, int>, size_t> received_;
};

conformance::Backend backend(const std::string& name, LinkFeatures features) {
  return {name, [features](int n, const std::function<void(Comm&)>& body) {
            conformance::FileStore store;
            const auto board = std::make_shared<MessageBoard>();
            std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(n));
            std::vector<std::thread> threads;
            for (int rank = 0; rank < n; ++rank)
              threads.emplace_back([&, rank] {
                std::unique_ptr<Comm>& comm = comms[static_cast<size_t>(rank)];
                try {
                  comm = message_comm({.rank = rank,
                                       .size = n,
                                       .links = std::make_unique<LocalLinks>(board, features, "links", rank),
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
        if (ranks >= check.min_ranks) all.push_back({one, check, ranks});
  return testing::ValuesIn(all);
}

INSTANTIATE_TEST_SUITE_P(UntaggedLinks, CommConformance, cases_on(backend("untagged", {}), {1, 2, 8}),
                         conformance::name_of);
INSTANTIATE_TEST_SUITE_P(TaggedLinks, CommConformance, cases_on(backend("tagged", {.tag_limit = 1 << 15}), {1, 2, 3}),
                         conformance::name_of);
INSTANTIATE_TEST_SUITE_P(TaggedLinksInTwoMessages, CommConformance,
                         cases_on(backend("tagged, in two messages", {.tag_limit = 1 << 30, .max_first_message = 32}),
                                  {2, 3}),
                         conformance::name_of);

}  // namespace
}  // namespace lockstep
