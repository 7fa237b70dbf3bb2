#include "lockstep/devices.h"

#include <gtest/gtest.h>

#include <unordered_set>

#include "base/throws.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

using detail::detect_cpu_devices;
using detail::DeviceTable;
using detail::Environment;

TEST(Devices, PrintAsPlatformAndId) {
  const Device gpu{.id = 3, .platform = Platform::cuda};
  EXPECT_EQ(to_string(Device{}), "cpu:0");
  EXPECT_EQ(to_string(gpu), "cuda:3");
  EXPECT_EQ(jax_name(Device{.id = 131072, .process_index = 1}), "CpuDevice(id=131072)");
  EXPECT_EQ(jax_name(gpu), "CudaDevice(id=3)");
  EXPECT_EQ(jax_name(std::vector<Device>{{.id = 0}, {.id = 1}}), "[CpuDevice(id=0), CpuDevice(id=1)]");
  EXPECT_EQ(jax_name(std::vector<Device>{}), "[]");
}

TEST(Devices, CompareByAllFields) {
  const std::unordered_set<Device> set = {
      {.id = 0}, {.id = 1}, {.id = 0, .platform = Platform::cuda}, {.id = 0, .process_index = 1}, {.id = 0}};
  EXPECT_EQ(set.size(), 4u);
}

TEST(Devices, FirstNonEmptyVariableSetsTheCount) {
  EXPECT_EQ(detect_cpu_devices({}), 1);
  Environment env = {{"XLA_FLAGS", "--xla_dump_to=/d --xla_force_host_platform_device_count=4\t--xla_x=9"}};
  EXPECT_EQ(detect_cpu_devices(env), 4);
  env["JAX_NUM_CPU_DEVICES"] = "6";
  EXPECT_EQ(detect_cpu_devices(env), 6);
  env["LOCKSTEP_NUM_CPU_DEVICES"] = "8";
  EXPECT_EQ(detect_cpu_devices(env), 8);
  env["LOCKSTEP_NUM_CPU_DEVICES"] = "";
  EXPECT_EQ(detect_cpu_devices(env), 6);
}

TEST(Devices, LastXlaFlagSetsTheCount) {
  const std::string flag = "--xla_force_host_platform_device_count=";
  EXPECT_EQ(detect_cpu_devices({{"XLA_FLAGS", flag + "2 " + flag + "5"}}), 5);
  EXPECT_EQ(detect_cpu_devices({{"XLA_FLAGS", ""}}), 1);
  EXPECT_EQ(detect_cpu_devices({{"XLA_FLAGS", "  "}}), 1);
  EXPECT_EQ(detect_cpu_devices({{"XLA_FLAGS", "x" + flag + "2"}}), 1);
}

TEST(Devices, RejectInvalidCounts) {
  for (const char* value : {"eight", "0", "-1", "8x", " 8", "1.5", "131073", "99999999999999999999"}) {
    EXPECT_THROWS(detect_cpu_devices({{"LOCKSTEP_NUM_CPU_DEVICES", value}}), Error,
                  "devices: LOCKSTEP_NUM_CPU_DEVICES is \"" + std::string(value) +
                      "\"; set it to a number from 1 to 131072, or unset it");
    EXPECT_THROWS(detect_cpu_devices({{"JAX_NUM_CPU_DEVICES", value}}), Error, "JAX_NUM_CPU_DEVICES is \"");
  }
  EXPECT_THROWS(detect_cpu_devices({{"XLA_FLAGS", "--xla_force_host_platform_device_count=many"}}), Error,
                "devices: --xla_force_host_platform_device_count in XLA_FLAGS is \"many\"; set it to a number");
}

TEST(Devices, VariablesAreReadFromTheEnvironment) {
  setenv("JAX_NUM_CPU_DEVICES", "3", 1);
  EXPECT_EQ(detail::device_variables().at("JAX_NUM_CPU_DEVICES"), "3");
  unsetenv("JAX_NUM_CPU_DEVICES");
  EXPECT_FALSE(detail::device_variables().contains("JAX_NUM_CPU_DEVICES"));
}

// Fake results of GPU detection.
GpuStatus usable() { return {.usable = true, .why_not = "", .present = true}; }
GpuStatus four() { return {.usable = true, .why_not = "", .present = true, .devices = 4}; }
GpuStatus broken() { return {.usable = false, .why_not = "cuda: broken; fix it", .present = true}; }
GpuStatus absent() { return {.usable = false, .why_not = "cuda: none; buy one", .present = false}; }
Environment empty_environment() { return {}; }

TEST(Devices, AreFixedAtFirstUse) {
  DeviceTable table([] { return Environment{{"LOCKSTEP_NUM_CPU_DEVICES", "3"}}; }, absent);
  EXPECT_THROWS(table.set_cpu_devices(0), Error, "set_cpu_devices: 0 devices; use 1 to 131072");
  table.set_cpu_devices(5);
  table.set_cpu_devices(2);
  const std::vector<Device>& list = table.devices();
  EXPECT_EQ(list, (std::vector<Device>{{.id = 0}, {.id = 1}}));
  EXPECT_EQ(&table.devices(), &list);
  EXPECT_THROWS(table.set_cpu_devices(8), Error,
                "set_cpu_devices: 2 devices are already in use, but 8 are requested; call it before");
}

