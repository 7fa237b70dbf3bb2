// The MNIST examples as jobs of two processes with eight devices each: what they list, and how well they learn.
#include "processes/launched.h"

#if defined(LOCKSTEP_WITH_GRPC) && defined(LOCKSTEP_EXAMPLES)

namespace lockstep {
namespace {

Words example(const std::string& name, const std::string& devices) {
  return {std::string(LOCKSTEP_BINARY_DIR) + "/examples/" + name,
          "--epochs",
          "1",
          "--data",
          "synthetic",
          "--devices",
          devices};
}

// Returns the text after `words` in the line of a process. Process "": a run without a launcher.
std::string after(const std::string& text, const std::string& prefix, const std::string& words) {
  for (const std::string& line : lines_of(text))
    if (line.starts_with(prefix + words)) return line.substr(prefix.size() + words.size());
  ADD_FAILURE() << "no \"" << prefix << words << "\" in\n" << text;
  return "";
}

// Runs the example on sixteen devices in one process and in two. Returns the output of the two.
std::string expect_same_accuracy(const std::string& name) {
  const RunningProgram::Result one = RunningProgram(example(name, "16")).wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  const RunningProgram::Result two = launch({"-n", "2"}, example(name, "8"));
  EXPECT_EQ(two.exit_code, 0) << two.err;
  for (const char* words : {"Training set accuracy ", "Test set accuracy "}) {
    const std::string wanted = after(one.out, "", words);
    EXPECT_GT(std::atof(wanted.c_str()), 0.2);    // better than guessing
    for (const char* process : {"[0] ", "[1] "})  // another order of summation: a few of 6,000 may differ
      EXPECT_NEAR(std::atof(after(two.out, process, words).c_str()), std::atof(wanted.c_str()), 0.002) << words;
    EXPECT_EQ(after(two.out, "[0] ", words), after(two.out, "[1] ", words));
  }
  return two.out;
}

TEST(ExampleOfTwoProcesses, PmapListsAllDevicesAndLearnsLikeOne) {
  const std::string out = expect_same_accuracy("spmd_mnist_pmap");
  const std::string all = after(out, "[0] Lockstep ", "global devices:");
  EXPECT_EQ(std::count(all.begin(), all.end(), ','), 15) << all;
  std::string together;
  for (const char* process : {"[0] Lockstep ", "[1] Lockstep "}) {
    EXPECT_EQ(after(out, process, "device count:"), "16");
    EXPECT_EQ(after(out, process, "local device count:"), "8");
    EXPECT_EQ(after(out, process, "process count:"), "2");
    EXPECT_EQ(after(out, process, "global devices:"), all);
    const std::string own = after(out, process, "local devices:");
    EXPECT_EQ(std::count(own.begin(), own.end(), ','), 7) << own;
    together += (together.empty() ? "" : ", ") + own.substr(1, own.size() - 2);
  }
  EXPECT_EQ("[" + together + "]", all);
}

TEST(ExampleOfTwoProcesses, JitLearnsLikeOne) { expect_same_accuracy("spmd_mnist_jit"); }

}  // namespace
}  // namespace lockstep

#endif
