// JAXJob manifests written for Kubeflow: run by the rules of its operator without a Secret, and by `lockstep apply`.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "jobs/kubeflow/mnist_cache.h"
#include "jobs/kubeflow/operator.h"
#include "jobs/kubernetes/schema.h"
#include "jobs/model/yaml_document.h"
#include "support/text_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::string kExamples = LOCKSTEP_SOURCE_DIR "/examples/jobs/";
const std::string kUsersManifest = LOCKSTEP_TEST_DATA "/manifests/kubeflow-jaxjob-mnist.yaml";

Job job_of(const std::string& path) { return parse_manifests(read_text(path), path).jobs.at(0); }

size_t times(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++out;
  return out;
}

// The first lines that process `id` of the example prints, with 2 processes of 8 devices.
std::string device_lines(int id) {
  const auto list = [](int from, int to) {
    std::string out;
    for (int i = from; i < to; ++i) out += (i > from ? ", CpuDevice(id=" : "CpuDevice(id=") + std::to_string(i) + ")";
    return "[" + out + "]\n";
  };
  return "Lockstep global devices:" + list(0, 16) + "Lockstep local devices:" + list(8 * id, 8 * id + 8) +
         "Lockstep device count:16\nLockstep local device count:8\nLockstep process count:2\n";
}

TEST(JaxJobs, ExamplesSatisfyThePublishedSchema) {
  const Schemas schemas(LOCKSTEP_TEST_DATA "/schemas/kubernetes.json");
  std::vector<std::string> paths = {kUsersManifest};
  for (const auto& entry : fs::directory_iterator(kExamples)) paths.push_back(entry.path());
  EXPECT_GE(paths.size(), 3u);
  for (const std::string& path : paths)
    for (const YamlDocument& document : parse_yaml_documents(read_text(path), path)) {
      std::string faults;
      for (const std::string& fault : schemas.faults(document.value)) faults += fault + "\n";
      EXPECT_EQ(faults, "") << path;
    }
}

class OperatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    data_ = std::make_unique<TempDir>();
    write_mnist_cache(data_->path());
  }
  static void TearDownTestSuite() { data_.reset(); }
  OperatorTest() : network_(dir_.path()) {}
  void SetUp() override {
#ifndef LOCKSTEP_WITH_GRPC
    GTEST_SKIP() << "this build has no control plane";
#endif
    if (!network_.problem().empty()) GTEST_SKIP() << network_.problem();
  }
  Operator::Image image(const Words& entrypoint = {}) const {
    return {entrypoint,
            {"HOME=" + dir_.path(), "LOCKSTEP_CACHE_DIR=" + data_->path(), "LOCKSTEP_PLATFORM=cpu",
             "LOCKSTEP_FLIGHT_DIR=" + dir_.path(), "ASAN_OPTIONS=detect_leaks=0"}};
  }

  static std::unique_ptr<TempDir> data_;
  TempDir dir_;
  PodNetwork network_;
};
std::unique_ptr<TempDir> OperatorTest::data_;

TEST_F(OperatorTest, ExampleTrainsWithoutASecret) {
  Operator jobs(job_of(kExamples + "jaxjob-mnist.yaml"), image(), network_);
  EXPECT_EQ(jobs.run(), "Succeeded") << jobs.logs();
  EXPECT_EQ(jobs.codes(0), std::vector<int>{0});
  EXPECT_EQ(jobs.codes(1), std::vector<int>{0});
  EXPECT_EQ(times(jobs.logs(), "token: this JAXJob has none"), 1u) << jobs.logs();
}

TEST_F(OperatorTest, KilledReplicaAndSurvivorRestart) {
  Operator jobs(job_of(kExamples + "jaxjob-mnist.yaml"), image(), network_);
  bool killed = false;
  EXPECT_EQ(jobs.run([&] {
    if (killed || !jobs.is_running(0) || jobs.process(0).err().find("16 virtual devices") == std::string::npos) return;
    jobs.process(1).send(SIGKILL);
    killed = true;
  }),
            "Succeeded")
      << jobs.logs();
  EXPECT_EQ(jobs.codes(1), (std::vector<int>{137, 0})) << jobs.logs();
  EXPECT_EQ(jobs.codes(0), (std::vector<int>{138, 0})) << jobs.logs();
}

TEST_F(OperatorTest, KilledCoordinatorAndSurvivorRestart) {
  Job job = job_of(kExamples + "jaxjob-mnist.yaml");
  // The pod's address disappears with it: connections are not refused, they time out.
  job.spec.container.env.emplace_back("LOCKSTEP_HEARTBEAT_TIMEOUT", "3");
  Operator jobs(job, image(), network_);
  bool killed = false;
  EXPECT_EQ(jobs.run([&] {
    if (killed || !jobs.is_running(0) || jobs.process(0).err().find("16 virtual devices") == std::string::npos) return;
    jobs.process(0).send(SIGKILL);
    killed = true;
  }),
            "Succeeded")
      << jobs.logs();
  EXPECT_EQ(jobs.codes(0), (std::vector<int>{137, 0})) << jobs.logs();
  EXPECT_EQ(jobs.codes(1), (std::vector<int>{138, 0})) << jobs.logs();
}