TEST(Devices, DefaultToTheEnvironment) {
  DeviceTable table([] { return Environment{{"LOCKSTEP_NUM_CPU_DEVICES", "3"}}; }, absent);
  EXPECT_EQ(table.devices().size(), 3u);
}

TEST(Platform, DefaultsToAUsableGpu) {
  DeviceTable with(empty_environment, usable), without(empty_environment, absent);
  EXPECT_EQ(with.platform(), Platform::cuda);
  EXPECT_EQ(with.devices(), (std::vector<Device>{{.id = 0, .platform = Platform::cuda}}));
  EXPECT_EQ(with.why_no_gpu(), "");
  EXPECT_EQ(without.platform(), Platform::cpu);
  EXPECT_EQ(without.why_no_gpu(), "");  // no hardware, no note
}

TEST(Platform, ReportsWhyAPresentGpuIsNotUsed) {
  DeviceTable table(empty_environment, broken);
  EXPECT_EQ(table.platform(), Platform::cpu);
  EXPECT_EQ(table.why_no_gpu(), "cuda: broken; fix it");
  table.set_platform("cpu");  // requested: no note
  EXPECT_EQ(table.platform(), Platform::cpu);
  EXPECT_EQ(table.why_no_gpu(), "");
}

TEST(Platform, RequestForAnUnusableGpuThrows) {
  DeviceTable table([] { return Environment{{"LOCKSTEP_PLATFORM", "cuda"}}; }, broken);
  EXPECT_THROWS(table.platform(), Error, "cuda: broken; fix it");
  EXPECT_THROWS(table.devices(), Error, "cuda: broken; fix it");
  table.set_platform("auto");  // overrides the variable
  EXPECT_EQ(table.platform(), Platform::cpu);
}

TEST(Platform, CpuRequestSkipsGpuDetection) {
  DeviceTable table(
      [] {
        return Environment{{"LOCKSTEP_PLATFORM", "cpu"}};
      },
      []() -> GpuStatus { throw Error("detected"); });
  EXPECT_EQ(table.platform(), Platform::cpu);
}

TEST(Platform, OfAJobIsThatOfThisProcess) {
  DeviceTable table(empty_environment, usable);
  table.join(1, {1, 1});
  EXPECT_EQ(table.platform(), Platform::cuda);
  EXPECT_EQ(table.devices()[1], (Device{.id = 1, .platform = Platform::cuda, .process_index = 1}));
}

TEST(Platform, IgnoresTheNumberOfCpuLanes) {
  DeviceTable table([] { return Environment{{"LOCKSTEP_CPU_LANES", "4"}}; }, usable);
  EXPECT_EQ(table.platform(), Platform::cuda);
}

TEST(Platform, HasOneDevicePerGpuUnlessACountIsSet) {
  DeviceTable all(empty_environment, four), set(empty_environment, four),
      by_variable(
          [] {
            return Environment{{"LOCKSTEP_NUM_CPU_DEVICES", "1"}};
          },
          four),
      cpu(empty_environment, four);
  EXPECT_EQ(all.local_count(), 4);
  EXPECT_EQ(all.devices().size(), 4u);
  set.set_cpu_devices(8);
  EXPECT_EQ(set.devices().size(), 8u);
  EXPECT_EQ(by_variable.devices().size(), 1u);
  cpu.set_platform("cpu");
  EXPECT_EQ(cpu.local_count(), 1);
}

TEST(Platform, IsDetectedAgainAfterRedetect) {
  static bool taken = false;
  DeviceTable table(empty_environment, [] { return taken ? broken() : usable(); });
  EXPECT_EQ(table.platform(), Platform::cuda);
  taken = true;
  EXPECT_EQ(table.platform(), Platform::cuda);
  table.redetect_gpus();
  EXPECT_EQ(table.platform(), Platform::cpu);
  EXPECT_EQ(table.why_no_gpu(), "cuda: broken; fix it");
}

TEST(Platform, RejectsUnknownNames) {
  DeviceTable table([] { return Environment{{"LOCKSTEP_PLATFORM", "tpu"}}; }, usable);
  EXPECT_THROWS(table.platform(), Error, "devices: LOCKSTEP_PLATFORM is \"tpu\"; use cpu, cuda or auto");
  EXPECT_THROWS(table.set_platform("gpu"), Error, "set_platform: the platform is \"gpu\"; use cpu, cuda or auto");
}

TEST(Platform, IsFixedOnceDevicesAreInUse) {
  DeviceTable table(empty_environment, usable);
  table.devices();
  EXPECT_THROWS(table.set_platform("cpu"), Error,
                "set_platform: cuda devices are already in use; call it before anything that uses devices");
  table.set_platform("auto");
  table.set_platform("cuda");
  EXPECT_EQ(table.platform(), Platform::cuda);
}

TEST(Devices, OfOneProcessAreAllLocal) {
  EXPECT_GE(device_count(), 1);
  EXPECT_EQ(local_devices(), devices());
  EXPECT_EQ(local_device_count(), device_count());
  EXPECT_EQ(process_index(), 0);
  EXPECT_EQ(process_count(), 1);
  EXPECT_THROWS(set_cpu_devices(2), Error, "already in use");
}

}  // namespace
}  // namespace lockstep
