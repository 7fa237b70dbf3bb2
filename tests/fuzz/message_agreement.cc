// Messages of other ranks to a rank that executes a collective. First byte: the operation and whether the transport has
// tags; second byte: the number of ranks. Then messages: a length, two bytes, a tag, one byte, and their bytes.
#include <algorithm>
#include <array>
#include <cstring>

#include "comm/message_collectives.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

// Delivers the messages in the order in which the rank asks for them.
class MessageBytes final : public Links {
 public:
  MessageBytes(std::span<const uint8_t> bytes, bool has_tags) : bytes_(bytes), has_tags_(has_tags) {}

  int send(Channel, int, const void*, size_t, uint64_t) override { return add({}); }
  int receive(Channel, int from, void* data, size_t bytes) override { return add({from, data, bytes}); }
  Arrival wait(int message, Time) override {
    const Awaited one = awaited_[static_cast<size_t>(message)];
    if (one.from < 0) return {};
    if (bytes_.size() < 3) throw LinkBroken{one.from, "the end"};
    const size_t length = std::min<size_t>(bytes_[0] + size_t{256} * bytes_[1], bytes_.size() - 3);
    const uint8_t tag = bytes_[2];
    if (length > one.bytes) throw LinkBroken{one.from, "too long"};
    if (length > 0) std::memcpy(one.data, bytes_.data() + 3, length);
    bytes_ = bytes_.subspan(3 + length);
    if (!has_tags_) return {};
    return {length, tag};
  }
  std::vector<LinkBroken> broken_links() override { return {}; }
  void close() noexcept override {}
  std::unique_ptr<Links> split(const std::vector<int>&, int, const std::string&, Time) override { return nullptr; }
  uint64_t tag_limit() const override { return has_tags_ ? 64 : 0; }  // small, so that tags of the input agree

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

  std::span<const uint8_t> bytes_;
  const bool has_tags_;
  std::vector<Awaited> awaited_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const int kind = data[0] % 7, ranks = 1 + data[1] % 8;
  const bool has_tags = data[0] >= 128;
  std::array<float, 64> in = {}, out = {};
  std::array<int64_t, 8> all_counts;
  all_counts.fill(3);
  const std::span<const int64_t> counts = std::span(all_counts).first(static_cast<size_t>(ranks));
  const std::array<Route, 1> routes = {Route{ranks - 1, 0}};
  MessageBytes links({data + 2, size - 2}, has_tags);
  MessageCollectives collectives(links, 0, ranks);
  try {
    collectives.run({.kind = static_cast<Operation::Kind>(kind),
                     .in = in.data(),
                     .out = out.data(),
                     .count = 24,
                     .counts = counts,
                     .receive_counts = counts,
                     .routes = routes},
                    1, Links::Time::max());
  } catch (const LinkBroken&) {
  } catch (const MessageCollectives::Disagreement&) {
  }
  return 0;
}
