// Operations between two ranks, which are threads of one process or processes of one host: what they cost, against
// copying the same memory.
//
//   benchmarks/comm                  # bytes per rank; GB/s counts them once; ratio: time of a memcpy over ours
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/in_process.h"
#include "comm/shared/shared_memory.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;

template <class F>
double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Times f(rank) on kRanks threads that begin together: the mean of `repeat` calls on rank 0.
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

// A sum of `bytes` on each of two ranks, and every rank copying as much, in turn.
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

// How the ranks of a backend meet, when they are processes: by a key that only they know.
using Join = std::function<std::unique_ptr<Comm>(int rank, const std::string& key)>;

// The same between processes, children of this one: the time of rank 0.
void all_reduce_of_processes(benchmark::State& state, const Join& join) {
  const int64_t bytes = state.range(0), count = bytes / 4;
  const int repeat = static_cast<int>(std::clamp<int64_t>((int64_t{64} << 20) / bytes, 8, 20000));
  constexpr int kRounds = 7;
  void* memory = mmap(nullptr, 2 * kRounds * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return state.SkipWithError("no memory");
  auto* times = static_cast<double*>(memory);
  for (auto _ : state) {
    const std::string key = "benchmark " + std::to_string(getpid()) +
                            std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
    std::vector<pid_t> children;
    for (int rank = 0; rank < kRanks; ++rank) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      try {
        const std::unique_ptr<Comm> comm = join(rank, key);
        std::vector<float> in(static_cast<size_t>(count)), out(in.size());
        const auto reduce = [&] { comm->all_reduce(in.data(), out.data(), count, f32, Reduction::sum); };
        const auto copy = [&] {
          std::memcpy(out.data(), in.data(), static_cast<size_t>(bytes));
          benchmark::ClobberMemory();
        };
        for (int round = 0; round < 2 * kRounds; ++round) {
          const bool ours = round % 2 == 0;
          comm->barrier();
          const double time = seconds([&] {
            for (int i = 0; i < repeat; ++i) ours ? reduce() : copy();
          });
          if (rank == 0) times[(ours ? 0 : kRounds) + round / 2] = time / repeat;
        }
        comm->barrier();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        _exit(1);
      }
      _exit(0);
    }
    bool failed = false;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      failed |= status != 0;
    }
    if (failed) {
      state.SkipWithError("a rank failed");
      break;
    }
    std::vector<double> ours(times, times + kRounds), copies(times + kRounds, times + 2 * kRounds);
    const double our_time = median(ours), copy_time = median(copies);
    state.SetIterationTime(our_time);
    state.counters["us"] = our_time * 1e6;
    state.counters["GB/s"] = static_cast<double>(bytes) / our_time * 1e-9;
    state.counters["memcpy_GB/s"] = static_cast<double>(bytes) / copy_time * 1e-9;
    state.counters["ratio"] = copy_time / our_time;
  }
  munmap(memory, 2 * kRounds * sizeof(double));
}
BENCHMARK_CAPTURE(all_reduce_of_processes, shared_memory,
                  [](int rank, const std::string& key) {
                    return shared_memory_comm({.key = key, .rank = rank, .size = kRanks});
                  })
    ->Arg(4)
    ->Arg(4 << 10)
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(8 << 20)
    ->Arg(64 << 20)
    ->UseManualTime()
    ->Iterations(1);

void barrier(benchmark::State& state) {
  std::vector<std::unique_ptr<Comm>> comms = in_process_comms(kRanks);
  for (auto _ : state)
    state.SetIterationTime(on_ranks(comms, 20000, [&](int rank) { comms[static_cast<size_t>(rank)]->barrier(); }));
}
BENCHMARK(barrier)->UseManualTime()->Iterations(5)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep
