#include "comm/shared/segment_view.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "comm/shared/futex.h"

namespace lockstep::detail {

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

constexpr int64_t kPage = 4096;
constexpr int64_t kMaxTotal = 8 << 20, kMaxPerRank = 1 << 20, kMinPerRank = 64 << 10;

constexpr int kMaxRanks = 1 << 16;
constexpr int64_t kMaxSlots = 1024;

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Whether `waits_on` includes a rank, given as 1 + rank.
bool waits_for(uint64_t waits_on, uint32_t rank_plus_1) {
  const auto first = static_cast<uint32_t>(waits_on), second = static_cast<uint32_t>(waits_on >> 32);
  return first == rank_plus_1 || second == rank_plus_1 || first == SegmentView::kAnyRank;
}

void wake_rank(std::atomic<uint32_t>& wake_counter) {
  wake_counter.fetch_add(1);
  futex_wake(wake_counter);
}

}  // namespace

SegmentGeometry SegmentGeometry::of(int size, int64_t bytes_per_rank) {
  if (bytes_per_rank == 0) bytes_per_rank = std::clamp(kMaxTotal / size, kMinPerRank, kMaxPerRank);
  SegmentGeometry geometry;
  geometry.size = size;
  geometry.slots = bytes_per_rank >= kMaxPerRank / 2 ? 16 : 8;
  const int64_t least = round_up(geometry.request_bytes() + 64 * size, kPage);
  geometry.slot_bytes = std::max(bytes_per_rank / geometry.slots / kPage * kPage, least);
  return geometry;
}

int64_t SegmentGeometry::request_bytes() const { return 64 + 16 * round_up(size, 4); }

int64_t SegmentGeometry::total_bytes() const {
  const int64_t head = round_up(int64_t{sizeof(SegmentHeader)}, 128) +
                       size * int64_t{sizeof(RankState) + sizeof(SegmentView::FailureText)} + int64_t{size} * size * 4;
  return round_up(head, kPage) + size * slots * slot_bytes;
}

bool SegmentGeometry::fits(int64_t bytes) const {
  if (size < 1 || size > kMaxRanks || slots < 1 || slots > kMaxSlots) return false;
  if (slot_bytes < kPage || slot_bytes % kPage != 0 || slot_bytes > bytes / (size * slots)) return false;
  return total_bytes() == bytes && room() >= 64 * size;
}

SegmentView::SegmentView(void* memory, int64_t bytes, int rank) : memory_(memory), bytes_(bytes), rank_(rank) {}

SegmentView::~SegmentView() { munmap(memory_, static_cast<size_t>(bytes_)); }

void SegmentView::initialize(const SegmentGeometry& geometry, std::string_view id) {
  SegmentHeader& here = header();
  here.version = SegmentHeader::kVersion;
  here.geometry = geometry;
  here.creator = this_process();
  std::memcpy(here.id, id.data(), std::min(id.size(), sizeof here.id - 1));
  here.ready.store(SegmentHeader::kReady);
}

void SegmentView::load_geometry() {
  const SegmentGeometry found = header().geometry;
  if (!found.fits(bytes_))
    throw_error(
        "shared memory: a segment of {} bytes claims to have {} ranks with {} slots of {} bytes; run the same "
        "lockstep version on all ranks",
        bytes_, found.size, found.slots, found.slot_bytes);
  geometry_ = found;
  auto* at = static_cast<std::byte*>(memory_) + round_up(int64_t{sizeof(SegmentHeader)}, 128);
  const auto reserve = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
  rank_states_ = reinterpret_cast<RankState*>(reserve(size() * int64_t{sizeof(RankState)}));
  failure_texts_ = reinterpret_cast<FailureText*>(reserve(size() * int64_t{sizeof(FailureText)}));
  split_lists_ = reinterpret_cast<std::atomic<int32_t>*>(at);
  slots_ = static_cast<std::byte*>(memory_) + bytes_ - size() * geometry_.slots * geometry_.slot_bytes;
}

// The text is complete before this rank can become the first cause.
bool SegmentView::fail(FailureCause cause, std::string_view message) {
  bool first = false;
  if (!failed() && !failing_.exchange(true)) {
    FailureText& text = failure_texts_[rank_];
    text.cause = cause;
    text.length = static_cast<uint32_t>(std::min(message.size(), sizeof text.text));
    std::memcpy(text.text, message.data(), text.length);
    uint32_t none = 0;
    first = header().failure.compare_exchange_strong(none, static_cast<uint32_t>(rank_) + 1);
  } else {
    while (!failed()) std::this_thread::yield();  // another thread of this process is writing its text
  }
  wake_all();
  return first;
}

std::optional<GroupFailure> SegmentView::failure() const {
  const uint32_t by = header().failure.load();
  if (by == 0) return std::nullopt;
  // Other processes can write these fields: the rank and the length are checked before they are used.
  if (by > static_cast<uint32_t>(size()))
    return GroupFailure{FailureCause::aborted, "the segment names a failed rank that does not exist"};
  const FailureText& text = failure_texts_[by - 1];
  const uint32_t length = text.length;
  return GroupFailure{text.cause, std::string(text.text, std::min<size_t>(length, sizeof text.text))};
}

std::string SegmentView::id() const {
  const char* const id = header().id;
  return std::string(id, strnlen(id, sizeof header().id));
}

// The key is 0 while the other fields are written, so a reader that finds the same key before and after has read one
// offer.
void SegmentView::offer_memory(uint64_t key, const DescriptorAddress& address) const {
  RankState& state = own_state();
  std::array<uint64_t, RankState::kOfferWords> words = {};
  LOCKSTEP_CHECK(address.target.size() <= sizeof words, "a target of {} characters", address.target.size());
  std::memcpy(words.data(), address.target.data(), address.target.size());
  state.offer_key.store(0);
  state.offer_pid.store(address.pid);
  state.offer_fd.store(address.fd);
  for (size_t i = 0; i < words.size(); ++i) state.offer_target[i].store(words[i]);
  state.offer_key.store(key);
}

std::optional<DescriptorAddress> SegmentView::offered_memory(int rank, uint64_t key) const {
  const RankState& state = rank_state(rank);
  if (state.offer_key.load() != key) return std::nullopt;
  std::array<uint64_t, RankState::kOfferWords> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = state.offer_target[i].load();
  const char* const target = reinterpret_cast<const char*>(words.data());
  DescriptorAddress address{state.offer_pid.load(), state.offer_fd.load(),
                            std::string(target, strnlen(target, sizeof words))};
  if (state.offer_key.load() != key) return std::nullopt;
  return address;
}

void SegmentView::wake_waiting() const {
  const auto me = static_cast<uint32_t>(rank_) + 1;
  for (int rank = 0; rank < size(); ++rank) {
    RankState& other = rank_states_[rank];
    uint64_t waits_on = other.waits_on.load();
    if (waits_on == 0 || rank == rank_ || !waits_for(waits_on, me)) continue;
    // One wake-up is enough: a rank that has to sleep again publishes its wait again.
    if (other.waits_on.compare_exchange_strong(waits_on, 0)) wake_rank(other.wake_counter);
  }
}

void SegmentView::wake_all() const {
  for (int rank = 0; rank < size(); ++rank) wake_rank(rank_states_[rank].wake_counter);
}

// A waiting rank publishes what it waits for before it checks its condition. A rank that changes something looks for
// waiting ranks after the change. All these accesses are sequentially consistent, so one of the two sees the other.
uint32_t SegmentView::begin_wait(uint64_t waits_on) const {
  const uint32_t wake_count = own_state().wake_counter.load();
  own_state().waits_on.store(waits_on);
  return wake_count;
}

void SegmentView::sleep(uint32_t wake_count, std::chrono::nanoseconds time) const {
  futex_wait(own_state().wake_counter, wake_count, time);
}

}  // namespace lockstep::detail
