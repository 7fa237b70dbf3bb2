// `lockstep doctor` in golden environments.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/listener.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

// Runs doctor with only these variables, on the CPU.
ProcessResult doctor(const Words& variables, const Words& flags = {}) {
  Words words = {"env", "-i", "ASAN_OPTIONS=detect_leaks=0", "LOCKSTEP_PLATFORM=cpu"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {program_path(), "doctor"});
  words.insert(words.end(), flags.begin(), flags.end());
  return run_process(words, std::chrono::seconds(60));
}

void expect_has_text(const ProcessResult& result, const std::string& text) {
  EXPECT_NE(result.output.find(text), std::string::npos) << "no \"" << text << "\" in:\n" << result.output;
}
void expect_lacks_text(const ProcessResult& result, const std::string& text) {
  EXPECT_EQ(result.output.find(text), std::string::npos) << "\"" << text << "\" in:\n" << result.output;
}

// The variables of one of two processes.
Words explicit_variables(int port, int id) {
  return {fmt::format("LOCKSTEP_COORDINATOR=127.0.0.1:{}", port), "LOCKSTEP_NUM_PROCESSES=2",
          fmt::format("LOCKSTEP_PROCESS_ID={}", id), "LOCKSTEP_TOKEN=0123456789abcdef"};
}

// Without the control plane, several processes are a problem of their own.
#ifdef LOCKSTEP_WITH_GRPC
#define NEEDS_CONTROL_PLANE() static_cast<void>(0)
#else
#define NEEDS_CONTROL_PLANE() GTEST_SKIP() << "the control plane is left out"
#endif

