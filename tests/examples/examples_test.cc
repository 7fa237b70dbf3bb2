// Runs every program of examples/ and checks its output.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string text;  // both streams
};

// `before`: words before the command.
Outcome run(const std::string& name, const std::string& arguments, const std::string& before = "") {
  const std::string command =
      before + "'" LOCKSTEP_BINARY_DIR "/examples/" + name + "' " + arguments + " 2>&1 </dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  Outcome outcome;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::set<std::string> sources() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_SOURCE_DIR "/examples"))
    if (entry.path().extension() == ".cc") names.insert(entry.path().stem());
  return names;
}

// The first number after `words`. REQUIRES: the text contains `words`.
double number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << "no \"" << words << "\" in\n" << text;
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + words.size());
}

TEST(Examples, AreShort) {
  for (const std::string& name : sources()) {
    std::ifstream file(LOCKSTEP_SOURCE_DIR "/examples/" + name + ".cc");
    std::stringstream text;
    text << file.rdbuf();
    const std::string lines = text.str();
    EXPECT_LE(std::count(lines.begin(), lines.end(), '\n'), name == "linear_regression" ? 30 : 80) << name;
  }
}

TEST(Examples, LinearRegressionFindsTheLine) {
  const Outcome r = run("linear_regression", "");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NEAR(number_after(r.text, "weight "), 3, 0.02);
  EXPECT_NEAR(number_after(r.text, "bias "), 2, 0.02);
}

TEST(Examples, NewtonFindsTheMinimumInSevenSteps) {
  const Outcome r = run("newton", "");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NEAR(number_after(r.text, "step 0: loss "), 0.693147, 1e-6);
  EXPECT_GT(number_after(r.text, "largest slope "), 0.05);
  EXPECT_LT(number_after(r.text.substr(r.text.rfind("step 7")), "largest slope "), 1e-5);
}

TEST(Examples, FixedPointHasTheGradientOfTheUnrolledIteration) {
  const Outcome r = run("fixed_point", "");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_LT(number_after(r.text, "unrolled gradient "), 1e-5) << r.text;
  EXPECT_LT(number_after(r.text, "after 100 steps "), 0.3 * number_after(r.text, "loss ")) << r.text;
}

TEST(Examples, BeamSearchFindsAtLeastWhatOneBeamFindsAndStopsEarly) {
  const std::string score = "log probability ";
  for (const char* seed : {"1", "2", "3"}) {
    const std::string with_seed = std::string(" --seed ") + seed;
    const Outcome one = run("beam_search", "--beams 1" + with_seed), many = run("beam_search", "--beams 6" + with_seed);
    EXPECT_EQ(one.code, 0) << one.text;
    EXPECT_EQ(many.code, 0) << many.text;
    EXPECT_GE(number_after(many.text, score), number_after(one.text, score) - 1e-4) << one.text << many.text;
  }
  EXPECT_LT(number_after(run("beam_search", "--beams 1 --seed 1").text, "rounds "), 31);
  EXPECT_EQ(run("beam_search", "--beams many").code, 1);
}

TEST(Examples, GaussianProcessFindsTheNoise) {
  const Outcome r = run("gaussian_process", "");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NEAR(number_after(r.text, "noise "), 0.1, 0.04);
  EXPECT_LT(number_after(r.text, "error "), 0.1);
}

TEST(Examples, DepthwiseNetworkLearnsDirections) {
  const Outcome r = run("depthwise_cnn", "");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_GT(number_after(r.text, "accuracy "), 0.9) << r.text;  // four classes: guessing gives 0.25
}

TEST(Examples, QueryDevicesPrintsThem) {
  EXPECT_EQ(run("query_devices", "--devices 3").text,
            "# Local devices: [ 3 ], [cpu(id=0), cpu(id=1), cpu(id=2)]\n"
            "# Global devices:[ 3 ], [cpu(id=0), cpu(id=1), cpu(id=2)]\n");
  const std::string eight =
      "[ 8 ], [cpu(id=0), cpu(id=1), cpu(id=2), cpu(id=3), cpu(id=4), cpu(id=5), cpu(id=6), cpu(id=7)]\n";
  EXPECT_EQ(run("query_devices", "--devices 8").text, "# Local devices: " + eight + "# Global devices:" + eight);
}

