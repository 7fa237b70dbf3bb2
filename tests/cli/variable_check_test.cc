// Wrong values of environment variables are usage errors, reported before anything starts.
#include <algorithm>
#include <set>

#include "base/runtime_settings.h"
#include "support/program.h"
#include "support/text.h"
#include "support/variable.h"

namespace lockstep {
namespace {

struct WrongVariable {
  const char *variable, *value;
  Words command = {"devices"};
};

const std::vector<WrongVariable>& wrong_variables() {
  static const std::vector<WrongVariable> rows = {
      {"LOCKSTEP_PLATFORM", "tpu"},
      {"LOCKSTEP_NUM_CPU_DEVICES", "0"},
      {"LOCKSTEP_CPU_LANES", "x"},
      {"LOCKSTEP_CPU_THREADS", "x"},
      {"LOCKSTEP_CUDA_MATH", "half"},
      {"LOCKSTEP_GPU_TIMEOUT", "5s"},
      {"LOCKSTEP_PERSISTENT_KERNEL", "no"},
      {"LOCKSTEP_NCCL", "0"},
      {"LOCKSTEP_COORDINATOR", "host"},
      {"LOCKSTEP_COORDINATOR_PORT", "65536"},
      {"LOCKSTEP_NUM_PROCESSES", "0"},
      {"LOCKSTEP_PROCESS_ID", "-1"},
      {"LOCKSTEP_LOCAL_DEVICE_IDS", "0,x"},
      {"LOCKSTEP_INSECURE", "yes"},
      {"LOCKSTEP_COLLECTIVES", "udp"},
      {"LOCKSTEP_MPI_THREADS", "many"},
      {"LOCKSTEP_DATA_SECURITY", "tls"},
      {"LOCKSTEP_TLS", "maybe"},
      {"LOCKSTEP_INITIALIZATION_TIMEOUT", "0"},
      {"LOCKSTEP_HEARTBEAT_TIMEOUT", "nan"},
      {"LOCKSTEP_COLLECTIVE_TIMEOUT", "1e7"},
      {"LOCKSTEP_DEBUG_NANS", "yes", {"train", "--no-save", "--dataset", "synthetic", "--steps", "1"}},
      {"LOCKSTEP_VERBOSE", "yes", {"train", "--no-save", "--dataset", "synthetic", "--steps", "1"}},
      {"LOCKSTEP_LOG_LIMIT", "10", {"apply", "-f", "job.yaml"}},
  };
  return rows;
}

// Expects exit code 2 and one line that names the variable with its value.
void expect_variable_refused(const WrongVariable& wrong) {
  const ScopedVariable variable(wrong.variable, wrong.value);
  const ProcessResult result = run_lockstep(wrong.command);
  EXPECT_EQ(result.exit_code, 2) << wrong.variable << ": " << result.output;
  expect_contains(result.output, fmt::format("{} is \"{}\"", wrong.variable, wrong.value));
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 1) << result.output;
}

void expect_accepted(const std::string& variable, const std::string& value, const Words& command) {
  const ScopedVariable scope(variable, value);
  const ProcessResult result = run_lockstep(command);
  EXPECT_EQ(result.exit_code, 0) << variable << ": " << result.output;
}

TEST(VariableCheck, WrongValuesAreUsageErrors) {
  for (const WrongVariable& each : wrong_variables()) expect_variable_refused(each);
}

TEST(VariableCheck, EverySettingThatRestrictsItsValueIsTested) {
  std::set<std::string_view> tested;
  for (const WrongVariable& each : wrong_variables()) tested.insert(each.variable);
  for (const detail::RuntimeSetting& each : detail::runtime_settings()) {
    const bool restricted = each.values.kind != detail::SettingValues::Kind::text;
    EXPECT_TRUE(!restricted || tested.contains(each.variable)) << each.variable;
  }
}

TEST(VariableCheck, MessagesNameTheValidValues) {
  {
    const ScopedVariable lanes("LOCKSTEP_CPU_LANES", "x");
    expect_usage_error(
        {"devices"}, "environment: LOCKSTEP_CPU_LANES is \"x\"; set it to a whole number from 1 to 1024, or unset it");
  }
  {
    const ScopedVariable platform("LOCKSTEP_PLATFORM", "tpu");
    expect_usage_error({"devices"}, "devices: LOCKSTEP_PLATFORM is \"tpu\"; use cpu, cuda or auto");
  }
  const ScopedVariable devices("LOCKSTEP_NUM_CPU_DEVICES", "x");
  expect_usage_error({"devices"},
                     "devices: LOCKSTEP_NUM_CPU_DEVICES is \"x\"; set it to a number from 1 to 131072, or unset it");
}

TEST(VariableCheck, FlagsOverrideWrongVariables) {
  expect_accepted("LOCKSTEP_CPU_LANES", "x", {"devices", "--cpu-lanes", "1"});
  expect_accepted("LOCKSTEP_TLS", "maybe", {"devices", "--no-tls"});
  expect_accepted("LOCKSTEP_NUM_PROCESSES", "x", {"devices", "--num-processes", "1"});
  expect_accepted("LOCKSTEP_PLATFORM", "tpu", {"devices", "--platform", "cpu"});
  expect_accepted("LOCKSTEP_NUM_CPU_DEVICES", "x", {"devices", "--devices", "2"});
  expect_variable_refused({"LOCKSTEP_NUM_CPU_DEVICES", "x", {"devices", "--devices", "auto"}});
}

TEST(VariableCheck, EmptyVariablesAndFormerNamesAreAccepted) {
  expect_accepted("LOCKSTEP_CPU_LANES", "", {"devices"});
  expect_accepted("LOCKSTEP_NUM_CPU_DEVICES", "", {"devices"});
  expect_accepted("LOCKSTEP_COLLECTIVES", "gloo", {"devices"});
}

TEST(VariableCheck, OtherCommandsIgnoreThem) {
  expect_accepted("LOCKSTEP_CPU_LANES", "x", {"version"});
  expect_accepted("LOCKSTEP_CPU_LANES", "x", {"train", "--help"});
  expect_accepted("LOCKSTEP_VERBOSE", "yes", {"devices"});
}

TEST(VariableCheck, LaunchReportsThemOnceBeforeAnyProcessStarts) {
  const Words devices = {"launch", "-n", "2", "--", "devices"};
  for (const WrongVariable& each :
       {WrongVariable{"LOCKSTEP_COLLECTIVES", "udp", devices},
        {"LOCKSTEP_CPU_LANES", "x", devices},
        {"LOCKSTEP_PLATFORM", "tpu", devices},
        {"LOCKSTEP_NUM_CPU_DEVICES", "x", devices},
        {"LOCKSTEP_MPI_THREADS", "many", devices},
        {"LOCKSTEP_LOCAL_DEVICE_IDS", "x", devices},
        {"LOCKSTEP_TLS", "maybe", {"launch", "-n", "2", "--", "/bin/true"}},
        {"LOCKSTEP_DEBUG_NANS", "yes", {"train", "--no-save", "--dataset", "synthetic", "--steps", "1"}},
        {"LOCKSTEP_VERBOSE", "yes", {"launch", "-n", "2", "--", "train", "--no-save"}}})
    expect_variable_refused(each);
}

TEST(VariableCheck, LaunchIgnoresWhatItsProcessesDoNotGet) {
  expect_accepted("LOCKSTEP_PROCESS_ID", "x", {"launch", "-n", "1", "--", "devices"});
  expect_accepted("LOCKSTEP_CPU_LANES", "x", {"launch", "-n", "1", "--cpu-lanes", "1", "--", "devices"});
  expect_accepted("LOCKSTEP_NUM_CPU_DEVICES", "x", {"launch", "-n", "1", "--devices", "2", "--", "devices"});
}

}  // namespace
}  // namespace lockstep
