#include "comm/recorder.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace lockstep {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t elements_of(const Operation& operation) {
  return std::max({operation.count, total_count(operation.counts), total_count(operation.receive_counts)});
}

}  // namespace

FlightGroup& FlightLane::add_group(const std::string& name, const std::vector<int>& lanes, int64_t next) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::make_unique<FlightGroup>(*this, static_cast<int>(groups_.size()), name, lanes, next));
  return *groups_.back();
}

uint64_t FlightLane::begin(FlightGroup& group, const Operation& operation, bool waits) noexcept {
  const uint64_t ticket = next_.fetch_add(1, kRelaxed);
  Entry& entry = entries_[ticket % kEntries];
  // Readers see the entry marked as being written before they see any of the stores below.
  entry.ticket.exchange(0, std::memory_order_acq_rel);
  const int64_t time = now();
  entry.sequence.store(group.next_.fetch_add(1, kRelaxed), std::memory_order_release);
  entry.group.store(group.index(), std::memory_order_release);
  entry.kind.store(operation.kind, std::memory_order_release);
  entry.dtype.store(operation.dtype, std::memory_order_release);
  const int64_t elements = elements_of(operation);
  entry.elements.store(elements, std::memory_order_release);
  entry.bytes.store(elements * static_cast<int64_t>(size_of(operation.dtype)), std::memory_order_release);
  entry.step.store(step_.load(kRelaxed), std::memory_order_release);
  entry.began.store(time, std::memory_order_release);
  entry.waited.store(waits ? time : 0, std::memory_order_release);
  entry.ended.store(0, std::memory_order_release);
  entry.outcome.store(FlightRecord::Outcome::in_flight, std::memory_order_release);
  entry.ticket.store(ticket + 1, std::memory_order_release);
  return ticket;
}

FlightLane::Entry* FlightLane::find(uint64_t ticket) noexcept {
  Entry& entry = entries_[ticket % kEntries];
  return entry.ticket.load(kRelaxed) == ticket + 1 ? &entry : nullptr;
}

void FlightLane::wait(uint64_t ticket) noexcept {
  if (Entry* entry = find(ticket)) entry->waited.store(now(), kRelaxed);
}

void FlightLane::end(uint64_t ticket, bool done) noexcept {
  if (Entry* entry = find(ticket)) {
    entry->ended.store(now(), kRelaxed);
    entry->outcome.store(done ? FlightRecord::Outcome::done : FlightRecord::Outcome::failed, std::memory_order_release);
  }
}

std::vector<FlightRecord> FlightLane::records() const {
  std::vector<FlightRecord> out;
  const uint64_t end = next_.load(std::memory_order_acquire);
  out.reserve(static_cast<size_t>(std::min<uint64_t>(end, kEntries)));
  for (uint64_t ticket = end > kEntries ? end - kEntries : 0; ticket < end; ++ticket) {
    const Entry& entry = entries_[ticket % kEntries];
    if (entry.ticket.load(std::memory_order_acquire) != ticket + 1) continue;
    FlightRecord record;
    record.outcome = entry.outcome.load(std::memory_order_acquire);
    record.group = entry.group.load(std::memory_order_acquire);
    record.sequence = entry.sequence.load(std::memory_order_acquire);
    record.kind = entry.kind.load(std::memory_order_acquire);
    record.dtype = entry.dtype.load(std::memory_order_acquire);
    record.elements = entry.elements.load(std::memory_order_acquire);
    record.bytes = entry.bytes.load(std::memory_order_acquire);
    record.step = entry.step.load(std::memory_order_acquire);
    record.began = entry.began.load(std::memory_order_acquire);
    record.waited = entry.waited.load(std::memory_order_acquire);
    record.ended = entry.ended.load(std::memory_order_acquire);
    // The end is stored before the outcome, so a record may have an end but still be in flight: report no end.
    if (record.outcome == FlightRecord::Outcome::in_flight) record.ended = 0;
    if (entry.ticket.load(kRelaxed) == ticket + 1) out.push_back(record);
  }
  return out;
}

std::vector<const FlightGroup*> FlightLane::groups() const {
  const std::lock_guard lock(mutex_);
  std::vector<const FlightGroup*> out;
  for (const auto& group : groups_) out.push_back(group.get());
  return out;
}

FlightRecorder::FlightRecorder(int first_lane, int lanes) {
  for (int i = 0; i < lanes; ++i) lanes_.push_back(std::make_unique<FlightLane>(first_lane + i, step_));
}

}  // namespace lockstep
