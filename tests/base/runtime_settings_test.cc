// Settings of the process: the C++ option has precedence over the variable, which has precedence over the default.
#include "base/runtime_settings.h"

#include <gtest/gtest.h>

#include <set>

#include "base/throws.h"
#include "lockstep/error.h"
#include "support/variable.h"

namespace lockstep {
namespace {

using detail::runtime_option;
using detail::runtime_settings;
using detail::RuntimeSetting;
using detail::setting_error;

const RuntimeSetting& setting_of(std::string_view flag) {
  for (const RuntimeSetting& each : runtime_settings())
    if (each.flag == flag) return each;
  throw Error("no such setting");
}

TEST(RuntimeSettings, FlagsAndVariablesAreDistinct) {
  std::set<std::string_view> flags, variables;
  for (const RuntimeSetting& each : runtime_settings()) {
    EXPECT_TRUE(flags.insert(each.flag).second) << each.flag;
    EXPECT_TRUE(variables.insert(each.variable).second) << each.variable;
  }
}

TEST(RuntimeSettings, VariableOverridesTheDefault) {
  {
    const ScopedVariable unset("LOCKSTEP_GPU_TIMEOUT", std::nullopt), empty("LOCKSTEP_CPU_LANES", "");
    EXPECT_EQ(runtime_option(&RuntimeOptions::gpu_timeout).count(), 1800);
    EXPECT_EQ(runtime_option(&RuntimeOptions::cpu_lanes), 1);
  }
  const ScopedVariable timeout("LOCKSTEP_GPU_TIMEOUT", "0.25"), lanes("LOCKSTEP_CPU_LANES", "3");
  EXPECT_EQ(runtime_option(&RuntimeOptions::gpu_timeout).count(), 0.25);
  EXPECT_EQ(runtime_option(&RuntimeOptions::cpu_lanes), 3);
}

TEST(RuntimeSettings, InvalidVariableIsAnErrorWithTheValidValues) {
  for (const char* wrong : {"0", "-3", "soon", "5 s", "inf", "nan", "1e10"}) {
    const ScopedVariable variable("LOCKSTEP_GPU_TIMEOUT", wrong);
    EXPECT_THROWS(runtime_option(&RuntimeOptions::gpu_timeout), Error,
                  std::string("environment: LOCKSTEP_GPU_TIMEOUT is \"") + wrong +
                      "\"; set it to a number of seconds above 0 and up to 1000000000, or unset it");
  }
  const ScopedVariable math("LOCKSTEP_CUDA_MATH", "half"), lanes("LOCKSTEP_CPU_LANES", "1025"),
      kernel("LOCKSTEP_PERSISTENT_KERNEL", "no");
  EXPECT_THROWS(runtime_option(&RuntimeOptions::gpu_math), Error,
                "environment: LOCKSTEP_CUDA_MATH is \"half\"; set it to tf32 or full, or unset it");
  EXPECT_THROWS(runtime_option(&RuntimeOptions::cpu_lanes), Error,
                "environment: LOCKSTEP_CPU_LANES is \"1025\"; set it to a whole number from 1 to 1024, or unset it");
  EXPECT_THROWS(runtime_option(&RuntimeOptions::persistent_kernel), Error,
                "environment: LOCKSTEP_PERSISTENT_KERNEL is \"no\"; set it to on or off, or unset it");
}

TEST(RuntimeSettings, TextsOfFlagsAreChecked) {
  EXPECT_EQ(setting_error(setting_of("--collectives"), "tcp"), "");
  EXPECT_EQ(setting_error(setting_of("--collectives"), "gloo"), "");  // the former name of tcp
  EXPECT_EQ(setting_error(setting_of("--collectives"), "udp"), "\"udp\" is not auto, shared, tcp or mpi");
  EXPECT_EQ(setting_error(setting_of("--process-id"), "0"), "");
  EXPECT_EQ(setting_error(setting_of("--coordinator-port"), "0"), "\"0\" is not a whole number from 1 to 65535");
  EXPECT_EQ(setting_error(setting_of("--state-dir"), ""), "its value is empty");
  EXPECT_EQ(setting_of("--no-tls").variable_value(""), "off");
  EXPECT_EQ(setting_of("--verbose").variable_value(""), "1");
  EXPECT_EQ(setting_of("--state-dir").variable_value("x"), "x");
}

TEST(RuntimeSettings, ValuesOfVariablesAreChecked) {
  EXPECT_EQ(variable_error(setting_of("--no-tls"), "on"), "");
  EXPECT_EQ(variable_error(setting_of("--no-tls"), ""), "");
  EXPECT_EQ(variable_error(setting_of("--state-dir"), ""), "");
  EXPECT_EQ(variable_error(setting_of("--no-tls"), "maybe"),
            "environment: LOCKSTEP_TLS is \"maybe\"; set it to on or off, or unset it");
}

TEST(RuntimeSettings, ConfigureOverridesTheVariableUntilTheOptionIsInUse) {
  Runtime runtime;
  const RuntimeScope scope(runtime);
  const ScopedVariable variable("LOCKSTEP_NCCL", "on");
  EXPECT_THROWS(
      configure({.nccl = false, .mpi_threads = "many"}), Error,
      "configure: mpi_threads: \"many\" is not multiple, serialized or funneled; change it, or leave it unset");
  configure({.nccl = false});
  EXPECT_FALSE(runtime_option(&RuntimeOptions::nccl));
  EXPECT_THROWS(
      configure({.nccl = true}), Error,
      "configure: nccl is \"on\", but it is already in use; call configure() before anything that uses devices");
}

}  // namespace
}  // namespace lockstep
