// What calls cost the host, on small arrays: operations outside of compiled functions, compiled functions with one version and
// with many, and functions of the host. Compare the times of one run.
//
//   build/benchmarks/eager --benchmark_filter='add|versions'
#include <benchmark/benchmark.h>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

void eager_add(benchmark::State& state) {
  const Array x = ones({8}), y = ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(x + y);
}
void eager_add_number(benchmark::State& state) {
  const Array x = ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(x + 1.5f);
}
void eager_expression(benchmark::State& state) {
  const Array x = ones({8}), y = ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(tanh(x * y + 1) - y);
}
void compiled_add(benchmark::State& state) {
  const auto add = jit([](Array a, Array b) { return a + b; });
  const Array x = ones({8}), y = ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(add(x, y));
}
void compiled_expression(benchmark::State& state) {
  const auto f = jit([](Array a, Array b) { return tanh(a * b + 1) - b; });
  const Array x = ones({8}), y = ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(f(x, y));
}
BENCHMARK(eager_add);
BENCHMARK(eager_add_number);
BENCHMARK(compiled_add);
BENCHMARK(eager_expression);
BENCHMARK(compiled_expression);

// Calls of every 100th of N versions in turn.
void versions(benchmark::State& state) {
  const auto f = jit([](Array a, const std::string&) { return a + 1; });
  const Array x = ones({8});
  std::vector<std::string> names;
  for (int64_t i = 0; i < state.range(0); ++i) names.push_back(std::to_string(i));
  for (const std::string& each : names) f(x, each);
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(f(x, names[next]));
    next = (next + 100) % names.size();
  }
}
BENCHMARK(versions)->Arg(1)->Arg(100)->Arg(3000);

void host_function(benchmark::State& state) {
  const Array x = ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(pure_callback([x](const Array&) { return x; }, x, x));
}
BENCHMARK(host_function);

}  // namespace
}  // namespace lockstep
