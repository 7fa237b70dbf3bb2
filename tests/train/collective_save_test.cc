// Collective saves of several processes, simulated by threads, with injected failures of every file operation: all
// processes get the error, and earlier checkpoints stay intact.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <thread>

#include "array/node.h"
#include "base/faulty_files.h"
#include "base/throws.h"
#include "lockstep/devices.h"
#include "train/checkpoints.h"
#include "train/collective_save.h"
#include "train/eight_devices.h"

namespace lockstep {
namespace {

constexpr int64_t kStep = 8;

// All-gathers texts between threads.
class ExchangeBoard {
 public:
  explicit ExchangeBoard(size_t processes) : processes_(processes), done_(processes, 0) {}

  std::vector<std::string> exchange(size_t process, const std::string& own) {
    std::unique_lock lock(mutex_);
    const size_t round = done_[process]++;
    if (rounds_.size() <= round) rounds_.resize(round + 1);
    rounds_[round][process] = own;
    changed_.notify_all();
    if (!changed_.wait_for(lock, std::chrono::minutes(1), [&] { return rounds_[round].size() == processes_; }))
      throw CommTimeout("timeout in exchange");
    std::vector<std::string> out;
    for (const auto& [p, text] : rounds_[round]) out.push_back(text);
    return out;
  }

 private:
  const size_t processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> done_;
  std::vector<std::map<size_t, std::string>> rounds_;
};

// The part of a checkpoint that one process holds: an array whose rows are sharded over the processes, and a replicated
// array. The values depend on the step.
Checkpoint part_of(int64_t step, int64_t process, int64_t processes) {
  const Mesh mesh = make_mesh({{"data", processes}});
  const NamedSharding sharding(mesh, P("data"));
  const Type type{f32, {2 * processes, 5}};
  detail::LanePieces pieces{lane_grid(mesh, processes), {}, {}, true};
  pieces.lane_spec = to_lane_spec(pieces.grid, sharding.spec(), 2);
  pieces.buffers.resize(static_cast<size_t>(processes));
  BufferPtr buffer = allocate(40);
  for (int i = 0; i < 10; ++i) buffer->as<float>()[i] = static_cast<float>(1000 * step + 10 * process + i);
  pieces.buffers[static_cast<size_t>(process)] = buffer;
  Checkpoint out{.step = step};
  out.arrays = {
      {"w", detail::concrete(detail::intern(type), std::make_shared<detail::LanePieces>(std::move(pieces)), sharding)},
      {"b", Array::from(std::vector<float>(4, static_cast<float>(step)), {4})}};
  return out;
}

bool is_complete(const std::string& dir, int64_t step, int64_t processes) {
  const Checkpoint got = load_checkpoint(checkpoint_path(dir, step));
  const std::vector<float> w = got.arrays.at(0).second.to_vector<float>();
  for (size_t i = 0; i < w.size(); ++i)
    if (w[i] != static_cast<float>(1000 * step) + static_cast<float>(i)) return false;
  return got.step == step && w.size() == static_cast<size_t>(10 * processes) &&
         got.arrays.at(1).second.to_vector<float>() == std::vector<float>(4, static_cast<float>(step));
}

// Saves collectively. Returns the error message of each process; empty: success.
std::vector<std::string> save(const std::string& dir, int64_t step, std::vector<FaultyFiles>& disks) {
  ExchangeBoard board(disks.size());
  std::vector<std::string> out(disks.size());
  std::vector<std::thread> threads;
  for (size_t p = 0; p < disks.size(); ++p)
    threads.emplace_back([&, p] {
      const Checkpoint part = part_of(step, static_cast<int64_t>(p), std::ssize(disks));
      try {
        detail::write_collectively(disks[p], dir,
                                   detail::contents_of(part, {static_cast<int64_t>(p), std::ssize(disks)}), 1 << 20,
                                   [&](const std::string& own) { return board.exchange(p, own); });
      } catch (const IoError& error) {
        out[p] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

class CollectiveSave : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    std::vector<FaultyFiles> disks(processes());
    ASSERT_EQ(save(dir_.path(), kStep - 1, disks), std::vector<std::string>(processes()));
    ASSERT_TRUE(is_complete(dir_.path(), kStep - 1, GetParam()));
  }
  size_t processes() const { return static_cast<size_t>(GetParam()); }

  const TempDir dir_;
};

TEST_P(CollectiveSave, FailureInOneProcessFailsInAllAndKeepsOldCheckpoints) {
  std::vector<FaultyFiles> counting(processes());
  ASSERT_EQ(save(dir_.path(), kStep, counting), std::vector<std::string>(processes()));
  int failed = 0;
  for (size_t p = 0; p < processes(); ++p)
    for (const auto& [operation, count] : counting[p].counts())
      for (int k = 1; k <= count; ++k) {
        SCOPED_TRACE(fmt::format("{} {} of process {}", operation, k, p));
        FileSystem::real().remove_tree(checkpoint_path(dir_.path(), kStep));
        std::vector<FaultyFiles> disks(processes());
        disks[p].fail_at(operation, k, ENOSPC);
        const std::vector<std::string> errors = save(dir_.path(), kStep, disks);
        ASSERT_TRUE(is_complete(dir_.path(), kStep - 1, GetParam()));
        if (errors[0].empty()) {  // only cleaning up failed
          ASSERT_EQ(errors, std::vector<std::string>(processes()));
          ASSERT_TRUE(is_complete(dir_.path(), kStep, GetParam()));
          continue;
        }
        ++failed;
        for (const std::string& each : errors) {
          EXPECT_EQ(each, errors[0]);
          EXPECT_TRUE(each.starts_with(fmt::format("process {}: ", p))) << each;
        }
        for (const int64_t step : list_checkpoints(dir_.path()))
          ASSERT_TRUE(is_complete(dir_.path(), step, GetParam()));
      }
  EXPECT_GT(failed, 4 * GetParam());
  std::vector<FaultyFiles> healed(processes());
  EXPECT_EQ(save(dir_.path(), kStep + 1, healed), std::vector<std::string>(processes()));
  EXPECT_TRUE(is_complete(dir_.path(), kStep + 1, GetParam()));
}

// From some operation on, all file operations of one process fail.
TEST_P(CollectiveSave, DeadDiskKeepsOldCheckpoints) {
  for (size_t p = 0; p < processes(); ++p)
    for (int k = 1;; ++k) {
      SCOPED_TRACE(fmt::format("operation {} of process {}", k, p));
      FileSystem::real().remove_tree(checkpoint_path(dir_.path(), kStep));
      std::vector<FaultyFiles> disks(processes());
      disks[p].die_at(k);
      const std::vector<std::string> errors = save(dir_.path(), kStep, disks);
      ASSERT_TRUE(is_complete(dir_.path(), kStep - 1, GetParam()));
      for (const std::string& each : errors) EXPECT_EQ(each, errors[0]);
      for (const int64_t step : list_checkpoints(dir_.path())) ASSERT_TRUE(is_complete(dir_.path(), step, GetParam()));
      if (disks[p].total() < k) break;  // the save makes fewer than k operations
    }
}

INSTANTIATE_TEST_SUITE_P(Processes, CollectiveSave, testing::Values(2, 4));

}  // namespace
}  // namespace lockstep
