// How a region runs. `state_` packs
//
//   bits 16..31  the number of the region, modulo 2^16
//   bit  15      open: workers may join
//   bits 0..14   the number of workers that have joined and not yet left
//
// The caller fills in the region's fields, then publishes it by adding one to the number and the open bit. A worker
// that sees an open region it has not served joins by adding one, and takes that back if the region was closed
// meanwhile. It takes tasks from the counter until none is left, and subtracts one. The caller takes tasks too, then
// clears the open bit and waits for the workers that joined. It does not wait for workers that were asleep or
// descheduled: they find the region closed. That keeps a region short on a busy machine.
//
// Workers that have slept are woken in two steps: the caller wakes one, which wakes the others. Waking takes a
// microsecond or two for each of them, which the caller spends on tasks instead.
#include "lane/pool.h"

#include <chrono>
#include <new>

#include "base/check.h"
#include "lane/cpus.h"
#include "lane/memory.h"
#include "lane/pause.h"

namespace lockstep {

namespace {

constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kJoined = kOpen - 1;
constexpr uint32_t kNumberShift = 16;
// About as long as it takes to wake the workers of a large machine: the next region of a step usually comes sooner.
constexpr auto kSpin = std::chrono::microseconds(100);
// The share of a caller in the number of sleepers, while it waits for workers to leave.
constexpr int kCaller = 1 << 16;

uint32_t number(uint32_t state) { return state >> kNumberShift; }

// The tasks that the current thread is running, innermost first.
struct Frame {
  const Pool* pool;
  int thread;
  const Frame* outer;
};
thread_local const Frame* innermost = nullptr;

class TaskScope {
 public:
  TaskScope(const Pool* pool, int thread) : frame_{pool, thread, innermost} { innermost = &frame_; }
  ~TaskScope() { innermost = frame_.outer; }
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;

 private:
  Frame frame_;
};

struct Waited {
  uint32_t state = 0;
  bool slept = false;
};

// Waits until done(state) holds, spinning first and sleeping after, and returns that state. Asleep, it adds `weight` to
// the sleepers.
template <class Done>
Waited wait_until(std::atomic<uint32_t>& state, std::atomic<int>& sleepers, int weight, Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (const uint32_t now = state.load(std::memory_order_acquire); done(now)) return {now, false};
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  // Sequentially consistent, as are a change of the state and the look for sleepers after it: either we see the new
  // state or its writer sees the sleeper.
  sleepers.fetch_add(weight);
  for (;;) {
    const uint32_t now = state.load();
    if (done(now)) {
      sleepers.fetch_sub(weight);
      return {now, true};
    }
    state.wait(now, std::memory_order_acquire);
  }
}

}  // namespace

Pool::Pool(const PoolConfig& options) {
  if (options.threads < 0)
    throw_error("pool: {} threads requested; use at least 1, or 0 for one per CPU", options.threads);
  threads_ = std::min(options.threads > 0 ? options.threads : compute_threads(), static_cast<int>(kJoined));
  scratch_.resize(static_cast<size_t>(threads_));
  workers_.reserve(static_cast<size_t>(threads_ - 1));
  for (int thread = 1; thread < threads_; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
  stop_.store(true);
  // A new number without the open bit: wakes every worker, none of which can join.
  state_.fetch_add(1u << kNumberShift);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  for (Scratch& scratch : scratch_)
    for (Memory& memory : scratch.slots) system_free(memory.data);
}

void Pool::run(int64_t tasks, Task task) {
  if (tasks <= 0) return;
  for (const Frame* frame = innermost; frame; frame = frame->outer)
    if (frame->pool == this) return run_inline(tasks, task, frame->thread);
  // Also for a single task: its scratch memory is that of thread 0.
  const std::lock_guard lock(callers_);
  if (tasks == 1 || threads_ == 1) {
    const TaskScope scope(this, 0);
    return run_inline(tasks, task, 0);
  }
  run_region(tasks, task);
}

void Pool::run_inline(int64_t tasks, Task task, int thread) {
  for (int64_t i = 0; i < tasks; ++i) task(i, thread);
}

void Pool::run_region(int64_t tasks, Task task) {
  task_ = task;
  tasks_.store(tasks, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
  // An addition, because a worker that came too late for the last region may not have taken back its one yet.
  state_.fetch_add((1u << kNumberShift) + kOpen);
  if (sleepers_.load() > 0) state_.notify_one();
  take_tasks(0);
  if ((state_.fetch_and(~kOpen) & kJoined) != 0)
    wait_until(state_, sleepers_, kCaller, [](uint32_t state) { return (state & kJoined) == 0; });
  if (error_) [[unlikely]]
    std::rethrow_exception(std::exchange(error_, nullptr));
}

void Pool::take_tasks(int thread) {
  const TaskScope scope(this, thread);
  const Task task = task_;
  const int64_t tasks = tasks_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= tasks) return;
    try {
      task(i, thread);
    } catch (...) {
      next_.store(tasks, std::memory_order_relaxed);
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

void Pool::work(int thread) {
  uint32_t served = 0;
  for (;;) {
    const auto is_new = [&](uint32_t now) { return number(now) != served; };
    const Waited waited = wait_until(state_, sleepers_, 1, is_new);
    if (stop_.load()) return;
    if (waited.slept && sleepers_.load() > 0) state_.notify_all();
    served = number(waited.state);
    // Only the first threads join a region of few tasks; the others would only contend for the counter.
    const int64_t tasks = tasks_.load(std::memory_order_relaxed);
    if ((waited.state & kOpen) == 0 || thread >= tasks || next_.load(std::memory_order_relaxed) >= tasks) continue;
    const uint32_t before = state_.fetch_add(1, std::memory_order_acquire);
    if ((before & kOpen) != 0 && number(before) == served) take_tasks(thread);
    if (((state_.fetch_sub(1) - 1) & (kOpen | kJoined)) == 0 && sleepers_.load() >= kCaller) state_.notify_all();
  }
}

void Pool::grow(Memory& memory, int64_t bytes) {
  // At least 1.5 times as large, so that a slowly growing demand causes few allocations; a multiple of a page.
  const int64_t size = (std::max(bytes, memory.bytes + memory.bytes / 2) + 4095) / 4096 * 4096;
  system_free(memory.data);
  memory = {};
  memory.data = system_allocate(size);
  if (!memory.data)
    throw OutOfMemory(
        fmt::format("pool: cannot allocate {} bytes of scratch memory for a thread; the machine has {}; "
                    "use smaller arrays or fewer threads",
                    size, machine_memory()));
  memory.bytes = size;
}

}  // namespace lockstep
