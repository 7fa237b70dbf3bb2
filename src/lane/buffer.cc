#include "lane/buffer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "lane/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_KEEP_FREED_MEMORY false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_KEEP_FREED_MEMORY false
#endif
#endif
#ifndef LOCKSTEP_KEEP_FREED_MEMORY
#define LOCKSTEP_KEEP_FREED_MEMORY true
#endif

namespace lockstep {

namespace {

constexpr bool kKeepFreedMemory = LOCKSTEP_KEEP_FREED_MEMORY;

// Class 8*e + s holds blocks of (8 + s) * 8 * 2^e bytes. Sizes are multiples of a cache line, so some of the small
// classes are unused.
int size_class(int64_t bytes) {
  const auto lines = static_cast<uint64_t>(std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment;
  const uint64_t size = lines * kAlignment;
  const int exponent = std::bit_width(size) - 7;  // 64 -> 0
  const uint64_t step = uint64_t{8} << exponent;
  const uint64_t eighths = (size + step - 1) / step;  // 8..16
  return exponent * 8 + static_cast<int>(eighths) - 8;
}

int64_t class_bytes(int index) { return int64_t{8 + index % 8} << (3 + index / 8); }

}  // namespace

void BufferPtr::release(Buffer* buffer) { buffer->allocator_->recycle(buffer); }

Allocator::Allocator(const AllocatorOptions& options)
    : limit_(options.limit > 0 ? options.limit : machine_memory()), cache_(options.cache) {}

Allocator::~Allocator() {
  LOCKSTEP_CHECK(stats_.in_use == 0, "an allocator is destroyed while {} bytes are in use", stats_.in_use);
  trim();
}

Allocator& Allocator::host() {
  // Never destroyed: buffers in static objects may outlive any order of destruction.
  static Allocator* const allocator = new Allocator;
  return *allocator;
}

BufferPtr Allocator::allocate(int64_t bytes) {
  LOCKSTEP_CHECK(bytes >= 0, "allocate: {} bytes", bytes);
  if (bytes > limit_) refuse(bytes);
  const int index = size_class(bytes);
  const int64_t size = class_bytes(index);
  Buffer* buffer = reserve(index, size, bytes);
  if (!buffer) {
    std::byte* const data = static_cast<std::byte*>(system_allocate(size));
    if (!data) {
      unreserve(size);
      refuse(bytes);
    }
    buffer = new Buffer(this);
    buffer->data_ = data;
    buffer->size_class_ = static_cast<int16_t>(index);
  }
  buffer->size_ = bytes;
  return BufferPtr(buffer);
}

BufferPtr Allocator::part_of(const BufferPtr& buffer, int64_t begin, int64_t bytes) {
  LOCKSTEP_CHECK(begin >= 0 && bytes >= 0 && begin + bytes <= buffer->size(), "bytes {} to {} of {}", begin,
                 begin + bytes, buffer->size());
  const auto destroy = [](void* whole) { delete static_cast<BufferPtr*>(whole); };
  return adopt(buffer->data() + begin, bytes, new BufferPtr(buffer), destroy, buffer->space());
}

BufferPtr Allocator::adopt(void* data, int64_t bytes, void* owner, void (*destroy)(void*), MemorySpace space) {
  auto* buffer = new Buffer(this);
  buffer->data_ = static_cast<std::byte*>(data);
  buffer->size_ = bytes;
  buffer->space_ = space;
  buffer->owner_ = owner;
  buffer->destroy_ = destroy;
  if (space == MemorySpace::device) return BufferPtr(buffer);  // not memory of the host
  const std::lock_guard lock(mutex_);
  stats_.in_use += bytes;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return BufferPtr(buffer);
}

Buffer* Allocator::reserve(int index, int64_t size, int64_t bytes) {
  std::unique_lock lock(mutex_);
  if (stats_.in_use > limit_ - size) {
    lock.unlock();
    refuse(bytes);
  }
  // Counted before it is allocated, so that two threads cannot exceed the limit together.
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  Buffer* const buffer = free_[static_cast<size_t>(index)];
  if (buffer) {
    free_[static_cast<size_t>(index)] = buffer->next_;
    stats_.cached -= size;
  } else {
    ++stats_.system_calls;
    trim_locked(std::max<int64_t>(0, limit_ - stats_.in_use));
  }
  return buffer;
}

void Allocator::unreserve(int64_t size) {
  const std::lock_guard lock(mutex_);
  stats_.in_use -= size;
}

void Allocator::refuse(int64_t bytes) const {
  throw OutOfMemory(
      fmt::format("allocate: {} bytes requested, {} in use, limit {}; use smaller arrays or a smaller batch, or shard "
                  "them over more processes",
                  bytes, stats().in_use, limit_));
}

void Allocator::recycle(Buffer* buffer) {
  if (buffer->destroy_) {
    buffer->destroy_(buffer->owner_);
    if (buffer->space_ != MemorySpace::device) unreserve(buffer->size_);
    delete buffer;
    return;
  }
  const int64_t size = class_bytes(buffer->size_class_);
  const std::lock_guard lock(mutex_);
  stats_.in_use -= size;
  Buffer*& head = free_[static_cast<size_t>(buffer->size_class_)];
  buffer->next_ = head;
  head = buffer;
  stats_.cached += size;
  trim_locked(kKeepFreedMemory ? std::max(cache_, stats_.in_use) : 0);
}

void Allocator::trim(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  trim_locked(bytes);
}

void Allocator::trim_locked(int64_t bytes) {
  // Largest first: that needs the fewest calls, and large blocks are the least likely to be reused.
  for (int index = kClasses; stats_.cached > bytes && index-- > 0;) {
    Buffer*& head = free_[static_cast<size_t>(index)];
    while (head && stats_.cached > bytes) {
      Buffer* const buffer = std::exchange(head, head->next_);
      stats_.cached -= class_bytes(index);
      system_free(buffer->data_);
      delete buffer;
    }
  }
}

std::byte* Arena::reserve(int64_t bytes) {
  if (!buffer_ || buffer_->size() < bytes) {
    buffer_.reset();  // first, so that the old and the new block do not exist at the same time
    buffer_ = Allocator::host().allocate(bytes);
  }
  return buffer_->data();
}

AllocatorStats Allocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace lockstep
