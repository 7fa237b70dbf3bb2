// The Indexed Job example of deploy/kubernetes: the log lines of every process, and its three scripts.
#include <gtest/gtest.h>

#include "cli/training.h"
#include "lockstep/loader.h"
#include "lockstep/loggers.h"
#include "support/long_tests.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

std::string written(const std::function<void(Logger&)>& use) {
  std::FILE* file = std::tmpfile();
  use(*batch_logger(file));
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

LoaderBatch batch_of(int64_t global, int64_t own) {
  LoaderBatch batch;
  batch.global_size = global;
  batch.size = own;
  return batch;
}

TEST(BatchLogger, PrintsOneLinePerBatchAndEpoch) {
  EXPECT_EQ(written([](Logger& logger) {
              logger.begin({.total_steps = 8 * 469, .first_step = 7 * 469 + 467, .steps_per_epoch = 469});
              logger.batch(batch_of(128, 64));
              logger.step(7 * 469 + 468, {{"loss", 0.0164}});
              logger.batch(batch_of(96, 48));
              logger.step(8 * 469, {{"loss", 0.02}});
              logger.end(8 * 469, {});
            }),
            "Rank 0: epoch: 8/8, batch: 468/469, batch size: 128, batch per host size: 64\n"
            "Rank 0: epoch: 8/8, batch: 469/469, batch size: 96, batch per host size: 48\n"
            "Rank 0: epoch 8/8, average epoch loss=0.0182\n"
            "Rank 0: training completed.\n");
}

TEST(BatchLogger, ReportsARunThatEndsEarly) {
  EXPECT_EQ(written([](Logger& logger) {
              logger.begin({.total_steps = 5, .steps_per_epoch = 2});
              logger.batch(batch_of(10, 10));
              logger.step(1, {{"loss", 1}});
              logger.message(1, "a loss of nan", true);
              logger.message(1, "saved", false);
              logger.end(1, {});
            }),
            "Rank 0: epoch: 1/3, batch: 1/2, batch size: 10, batch per host size: 10\n"
            "Rank 0: alarm: a loss of nan\n"
            "Rank 0: training ended at step 1 of 5.\n");
}

#ifdef LOCKSTEP_WITH_GRPC

// 600 examples in batches of 128, the last one of 88: 64 and 44 for each of two processes.
TEST(IndexedJobExample, EveryRankLogsItsBatches) {
  const RunningProgram::Result result =
      RunningProgram({program_path(), "launch", "-n", "2", "--devices", "2", "--", "train", "--no-save", "--dataset",
                      small_dataset(), "--epochs", "2", "--loggers", "batches"})
          .wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& rank : {std::string("[0] Rank 0: "), std::string("[1] Rank 1: ")}) {
    expect_contains(result.err, rank + "epoch: 1/2, batch: 1/5, batch size: 128, batch per host size: 64\n");
    expect_contains(result.err, rank + "epoch: 2/2, batch: 5/5, batch size: 88, batch per host size: 44\n");
    expect_contains(result.err, rank + "training completed.\n");
  }
  // The loss is that of the global batch, so all ranks print the same.
  const auto mean = [&](const std::string& words) {
    const size_t at = result.err.find(words);
    return at == std::string::npos ? std::string() : result.err.substr(at + words.size(), 6);
  };
  EXPECT_FALSE(mean("Rank 0: epoch 2/2, average epoch loss=").empty());
  EXPECT_EQ(mean("Rank 0: epoch 2/2, average epoch loss="), mean("Rank 1: epoch 2/2, average epoch loss="));
}

// The complete example on MNIST: eight epochs in about a minute.
TEST(IndexedJobExample, ReachesTheExpectedLoss) {
  if (!long_tests()) GTEST_SKIP() << "runs with LOCKSTEP_LONG_TESTS=1";
  if (run_lockstep({"data", "verify", "mnist"}).exit_code != 0) GTEST_SKIP() << "no MNIST in the cache";
  const RunningProgram::Result result = RunningProgram({program_path(), "launch", "-n", "2", "--devices", "2", "--",
                                                        "train", "--no-save", "--epochs", "8", "--loggers", "batches"})
                                            .wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.err, "[0] Rank 0: epoch: 8/8, batch: 468/469, batch size: 128, batch per host size: 64\n");
  expect_contains(result.err, "[0] Rank 0: epoch: 8/8, batch: 469/469, batch size: 96, batch per host size: 48\n");
  const std::string words = "[0] Rank 0: epoch 8/8, average epoch loss=";
  const size_t at = result.err.find(words);
  ASSERT_NE(at, std::string::npos);
  EXPECT_LT(std::stod(result.err.substr(at + words.size())), 0.03);
}

// prepare.sh, run.sh and clean.sh with local processes.
TEST(IndexedJobExample, ScriptsPrepareRunAndCleanUp) {
  const TempDir dir;
  const auto run = [&](const Words& command) {
    return RunningProgram(Words{"/usr/bin/env", "LOCKSTEP=" + program_path(), "LOCKSTEP_ON=local",
                                "MANIFEST=" + dir.path() + "/job.yaml", "LOCKSTEP_STATE_DIR=" + dir.path() + "/state",
                                "LOCKSTEP_DAEMON_IDLE=0.2", "timeout", "60"} +
                          command)
        .wait();
  };
  const auto script = [&](const std::string& name, const Words& arguments = {}) {
    return run(Words{std::string(LOCKSTEP_SOURCE_DIR) + "/deploy/kubernetes/" + name} + arguments);
  };
  const auto logs = [&](const std::string& replica) {
    return run({program_path(), "logs", "-f", "myjob", "--replica", replica});
  };
  EXPECT_EQ(script("run.sh").exit_code, 1);  // prepare.sh has not run
  ASSERT_EQ(script("prepare.sh").exit_code, 0);
  // clean.sh deletes all that the job leaves: it saves no run.
  expect_contains(read_text(dir.path() + "/job.yaml"), "\"--loggers\",\"batches\",\"--no-save\"]");
  const std::string args =
      "args=[\"train\",\"--dataset\",\"" + small_dataset() + "\",\"--epochs\",\"1\",\"--loggers\",\"batches\"]";
  const auto prepared = script("prepare.sh", {args});
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  const auto started = script("run.sh");
  ASSERT_EQ(started.exit_code, 0) << started.err;
  EXPECT_EQ(started.out, "job.batch/myjob created\nfollow the log: " + program_path() + " logs -f myjob\n");
  for (const std::string& replica : {std::string("0"), std::string("1")}) {
    const auto log = logs(replica);
    EXPECT_EQ(log.exit_code, 0) << log.err;
    expect_contains(log.out, "Rank " + replica + ": epoch: 1/1, batch: 5/5, batch size: 88, batch per host size: 44\n");
    expect_contains(log.out, "Rank " + replica + ": training completed.\n");
  }
  const auto cleaned = script("clean.sh");
  EXPECT_EQ(cleaned.exit_code, 0) << cleaned.err;
  EXPECT_NE(logs("0").exit_code, 0);  // the job is deleted
}

#endif

}  // namespace
}  // namespace lockstep