TEST(Examples, DevicesComeFromTheEnvironmentWhenNoFlagIsGiven) {
  const std::string one = "Total devices: 1  |  Devices per task: 1\nProcess 0 has y=[1.]\n",
                    two = "Total devices: 2  |  Devices per task: 2\nProcess 0 has y=[2.]\n",
                    four = "Total devices: 4  |  Devices per task: 4\nProcess 0 has y=[4.]\n";
  const std::string none = "env -u LOCKSTEP_NUM_CPU_DEVICES -u JAX_NUM_CPU_DEVICES -u XLA_FLAGS ";
  EXPECT_EQ(run("allreduce", "", none).text, one);
  EXPECT_EQ(run("allreduce", "", none + "LOCKSTEP_NUM_CPU_DEVICES=2 JAX_NUM_CPU_DEVICES=3 ").text, two);
  EXPECT_EQ(run("allreduce", "", none + "JAX_NUM_CPU_DEVICES=2 ").text, two);
  EXPECT_EQ(run("allreduce", "", none + "XLA_FLAGS=--xla_force_host_platform_device_count=4 ").text, four);
  EXPECT_EQ(run("allreduce", "--devices 4", none + "LOCKSTEP_NUM_CPU_DEVICES=2 ").text, four);
}

TEST(Examples, AllreduceSumsOnesOverTheDevices) {
  for (const char* n : {"1", "3", "8", "64"}) {
    const Outcome r = run("allreduce", std::string("--devices ") + n);
    EXPECT_EQ(r.code, 0);
    EXPECT_EQ(r.text,
              std::string("Total devices: ") + n + "  |  Devices per task: " + n + "\nProcess 0 has y=[" + n + ".]\n");
  }
}

