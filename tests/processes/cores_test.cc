// How processes of one host divide its cores.
#include <algorithm>

#include "cluster/cpu_binding.h"
#include "lane/memory.h"
#include "processes/job.h"

namespace lockstep {
namespace {

Words cores_words() { return {std::string(LOCKSTEP_BINARY_DIR) + "/tests/process_cores"}; }

// What the processes print if they have equal shares of all cores.
std::vector<std::string> shares(int processes) {
  std::vector<std::string> out;
  for (int p = 0; p < processes; ++p) {
    const CpuShare share = share_cpus(cpu_places(affinity_cpus()), available_cpus(), p, processes);
    std::vector<int> cpus = share.cpus.empty() ? affinity_cpus() : share.cpus;
    std::sort(cpus.begin(), cpus.end());
    out.push_back(fmt::format("{}: cores {}, {} threads", p, cpu_list(cpus), share.threads));
  }
  return out;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> printed_by(const std::vector<Words>& before) {
  std::string all;
  for (const auto& result : Job(before, cores_words()).wait()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    all += result.out;
  }
  return sorted_lines(all);
}

TEST(Cores, ProcessesThatNothingBoundDivideThem) {
  EXPECT_EQ(printed_by({{}, {}}), shares(2));
  const int more = available_cpus() + 1;
  EXPECT_EQ(printed_by(std::vector<Words>(static_cast<size_t>(more))), shares(more));
}

TEST(Cores, ProcessesOfOtherHostsHaveTheirOwn) {
  std::vector<std::string> expected = shares(1);
  expected[0] = fmt::format("0: cores {}, {} threads", cpu_list(affinity_cpus()), available_cpus());
  expected.push_back("1" + expected[0].substr(1));
  EXPECT_EQ(printed_by({{"env", "LOCKSTEP_TEST_HOST=a"}, {"env", "LOCKSTEP_TEST_HOST=b"}}), expected);
}

TEST(Cores, ProcessesThatSetTheirThreadsStayUnbound) {
  const std::string all = cpu_list(affinity_cpus());
  EXPECT_EQ(printed_by({{"env", "LOCKSTEP_CPU_THREADS=3"}, {"env", "LOCKSTEP_CPU_THREADS=3"}}),
            (std::vector<std::string>{"0: cores " + all + ", 3 threads", "1: cores " + all + ", 3 threads"}));
}

TEST(Cores, ProcessesThatALauncherBoundKeepTheirs) {
  const std::vector<int> all = affinity_cpus();
  if (all.size() < 2) GTEST_SKIP() << "there is only one core";
  const std::string first = std::to_string(all[0]), second = std::to_string(all[1]);
  EXPECT_EQ(printed_by({{"taskset", "-c", first}, {"taskset", "-c", second}}),
            (std::vector<std::string>{"0: cores " + first + ", 1 threads", "1: cores " + second + ", 1 threads"}));
}

#ifdef LOCKSTEP_WITH_MPI

class CoresUnderMpirun : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_program("mpirun")) GTEST_SKIP() << "there is no mpirun; install openmpi-bin";
  }
  static RunningProgram::Result mpirun(const Words& arguments) {
    return RunningProgram(Words{"timeout", "60", "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                "OMPI_MCA_btl_vader_single_copy_mechanism=none", "OMPI_MCA_mpi_yield_when_idle=1",
                                "mpirun"} +
                          arguments)
        .wait();
  }
};

TEST_F(CoresUnderMpirun, AreDividedIfItDoesNotBind) {
  if (available_cpus() < 2) GTEST_SKIP() << "there is only one core";
  const auto result = mpirun(Words{"-n", "2", "--bind-to", "none"} + cores_words());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), shares(2));
}

TEST_F(CoresUnderMpirun, TooFewAreReported) {
  if (mpirun({"-n", "1", "nproc"}).out != "1\n" || available_cpus() < 2)
    GTEST_SKIP() << "mpirun binds a process to all cores here";
  const std::string text = fmt::format(
      "note: this process is bound to 1 core, but its share of the {} cores that 1 process of this host may use is {}; "
      "start mpirun with --bind-to none, or with --map-by slot:PE=",
      unbound_cpus(), unbound_cpus());
  const auto doctor = mpirun({"-n", "1", program_path(), "doctor"});
  EXPECT_NE(doctor.out.find("\n" + text), std::string::npos) << doctor.out;
  const Words train = {program_path(), "train", "--no-save", "--dataset", "synthetic", "--steps", "1"};
  const auto bound = mpirun(Words{"-n", "1"} + train);
  EXPECT_NE(bound.err.find("lockstep: " + text), std::string::npos) << bound.err;
  const auto unbound = mpirun(Words{"-n", "1", "--bind-to", "none"} + train);
  EXPECT_EQ(unbound.exit_code, 0) << unbound.err;
  EXPECT_EQ(unbound.err.find("is bound to"), std::string::npos) << unbound.err;
}

#endif

}  // namespace
}  // namespace lockstep
