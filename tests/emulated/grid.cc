#include "emulated/grid.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "emulated/fiber.h"

__thread char shared[kSharedBytes] __attribute__((aligned(1024)));

namespace emulated {

__thread Index thread_index, block_index, block_size, grid_size;

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kStack = 128 << 10;
constexpr unsigned kMaxConcurrent = 256;  // blocks
constexpr int kPoison = 0xff;             // floats of such bytes are NaN
constexpr std::chrono::seconds kTimeout(120);

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: block %u of %u, thread %u: %s\n", block_index.x, grid_size.x, thread_index.x,
               what);
  std::abort();
}

// Memory for the stacks of threads, mapped in batches: the number of mappings is limited.
class Stacks {
 public:
  char* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      auto* const memory = static_cast<char*>(
          ::mmap(nullptr, kBatch * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      if (memory == MAP_FAILED) fail("no memory for its threads' stacks");
      for (size_t i = 0; i < kBatch; ++i) {
        free_.push_back(memory + i * kStack);
        std::memcpy(free_.back(), &kEnd, sizeof kEnd);
      }
    }
    char* const out = free_.back();
    free_.pop_back();
    return out;
  }
  void give_back(char* stack) {
    const std::lock_guard lock(mutex_);
    free_.push_back(stack);
  }
  // Whether the stack has overflowed.
  static bool has_overflowed(const char* stack) { return std::memcmp(stack, &kEnd, sizeof kEnd) != 0; }

  static Stacks& all() {
    static auto* const instance = new Stacks;
    return *instance;
  }

 private:
  static constexpr size_t kBatch = 512;
  static constexpr uint64_t kEnd = 0x5ca1ab1e0ddba11;
  std::mutex mutex_;
  std::vector<char*> free_;
};

struct Copy {
  void* to;
  const void* from;
  int bytes;
  bool inside;
};

// A barrier for the threads that have not ended.
struct Barrier {
  int arrived = 0, alive = 0;
  unsigned times = 0;

  bool is_complete() const { return arrived > 0 && arrived == alive; }
  void release() {
    arrived = 0;
    ++times;
  }
};

// The state that the scheduler reads in each turn.
struct Thread {
  FiberContext context = nullptr;
  const Barrier* waits_for = nullptr;
  unsigned waits_since = 0;
  bool ended = false;

  bool can_run() const { return !ended && (!waits_for || waits_for->times != waits_since); }
};

struct Product {
  void (*finish)(const void*);
  std::vector<char> bytes;
};

// Pending work, in order, and the end of each pending group.
template <class Work>
struct Groups {
  std::vector<Work> pending;
  std::vector<size_t> groups;

  void commit() { groups.push_back(pending.size()); }
  // Calls finish(work) for all but the last `left` groups.
  template <class Finish>
  void wait(int left, const Finish& finish) {
    if (groups.size() <= static_cast<size_t>(left)) return;
    const size_t done = groups.size() - static_cast<size_t>(left), end = groups[done - 1];
    for (size_t i = 0; i < end; ++i) finish(pending[i]);
    pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(end));
    groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(done));
    for (size_t& group : groups) group -= end;
  }
};

// What a thread has started.
struct Started {
  Groups<Copy> copies;
  Groups<Product> products;
};

struct Warp {
  Barrier barrier;
  alignas(16) char memory[kWarp * kLaneBytes];
};

class Block {
 public:
  explicit Block(const std::function<void()>& thread)
      : body_(thread), threads_(block_size.x), stacks_(block_size.x), started_(block_size.x) {
    warps_.resize((threads_.size() + kWarp - 1) / kWarp);
    all_.alive = static_cast<int>(threads_.size());
    for (size_t t = 0; t < threads_.size(); ++t) ++warps_[t / kWarp].barrier.alive;
  }

  void run() {
    current = this;
    Clock::time_point moved = Clock::now();
    for (bool backwards = false; all_.alive > 0; backwards = !backwards) {
      bool any = false, moved_any = false;
      for (size_t w = 0; w < warps_.size(); ++w) {
        const size_t first = (backwards ? warps_.size() - 1 - w : w) * kWarp;
        // A warp runs as far as it can: its data is in the cache then.
        do {
          moved_ = false;
          any |= run_warp(first, std::min<size_t>(threads_.size() - first, kWarp), backwards);
          moved_any |= moved_;
        } while (moved_);
      }
      if (!any) fail("deadlock: all threads wait, but not at the same barrier");
      const Clock::time_point now = Clock::now();
      if (moved_any) {
        moved = now;
      } else {
        if (now - moved > kTimeout) fail("deadlock: waited two minutes for another block");
        ::sched_yield();
      }
    }
    current = nullptr;
  }

  static thread_local Block* current;

  Started& started() { return started_[at_]; }
  Warp& warp() { return warps_[at_ / kWarp]; }
  Barrier& all() { return all_; }

  void wait_for(Barrier& barrier) {
    Thread& self = threads_[at_];
    moved_ = true;
    self.waits_for = &barrier;
    self.waits_since = barrier.times;
    emulated_switch_fiber(&self.context, scheduler_);
    self.waits_for = nullptr;
  }
  void yield() { emulated_switch_fiber(&threads_[at_].context, scheduler_); }