TEST(Doctor, SingleProcessHasNoProblems) {
  const ProcessResult result = doctor({"LOCKSTEP_NUM_CPU_DEVICES=8", "LOCKSTEP_CPU_LANES=2"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* text :
       {"lockstep 0.", "  control plane         ", "  matrix products       OpenBLAS ",
        "\n  explicit    no     LOCKSTEP_COORDINATOR is not set\n", "\n  slurm       no     SLURM_JOB_ID is not set\n",
        "\n> none        yes    process 0 of 1\n", ", 2 lanes, 8 CPU devices", "lo 127.0.0.1",
        "  shared memory         works\n", "\nno problems found\n"})
    expect_has_text(result, text);
  expect_lacks_text(result, "note: ");
  expect_lacks_text(result, "coordinator\n");
}

TEST(Doctor, MarksTheChosenLauncher) {
  NEEDS_CONTROL_PLANE();
  const Listener process_0;
  const ProcessResult result = doctor(
      {"SLURM_JOB_ID=7", "SLURM_STEP_NODELIST=127.0.0.[1-2]", "SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0",
       fmt::format("LOCKSTEP_COORDINATOR_PORT={}", process_0.port()), "LOCKSTEP_TOKEN=0123456789abcdef"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::string answer = fmt::format("process 1 of 2, local id 0, coordinator 127.0.0.1:{}\n", process_0.port());
  expect_has_text(result, "\n> slurm       yes    " + answer);
  expect_has_text(result, "\n  none        yes    process 0 of 1\n");
  expect_has_text(result, "\n  identity              " + answer);
}

TEST(Doctor, ReportsWhetherTheCoordinatorIsReachable) {
  NEEDS_CONTROL_PLANE();
  Listener process_0;
  const ProcessResult there = doctor(explicit_variables(process_0.port(), 1));
  EXPECT_EQ(there.exit_code, 0) << there.output;
  expect_has_text(there, "\n  resolves to           127.0.0.1\n  status                reachable\n");
  expect_has_text(there, "\n  reached from          127.0.0.1\n");
  process_0.close();
  const ProcessResult gone = doctor(explicit_variables(process_0.port(), 1));
  EXPECT_EQ(gone.exit_code, 0) << gone.output;
  expect_has_text(gone, "the host is reachable, but nothing listens at the port yet: process 0 is not running\n");
}

TEST(Doctor, UnresolvableCoordinatorIsAProblem) {
  NEEDS_CONTROL_PLANE();
  const ProcessResult result =
      doctor({"LOCKSTEP_COORDINATOR=no..such..name:1234", "LOCKSTEP_NUM_PROCESSES=2", "LOCKSTEP_PROCESS_ID=1",
              "LOCKSTEP_TOKEN=0123456789abcdef", "KUBERNETES_SERVICE_HOST=10.96.0.1"},
             {"--timeout", "1"});
  EXPECT_EQ(result.exit_code, 1);
  expect_has_text(result, "\n  resolves to           nothing\n  status                the name does not resolve\n");
  expect_has_text(result, "\nnote: the name of a pod resolves only while the pod runs");
  expect_has_text(result, "\n1 problem found\n- resolve no..such..name: ");
}

TEST(Doctor, UsedPortOfProcess0IsAProblem) {
  NEEDS_CONTROL_PLANE();
  Listener other;
  const ProcessResult taken = doctor(explicit_variables(other.port(), 0));
  EXPECT_EQ(taken.exit_code, 1);
  expect_has_text(taken,
                  fmt::format("\n- process 0 cannot listen at 127.0.0.1:{}: Address already in use; pid {} (test_cli",
                              other.port(), ::getpid()));
  expect_has_text(taken,
                  "\n  stop that program, or choose another port (LOCKSTEP_COORDINATOR, LOCKSTEP_COORDINATOR_PORT)\n");
  other.close();
  const ProcessResult free = doctor(explicit_variables(other.port(), 0));
  EXPECT_EQ(free.exit_code, 0) << free.output;
  expect_has_text(free, "\n  status                free: this process, process 0, will listen there\n");
}

TEST(Doctor, CoordinatorAddressOfAnotherHostIsAProblem) {
  NEEDS_CONTROL_PLANE();
  const ProcessResult result = doctor({"LOCKSTEP_COORDINATOR=192.0.2.77:1234", "LOCKSTEP_NUM_PROCESSES=2",
                                       "LOCKSTEP_PROCESS_ID=0", "LOCKSTEP_TOKEN=0123456789abcdef"});
  EXPECT_EQ(result.exit_code, 1);
  expect_has_text(result, "\n1 problem found\n- ");
}

TEST(Doctor, InvalidValuesAreProblems) {
  const ProcessResult result = doctor({"WORLD_SIZE=two", "RANK=0", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=29500", "LOCKSTEP_NUM_CPU_DEVICES=x", "LOCKSTEP_CPU_LANES=y"});
  EXPECT_EQ(result.exit_code, 1);
  expect_has_text(result, "\n  torchrun    wrong  initialize: WORLD_SIZE is \"two\"; ");
  expect_has_text(result,
                  "\n3 problems found\n"
                  "- initialize: WORLD_SIZE is \"two\"\n"
                  "  set it to an integer of at least 1, or unset it\n"
                  "- devices: LOCKSTEP_NUM_CPU_DEVICES is \"x\"\n");
  expect_has_text(result, "\n- environment: LOCKSTEP_CPU_LANES is \"y\"\n");
  expect_lacks_text(result, "\n> ");
}

TEST(Doctor, WrongRuntimeSettingsAreProblems) {
  const ProcessResult result = doctor({"LOCKSTEP_COLLECTIVES=udp", "LOCKSTEP_INSECURE=yes", "LOCKSTEP_PROCESS_ID=-1"});
  EXPECT_EQ(result.exit_code, 1);
  expect_has_text(result, "\n3 problems found\n- initialize: LOCKSTEP_PROCESS_ID is \"-1\"\n");
  expect_has_text(result, "\n- environment: LOCKSTEP_INSECURE is \"yes\"\n  set it to 0 or 1, or unset it\n");
  expect_has_text(result,
                  "\n- environment: LOCKSTEP_COLLECTIVES is \"udp\"\n"
                  "  set it to auto, shared, tcp or mpi, or unset it\n");
}

TEST(Doctor, MissingTokenIsAProblem) {
  NEEDS_CONTROL_PLANE();
  const Listener process_0;
  Words variables = explicit_variables(process_0.port(), 1);
  variables.pop_back();
  const ProcessResult result = doctor(variables);
  EXPECT_EQ(result.exit_code, 1);
  expect_has_text(result, "\n1 problem found\n- token: ");
}

TEST(Doctor, PartlySetEnvironmentIsNoted) {
  const ProcessResult result = doctor({"SLURM_JOB_ID=7", "SLURM_NTASKS=2"});
  EXPECT_EQ(result.exit_code, 0);
  expect_has_text(result,
                  "\nnote: slurm is only partly set: SLURM_STEP_NODELIST, SLURM_PROCID and SLURM_LOCALID are missing");
  expect_has_text(result, "start the program with srun\n");
}

TEST(Doctor, ProxiesAreNamedWithoutTheirSecrets) {
  const ProcessResult result = doctor({"http_proxy=http://me:secret@proxy:3128", "HTTPS_PROXY=http://proxy:3128"});
  EXPECT_EQ(result.exit_code, 0);
  expect_has_text(result, "\n  proxies               http_proxy, HTTPS_PROXY: not used between processes\n");
  expect_lacks_text(result, "secret");
}

TEST(Doctor, FlagsSelectLauncherAndInterfaces) {
  const Listener process_0;
  const Words variables = explicit_variables(process_0.port(), 1);
  expect_has_text(doctor(variables, {"--method", "none"}), "\n> none        yes    process 0 of 1\n");
  const ProcessResult slurm = doctor({}, {"--method", "slurm"});
  EXPECT_EQ(slurm.exit_code, 1);
  expect_has_text(
      slurm,
      "\n- initialize: cluster_detection_method is slurm (leave it empty to try all), but it was not detected: ");
  expect_has_text(doctor(variables, {"--interface", "lo"}), "\n  addresses             lo 127.0.0.1");
  expect_lacks_text(doctor(variables, {"--interface", "lo"}), "note: ");
  const ProcessResult none = doctor(variables, {"--interface", "nothing*"});
  EXPECT_EQ(none.exit_code, 1);
  expect_has_text(none, "\n- initialize: no network interface matches \"nothing*\"\n  available: ");
}

TEST(Doctor, MpiNeedsNoCoordinator) {
  const ProcessResult result = doctor({"PRTE_LAUNCHED=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1",
                                       "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"});
  expect_has_text(result, "\n> ompi        yes    process 1 of 2, local id 1 of 2, MPI\n");
#ifdef LOCKSTEP_WITH_MPI
  EXPECT_EQ(result.exit_code, 0) << result.output;
#else
  EXPECT_EQ(result.exit_code, 1) << result.output;
  expect_has_text(result, "\n- MPI started this process, but this build has no MPI\n");
#endif
}

TEST(Doctor, JsonHasTheSameContents) {
  NEEDS_CONTROL_PLANE();
  const Listener process_0;
  const ProcessResult result = doctor(explicit_variables(process_0.port(), 1), {"--json"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  const std::string address = fmt::format("127.0.0.1:{}", process_0.port());
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["launchers"].size(), 10u);
  EXPECT_EQ(json["launchers"][0]["name"], "explicit");
  EXPECT_EQ(json["launchers"][0]["detected"], "yes");
  EXPECT_EQ(json["launchers"][0]["in_use"], true);
  EXPECT_EQ(json["launchers"][9]["in_use"], false);
  EXPECT_EQ(json["process"]["process_id"], 1);
  EXPECT_EQ(json["process"]["process_count"], 2);
  EXPECT_EQ(json["process"]["local_id"], nullptr);
  EXPECT_EQ(json["process"]["coordinator"], address);
  EXPECT_EQ(json["coordinator"]["address"], address);
  EXPECT_EQ(json["coordinator"]["status"], "reachable");
  EXPECT_EQ(json["devices"]["cpu_devices"], 1);
  EXPECT_GT(json["host"]["interfaces"].size(), 0u);

  const ProcessResult wrong = doctor({"LOCKSTEP_PROCESS_ID=x"}, {"--json"});
  EXPECT_EQ(wrong.exit_code, 1);
  const auto bad = nlohmann::json::parse(wrong.output);
  EXPECT_EQ(bad["ok"], false);
  EXPECT_EQ(bad["process"], nullptr);
  EXPECT_EQ(bad["launchers"][0]["detected"], "wrong");
  EXPECT_EQ(bad["problems"][0]["problem"], "initialize: LOCKSTEP_PROCESS_ID is \"x\"");
}

TEST(Doctor, WrongFlagsAreUsageErrors) {
  for (const char* wrong : {"0", "soon", "3601", "nan", ""})
    expect_usage_error({"doctor", "--timeout", wrong},
                       fmt::format("doctor: --timeout: \"{}\" is not a time from 0.001 to 3600 s; see `lockstep doctor "
                                   "--help`",
                                   wrong));
  EXPECT_EQ(run_lockstep({"doctor", "--method", "slrum"}).exit_code, 2);
}

}  // namespace
}  // namespace lockstep
