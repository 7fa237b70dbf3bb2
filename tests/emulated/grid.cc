#include "emulated/grid.h"

#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

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

struct Thread {
  jmp_buf place;
  char* stack = nullptr;
  bool begun = false, ended = false;
  const Meeting* waits_for = nullptr;
  unsigned waits_since = 0;
  std::vector<Copy> sent;
  std::deque<std::vector<Copy>> groups;

  bool can_go_on() const { return !ended && (!waits_for || waits_for->times != waits_since); }
};

struct Warp {
  Meeting meeting;
  alignas(16) char memory[kWarp * kLaneBytes];
};

class Block {
 public:
  explicit Block(const std::function<void()>& thread) : body_(thread), threads_(block_size.x) {
    warps_.resize((threads_.size() + kWarp - 1) / kWarp);
    all_.alive = static_cast<int>(threads_.size());
    for (size_t t = 0; t < threads_.size(); ++t) ++warps_[t / kWarp].meeting.alive;
  }

  void run() {
    current = this;
    Clock::time_point moved = Clock::now();
    for (bool backwards = false; all_.alive > 0; backwards = !backwards) {
      bool any = false;
      moved_ = false;
      for (size_t i = 0; i < threads_.size(); ++i) {
        const size_t t = backwards ? threads_.size() - 1 - i : i;
        if (!threads_[t].can_go_on()) continue;
        any = true;
        resume(t);
      }
      if (!any) give_up("all threads wait, and not all for the same: some would wait for ever");
      const Clock::time_point now = Clock::now();
      if (moved_) {
        moved = now;
      } else {
        if (now - moved > kPatience) give_up("waits for another block, and nothing came for two minutes");
        ::sched_yield();
      }
    }
    current = nullptr;
  }

  static thread_local Block* current;

  Thread& self() { return threads_[at_]; }
  Warp& warp() { return warps_[at_ / kWarp]; }
  Meeting& all() { return all_; }

  void wait_for(Meeting& meeting) {
    moved_ = true;
    self().waits_for = &meeting;
    self().waits_since = meeting.times;
    leave();
    self().waits_for = nullptr;
  }
  void leave() {
    if (_setjmp(self().place) == 0) _longjmp(scheduler_, 1);
  }

 private:
  void resume(size_t t) {
    at_ = t;
    thread_index.x = static_cast<unsigned>(t);
    Thread& thread = threads_[t];
    if (_setjmp(scheduler_) != 0) {
      if (!thread.ended) return;
      if (Stacks::is_full(thread.stack)) give_up("its stack is full");
      Stacks::all().give_back(thread.stack);
      return;
    }
    if (thread.begun) _longjmp(thread.place, 1);
    thread.begun = true;
    thread.stack = Stacks::all().take();
    ucontext_t begin;
    ::getcontext(&begin);
    begin.uc_stack.ss_sp = thread.stack;
    begin.uc_stack.ss_size = kStack;
    begin.uc_link = nullptr;
    ::makecontext(
        &begin, [] { current->be_thread(); }, 0);
    ::setcontext(&begin);
  }
  void be_thread() {
    body_();
    moved_ = true;
    self().ended = true;
    // Those who are left need not wait for it.
    for (Meeting* meeting : {&all_, &warp().meeting}) {
      --meeting->alive;
      if (meeting->is_complete()) meeting->end();
    }
    _longjmp(scheduler_, 1);
  }

  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Meeting all_;
  size_t at_ = 0;
  bool moved_ = false;  // somebody did more than look
  jmp_buf scheduler_;
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
  Block::current->self().sent.push_back({to, from, bytes, inside});
}

void end_group() {
  Thread& self = Block::current->self();
  self.groups.push_back(std::exchange(self.sent, {}));
}

void wait_for_groups(int left) {
  Thread& self = Block::current->self();
  for (; self.groups.size() > static_cast<size_t>(left); self.groups.pop_front())
    for (const Copy& copy : self.groups.front()) {
      if (copy.inside)
        std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      else
        std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
    }
}

void run_grid(Index grid, Index block, size_t shared_bytes, const std::function<void()>& thread) {
  std::vector<std::thread> workers;
  if (grid.x <= kSideBySide) {
    for (unsigned b = 0; b < grid.x; ++b)
      workers.emplace_back([&, b] { run_block(b, grid, block, shared_bytes, thread); });
  } else {
    static std::atomic<unsigned> next;
    next = 0;
    for (unsigned w = 0; w < std::max(1u, std::thread::hardware_concurrency()); ++w)
      workers.emplace_back([&] {
        for (unsigned b; (b = next++) < grid.x;) run_block(b, grid, block, shared_bytes, thread);
      });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace emulated