TEST_F(OperatorTest, PermanentErrorFailsTheJobWithoutRestart) {
  Job job = job_of(kExamples + "jaxjob-mnist.yaml");
  for (std::string& word : job.spec.container.command)
    if (word == "--expect-devices=16") word = "--expect-devices=17";
  Operator jobs(job, image(), network_);
  const std::string state = jobs.run();
  EXPECT_TRUE(state.starts_with("Failed: jaxjob-mnist-worker-")) << state << jobs.logs();
  EXPECT_LE(jobs.codes(0).size(), 1u);
  EXPECT_LE(jobs.codes(1).size(), 1u);
}

// As in the user's manifest, the image defines the program.
TEST_F(OperatorTest, ImageWithTheSpmdExampleTrainsOnSixteenDevices) {
  const std::string program = LOCKSTEP_BINARY_DIR "/examples/spmd_mnist_pmap";
  if (!fs::exists(program)) GTEST_SKIP() << "the examples are not built";
  Operator jobs(job_of(kUsersManifest), image({program, "--data", "synthetic", "--epochs", "1"}), network_);
  EXPECT_EQ(jobs.run(), "Succeeded") << jobs.logs();
  for (int i = 0; i < 2; ++i) {
    const std::string& log = jobs.log(static_cast<size_t>(i));
    EXPECT_NE(log.find(device_lines(i)), std::string::npos) << log;
    for (const char* part : {"Epoch 0 in ", "Training set accuracy ", "Test set accuracy "})
      EXPECT_NE(log.find(part), std::string::npos) << log;
  }
}

TEST_F(OperatorTest, ForeignPodCannotJoin) {
  Job job = job_of(kExamples + "jaxjob-mnist.yaml");
  job.spec.container.env.emplace_back("LOCKSTEP_INITIALIZATION_TIMEOUT", "60");
  network_.add("foreign", false);
  const std::string foreign = network_.address("foreign");
  Operator jobs(job, image(), network_);
  // It claims to be process 1 before the real process 1 exists.
  RunningProgram other(network_.in("foreign") + Words{"PATH=/usr/bin:/bin", "KUBERNETES_SERVICE_HOST=10.96.0.1",
                                                      "COORDINATOR_PORT=6666",
                                                      "COORDINATOR_ADDRESS=jaxjob-mnist-worker-0", "NUM_PROCESSES=2",
                                                      "PROCESS_ID=1", "LOCKSTEP_INITIALIZATION_TIMEOUT=60",
                                                      "LOCKSTEP_PLATFORM=cpu", "LOCKSTEP_CACHE_DIR=" + data_->path(),
                                                      program_path(), "train", "--no-save", "--devices=8"});
  EXPECT_TRUE(other.says("cannot reach the coordinator at jaxjob-mnist-worker-0:6666 yet")) << other.err();
  EXPECT_EQ(jobs.run(), "Succeeded") << jobs.logs();
  EXPECT_EQ(times(jobs.log(0), "refused a call from " + foreign), 1u) << jobs.log(0);
}

// The unchanged manifest of the user with `lockstep apply` on this machine. It has no command.
TEST(LocalJaxJob, ManifestWithoutCommandRunsTheSpmdExample) {
#ifndef LOCKSTEP_WITH_GRPC
  GTEST_SKIP() << "this build has no control plane";
#endif
  if (!fs::exists(LOCKSTEP_BINARY_DIR "/examples/spmd_mnist_pmap")) GTEST_SKIP() << "the examples are not built";
  const TempDir dir;
  write_mnist_cache(dir.path() + "/cache");
  const Words lockstep = {"env",
                          "LOCKSTEP_STATE_DIR=" + dir.path() + "/state",
                          "LOCKSTEP_CACHE_DIR=" + dir.path() + "/cache",
                          "LOCKSTEP_DAEMON_IDLE=1",
                          "LOCKSTEP_PLATFORM=cpu",
                          program_path()};
  const auto run = [&](const Words& words) {
    return RunningProgram(Words{"timeout", "100"} + lockstep + words).wait();
  };
  const auto applied = run({"apply", "-f", kUsersManifest});
  ASSERT_EQ(applied.out, "jaxjob.kubeflow.org/jaxjob-mnist created\n") << applied.err;
  EXPECT_NE(
      applied.err.find("the image docker.io/sandipanify/jaxjob-spmd-mnist:latest is ignored: replicas are "
                       "processes on this machine and run " LOCKSTEP_BINARY_DIR "/examples/spmd_mnist_pmap instead, "
                       "which does the same"),
      std::string::npos)
      << applied.err;
  for (int i = 0; i < 2; ++i) {
    std::string log;
    EXPECT_TRUE(comes_true(
        [&] {
          log = run({"logs", "jaxjob-mnist-worker-" + std::to_string(i), "-n", "kubeflow"}).out;
          return log.find(device_lines(i)) != log.npos;
        },
        std::chrono::seconds(60), std::chrono::milliseconds(100)))
        << log;
  }
  EXPECT_EQ(run({"delete", "jaxjob", "jaxjob-mnist", "-n", "kubeflow"}).exit_code, 0);
}

}  // namespace
}  // namespace lockstep