 private:
  // Runs each thread of a warp that can run, in turn. Returns whether there was one.
  bool run_warp(size_t first, size_t count, bool backwards) {
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      const size_t t = first + (backwards ? count - 1 - i : i);
      if (!threads_[t].can_run()) continue;
      any = true;
      if (i + kAhead < count) fetch(threads_[backwards ? t - kAhead : t + kAhead].context);
      resume(t);
    }
    return any;
  }

  // Prefetches what a switch reads into the cache: a turn is shorter than a cache miss.
  static constexpr size_t kAhead = 2;  // turns
  static void fetch(FiberContext context) {
    for (int line = 0; line < 4; ++line) __builtin_prefetch(static_cast<const char*>(context) + line * 64);
  }

  void resume(size_t t) {
    at_ = t;
    thread_index.x = static_cast<unsigned>(t);
    Thread& thread = threads_[t];
    if (!thread.context) {
      stacks_[t] = Stacks::all().take();
      // Different offsets, so that stacks do not map to the same cache sets.
      thread.context = make_fiber(stacks_[t], kStack - t % 128 * 192, [] { current->run_thread(); });
    }
    emulated_switch_fiber(&scheduler_, thread.context);
    if (!thread.ended) return;
    if (Stacks::has_overflowed(stacks_[t])) fail("stack overflow");
    Stacks::all().give_back(stacks_[t]);
  }
  void run_thread() {
    body_();
    moved_ = true;
    threads_[at_].ended = true;
    // The remaining threads do not wait for it.
    for (Barrier* barrier : {&all_, &warp().barrier}) {
      --barrier->alive;
      if (barrier->is_complete()) barrier->release();
    }
    yield();
  }

  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  std::vector<char*> stacks_;
  std::vector<Started> started_;
  std::vector<Warp> warps_;
  Barrier all_;
  size_t at_ = 0;
  bool moved_ = false;  // a thread did more than poll
  FiberContext scheduler_ = nullptr;
};

thread_local Block* Block::current = nullptr;

void run_block(unsigned number, Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread) {
  block_index = {number, 0, 0};
  grid_size = grid;
  block_size = block;
  std::memset(shared, kPoison, kSharedBytes);
  Block(thread).run();
  const auto untouched = [](char c) { return static_cast<unsigned char>(c) == kPoison; };
  if (!std::all_of(shared + shared_bytes, shared + kSharedBytes, untouched))
    fail("wrote past the requested shared memory");
}

// Persistent threads that run blocks, one grid after another.
class BlockThreads {
 public:
  // Calls work(0) to work(count - 1) concurrently.
  void run(unsigned count, const std::function<void(unsigned)>& work) {
    const std::lock_guard one(grid_);
    std::unique_lock lock(mutex_);
    work_ = &work;
    count_ = left_ = count;
    ++times_;
    try {
      for (; size_ < count; ++size_) std::thread([this, i = size_, times = times_ - 1] { serve(i, times); }).detach();
    } catch (const std::system_error& error) {
      fail(error.what());
    }
    changed_.notify_all();
    done_.wait(lock, [&] { return left_ == 0; });
  }

  static BlockThreads& all() {
    static auto* const instance = new BlockThreads;
    return *instance;
  }

 private:
  void serve(unsigned number, uint64_t times) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return times_ != times; });
      times = times_;
      if (number >= count_) continue;
      const std::function<void(unsigned)>& work = *work_;
      lock.unlock();
      work(number);
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex grid_, mutex_;
  std::condition_variable changed_, done_;
  const std::function<void(unsigned)>* work_ = nullptr;
  unsigned size_ = 0, count_ = 0, left_ = 0;
  uint64_t times_ = 0;
};

}  // namespace

void yield() { Block::current->yield(); }

void sync_block() {
  Barrier& all = Block::current->all();
  if (++all.arrived == all.alive)
    all.release();
  else
    Block::current->wait_for(all);
}

void sync_warp(void (*last)()) {
  Barrier& barrier = Block::current->warp().barrier;
  if (++barrier.arrived == barrier.alive) {
    last();
    barrier.release();
  } else {
    Block::current->wait_for(barrier);
  }
}

char* warp_memory() { return Block::current->warp().memory; }

void start_copy(void* to, const void* from, int bytes, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % static_cast<unsigned>(bytes) != 0 ||
      reinterpret_cast<uintptr_t>(from) % static_cast<unsigned>(bytes) != 0)
    fail("an asynchronous copy with unaligned addresses");
  std::memset(to, kPoison, static_cast<size_t>(bytes));
  Block::current->started().copies.pending.push_back({to, from, bytes, inside});
}

void commit_copies() { Block::current->started().copies.commit(); }

void wait_for_copies(int left) {
  Block::current->started().copies.wait(left, [](const Copy& copy) {
    if (copy.inside)
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    else
      std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
  });
}

void start_product(void (*finish)(const void*), const void* product, unsigned long bytes) {
  const auto* const from = static_cast<const char*>(product);
  Block::current->started().products.pending.push_back({finish, std::vector<char>(from, from + bytes)});
}

void commit_products() { Block::current->started().products.commit(); }

void wait_for_products(int left) {
  Block::current->started().products.wait(left, [](const Product& x) { x.finish(x.bytes.data()); });
}

void run_grid(Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread) {
  if (grid.x <= kMaxConcurrent)
    return BlockThreads::all().run(grid.x, [&](unsigned b) { run_block(b, grid, block, shared_bytes, thread); });
  std::atomic<unsigned> next = 0;
  BlockThreads::all().run(std::max(1u, std::thread::hardware_concurrency()), [&](unsigned) {
    for (unsigned b; (b = next++) < grid.x;) run_block(b, grid, block, shared_bytes, thread);
  });
}

}  // namespace emulated
