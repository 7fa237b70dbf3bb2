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

#include "emulated/places.h"

__thread char shared[kBlockMemory] __attribute__((aligned(128)));

namespace emulated {

__thread Index thread_index, block_index, block_size, grid_size;

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kStack = 128 << 10;
constexpr unsigned kSideBySide = 256;  // blocks
constexpr int kSpoilt = 0xff;          // floats of such bytes are NaN
constexpr std::chrono::seconds kPatience(120);

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "emulated GPU: block %u of %u, thread %u: %s\n", block_index.x, grid_size.x, thread_index.x,
               what);
  std::abort();
}

// Memory for the stacks of threads, some hundred at a time: of mappings there are not enough for one each.
class Stacks {
 public:
  char* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      auto* const memory = static_cast<char*>(::mmap(nullptr, kTogether * kStack, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      if (memory == MAP_FAILED) give_up("no memory for its threads");
      for (size_t i = 0; i < kTogether; ++i) {
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
  // Has all of it been used, and more?
  static bool is_full(const char* stack) { return std::memcmp(stack, &kEnd, sizeof kEnd) != 0; }

  static Stacks& all() {
    static auto* const instance = new Stacks;
    return *instance;
  }

 private:
  static constexpr size_t kTogether = 512;
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

// Those who wait for each other.
struct Meeting {
  int here = 0, alive = 0;
  unsigned times = 0;

  bool is_complete() const { return here > 0 && here == alive; }
  void end() {
    here = 0;
    ++times;
  }
};

// What is looked at whenever it is its turn.
struct Thread {
  Place place = nullptr;
  const Meeting* waits_for = nullptr;
  unsigned waits_since = 0;
  bool ended = false;

  bool can_go_on() const { return !ended && (!waits_for || waits_for->times != waits_since); }
};

// Copies on their way, in order, and where each group ends that has not come.
struct Copies {
  std::vector<Copy> sent;
  std::vector<size_t> groups;
};

struct Warp {
  Meeting meeting;
  alignas(16) char memory[kWarp * kLaneBytes];
};

class Block {
 public:
  explicit Block(const std::function<void()>& thread)
      : body_(thread), threads_(block_size.x), stacks_(block_size.x), copies_(block_size.x) {
    warps_.resize((threads_.size() + kWarp - 1) / kWarp);
    all_.alive = static_cast<int>(threads_.size());
    for (size_t t = 0; t < threads_.size(); ++t) ++warps_[t / kWarp].meeting.alive;
  }

  void run() {
    current = this;
    Clock::time_point moved = Clock::now();
    for (bool backwards = false; all_.alive > 0; backwards = !backwards) {
      bool any = false, moved_any = false;
      for (size_t w = 0; w < warps_.size(); ++w) {
        const size_t first = (backwards ? warps_.size() - 1 - w : w) * kWarp;
        // A warp goes on as far as it can by itself: what its threads use is at hand then.
        do {
          moved_ = false;
          any |= run_warp(first, std::min<size_t>(threads_.size() - first, kWarp), backwards);
          moved_any |= moved_;
        } while (moved_);
      }
      if (!any) give_up("all threads wait, and not all for the same: some would wait for ever");
      const Clock::time_point now = Clock::now();
      if (moved_any) {
        moved = now;
      } else {
        if (now - moved > kPatience) give_up("waits for another block, and nothing came for two minutes");
        ::sched_yield();
      }
    }
    current = nullptr;
  }

  static thread_local Block* current;

  Copies& copies() { return copies_[at_]; }
  Warp& warp() { return warps_[at_ / kWarp]; }
  Meeting& all() { return all_; }

  void wait_for(Meeting& meeting) {
    Thread& self = threads_[at_];
    moved_ = true;
    self.waits_for = &meeting;
    self.waits_since = meeting.times;
    emulated_go_on(&self.place, scheduler_);
    self.waits_for = nullptr;
  }
  void leave() { emulated_go_on(&threads_[at_].place, scheduler_); }

 private:
  // Each of so many threads that can, in turn. Were there any?
  bool run_warp(size_t first, size_t count, bool backwards) {
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      const size_t t = first + (backwards ? count - 1 - i : i);
      if (!threads_[t].can_go_on()) continue;
      any = true;
      if (i + kAhead < count) fetch(threads_[backwards ? t - kAhead : t + kAhead].place);
      resume(t);
    }
    return any;
  }

  // Into the processor's cache, of which a turn lasts less than a miss: what it takes to go on there.
  static constexpr size_t kAhead = 2;  // turns
  static void fetch(Place place) {
    for (int line = 0; line < 4; ++line) __builtin_prefetch(static_cast<const char*>(place) + line * 64);
  }

  void resume(size_t t) {
    at_ = t;
    thread_index.x = static_cast<unsigned>(t);
    Thread& thread = threads_[t];
    if (!thread.place) {
      stacks_[t] = Stacks::all().take();
      // Not at the same distance from each other: those would take each other's place in the cache.
      thread.place = beginning(stacks_[t], kStack - t % 128 * 192, [] { current->be_thread(); });
    }
    emulated_go_on(&scheduler_, thread.place);
    if (!thread.ended) return;
    if (Stacks::is_full(stacks_[t])) give_up("its stack is full");
    Stacks::all().give_back(stacks_[t]);
  }
  void be_thread() {
    body_();
    moved_ = true;
    threads_[at_].ended = true;
    // Those who are left need not wait for it.
    for (Meeting* meeting : {&all_, &warp().meeting}) {
      --meeting->alive;
      if (meeting->is_complete()) meeting->end();
    }
    leave();
  }

  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  std::vector<char*> stacks_;
  std::vector<Copies> copies_;
  std::vector<Warp> warps_;
  Meeting all_;
  size_t at_ = 0;
  bool moved_ = false;  // somebody did more than look
  Place scheduler_ = nullptr;
};

thread_local Block* Block::current = nullptr;

void run_block(unsigned number, Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread) {
  block_index = {number, 0, 0};
  grid_size = grid;
  block_size = block;
  std::memset(shared, kSpoilt, kBlockMemory);
  Block(thread).run();
  const auto spoilt = [](char c) { return static_cast<unsigned char>(c) == kSpoilt; };
  if (!std::all_of(shared + shared_bytes, shared + kBlockMemory, spoilt))
    give_up("wrote behind the block's memory that was asked for");
}

// Threads that stay, for blocks: one grid after the other.
class Crew {
 public:
  // Calls work(0) to work(count - 1), all at the same time.
  void run(unsigned count, const std::function<void(unsigned)>& work) {
    const std::lock_guard one(grid_);
    std::unique_lock lock(mutex_);
    work_ = &work;
    count_ = left_ = count;
    ++times_;
    try {
      for (; size_ < count; ++size_) std::thread([this, i = size_, times = times_ - 1] { serve(i, times); }).detach();
    } catch (const std::system_error& error) {
      give_up(error.what());
    }
    changed_.notify_all();
    done_.wait(lock, [&] { return left_ == 0; });
  }

  static Crew& all() {
    static auto* const instance = new Crew;
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

void give_way() { Block::current->leave(); }

void meet_block() {
  Meeting& all = Block::current->all();
  if (++all.here == all.alive)
    all.end();
  else
    Block::current->wait_for(all);
}

void meet_warp(void (*last)()) {
  Meeting& meeting = Block::current->warp().meeting;
  if (++meeting.here == meeting.alive) {
    last();
    meeting.end();
  } else {
    Block::current->wait_for(meeting);
  }
}

char* warp_memory() { return Block::current->warp().memory; }

void send_for(void* to, const void* from, int bytes, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % static_cast<unsigned>(bytes) != 0 ||
      reinterpret_cast<uintptr_t>(from) % static_cast<unsigned>(bytes) != 0)
    give_up("an asynchronous copy between places that are not aligned");
  std::memset(to, kSpoilt, static_cast<size_t>(bytes));
  Block::current->copies().sent.push_back({to, from, bytes, inside});
}

void end_group() {
  Copies& self = Block::current->copies();
  self.groups.push_back(self.sent.size());
}

void wait_for_groups(int left) {
  Copies& self = Block::current->copies();
  if (self.groups.size() <= static_cast<size_t>(left)) return;
  const size_t done = self.groups.size() - static_cast<size_t>(left), end = self.groups[done - 1];
  for (size_t i = 0; i < end; ++i) {
    const Copy& copy = self.sent[i];
    if (copy.inside)
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    else
      std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
  }
  self.sent.erase(self.sent.begin(), self.sent.begin() + static_cast<std::ptrdiff_t>(end));
  self.groups.erase(self.groups.begin(), self.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (size_t& group : self.groups) group -= end;
}

void run_grid(Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread) {
  if (grid.x <= kSideBySide)
    return Crew::all().run(grid.x, [&](unsigned b) { run_block(b, grid, block, shared_bytes, thread); });
  std::atomic<unsigned> next = 0;
  Crew::all().run(std::max(1u, std::thread::hardware_concurrency()), [&](unsigned) {
    for (unsigned b; (b = next++) < grid.x;) run_block(b, grid, block, shared_bytes, thread);
  });
}

}  // namespace emulated
