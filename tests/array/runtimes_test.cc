// Several runtimes in one process, each with its own lanes.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <thread>

#include "base/runtime_parts.h"
#include "hardware/gpu_lanes.h"
#include "interpreter/interpreter_lane.h"
#include "plan/lanes.h"

namespace lockstep {
namespace {

struct Trained {
  std::vector<float> weights;
  int64_t lanes = 0;
  std::string platform;
};

// Five steps of least squares on 8 devices of the runtime, with rows sharded over all of them.
Trained train(Runtime& runtime) {
  const RuntimeScope scope(runtime);
  set_cpu_devices(8);
  const Mesh mesh = make_mesh({{"data", 8}});
  const Array x = device_put(reshape(arange(128.f), {32, 4}) / 64, NamedSharding(mesh, P("data")));
  const Array y = device_put(arange(32.f), NamedSharding(mesh, P("data")));
  const auto step = jit(
      [](Array w, const Array& rows, const Array& targets) {
        return w - 0.1f * grad([&](Array v) { return mean(square(dot(rows, v) - targets)); })(w);
      },
      {.donate = {0}, .out_shardings = {NamedSharding(mesh, P())}});
  Array w = device_put(zeros({4}), NamedSharding(mesh, P()));
  for (int i = 0; i < 5; ++i) w = step(w, x, y);
  return {w.to_vector<float>(), Lanes::current().count(), Lanes::current().lane(0).info().platform};
}

void expect_close(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-4 * std::abs(wanted[i])) << i;
}

TEST(RuntimeLanes, ComputeTheSameOnOneAndOnFour) {
  Runtime one({.cpu_lanes = 1}), four({.cpu_lanes = 4});
  for (Runtime* each : {&one, &four}) {
    const RuntimeScope scope(*each);
    set_platform(Platform::cpu);
  }
  const Trained a = train(one), b = train(four);
  EXPECT_EQ(a.lanes, 1);
  EXPECT_EQ(b.lanes, 4);
  expect_close(b.weights, a.weights);
}

TEST(RuntimeLanes, AFunctionIsCompiledForEachRuntime) {
  Runtime one({.cpu_lanes = 1}), two({.cpu_lanes = 2});
  {
    const auto twice = jit([](Array x) { return x * 2; });
    for (Runtime* each : {&one, &two, &one}) {
      const RuntimeScope scope(*each);
      set_platform(Platform::cpu);
      EXPECT_EQ(twice(ones({2})).to_vector<float>(), (std::vector<float>{2, 2}));
    }
    EXPECT_EQ(twice.compiled(), 2u);
  }
}

// Lanes with memory of their own keep their pieces of an array of the host in it.
TEST(RuntimeLanes, ThreadsOfSeveralRuntimesMayReadAnArrayOfTheHost) {
  const Array x = array({1.f, 2.f, 3.f, 4.f});
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&x, t] {
      Runtime runtime({.cpu_lanes = 2});
      const RuntimeScope scope(runtime);
      set_platform(Platform::cpu);
      detail::RuntimeParts::of(runtime).add(std::make_unique<Lanes>(
          2, [](int64_t, Pool& pool) { return std::make_unique<InterpreterLane>(pool, MemorySpace::device); }));
      set_cpu_devices(2);
      const Mesh mesh = make_mesh({{"i", 2}});
      // Each call of another sharding replaces the pieces that the array keeps.
      const auto rows = jit([](Array v) { return v * 2; }, {.in_shardings = {NamedSharding(mesh, P("i"))}});
      const auto all = jit([](Array v) { return v * 3; }, {.in_shardings = {NamedSharding(mesh, P())}});
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(rows(x).to_vector<float>(), (std::vector<float>{2, 4, 6, 8})) << t;
        EXPECT_EQ(all(x).to_vector<float>(), (std::vector<float>{3, 6, 9, 12})) << t;
      }
    });
  for (std::thread& each : threads) each.join();
}

// One lane and four lanes of the CPU, and two lanes of a GPU, side by side.
TEST(RuntimeLanes, OnGpuBesideTheCpu) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda";
  Runtime one({.cpu_lanes = 1}), four({.cpu_lanes = 4}), gpus({.gpu_math = "full"});
  for (Runtime* each : {&one, &four}) {
    const RuntimeScope scope(*each);
    set_platform(Platform::cpu);
  }
  {
    const RuntimeScope scope(gpus);
    set_assigned_gpus({0, 0});
  }
  const Trained a = train(one), b = train(four), c = train(gpus);
  EXPECT_EQ(c.lanes, 2);
  EXPECT_EQ(c.platform, "cuda");
  EXPECT_EQ(a.platform, "cpu");
  expect_close(b.weights, a.weights);
  expect_close(c.weights, a.weights);
}

}  // namespace
}  // namespace lockstep
