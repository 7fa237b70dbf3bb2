// The agreement of MessageCollectives with ranks that send other bytes than they should.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "base/throws.h"
#include "comm/message_collectives.h"

namespace lockstep {
namespace {

// Delivers given messages to this rank, in the order in which it asks for them, and drops those that it sends.
class GivenLinks final : public Links {
 public:
  struct Given {
    std::string bytes;
    uint64_t tag = 0;
  };
  explicit GivenLinks(std::deque<Given> messages, uint64_t tag_limit = 0)
      : messages_(std::move(messages)), tag_limit_(tag_limit) {}

  int send(Channel, int, const void*, size_t, uint64_t) override { return add({}); }
  int receive(Channel, int from, void* data, size_t bytes) override { return add({from, data, bytes}); }
  Arrival wait(int message, Time) override {
    const Awaited one = awaited_[static_cast<size_t>(message)];
    if (one.from < 0) return {};
    if (messages_.empty()) throw LinkBroken{one.from, "no more messages"};
    const Given given = std::move(messages_.front());
    messages_.pop_front();
    if (given.bytes.size() > one.bytes) throw LinkBroken{one.from, "too long"};
    std::memcpy(one.data, given.bytes.data(), given.bytes.size());
    return {given.bytes.size(), given.tag};
  }
  std::vector<LinkBroken> broken_links() override { return {}; }
  void close() noexcept override {}
  std::unique_ptr<Links> split(const std::vector<int>&, int, const std::string&, Time) override { return nullptr; }
  uint64_t tag_limit() const override { return tag_limit_; }

 private:
  struct Awaited {
    int from = -1;
    void* data = nullptr;
    size_t bytes = 0;
  };
  int add(const Awaited& one) {
    awaited_.push_back(one);
    return static_cast<int>(awaited_.size()) - 1;
  }

  std::deque<Given> messages_;
  const uint64_t tag_limit_;
  std::vector<Awaited> awaited_;
};

// A record as it is sent: the header, and the payload.
std::string record(uint16_t payload_bytes, uint16_t second_message_bytes, uint32_t numbers, size_t sent_payload) {
  std::string out(24 + sent_payload, '\7');
  std::memcpy(out.data() + 16, &payload_bytes, 2);
  std::memcpy(out.data() + 18, &second_message_bytes, 2);
  std::memcpy(out.data() + 20, &numbers, 4);
  return out;
}

// The request of another rank as numbers: kind, type, reduction, root, count, the lengths of the lists, and the lists.
std::string numbers(std::vector<int64_t> values, size_t count) {
  values.resize(count);
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(int64_t)};
}

// What rank 0 of `size` ranks gets in an all_reduce of one float when the others send this: `broken: RANK, WHY`, or the
// texts of two requests that disagree.
std::string outcome(int size, std::deque<GivenLinks::Given> messages, uint64_t tag_limit = 0) {
  GivenLinks links(std::move(messages), tag_limit);
  MessageCollectives collectives(links, 0, size);
  float in = 1, out = 0;
  try {
    collectives.run({.kind = Operation::Kind::all_reduce, .in = &in, .out = &out, .count = 1}, 1, Links::Time::max());
  } catch (const LinkBroken& broken) {
    return "broken: " + std::to_string(broken.peer) + ", " + broken.what;
  } catch (const MessageCollectives::Disagreement& found) {
    return found.texts[0] + " | " + found.texts[1];
  }
  return "done";
}

TEST(MessageAgreement, RecordsWithWrongLengthsBreakTheLink) {
  const std::string invalid = "it sent an invalid request";
  // Larger than any payload of a record.
  for (const uint16_t bytes : {16385, 65535})
    EXPECT_EQ(outcome(2, {{record(bytes, 0, 8, 8)}}), "broken: 1, " + invalid);
  // A second message that would begin before the payload.
  EXPECT_EQ(outcome(2, {{record(4, 9, 8, 8)}}), "broken: 1, " + invalid);
  EXPECT_EQ(outcome(2, {{record(4, 65535, 8, 8)}}), "broken: 1, " + invalid);
  // Requests that no group of two ranks can make.
  for (const uint32_t count : {0u, 7u, 17u, 0xffffffffu})
    EXPECT_EQ(outcome(2, {{record(4, 0, count, 8)}}), "broken: 1, " + invalid) << count;
  // In the second round rank 2 sends the records of ranks 2 and 1 to rank 0: the last one is wrong.
  EXPECT_EQ(outcome(4, {{record(4, 0, 8, 8)}, {record(8, 0, 8, 8) + record(65535, 0, 8, 8)}}), "broken: 2, " + invalid);
}

TEST(MessageAgreement, RequestsThatAreNoneAreDisagreements) {
  const std::string mine = "all_reduce of 1 f32 (sum) | ";
  const auto with = [&](std::vector<int64_t> request) {
    return outcome(2, {{record(4, 0, 16, 8)}, {numbers(std::move(request), 16)}});
  };
  EXPECT_EQ(with({0, 0, 0, 0, 2, 0, 0, 0}).substr(0, mine.size()), mine);
  const int64_t huge = int64_t{1} << 40;
  for (const std::vector<int64_t>& request :
       std::vector<std::vector<int64_t>>{{-1, 0, 0, 0, 1, 0, 0, 0},    // a kind that does not exist
                                         {99, 0, 0, 0, 1, 0, 0, 0},    //
                                         {256, 0, 0, 0, 1, 0, 0, 0},   // all_reduce in the low byte
                                         {0, 1000, 0, 0, 1, 0, 0, 0},  // an element type that does not exist
                                         {0, 0, 3, 0, 1, 0, 0, 0},     // a reduction that does not exist
                                         {1, 0, 0, 0, 1, huge, 0, 0},  // lists of wrong lengths
                                         {3, 0, 0, 0, 1, 2, huge, 0},  //
                                         {3, 0, 0, 0, 1, 2, 0, 0},     //
                                         {4, 0, 0, 0, 1, 0, 0, huge},  //
                                         {4, 0, 0, 0, 1, 0, 0, -1},    //
                                         {2, 0, 0, 0, 1, -2, 0, 0}})
    EXPECT_EQ(with(request), mine + "an invalid operation") << request[0];
}

TEST(MessageAgreement, ShortListsAreNotReadBeyondTheirEnd) {
  // 12 numbers are sent, and the lists would need 16.
  EXPECT_EQ(outcome(2, {{record(4, 0, 12, 8)}, {numbers({4, 0, 0, 0, 1, 2, 2, 2, 0, 0, 0, 0}, 12)}}),
            "all_reduce of 1 f32 (sum) | an invalid operation");
}

TEST(MessageAgreement, EqualRequestsWithDifferentChecksumsBreakTheLinks) {
  EXPECT_EQ(outcome(2, {{record(4, 0, 8, 8)}, {numbers({0, static_cast<int64_t>(f32), 0, 0, 1, 0, 0, 0}, 8)}}),
            "broken: -1, they sent equal requests with different checksums");
}

TEST(MessageAgreement, ShortPayloadsWithATagAreDisagreements) {
  // The tag is that of no request; then the peer sends a record and its request.
  EXPECT_EQ(outcome(2, {{"abc", 4}, {record(0, 0, 8, 0)}, {numbers({6, 0, 0, 0, 0, 0, 0, 0}, 8)}}, uint64_t{1} << 40),
            "all_reduce of 1 f32 (sum) | barrier");
}

}  // namespace
}  // namespace lockstep