TEST(Examples, VisualizeDrawsAndWritesAPicture) {
  const fs::path picture = fs::temp_directory_path() / ("lockstep_visualize_" + std::to_string(getpid()) + ".svg");
  const Outcome r = run("visualize", "--svg '" + picture.string() + "'");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NE(r.text.find("\u251c\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u253c"), std::string::npos)
      << r.text;  // ├─────────┼
  EXPECT_NE(r.text.find("CPU 0,1,2,3,4,5,6,7"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("CPU 1,3,5,7"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("[85:97]"), std::string::npos) << r.text;
  EXPECT_EQ(r.text.find('\033'), std::string::npos) << "colors in a pipe";
  std::ifstream file(picture);
  std::stringstream svg;
  svg << file.rdbuf();
  EXPECT_EQ(svg.str().rfind("<svg", 0), 0u);
  EXPECT_NE(svg.str().find("CPU 7"), std::string::npos);
  fs::remove(picture);

  const Outcome one = run("visualize", "--devices 1");
  EXPECT_EQ(one.code, 0) << one.text;
  const Outcome nowhere = run("visualize", "--svg /nonexistent/picture.svg");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_NE(nowhere.text.find("/nonexistent/picture.svg"), std::string::npos);
}

TEST(Examples, PmapReportsDevices) {
  const Outcome r = run("spmd_mnist_pmap", "--data synthetic --epochs 0 --devices 2");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.text,
            "Lockstep global devices:[CpuDevice(id=0), CpuDevice(id=1)]\n"
            "Lockstep local devices:[CpuDevice(id=0), CpuDevice(id=1)]\n"
            "Lockstep device count:2\nLockstep local device count:2\nLockstep process count:1\n");
}

TEST(Examples, PmapRejectsUnequalShardsBeforeTraining) {
  for (const char* n : {"3", "32"}) {  // 32 divides a full batch but not the last one
    const Outcome r = run("spmd_mnist_pmap", std::string("--data synthetic --epochs 1 --devices ") + n);
    EXPECT_EQ(r.code, 1);
    EXPECT_EQ(r.text,
              std::string("spmd_mnist_pmap: pmap needs equal pieces, and batches of 128 and 112 do not divide by ") +
                  n + " devices; give --devices 1, 2, 4, 8 or 16, or use spmd_mnist_jit\n");
  }
}

TEST(Examples, JitLearnsTheSameOnAnyNumberOfDevices) {
  const std::string epoch = "--data synthetic --epochs 1 --devices ";
  const Outcome one = run("spmd_mnist_jit", epoch + "1");
  ASSERT_EQ(one.code, 0) << one.text;
  for (const char* n : {"3", "16"}) {  // neither 128 nor the last 112 rows divide by 3
    const Outcome many = run("spmd_mnist_jit", epoch + n);
    EXPECT_EQ(many.code, 0) << many.text;
    for (const char* set : {"Training set accuracy ", "Test set accuracy "})
      EXPECT_NEAR(number_after(many.text, set), number_after(one.text, set), 1e-3) << n;
  }
}

// Programs that train on images have the same flags and output.
struct Trained {
  std::string program;
  std::string arguments;
};
class Training : public testing::TestWithParam<Trained> {};

TEST_P(Training, PrintsTimeAndAccuraciesOfEveryEpoch) {
  const Outcome r = run(GetParam().program, "--data synthetic --epochs 1 " + GetParam().arguments);
  EXPECT_EQ(r.code, 0) << r.text;
  const std::regex epoch(
      R"(Epoch (\d+) in \d+\.\d+ sec\nTraining set accuracy (\d\.\d+)\nTest set accuracy (\d\.\d+)\n)");
  int seen = 0;
  for (auto it = std::sregex_iterator(r.text.begin(), r.text.end(), epoch); it != std::sregex_iterator();
       ++it, ++seen) {
    EXPECT_EQ(std::stoi((*it)[1]), seen);
    for (int group : {2, 3}) {
      EXPECT_GT(std::stod((*it)[static_cast<size_t>(group)]), 0.2) << r.text;  // ten classes: guessing gives 0.1
      EXPECT_LE(std::stod((*it)[static_cast<size_t>(group)]), 1.0);
    }
  }
  EXPECT_EQ(seen, 1) << r.text;
}

TEST_P(Training, ZeroEpochsDoNotTrain) {
  const Outcome r = run(GetParam().program, "--data synthetic --epochs 0 " + GetParam().arguments);
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(r.text.find("Epoch"), std::string::npos) << r.text;
  EXPECT_EQ(r.text.find("accuracy"), std::string::npos) << r.text;
}

TEST_P(Training, WrongFlagsFailWithOneLine) {
  const auto fails = [](const std::string& arguments, const std::string& part) {
    const Outcome r = run(GetParam().program, arguments);
    EXPECT_EQ(r.code, 1) << arguments << '\n' << r.text;
    EXPECT_NE(r.text.find(part), std::string::npos) << arguments << '\n' << r.text;
    EXPECT_EQ(std::count(r.text.begin(), r.text.end(), '\n'), 1) << r.text;
  };
  fails("--epoch 1", "--epoch");
  fails("--epochs", "--epochs");
  fails("--epochs many", "many");
  fails("--epochs 1x", "1x");
  fails("extra", "extra");
  fails("--data nothing", "unknown data set \"nothing\"");
  fails("--data mnist --data-dir /nonexistent", "/nonexistent");
}

TEST(Examples, MyTaskLearnsTheWave) {
  const Outcome r = run("my_task", "--epochs 10 --learning-rate 0.01 --quiet --no-save --expect 'test_loss<0.03'");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_LT(number_after(r.text, "wave test loss "), 0.03);
}

// A program that prints how good it is: the first number after `words` is in [low, high].
struct Measured {
  std::string program, words;
  double low, high;
};

class Prints : public testing::TestWithParam<Measured> {};

TEST_P(Prints, AGoodResult) {
  const Outcome r = run(GetParam().program, "");
  EXPECT_EQ(r.code, 0) << r.text;
  const double number = number_after(r.text, GetParam().words);
  EXPECT_GE(number, GetParam().low) << r.text;
  EXPECT_LE(number, GetParam().high) << r.text;
}

INSTANTIATE_TEST_SUITE_P(Programs, Prints,
                         testing::Values(Measured{"gru", "accuracy ", 0.95, 1}, Measured{"vae", "step 1500: loss ", 12, 15},
                                         Measured{"dp_sgd", "noise 1: accuracy ", 0.95, 1},
                                         Measured{"ring_attention", "attention differs by ", 0, 1e-5},
                                         Measured{"ring_attention", "gradients by ", 0, 1e-4},
                                         Measured{"gpipe", "gradients differ by ", 0, 1e-6},
                                         Measured{"moe", "gradients differ by ", 0, 1e-6}),
                         [](const auto& each) { return each.param.program + "_" + std::to_string(each.index); });

// Every training program; those with --devices on one and on eight devices.
std::vector<Trained> training_programs() {
  std::vector<Trained> out;
  for (const std::string& name : sources()) {
    if (name.find("mnist") == std::string::npos) continue;
    if (name.rfind("spmd_", 0) != 0) {
      out.push_back({name, ""});
      continue;
    }
    for (const char* n : {"1", "8"}) out.push_back({name, std::string("--devices ") + n});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Programs, Training, testing::ValuesIn(training_programs()), [](const auto& each) {
  const std::string& with = each.param.arguments;
  return each.param.program + (with.empty() ? "" : "_on_" + with.substr(with.rfind(' ') + 1));
});

}  // namespace
}  // namespace lockstep
