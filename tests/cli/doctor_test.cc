// `lockstep doctor` in golden environments.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/listener.h"
#include "support/program.h"

namespace lockstep {
namespace {

using detail::ProcessResult;
using Words = std::vector<std::string>;

// With these variables and no others, on the CPU.
ProcessResult doctor(const Words& variables, const Words& flags = {}) {
  Words words = {"env", "-i", "ASAN_OPTIONS=detect_leaks=0", "LOCKSTEP_PLATFORM=cpu"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {program_path(), "doctor"});
  words.insert(words.end(), flags.begin(), flags.end());
  return detail::run_process(words, std::chrono::seconds(60));
}

void expect_says(const ProcessResult& result, const std::string& text) {
  EXPECT_NE(result.output.find(text), std::string::npos) << "no \"" << text << "\" in:\n" << result.output;
}
void expect_does_not_say(const ProcessResult& result, const std::string& text) {
  EXPECT_EQ(result.output.find(text), std::string::npos) << "\"" << text << "\" in:\n" << result.output;
}

// One of two processes.
Words explicit_variables(int port, int id) {
  return {fmt::format("LOCKSTEP_COORDINATOR=127.0.0.1:{}", port), "LOCKSTEP_NUM_PROCESSES=2",
          fmt::format("LOCKSTEP_PROCESS_ID={}", id), "LOCKSTEP_TOKEN=0123456789abcdef"};
}

// Without it several processes are a fault by themselves.
#ifdef LOCKSTEP_WITH_GRPC
#define NEEDS_CONTROL_PLANE() static_cast<void>(0)
#else
#define NEEDS_CONTROL_PLANE() GTEST_SKIP() << "the control plane is left out"
#endif

TEST(Doctor, ProcessThatIsAloneIsWell) {
  const ProcessResult result = doctor({"LOCKSTEP_NUM_CPU_DEVICES=8", "LOCKSTEP_CPU_LANES=2"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* text :
       {"lockstep 0.", "  control plane         ", "  matrix products       OpenBLAS ",
        "\n  explicit    no     LOCKSTEP_COORDINATOR is not set\n", "\n  slurm       no     SLURM_JOB_ID is not set\n",
        "\n> none        yes    process 0 of 1\n", ", 2 lanes, 8 CPU devices", "lo 127.0.0.1", "  shared memory         works\n",
        "\nall is well\n"})
    expect_says(result, text);
  expect_does_not_say(result, "note: ");
  expect_does_not_say(result, "coordinator\n");
}

TEST(Doctor, TellsWhoseAnswerIsTaken) {
  NEEDS_CONTROL_PLANE();
  const Listener process_0;
  const ProcessResult result = doctor(
      {"SLURM_JOB_ID=7", "SLURM_STEP_NODELIST=127.0.0.[1-2]", "SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0",
       fmt::format("LOCKSTEP_COORDINATOR_PORT={}", process_0.port()), "LOCKSTEP_TOKEN=0123456789abcdef"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::string answer = fmt::format("process 1 of 2, local id 0, coordinator 127.0.0.1:{}\n", process_0.port());
  expect_says(result, "\n> slurm       yes    " + answer);
  expect_says(result, "\n  none        yes    process 0 of 1\n");
  expect_says(result, "\n  is                    " + answer);
}

TEST(Doctor, TellsWhetherTheCoordinatorAnswers) {
  NEEDS_CONTROL_PLANE();
  Listener process_0;
  const ProcessResult there = doctor(explicit_variables(process_0.port(), 1));
  EXPECT_EQ(there.exit_code, 0) << there.output;
  expect_says(there, "\n  which means           127.0.0.1\n  there                 answers\n");
  expect_says(there, "\n  seen from there       127.0.0.1\n");
  process_0.close();
  const ProcessResult gone = doctor(explicit_variables(process_0.port(), 1));
  EXPECT_EQ(gone.exit_code, 0) << gone.output;
  expect_says(gone, "the host answers, and nobody listens there yet: process 0 is not running\n");
}

TEST(Doctor, NameThatMeansNothingIsToBeChanged) {
  NEEDS_CONTROL_PLANE();
  const ProcessResult result =
      doctor({"LOCKSTEP_COORDINATOR=no..such..name:1234", "LOCKSTEP_NUM_PROCESSES=2", "LOCKSTEP_PROCESS_ID=1",
              "LOCKSTEP_TOKEN=0123456789abcdef", "KUBERNETES_SERVICE_HOST=10.96.0.1"},
             {"--timeout", "1"});
  EXPECT_EQ(result.exit_code, 1);
  expect_says(result, "\n  which means           nothing here\n  there                 not found\n");
  expect_says(result, "\nnote: the name of a pod is known only when the pod runs");
  expect_says(result, "\nsomething is to be changed\n- resolve no..such..name: ");
}

TEST(Doctor, TakenPortOfProcess0IsToBeChanged) {
  NEEDS_CONTROL_PLANE();
  Listener somebody;
  const ProcessResult taken = doctor(explicit_variables(somebody.port(), 0));
  EXPECT_EQ(taken.exit_code, 1);
  expect_says(taken,
              fmt::format("\n- process 0 is to listen at 127.0.0.1:{}, and cannot: Address already in use; it is "
                          "taken by pid {} (test_cli",
                          somebody.port(), ::getpid()));
  expect_says(taken,
              "\n  end that program, or choose another port (LOCKSTEP_COORDINATOR, LOCKSTEP_COORDINATOR_PORT)\n");
  somebody.close();
  const ProcessResult free = doctor(explicit_variables(somebody.port(), 0));
  EXPECT_EQ(free.exit_code, 0) << free.output;
  expect_says(free, "\n  there                 free: process 0, which this is, will listen there\n");
}

TEST(Doctor, AddressOfAnotherMachineIsNotProcess0s) {
  NEEDS_CONTROL_PLANE();
  const ProcessResult result = doctor({"LOCKSTEP_COORDINATOR=192.0.2.77:1234", "LOCKSTEP_NUM_PROCESSES=2",
                                       "LOCKSTEP_PROCESS_ID=0", "LOCKSTEP_TOKEN=0123456789abcdef"});
  EXPECT_EQ(result.exit_code, 1);
  expect_says(result, "\nsomething is to be changed\n- ");
}

TEST(Doctor, WrongValuesAreToBeChanged) {
  const ProcessResult result = doctor({"WORLD_SIZE=two", "RANK=0", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=29500", "LOCKSTEP_NUM_CPU_DEVICES=x", "LOCKSTEP_CPU_LANES=y"});
  EXPECT_EQ(result.exit_code, 1);
  expect_says(result, "\n  torchrun    wrong  initialize: WORLD_SIZE is \"two\"; ");
  expect_says(result,
              "\nsome things are to be changed\n"
              "- initialize: WORLD_SIZE is \"two\"\n"
              "  set it to an integer of at least 1, or unset it\n"
              "- devices: LOCKSTEP_NUM_CPU_DEVICES is \"x\"\n");
  expect_says(result, "\n- lanes: LOCKSTEP_CPU_LANES is \"y\"\n");
  expect_does_not_say(result, "\n> ");
}

TEST(Doctor, MissingTokenIsToBeChanged) {
  NEEDS_CONTROL_PLANE();
  const Listener process_0;
  Words variables = explicit_variables(process_0.port(), 1);
  variables.pop_back();
  const ProcessResult result = doctor(variables);
  EXPECT_EQ(result.exit_code, 1);
  expect_says(result, "\nsomething is to be changed\n- token: ");
}

TEST(Doctor, HalfAnEnvironmentIsNoted) {
  const ProcessResult result = doctor({"SLURM_JOB_ID=7", "SLURM_NTASKS=2"});
  EXPECT_EQ(result.exit_code, 0);
  expect_says(result, "\nnote: slurm is half there: SLURM_STEP_NODELIST, SLURM_PROCID and SLURM_LOCALID are missing");
  expect_says(result, "start the program with srun\n");
}

TEST(Doctor, ProxiesAreNamedWithoutTheirSecrets) {
  const ProcessResult result = doctor({"http_proxy=http://me:secret@proxy:3128", "HTTPS_PROXY=http://proxy:3128"});
  EXPECT_EQ(result.exit_code, 0);
  expect_says(result, "\n  proxies               http_proxy, HTTPS_PROXY: not used between processes\n");
  expect_does_not_say(result, "secret");
}

TEST(Doctor, FlagsChooseLauncherAndInterfaces) {
  const Listener process_0;
  const Words variables = explicit_variables(process_0.port(), 1);
  expect_says(doctor(variables, {"--method", "none"}), "\n> none        yes    process 0 of 1\n");
  const ProcessResult slurm = doctor({}, {"--method", "slurm"});
  EXPECT_EQ(slurm.exit_code, 1);
  expect_says(slurm, "\n- initialize: cluster_detection_method is slurm (leave it empty to try all), but it was not detected: ");
  expect_says(doctor(variables, {"--interface", "lo"}), "\n  with addresses        lo 127.0.0.1");
  expect_does_not_say(doctor(variables, {"--interface", "lo"}), "note: ");
  const ProcessResult none = doctor(variables, {"--interface", "nothing*"});
  EXPECT_EQ(none.exit_code, 1);
  expect_says(none, "\n- initialize: no network interface matches \"nothing*\"\n  available: ");
}

TEST(Doctor, MpiNeedsNoCoordinator) {
  const ProcessResult result = doctor({"PRTE_LAUNCHED=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1",
                                       "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"});
  expect_says(result, "\n> ompi        yes    process 1 of 2, local id 1 of 2, MPI\n");
#ifdef LOCKSTEP_WITH_MPI
  EXPECT_EQ(result.exit_code, 0) << result.output;
#else
  EXPECT_EQ(result.exit_code, 1) << result.output;
  expect_says(result, "\n- MPI started this process, and this build has no MPI\n");
#endif
}

TEST(Doctor, JsonSaysTheSame) {
  NEEDS_CONTROL_PLANE();
  const Listener process_0;
  const ProcessResult result = doctor(explicit_variables(process_0.port(), 1), {"--json"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  const std::string address = fmt::format("127.0.0.1:{}", process_0.port());
  EXPECT_EQ(json["well"], true);
  EXPECT_EQ(json["verdicts"].size(), 10u);
  EXPECT_EQ(json["verdicts"][0]["detector"], "explicit");
  EXPECT_EQ(json["verdicts"][0]["answer"], "yes");
  EXPECT_EQ(json["verdicts"][0]["taken"], true);
  EXPECT_EQ(json["verdicts"][9]["taken"], false);
  EXPECT_EQ(json["process"]["process_id"], 1);
  EXPECT_EQ(json["process"]["process_count"], 2);
  EXPECT_EQ(json["process"]["local_id"], nullptr);
  EXPECT_EQ(json["process"]["coordinator"], address);
  EXPECT_EQ(json["coordinator"]["address"], address);
  EXPECT_EQ(json["coordinator"]["answer"], "answers");
  EXPECT_EQ(json["devices"]["cpu_devices"], 1);
  EXPECT_GT(json["host"]["interfaces"].size(), 0u);

  const ProcessResult wrong = doctor({"LOCKSTEP_PROCESS_ID=x"}, {"--json"});
  EXPECT_EQ(wrong.exit_code, 1);
  const auto bad = nlohmann::json::parse(wrong.output);
  EXPECT_EQ(bad["well"], false);
  EXPECT_EQ(bad["process"], nullptr);
  EXPECT_EQ(bad["verdicts"][0]["answer"], "wrong");
  EXPECT_EQ(bad["problems"][0]["what"], "initialize: LOCKSTEP_PROCESS_ID is \"x\"");
}

TEST(Doctor, WrongFlagsSayWhatToDo) {
  for (const char* wrong : {"0", "soon", "3601", "nan", ""})
    expect_usage_error({"doctor", "--timeout", wrong},
                       fmt::format("doctor: --timeout: \"{}\" is not a time from 0.001 to 3600 s; `lockstep doctor "
                                   "--help` shows what there is",
                                   wrong));
  EXPECT_EQ(run_lockstep({"doctor", "--method", "slrum"}).exit_code, 2);
}

}  // namespace
}  // namespace lockstep
