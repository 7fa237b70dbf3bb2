// A job of several processes computes the same losses as one process, and each process reads only its own rows.
#include <cstring>
#include <numeric>
#include <regex>

#include "processes/launched.h"
#include "support/variable.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

// One process of eight devices.
const std::vector<double>& alone(const Words& flags) {
  static std::map<Words, std::vector<double>> known;
  const auto [at, missing] = known.try_emplace(flags);
  if (missing) at->second = losses({}, flags + Words{"--devices", "8"});
  return at->second;
}

const Words kMlp = {"--steps", "14"};  // the last two are in the second epoch

TEST(ProcessLosses, EqualThoseOfOneProcess) {
  for (const char* n : {"2", "3", "5"}) {
    SCOPED_TRACE(n);
    expect_near(losses({"-n", n}, kMlp), alone(kMlp));
  }
}

TEST(ProcessLosses, ThreeProcessesShareABatchOfAHundred) {
  const Words flags = {"--steps", "8", "--batch-size", "100"};
  expect_near(losses({"-n", "3", "--devices", "2"}, flags), alone(flags));
}

TEST(ProcessLosses, EqualForALargeModel) {
  const Words flags = {"--model", "mlp1024", "--steps", "3"};
  for (const char* n : {"2", "3"}) expect_near(losses({"-n", n}, flags), alone(flags));
}

TEST(ProcessLosses, EqualForAConvolutionalModel) {
  const Words flags = {"--model", "cnn", "--steps", "3"};
  expect_near(losses({"-n", "2", "--devices", "2"}, flags), alone(flags));
}

TEST(ProcessLosses, EqualForParametersShardedAlongData) {
  for (const char* n : {"2", "3"})
    for (const char* stage : {"1", "3"}) {
      SCOPED_TRACE(fmt::format("{} processes, zero {}", n, stage));
      expect_near(losses({"-n", n, "--devices", "2"}, kMlp + Words{"--zero", stage}), alone(kMlp));
    }
}

TEST(ProcessLosses, EqualForAModelShardedAcrossProcesses) {
  const Words flags = kMlp + Words{"--shard", "dense/*/w=,model"};
  expect_near(losses({"-n", "2"}, flags + Words{"--mesh", "data=1,model=2"}), alone(kMlp));
  expect_near(losses({"-n", "2", "--devices", "2"}, flags + Words{"--mesh", "data=2,model=2"}), alone(kMlp));
  expect_near(losses({"-n", "4"}, flags + Words{"--mesh", "model=2,data=2"}), alone(kMlp));
  expect_near(losses({"-n", "4"}, flags + Words{"--mesh", "data=2,model=2", "--zero", "3"}), alone(kMlp));
}

TEST(ProcessLosses, EqualWithMicroBatches) {
  expect_near(losses({"-n", "2", "--devices", "2"}, kMlp + Words{"--accumulate", "2"}), alone(kMlp));
  expect_near(losses({"-n", "3"}, kMlp + Words{"--accumulate", "2", "--zero", "3"}), alone(kMlp));
}

TEST(ProcessLosses, EqualWithSeveralLanesPerProcess) {
  expect_near(losses({"-n", "2", "--devices", "4", "--cpu-lanes", "2"}, kMlp), alone(kMlp));
  expect_near(losses({"-n", "2", "--devices", "4", "--cpu-lanes", "2"}, kMlp + Words{"--zero", "3"}), alone(kMlp));
}

// Devices that do not divide by the lanes of a process use fewer lanes.
TEST(ProcessLosses, EqualIfDevicesDoNotDivideByLanes) {
  for (const char* devices : {"1", "3"}) {
    SCOPED_TRACE(devices);
    for (const char* stage : {"0", "3"})
      expect_near(losses({"-n", "2", "--devices", devices, "--cpu-lanes", "2"}, kMlp + Words{"--zero", stage}),
                  alone(kMlp));
  }
}

TEST(ProcessLosses, EqualOverTcp) {
  expect_near(losses({"-n", "3", "--collectives", "tcp"}, kMlp + Words{"--zero", "3"}), alone(kMlp));
}

