// Several runtimes in one process, each with its own devices.
#include <gtest/gtest.h>

#include "base/runtime_parts.h"
#include "base/start_thread.h"
#include "base/throws.h"
#include "lockstep/devices.h"
#include "lockstep/error.h"
#include "lockstep/runtime.h"
#include "lockstep/sharding.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

using detail::DeviceTable;
using detail::RuntimeParts;

std::vector<std::string> device_names() {
  std::vector<std::string> out;
  for (const Device& device : devices()) out.push_back(to_string(device));
  return out;
}

// Makes the runtime one of a machine with two GPUs.
void add_two_gpus(Runtime& runtime) {
  RuntimeParts::of(runtime).add(std::make_unique<DeviceTable>(
      [] { return detail::Environment{}; },
      [] { return GpuStatus{.usable = true, .why_not = "", .present = true, .devices = 2}; }));
}

TEST(Runtimes, HaveTheirOwnNumberOfDevices) {
  Runtime two, four;
  {
    const RuntimeScope scope(two);
    set_cpu_devices(2);
    EXPECT_EQ(device_count(), 2);
    const RuntimeScope inner(four);
    set_cpu_devices(4);
    EXPECT_EQ(device_count(), 4);
    EXPECT_EQ(make_mesh({{"data", 4}}).size(), 4);
  }
  const RuntimeScope scope(two);
  EXPECT_EQ(local_device_count(), 2);
  EXPECT_THROWS(set_cpu_devices(4), Error, "set_cpu_devices: 2 devices are already in use, but 4 are requested");
  EXPECT_THROWS(make_mesh({{"data", 4}}), Error, "needs 4 devices, but only 2 are available");
}

TEST(Runtimes, HaveTheirOwnPlatform) {
  Runtime cpu, gpus;
  add_two_gpus(gpus);
  const RuntimeScope outer(cpu);
  set_platform(Platform::cpu);
  {
    const RuntimeScope inner(gpus);
    EXPECT_EQ(platform(), Platform::cuda);
    EXPECT_EQ(device_names(), (std::vector<std::string>{"cuda:0", "cuda:1"}));
  }
  EXPECT_EQ(platform(), Platform::cpu);
  EXPECT_EQ(device_names(), (std::vector<std::string>{"cpu:0"}));
}

TEST(Runtimes, JoinJobsSeparately) {
  Runtime first, second;
  for (Runtime* const each : {&first, &second}) {
    const RuntimeScope scope(*each);
    DeviceTable::current().join(each == &first ? 0 : 1, {1, 3});
  }
  const RuntimeScope outer(first);
  EXPECT_EQ(process_index(), 0);
  EXPECT_EQ(local_device_count(), 1);
  const RuntimeScope inner(second);
  EXPECT_EQ(process_index(), 1);
  EXPECT_EQ(local_device_count(), 3);
  EXPECT_EQ(device_count(), 4);
}

TEST(Runtimes, AreUsedByThreadsAtTheSameTime) {
  constexpr int kThreads = 4;
  std::vector<int> counts(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&counts, i] {
      Runtime runtime;
      const RuntimeScope scope(runtime);
      set_cpu_devices(i + 1);
      start_thread([&] { counts[static_cast<size_t>(i)] = device_count(); }).join();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts, (std::vector<int>{1, 2, 3, 4}));
}

// A mesh is a value: it names its devices and belongs to no runtime.
TEST(Runtimes, ShareMeshes) {
  const auto mesh = [] {
    Runtime runtime;
    const RuntimeScope scope(runtime);
    set_platform(Platform::cpu);
    set_cpu_devices(2);
    return make_mesh({{"data", 2}});
  };
  EXPECT_EQ(mesh(), mesh());
}

}  // namespace
}  // namespace lockstep
