// Buffer: reference-counted memory, and the caching allocator it comes from. Reference counting and allocation are safe
// from any thread; access to the memory is not synchronized.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace lockstep {

class Allocator;

// Where memory is. A program on the CPU uses host memory, pinned or not; a program on a GPU uses the memory of that GPU.
enum class MemorySpace : uint8_t { host, pinned, device };

// Memory of a fixed size, aligned to 64 bytes (2 MiB from 2 MiB on), initially undefined. Made by Allocator::allocate,
// held by BufferPtr, returned to its allocator when the last BufferPtr is destroyed.
class Buffer {
 public:
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  MemorySpace space() const { return space_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  // Whether exactly one BufferPtr holds this buffer: then its holder may write to it or donate it.
  bool unique() const { return references() == 1; }
  int references() const { return references_.load(std::memory_order_acquire); }

 private:
  friend class Allocator;
  friend class BufferPtr;
  explicit Buffer(Allocator* allocator) : allocator_(allocator) {}

  std::atomic<int32_t> references_{0};
  int16_t size_class_ = 0;
  MemorySpace space_ = MemorySpace::host;
  int64_t size_ = 0;
  std::byte* data_ = nullptr;
  void* owner_ = nullptr;  // adopted memory only: destroyed instead of caching the block
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
    if (buffer_ && buffer_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) release(buffer_);
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
  static void release(Buffer* buffer);

  Buffer* buffer_ = nullptr;
};

struct AllocatorOptions {
  int64_t limit = 0;                   // bytes that may be in use; 0: machine_memory()
  int64_t cache = int64_t{256} << 20;  // free bytes to cache at most; if more bytes are in use: that many
};

struct AllocatorStats {
  int64_t in_use = 0;        // bytes held by live buffers, rounded up to their size classes
  int64_t peak = 0;          // maximum of in_use
  int64_t cached = 0;        // bytes kept for reuse
  int64_t system_calls = 0;  // allocations from the system; constant in a steady state
};

// Caches freed memory in free lists by size class (steps of an eighth of a power of two, at least 64 bytes). In a
// steady state it calls neither the system nor the heap. Under AddressSanitizer nothing is cached, so that use after
// free is detected. An allocator must outlive its buffers.
class Allocator {
 public:
  explicit Allocator(const AllocatorOptions& options = {});
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // The process-wide allocator of host memory. Never destroyed.
  static Allocator& host();

  // Throws OutOfMemory, before touching memory, if `bytes` plus the bytes in use exceed the limit, and if the system
  // refuses. REQUIRES: bytes >= 0.
  BufferPtr allocate(int64_t bytes);

  // Makes a buffer of memory that `owner` holds; calls destroy(owner) when the last reference is gone. `data` needs
  // only the alignment of its element type.
  BufferPtr adopt(void* data, int64_t bytes, void* owner, void (*destroy)(void*),
                  MemorySpace space = MemorySpace::host);
  // A part of a buffer, which stays alive as long as the part. REQUIRES: the range is inside of it.
  BufferPtr part_of(const BufferPtr& buffer, int64_t begin, int64_t bytes);

  // Frees cached memory until at most `bytes` are cached.
  void trim(int64_t bytes = 0);

  AllocatorStats stats() const;

 private:
  friend class BufferPtr;
  static constexpr int kClasses = 8 * 60;
  // Counts `size` bytes as in use. Returns a cached block of that class, or null if none is cached.
  Buffer* reserve(int index, int64_t size, int64_t bytes);
  void unreserve(int64_t size);
  [[noreturn]] void refuse(int64_t bytes) const;
  // Caches the memory of a buffer that is no longer used; destroys adopted memory.
  void recycle(Buffer* buffer);
  void trim_locked(int64_t bytes);

  int64_t limit_;
  int64_t cache_;
  mutable std::mutex mutex_;
  AllocatorStats stats_;
  std::array<Buffer*, kClasses> free_{};
};

// The memory for temporaries that the programs of a lane use one after another. Not thread-safe: the lane's mutex
// guards it.
class Arena {
 public:
  // Returns memory of at least `bytes`: the same as before unless it had to grow. Contents are undefined.
  std::byte* reserve(int64_t bytes);

 private:
  BufferPtr buffer_;
};

// A buffer from Allocator::host().
inline BufferPtr allocate(int64_t bytes) { return Allocator::host().allocate(bytes); }

}  // namespace lockstep
