// The cost of collectives between two ranks that are threads of one process, compared to memcpy of the same data.
// benchmarks/comm_ranks measures collectives between processes.
//
//   benchmarks/comm                  # bytes per rank; GB/s counts them once; ratio: time of memcpy / our time
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/in_process.h"
#include "timing.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;

template <class F>
double seconds(F&& f) {
  const Clock::time_point start = Clock::now();
  f();
  return seconds_since(start);
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Runs f(rank) on kRanks threads that start together. Returns the mean time of `repeat` calls on rank 0.
template <class F>
double on_ranks(std::vector<std::unique_ptr<Comm>>& comms, int repeat, F&& f) {
  double time = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      Comm& comm = *comms[static_cast<size_t>(rank)];
      for (int i = 0; i < 3; ++i) f(rank);
      comm.barrier();
      const double mine = seconds([&] {
        for (int i = 0; i < repeat; ++i) f(rank);
      });
      comm.barrier();
      if (rank == 0) time = mine / repeat;
    });
  for (std::thread& thread : threads) thread.join();
  return time;
}

// Alternates all-reduces of `bytes` on each of two ranks with copies of the same size.
void all_reduce(benchmark::State& state, DType dtype) {
  const int64_t bytes = state.range(0), count = bytes / size_of(dtype);
  const int repeat = static_cast<int>(std::clamp<int64_t>((int64_t{64} << 20) / bytes, 8, 20000));
  std::vector<std::unique_ptr<Comm>> comms = in_process_comms(kRanks);
  std::vector<std::vector<std::byte>> in(kRanks, std::vector<std::byte>(static_cast<size_t>(bytes)));
  std::vector<std::vector<std::byte>> out = in;
  std::vector<double> ours, copies;
  for (auto _ : state) {
    ours.push_back(on_ranks(comms, repeat, [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      comms[at]->all_reduce(in[at].data(), out[at].data(), count, dtype, Reduction::sum);
    }));
    copies.push_back(on_ranks(comms, repeat, [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      std::memcpy(out[at].data(), in[at].data(), static_cast<size_t>(bytes));
      benchmark::ClobberMemory();
    }));
    state.SetIterationTime(ours.back());
  }
  const double our_time = median(ours), copy_time = median(copies);
  state.counters["us"] = our_time * 1e6;
  state.counters["GB/s"] = static_cast<double>(bytes) / our_time * 1e-9;
  state.counters["memcpy_GB/s"] = static_cast<double>(bytes) / copy_time * 1e-9;
  state.counters["ratio"] = copy_time / our_time;
}
BENCHMARK_CAPTURE(all_reduce, f32, f32)
    ->Arg(4)
    ->Arg(16 << 10)
    ->Arg(1 << 20)
    ->Arg(8 << 20)
    ->UseManualTime()
    ->Iterations(11);
BENCHMARK_CAPTURE(all_reduce, bf16, bf16)->Arg(1 << 20)->UseManualTime()->Iterations(11);
BENCHMARK_CAPTURE(all_reduce, f16, f16)->Arg(1 << 20)->UseManualTime()->Iterations(11);

void barrier(benchmark::State& state) {
  std::vector<std::unique_ptr<Comm>> comms = in_process_comms(kRanks);
  for (auto _ : state)
    state.SetIterationTime(on_ranks(comms, 20000, [&](int rank) { comms[static_cast<size_t>(rank)]->barrier(); }));
}
BENCHMARK(barrier)->UseManualTime()->Iterations(5)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep
