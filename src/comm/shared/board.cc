#include "comm/shared/board.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "comm/shared/futex.h"

namespace lockstep::detail {

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

constexpr int64_t kPage = 4096;
constexpr int64_t kMostInAll = 8 << 20, kMostPerRank = 1 << 20, kLeastPerRank = 64 << 10;

constexpr int kMostRanks = 1 << 16;
constexpr int64_t kMostSlots = 1024;

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// A rank writes its own place, so `by` is what tells that a waiter's `waits_on` means it.
bool waits_for(uint64_t waits_on, uint32_t by) {
  const auto first = static_cast<uint32_t>(waits_on), second = static_cast<uint32_t>(waits_on >> 32);
  return first == by || second == by || first == Board::kAnybody;
}

void ring(std::atomic<uint32_t>& bell) {
  bell.fetch_add(1);
  futex_wake(bell);
}

}  // namespace

Geometry Geometry::of(int size, int64_t bytes_per_rank) {
  if (bytes_per_rank == 0) bytes_per_rank = std::clamp(kMostInAll / size, kLeastPerRank, kMostPerRank);
  Geometry geometry;
  geometry.size = size;
  geometry.slots = bytes_per_rank >= kMostPerRank / 2 ? 16 : 8;
  const int64_t least = round_up(geometry.head_bytes() + 64 * size, kPage);
  geometry.slot_bytes = std::max(bytes_per_rank / geometry.slots / kPage * kPage, least);
  return geometry;
}

int64_t Geometry::head_bytes() const { return 64 + 16 * round_up(size, 4); }

int64_t Geometry::total_bytes() const {
  const int64_t head = round_up(int64_t{sizeof(Control)}, 128) + size * int64_t{sizeof(Place) + sizeof(Board::Text)} +
                       int64_t{size} * size * 4;
  return round_up(head, kPage) + size * slots * slot_bytes;
}

bool Geometry::fits(int64_t bytes) const {
  if (size < 1 || size > kMostRanks || slots < 1 || slots > kMostSlots) return false;
  if (slot_bytes < kPage || slot_bytes % kPage != 0 || slot_bytes > bytes / (size * slots)) return false;
  return total_bytes() == bytes && room() >= 64 * size;
}

Board::Board(void* memory, int64_t bytes, int rank) : memory_(memory), bytes_(bytes), rank_(rank) {}

Board::~Board() { munmap(memory_, static_cast<size_t>(bytes_)); }

void Board::initialise(const Geometry& geometry, std::string_view id) {
  Control& here = control();
  here.version = Control::kVersion;
  here.geometry = geometry;
  here.creator = this_process();
  std::memcpy(here.id, id.data(), std::min(id.size(), sizeof here.id - 1));
  here.ready.store(Control::kReady);
}

void Board::locate() {
  const Geometry found = control().geometry;
  if (!found.fits(bytes_))
    throw_error(
        "shared memory: a segment of {} bytes says that it has {} ranks with {} slots of {} bytes; run the same "
        "lockstep "
        "on all ranks",
        bytes_, found.size, found.slots, found.slot_bytes);
  geometry_ = found;
  auto* at = static_cast<std::byte*>(memory_) + round_up(int64_t{sizeof(Control)}, 128);
  const auto take = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
  places_ = reinterpret_cast<Place*>(take(size() * int64_t{sizeof(Place)}));
  texts_ = reinterpret_cast<Text*>(take(size() * int64_t{sizeof(Text)}));
  lists_ = reinterpret_cast<std::atomic<int32_t>*>(at);
  slots_ = static_cast<std::byte*>(memory_) + bytes_ - size() * geometry_.slots * geometry_.slot_bytes;
}

// The text is whole before it can become the first cause.
bool Board::fail(Cause cause, std::string_view message) {
  bool first = false;
  if (!failed() && !failing_.exchange(true)) {
    Text& text = texts_[rank_];
    text.cause = cause;
    text.length = static_cast<uint32_t>(std::min(message.size(), sizeof text.text));
    std::memcpy(text.text, message.data(), text.length);
    uint32_t none = 0;
    first = control().failure.compare_exchange_strong(none, static_cast<uint32_t>(rank_) + 1);
  } else {
    while (!failed()) std::this_thread::yield();  // another thread of this process is writing its own
  }
  wake_all();
  return first;
}

std::optional<Failure> Board::failure() const {
  const uint32_t by = control().failure.load();
  if (by == 0) return std::nullopt;
  // Another process wrote it: nothing is trusted that says where to read.
  if (by > static_cast<uint32_t>(size())) return Failure{Cause::aborted, "a rank that does not exist failed"};
  const Text& text = texts_[by - 1];
  const uint32_t length = text.length;
  return Failure{text.cause, std::string(text.text, std::min<size_t>(length, sizeof text.text))};
}

std::string Board::id() const {
  const char* const id = control().id;
  return std::string(id, strnlen(id, sizeof control().id));
}

void Board::wake_waiting() const {
  const auto me = static_cast<uint32_t>(rank_) + 1;
  for (int rank = 0; rank < size(); ++rank) {
    Place& other = places_[rank];
    uint64_t waits_on = other.waits_on.load();
    if (waits_on == 0 || rank == rank_ || !waits_for(waits_on, me)) continue;
    // Once is enough: the sleeper will say again whom it waits for.
    if (other.waits_on.compare_exchange_strong(waits_on, 0)) ring(other.bell);
  }
}

void Board::wake_all() const {
  for (int rank = 0; rank < size(); ++rank) ring(places_[rank].bell);
}

// A sleeper says whom it waits for before it looks, and whoever changes something looks for sleepers after the change:
// one of the two sees the other, because all of these are in one order.
uint32_t Board::announce(uint64_t waits_on) const {
  const uint32_t ticket = mine().bell.load();
  mine().waits_on.store(waits_on);
  return ticket;
}

void Board::sleep(uint32_t ticket, std::chrono::nanoseconds time) const { futex_wait(mine().bell, ticket, time); }

}  // namespace lockstep::detail
