// Buffer: counted host memory, and the caching allocator it comes from. Counting and allocating are safe from any
// thread; the memory itself has no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace lockstep {

class Allocator;

// Memory of a fixed size, aligned to 64 bytes (2 MiB from 2 MiB on), contents undefined at first. Made by
// Allocator::allocate, held through BufferPtr, returned to its allocator with the last one.
class Buffer {
 public:
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  // Whether exactly one BufferPtr holds this buffer: then its holder may write into it, or give it away.
  bool unique() const { return references() == 1; }
  int references() const { return references_.load(std::memory_order_acquire); }

 private:
  friend class Allocator;
  friend class BufferPtr;
  explicit Buffer(Allocator* allocator) : allocator_(allocator) {}

  std::atomic<int32_t> references_{0};
  int32_t size_class_ = 0;
  int64_t size_ = 0;
  std::byte* data_ = nullptr;
  void* owner_ = nullptr;  // adopted memory: what to destroy instead of keeping the block
  void (*destroy_)(void*) = nullptr;
  Allocator* allocator_;
  Buffer* next_ = nullptr;  // in the allocator's free list
};

// A counted reference to a Buffer, or null.
class BufferPtr {
 public:
  BufferPtr() = default;
  BufferPtr(std::nullptr_t) {}
  BufferPtr(const BufferPtr& other) : buffer_(other.buffer_) {
    if (buffer_) buffer_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  BufferPtr(BufferPtr&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferPtr& operator=(BufferPtr other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferPtr() {
    if (buffer_ && buffer_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) give_back(buffer_);
  }

  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }
  bool operator==(const BufferPtr&) const = default;
  void reset() { *this = BufferPtr(); }

 private:
  friend class Allocator;
  explicit BufferPtr(Buffer* buffer) : buffer_(buffer) { buffer_->references_.store(1, std::memory_order_relaxed); }
  static void give_back(Buffer* buffer);

  Buffer* buffer_ = nullptr;
};

struct AllocatorOptions {
  int64_t limit = 0;                   // bytes in use at once; 0: machine_memory()
  int64_t cache = int64_t{256} << 20;  // free bytes kept at least; when more than this is in use, as much as that
};

struct AllocatorStats {
  int64_t in_use = 0;        // bytes held by live buffers, rounded up to their size classes
  int64_t peak = 0;          // the most in_use has been
  int64_t cached = 0;        // bytes kept for reuse
  int64_t system_calls = 0;  // allocations the system had to serve: constant in a steady state
};

// Buffers whose memory is kept for reuse in free lists by size class (steps of an eighth of a power of two, at least 64
// bytes). In a steady state it neither asks the system nor the heap. Under AddressSanitizer nothing is kept, so that
// use after free is seen. An allocator must outlive its buffers.
class Allocator {
 public:
  explicit Allocator(const AllocatorOptions& options = {});
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // The process's allocator of host memory. Never destroyed.
  static Allocator& host();

  // Throws OutOfMemory, before any memory is touched, when `bytes` and what is in use exceed the limit, and when the
  // system refuses. REQUIRES: bytes >= 0.
  BufferPtr allocate(int64_t bytes);

  // A buffer over memory that `owner` holds; destroy(owner) runs with the last reference. Any alignment the element
  // type has.
  BufferPtr adopt(void* data, int64_t bytes, void* owner, void (*destroy)(void*));

  // Gives cached memory back to the system until at most `bytes` are cached.
  void trim(int64_t bytes = 0);

  AllocatorStats stats() const;

 private:
  friend class BufferPtr;
  static constexpr int kClasses = 8 * 60;
  // Counts `size` bytes as in use and returns a cached block of that class, or null when the system must be asked.
  Buffer* reserve(int index, int64_t size, int64_t bytes);
  void unreserve(int64_t size);
  [[noreturn]] void refuse(int64_t bytes) const;
  void take_back(Buffer* buffer);
  void trim_locked(int64_t bytes);

  int64_t limit_;
  int64_t cache_;
  mutable std::mutex mutex_;
  AllocatorStats stats_;
  std::array<Buffer*, kClasses> free_{};
};

// Work space that the programs of a lane use one after another. Not safe from several threads: its lane's lock guards
// it.
class Arena {
 public:
  // Memory of at least `bytes`, the same as last time unless it had to grow. Contents are undefined.
  std::byte* reserve(int64_t bytes);

 private:
  BufferPtr buffer_;
};

// A buffer from Allocator::host().
inline BufferPtr allocate(int64_t bytes) { return Allocator::host().allocate(bytes); }

}  // namespace lockstep