// With --zero 3 each process has one half of the largest array, which has 784 x 256 elements.
TEST(ProcessHistograms, AreOfWholeArrays) {
  const TempDir dir;
  const RunningProgram::Result result =
      launch({"-n", "2", "--devices", "2"}, train_words({"--steps", "4", "--zero", "3", "--quiet", "--histograms",
                                                         "--loggers", "tensorboard", "--log-dir", dir.path()}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> names = FileSystem::real().list(dir.path());
  const auto name = std::ranges::find_if(names, [](const std::string& n) { return n.starts_with("events.out."); });
  ASSERT_NE(name, names.end());
  const std::string file = read_text(dir.path() + "/" + *name);
  // The field `num` (3) of a histogram, a double.
  const double count = 784 * 256;
  std::string number = "\x19" + std::string(sizeof count, 0);
  std::memcpy(number.data() + 1, &count, sizeof count);
  for (const char* tag : {"parameters/dense/0/w", "gradients/dense/0/w"}) {
    const size_t at = file.find(tag);
    ASSERT_NE(at, file.npos) << tag;
    EXPECT_LT(file.find(number, at) - at, 100u) << tag;
  }
}

// The number of rows that each process reports for one epoch.
std::vector<int> rows_read(const Words& launch_flags, const Words& train_flags) {
  const ScopedVariable verbose("LOCKSTEP_VERBOSE", "1");
  const RunningProgram::Result result =
      launch(launch_flags, train_words(train_flags + Words{"--epochs", "1", "--quiet"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<int, int> found;
  static const std::regex kLine(R"(\[(\d+)\] lockstep: process (\d+) has read (\d+) examples of 600)");
  for (const std::string& line : lines_of(result.err)) {
    std::smatch match;
    if (!std::regex_match(line, match, kLine)) continue;
    EXPECT_EQ(match[1], match[2]);
    EXPECT_TRUE(found.try_emplace(std::stoi(match[2]), std::stoi(match[3])).second) << line;
  }
  std::vector<int> out;
  for (const auto& [process, rows] : found) out.push_back(rows);
  return out;
}

TEST(ProcessRows, EachProcessReadsOnlyItsOwn) {
  EXPECT_EQ(rows_read({"-n", "2"}, {}), (std::vector<int>{300, 300}));
  for (const char* stream : {"on", "off"})  // 50 rows are 17, 17 and 16
    EXPECT_EQ(rows_read({"-n", "3"}, {"--stream", stream}), (std::vector<int>{204, 204, 192}));
  // Both processes need all rows if the model is sharded and the batch is not.
  EXPECT_EQ(rows_read({"-n", "2"}, {"--mesh", "data=1,model=2", "--shard", "dense/*/w=,model"}),
            (std::vector<int>{600, 600}));
}

TEST(ProcessRows, AreNotPrintedByDefault) {
  const RunningProgram::Result result = launch({"-n", "2"}, train_words({"--steps", "12", "--quiet"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(ManyProcesses, SixtyFourAllReduce) {
  const RunningProgram::Result result = launch({"-n", "64"}, {"allreduce"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // On a busy machine, process 0 may be late to answer 63 others.
  for (const std::string& line : lines_of(result.err))
    expect_contains(line, "lockstep: cannot reach the coordinator at 127.0.0.1:");
  std::vector<std::string> lines = lines_of(result.out), wanted;
  for (int p = 0; p < 64; ++p) {
    wanted.push_back(fmt::format("[{}] Total devices: 64  |  Devices per task: 1", p));
    wanted.push_back(fmt::format("[{}] Process {} has y=[64.]", p, p));
  }
  std::sort(lines.begin(), lines.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(lines, wanted);
}

TEST(ManyProcesses, UnexpectedDeviceCountIsRejected) {
  const RunningProgram::Result result =
      launch({"-n", "2", "--devices", "4"}, train_words({"--expect-devices", "16", "--quiet"}));
  EXPECT_EQ(result.exit_code, 2);
  // A process that connects later names the process that failed.
  for (const char* process : {"[0]", "[1]"}) expect_contains(result.err, fmt::format("{} lockstep: ", process));
  const std::string message = "train: --expect-devices is 16, but 8 devices are available; nothing was started\n";
  EXPECT_NE(result.err.find(message), result.err.rfind(message)) << result.err;
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace lockstep

#endif
