#include "comm/queued.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// A group of one rank that records its operations. An operation blocks until allow() permits it.
class BlockingComm final : public QueuedComm {
 public:
  // Nothing is checked periodically: a thread that is not woken does not continue.
  explicit BlockingComm(int allowed)
      : QueuedComm(0, 1, "fake", kDefaultTimeout, std::chrono::hours(1)), allowed_(allowed) {}
  ~BlockingComm() override { stop(); }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    aborted_ = reason;
    changed_.notify_all();
  }
  void allow(int more) {
    const std::lock_guard lock(mutex_);
    allowed_ += more;
    changed_.notify_all();
  }
  void wait_until_run(size_t operations) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ran.size() >= operations; });
  }

  // Waits until run() was called so often; false after a minute.
  bool begins(int operations) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return begun_ >= operations; });
  }

  std::vector<int64_t> ran;              // the sizes of the operations that ran, in order
  std::vector<std::thread::id> threads;  // the threads that ran them

 private:
  void run(const Operation& operation, int64_t number, Time deadline) override {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    const auto ready = [&] { return static_cast<int>(ran.size()) < allowed_ || !aborted_.empty(); };
    if (deadline == kNever)
      changed_.wait(lock, ready);
    else if (!changed_.wait_until(lock, deadline, ready))
      throw CommTimeout("too late");
    if (!aborted_.empty()) throw CommAborted(aborted_);
    EXPECT_EQ(number, static_cast<int64_t>(ran.size()) + 1);
    ran.push_back(operation.counts.empty() ? operation.count : operation.counts[0]);
    threads.push_back(std::this_thread::get_id());
    changed_.notify_all();
  }
  std::exception_ptr on_timeout(const Operation&, int64_t number) noexcept override {
    abort("expired");
    return std::make_exception_ptr(CommTimeout("operation " + std::to_string(number) + " has expired"));
  }
  std::unique_ptr<Comm> make_group(const std::vector<int>&, const std::string&) override { return nullptr; }

  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_, begun_ = 0;
  std::string aborted_;
};

constexpr int kMany = 1000;

TEST(QueuedComm, OperationsRunInStartOrder) {
  BlockingComm comm(kMany);
  int value = 0;
  std::vector<Work> works;
  for (int i = 0; i < 50; ++i) works.push_back(comm.start_broadcast(&value, i, i32, 0));
  for (size_t i = works.size(); i-- > 0;) works[i].wait();
  ASSERT_EQ(comm.ran.size(), 50u);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(comm.ran[i], static_cast<int64_t>(i));
}

TEST(QueuedComm, BlockingCallsRunOnTheCallingThread) {
  BlockingComm comm(kMany);
  comm.barrier();
  comm.barrier();
  EXPECT_EQ(comm.threads, std::vector<std::thread::id>(2, std::this_thread::get_id()));
}

TEST(QueuedComm, OperationsRunBeforeTheyAreWaitedFor) {
  BlockingComm comm(kMany);
  Work work = comm.start_barrier();
  comm.wait_until_run(1);
  EXPECT_NE(comm.threads.front(), std::this_thread::get_id());
  work.wait();
}

TEST(QueuedComm, OperationsQueuedDuringABlockingCallRunAfterIt) {
  BlockingComm comm(1);
  comm.start_barrier().wait();  // the worker exists, and sleeps
  std::thread blocking([&] { comm.barrier(); });
  ASSERT_TRUE(comm.begins(2));
  Work queued = comm.start_barrier();  // no thread waits for it yet
  comm.allow(1);
  EXPECT_TRUE(comm.begins(3));
  comm.allow(1);
  queued.wait();
  blocking.join();
}

TEST(QueuedComm, OperationsQueuedDuringABlockingCallRunAfterItFailed) {
  BlockingComm comm(1);
  comm.start_barrier().wait();
  std::thread blocking([&] { EXPECT_THROWS(comm.barrier(), CommAborted, "enough"); });
  ASSERT_TRUE(comm.begins(2));
  Work queued = comm.start_barrier();
  comm.abort("enough");
  EXPECT_TRUE(comm.begins(3));
  EXPECT_THROWS(queued.wait(), CommAborted, "enough");
  blocking.join();
}

// Threads run each other's operations, and wake those that wait for them.
TEST(QueuedComm, NoThreadIsForgotten) {
  BlockingComm comm(1 << 30);
  comm.set_timeout(std::chrono::minutes(1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < 500; ++i) {
          Work first = comm.start_barrier(), second = comm.start_barrier();
          comm.barrier();
          second.wait();
          first.wait();
        }
      } catch (const CommError& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(comm.ran.size(), size_t{4} * 500 * 3);
}

TEST(QueuedComm, ListsAreCopied) {
  BlockingComm comm(0);
  float values[3] = {};
  std::vector<int64_t> counts{3};
  Work first = comm.start_barrier();
  Work second = comm.start_all_gather(values, values, counts, f32);
  counts[0] = 7;
  comm.allow(2);
  first.wait();
  second.wait();
  EXPECT_EQ(comm.ran.back(), 3);
}

TEST(QueuedComm, WaitsTimeOut) {
  BlockingComm comm(0);
  comm.set_timeout(std::chrono::milliseconds(20));
  EXPECT_THROWS(comm.barrier(), CommTimeout, "too late");  // runs on this thread
  Work first = comm.start_barrier();
  Work second = comm.start_barrier();
  EXPECT_THROW(second.wait(), CommTimeout);  // on this thread or the worker
  EXPECT_THROW(first.wait(), CommError);
}

TEST(QueuedComm, AbandonedWorkAbortsTheGroup) {
  BlockingComm comm(0);
  comm.set_timeout(std::chrono::milliseconds(20));
  { const Work abandoned = comm.start_barrier(); }
  EXPECT_THROWS(comm.barrier(), CommAborted, "did not wait for its barrier 1");
}

}  // namespace
}  // namespace lockstep
