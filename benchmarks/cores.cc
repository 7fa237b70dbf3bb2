// What several cores gain: the cost of parallel regions, the rate of matrix products and of memory, by number of threads.
//
//   build/benchmarks/cores [THREADS...]       # default: 1, 2, 4, ... and all cores
//
// Regions, in microseconds (medians): "empty" has one task per thread and nothing to do. In "all arrive" every task waits
// for all others: the cost of a region that needs all threads, or of a barrier. "after 1 ms" is the same when the
// workers have slept. "few tasks" are two tasks on a pool of that many threads.
//
// Products: GFLOP/s of the products of the mlp1024 step (batch 128), f32 and bf16, with the extents and the number of
// tiles; "efficiency" is the rate per thread, relative to one thread. "Own product per thread" is the limit of the cores:
// threads share nothing and never wait. Memory: GB/s of a = b + 2 c on 3 x 64 MiB.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "lane/cpu/blas.h"
#include "lane/cpu/gemm.h"
#include "lane/cpus.h"
#include "lane/pool.h"
#include "timing.h"

namespace lockstep {
namespace {

// The median time of f(), of at least 11 calls and about `total` seconds after a warm-up, with a pause before each.
template <class F>
double median_seconds(F&& f, double total, std::chrono::microseconds pause = {}) {
  for (const Clock::time_point begin = Clock::now(); seconds_since(begin) < total / 4;) f();
  std::vector<double> times;
  for (const Clock::time_point begin = Clock::now(); times.size() < 11 || seconds_since(begin) < total;) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const Clock::time_point start = Clock::now();
    f();
    times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void measure_regions(const std::vector<int>& counts) {
  fmt::print("regions, us\n  threads     empty  all arrive  after 1 ms   few tasks\n");
  for (const int threads : counts) {
    Pool pool({.threads = threads});
    const auto run = [&](int tasks) {
      std::atomic<int> arrived = 0;
      pool.parallel_for(tasks, [&](int64_t, int) {
        arrived.fetch_add(1, std::memory_order_acq_rel);
        while (arrived.load(std::memory_order_acquire) < tasks) continue;
      });
    };
    const auto us = [](double seconds) { return seconds * 1e6; };
    fmt::print("  {:7} {:9.2f} {:11.2f} {:11.2f} {:11.2f}\n", threads,
               us(median_seconds([&] { pool.parallel_for(threads, [](int64_t, int) {}); }, 0.1)),
               us(median_seconds([&] { run(threads); }, 0.1)),
               us(median_seconds([&] { run(threads); }, 0.2, std::chrono::milliseconds(1))),
               us(median_seconds([&] { run(std::min(threads, 2)); }, 0.1)));
    std::fflush(stdout);
  }
}

template <class T>
std::vector<T> random_values(int64_t count) {
  static std::mt19937 random(1);
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(std::normal_distribution<float>()(random)));
  return out;
}

template <class T>
void measure_product(const std::vector<int>& counts, GemmSpec spec) {
  spec.dtype = dtype_of<T>;
  const std::vector<T> a = random_values<T>(spec.m * spec.k), b = random_values<T>(spec.k * spec.n);
  std::vector<T> c(static_cast<size_t>(spec.m * spec.n));
  fmt::print("{}x{}x{}{}{} {}, GFLOP/s\n  threads      rate  efficiency  tiles\n", spec.m, spec.n, spec.k,
             spec.transpose_a ? " ta" : "", spec.transpose_b ? " tb" : "", name(spec.dtype));
  double of_one = 0;
  for (const int threads : counts) {
    Pool pool({.threads = threads});
    const Gemm gemm = Gemm::prepare(spec, threads);
    const double seconds = median_seconds([&] { gemm.run(pool, a.data(), b.data(), c.data()); }, 0.3);
    const double rate = 2e-9 * static_cast<double>(spec.m * spec.n * spec.k) / seconds;
    if (of_one == 0) of_one = rate / threads;
    const int64_t rows = gemm.tile_rows(), cols = gemm.tile_cols();
    fmt::print("  {:7} {:9.1f} {:11.2f}  {} of {}x{}\n", threads, rate, rate / threads / of_one,
               ((spec.m + rows - 1) / rows) * ((spec.n + cols - 1) / cols), rows, cols);
    std::fflush(stdout);
  }
}

// What the cores can compute at most: every thread multiplies its own matrices, which stay in its cache, and none waits.
template <class T>
void measure_arithmetic(const std::vector<int>& counts) {
  const GemmSpec spec{.dtype = dtype_of<T>, .m = 128, .n = 128, .k = 256};
  constexpr int kRepeat = 200;
  const Gemm gemm = Gemm::prepare(spec, 1);
  const std::vector<T> a = random_values<T>(spec.m * spec.k), b = random_values<T>(spec.k * spec.n);
  fmt::print("own product per thread, {}, GFLOP/s\n  threads      rate  efficiency\n", name(spec.dtype));
  double of_one = 0;
  for (const int threads : counts) {
    Pool pool({.threads = threads});
    const double seconds = median_seconds(
        [&] {
          pool.parallel_for(threads, [&](int64_t, int) {
            Pool own({.threads = 1});
            const std::vector<T> own_a = a, own_b = b;
            std::vector<T> c(static_cast<size_t>(spec.m * spec.n));
            for (int i = 0; i < kRepeat; ++i) gemm.run(own, own_a.data(), own_b.data(), c.data());
          });
        },
        0.5);
    const double rate = 2e-9 * static_cast<double>(spec.m * spec.n * spec.k) * kRepeat * threads / seconds;
    if (of_one == 0) of_one = rate / threads;
    fmt::print("  {:7} {:9.1f} {:11.2f}\n", threads, rate, rate / threads / of_one);
    std::fflush(stdout);
  }
}

void measure_memory(const std::vector<int>& counts) {
  constexpr int64_t kElements = int64_t{16} << 20;
  std::vector<float> a(kElements), b(kElements, 1), c(kElements, 2);
  fmt::print("memory, GB/s\n  threads      rate\n");
  for (const int threads : counts) {
    Pool pool({.threads = threads});
    const double seconds = median_seconds(
        [&] {
          pool.parallel_range(kElements, 1 << 15, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i)
              a[static_cast<size_t>(i)] = b[static_cast<size_t>(i)] + 2 * c[static_cast<size_t>(i)];
          });
        },
        0.3);
    fmt::print("  {:7} {:9.1f}\n", threads, 12e-9 * static_cast<double>(kElements) / seconds);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  using namespace lockstep;
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::stoi(argv[i]));
  if (counts.empty()) {
    for (int threads = 1; threads < compute_threads(); threads *= 2) counts.push_back(threads);
    counts.push_back(compute_threads());
  }
  const HalfKernel* const kernel = gemm_kernel(DType::f32, 128, 1024);
  fmt::print("cores {}; products of f32: {}\n", cpu_list(affinity_cpus()),
             kernel                                ? kernel->name
             : blas_is_position_independent(false) ? "OpenBLAS, tiles for the number of threads"
                                                   : "OpenBLAS, tiles for the shape");
  measure_regions(counts);
  measure_arithmetic<float>(counts);
  measure_arithmetic<BFloat16>(counts);
  for (const GemmSpec& spec : {GemmSpec{.m = 128, .n = 1024, .k = 784}, GemmSpec{.m = 128, .n = 1024, .k = 1024},
                               GemmSpec{.m = 128, .n = 1024, .k = 1024, .transpose_b = true},
                               GemmSpec{.m = 784, .n = 1024, .k = 128, .transpose_a = true},
                               GemmSpec{.m = 1024, .n = 1024, .k = 128, .transpose_a = true},
                               GemmSpec{.m = 128, .n = 256, .k = 784}, GemmSpec{.m = 128, .n = 10, .k = 1024}}) {
    measure_product<float>(counts, spec);
    measure_product<BFloat16>(counts, spec);
  }
  measure_memory(counts);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "cores: {}\n", e.what());
  return 1;
}
