// The CPU lane: the cost of parallel regions, buffers, matrix products and convolutions.
//
//   benchmarks/lane                                        # ratios above 1: faster than the reference
#include <benchmark/benchmark.h>
#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "lane/buffer.h"
#include "lane/cpu/conv.h"
#include "lane/cpu/gemm.h"
#include "lane/cpu/window.h"
#include "lane/pool.h"
#include "timing.h"

namespace lockstep {
namespace {

Pool& pool() {
  static Pool pool;
  return pool;
}

std::vector<float> random_values(int64_t count) {
  static std::mt19937 random(1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return values;
}

template <class F>
double seconds(F&& f) {
  const Clock::time_point start = Clock::now();
  f();
  return seconds_since(start);
}

// Runs both sides alternately, so that noise affects both, and reports the ratio of the medians.
// OpenBLAS's threads spin for a quarter of a second after their last call, which must not disturb our measurement.
template <class Ours, class Theirs>
void compare(benchmark::State& state, double flops, Ours&& ours, Theirs&& theirs) {
  std::vector<double> our_times, their_times;
  const int repeat = static_cast<int>(std::clamp(2e9 / flops, 2.0, 2000.0));
  const auto time = [&](auto& f) {
    for (int i = 0; i < 2; ++i) f();
    return seconds([&] {
             for (int i = 0; i < repeat; ++i) f();
           }) /
           repeat;
  };
  for (auto _ : state) {
    openblas_set_num_threads(pool().threads());
    their_times.push_back(time(theirs));
    openblas_set_num_threads(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    our_times.push_back(time(ours));
    state.SetIterationTime(our_times.back());
  }
  const auto median = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  };
  const double our_median = median(our_times), their_median = median(their_times);
  state.counters["GFLOPS"] = flops / our_median * 1e-9;
  state.counters["other_GFLOPS"] = flops / their_median * 1e-9;
  state.counters["ratio"] = their_median / our_median;
}

// Every task waits for all others, so each needs its own thread.
void region(benchmark::State& state) {
  const int threads = pool().threads();
  for (auto _ : state) {
    std::atomic<int> arrived = 0;
    pool().parallel_for(threads, [&](int64_t, int) {
      arrived.fetch_add(1, std::memory_order_acq_rel);
      while (arrived.load(std::memory_order_acquire) < threads) continue;
    });
  }
}
BENCHMARK(region)->UseRealTime();

void region_of_one_task(benchmark::State& state) {
  for (auto _ : state) pool().parallel_for(1, [](int64_t, int) {});
}
BENCHMARK(region_of_one_task)->UseRealTime();

void buffer(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(allocate(state.range(0))->data());
}
BENCHMARK(buffer)->Arg(1000)->Arg(4 << 20);

// Our product compared with OpenBLAS on the same number of threads: args m, n, k, transpose a, transpose b.
void gemm_against_openblas(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool ta = state.range(3) != 0, tb = state.range(4) != 0;
  const std::vector<float> a = random_values(m * k), b = random_values(k * n);
  std::vector<float> c(static_cast<size_t>(m * n));
  const Gemm gemm = Gemm::prepare({.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb}, pool().threads());
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto int_of = [](int64_t x) { return static_cast<blasint>(x); };
  compare(
      state, flops, [&] { gemm.run(pool(), a.data(), b.data(), c.data()); },
      [&] {
        cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, int_of(m), int_of(n),
                    int_of(k), 1.0f, a.data(), int_of(ta ? m : k), b.data(), int_of(tb ? k : n), 0.0f, c.data(),
                    int_of(n));
      });
}
BENCHMARK(gemm_against_openblas)
    ->ArgNames({"m", "n", "k", "ta", "tb"})
    ->Args({128, 1024, 784, 0, 0})  // mlp1024: forward
    ->Args({128, 1024, 1024, 0, 0})
    ->Args({128, 10, 1024, 0, 0})
    ->Args({128, 1024, 10, 0, 1})  // gradients of the activations
    ->Args({128, 1024, 1024, 0, 1})
    ->Args({784, 1024, 128, 1, 0})  // gradients of the weights
    ->Args({1024, 1024, 128, 1, 0})
    ->Args({1024, 10, 128, 1, 0})
    ->Args({128, 256, 784, 0, 0})  // mlp
    ->Args({128, 128, 256, 0, 0})
    ->Args({128, 10, 128, 0, 0})
    ->Args({128, 128, 10, 0, 1})
    ->Args({128, 256, 128, 0, 1})
    ->Args({784, 256, 128, 1, 0})
    ->Args({256, 128, 128, 1, 0})
    ->Args({128, 10, 128, 1, 0})
    ->Args({800, 64, 25088, 1, 0})  // gradients of convolution filters, as one product
    ->Args({25, 32, 100352, 1, 0})
    ->Iterations(7)
    ->UseManualTime();

template <class T>
std::vector<T> random_values_of(int64_t count) {
  const std::vector<float> values = random_values(count);
  std::vector<T> converted;
  for (const float value : values) converted.push_back(static_cast<T>(value));
  return converted;
}

// One operation in f32, bf16 and f16, alternately: the best of each in GFLOP/s, and the speedup over f32.
template <class F32, class Bf16, class F16>
void compare_types(benchmark::State& state, double flops, F32&& in_f32, Bf16&& in_bf16, F16&& in_f16) {
  double best[3] = {1e9, 1e9, 1e9};
  const int repeat = static_cast<int>(std::clamp(5e8 / flops, 2.0, 2000.0));
  const auto time = [&](double& least, auto& f) {
    f();
    least = std::min(least, seconds([&] {
                              for (int i = 0; i < repeat; ++i) f();
                            }) / repeat);
  };
  for (auto _ : state) {
    time(best[0], in_f32);
    time(best[1], in_bf16);
    time(best[2], in_f16);
    state.SetIterationTime(best[1]);
  }
  state.counters["f32_GFLOPS"] = flops / best[0] * 1e-9;
  state.counters["bf16_GFLOPS"] = flops / best[1] * 1e-9;
  state.counters["f16_GFLOPS"] = flops / best[2] * 1e-9;
  state.counters["bf16_ratio"] = best[0] / best[1];
  state.counters["f16_ratio"] = best[0] / best[2];
}

template <class T>
class TypedProduct {
 public:
  TypedProduct(int64_t m, int64_t n, int64_t k, bool ta, bool tb)
      : a_(random_values_of<T>(m * k)),
        b_(random_values_of<T>(k * n)),
        c_(static_cast<size_t>(m * n)),
        gemm_(Gemm::prepare({.dtype = dtype_of<T>, .m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb},
                            pool().threads())) {}
  void operator()() { gemm_.run(pool(), a_.data(), b_.data(), c_.data()); }

 private:
  std::vector<T> a_, b_, c_;
  Gemm gemm_;
};

// Args m, n, k, transpose a, transpose b.
void gemm_by_type(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool ta = state.range(3) != 0, tb = state.range(4) != 0;
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  compare_types(state, flops, TypedProduct<float>(m, n, k, ta, tb), TypedProduct<BFloat16>(m, n, k, ta, tb),
                TypedProduct<Float16>(m, n, k, ta, tb));
}
BENCHMARK(gemm_by_type)
    ->ArgNames({"m", "n", "k", "ta", "tb"})
    ->Args({128, 1024, 784, 0, 0})  // mlp1024
    ->Args({128, 1024, 1024, 0, 0})
    ->Args({128, 10, 1024, 0, 0})
    ->Args({128, 1024, 1024, 0, 1})
    ->Args({784, 1024, 128, 1, 0})
    ->Args({1024, 1024, 128, 1, 0})
    ->Args({128, 256, 784, 0, 0})  // mlp
    ->Args({784, 256, 128, 1, 0})
    ->Args({128, 128, 3136, 0, 0})  // the dense layer of the CNN
    ->Args({128, 3136, 128, 0, 1})
    ->Args({3136, 128, 128, 1, 0})
    ->Iterations(9)
    ->UseManualTime();

// The three products of a convolution.
enum Direction { kForward, kInputGradient, kFilterGradient };

// A convolution of 128 images compared with the bare matrix product (OpenBLAS with its own threads) on a precomputed
// column matrix: args direction, extent, input channels, output channels; 5 x 5 filters, SAME padding.
void conv_against_product(benchmark::State& state) {
  const int64_t direction = state.range(0), extent = state.range(1), in = state.range(2), out = state.range(3);
  const Conv conv = Conv::prepare({.batch = 128,
                                   .in = {extent, extent},
                                   .in_channels = in,
                                   .out_channels = out,
                                   .kernel = {5, 5},
                                   .pad_lo = {2, 2},
                                   .pad_hi = {2, 2}});
  const int64_t pixels = 128 * extent * extent, depth = 25 * in;
  std::vector<float> x = random_values(pixels * in), w = random_values(depth * out), y = random_values(pixels * out);
  std::vector<float> columns = random_values(pixels * depth);
  const double flops = 2.0 * static_cast<double>(pixels) * static_cast<double>(depth) * static_cast<double>(out);
  const auto p = static_cast<blasint>(pixels), d = static_cast<blasint>(depth), o = static_cast<blasint>(out);
  compare(
      state, flops,
      [&] {
        if (direction == kForward) conv.forward(pool(), x.data(), w.data(), y.data());
        if (direction == kInputGradient) conv.input_gradient(pool(), y.data(), w.data(), x.data());
        if (direction == kFilterGradient) conv.filter_gradient(pool(), x.data(), y.data(), w.data());
      },
      [&] {
        if (direction == kForward)
          cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, p, o, d, 1.0f, columns.data(), d, w.data(), o, 0.0f,
                      y.data(), o);
        if (direction == kInputGradient)
          cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p, d, o, 1.0f, y.data(), o, w.data(), o, 0.0f,
                      columns.data(), d);
        if (direction == kFilterGradient)
          cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, d, o, p, 1.0f, columns.data(), d, y.data(), o, 0.0f,
                      w.data(), o);
      });
}
BENCHMARK(conv_against_product)
    ->ArgNames({"direction", "extent", "in", "out"})
    ->Args({kForward, 28, 1, 32})
    ->Args({kFilterGradient, 28, 1, 32})
    ->Args({kForward, 14, 32, 64})
    ->Args({kInputGradient, 14, 32, 64})
    ->Args({kFilterGradient, 14, 32, 64})
    ->Iterations(7)
    ->UseManualTime();

template <class T>
class TypedConv {
 public:
  TypedConv(int64_t direction, int64_t extent, int64_t in, int64_t out)
      : direction_(direction),
        x_(random_values_of<T>(128 * extent * extent * in)),
        w_(random_values_of<T>(25 * in * out)),
        y_(random_values_of<T>(128 * extent * extent * out)),
        conv_(Conv::prepare({.dtype = dtype_of<T>,
                             .batch = 128,
                             .in = {extent, extent},
                             .in_channels = in,
                             .out_channels = out,
                             .kernel = {5, 5},
                             .pad_lo = {2, 2},
                             .pad_hi = {2, 2}})) {}
  void operator()() {
    if (direction_ == kForward) conv_.forward(pool(), x_.data(), w_.data(), y_.data());
    if (direction_ == kInputGradient) conv_.input_gradient(pool(), y_.data(), w_.data(), x_.data());
    if (direction_ == kFilterGradient) conv_.filter_gradient(pool(), x_.data(), y_.data(), w_.data());
  }

 private:
  int64_t direction_;
  std::vector<T> x_, w_, y_;
  Conv conv_;
};

// The convolutions of the CNN: args direction, extent, input channels, output channels.
void conv_by_type(benchmark::State& state) {
  const int64_t direction = state.range(0), extent = state.range(1), in = state.range(2), out = state.range(3);
  const double flops = 2.0 * 128 * 25 * static_cast<double>(extent * extent * in * out);
  compare_types(state, flops, TypedConv<float>(direction, extent, in, out),
                TypedConv<BFloat16>(direction, extent, in, out), TypedConv<Float16>(direction, extent, in, out));
}
BENCHMARK(conv_by_type)
    ->ArgNames({"direction", "extent", "in", "out"})
    ->Args({kForward, 28, 1, 32})
    ->Args({kFilterGradient, 28, 1, 32})
    ->Args({kForward, 14, 32, 64})
    ->Args({kInputGradient, 14, 32, 64})
    ->Args({kFilterGradient, 14, 32, 64})
    ->Iterations(7)
    ->UseManualTime();

// Depthwise convolutions of 32 images, 3 x 3, in GFLOP/s: args direction, extent, channels.
void depthwise_conv(benchmark::State& state) {
  const int64_t direction = state.range(0), extent = state.range(1), channels = state.range(2);
  const Conv conv = Conv::prepare({.batch = 32,
                                   .in = {extent, extent},
                                   .in_channels = channels,
                                   .out_channels = channels,
                                   .kernel = {3, 3},
                                   .pad_lo = {1, 1},
                                   .pad_hi = {1, 1},
                                   .groups = channels});
  const int64_t elements = 32 * extent * extent * channels;
  std::vector<float> x = random_values(elements), w = random_values(9 * channels), y = random_values(elements);
  for (auto _ : state) {
    if (direction == kForward) conv.forward(pool(), x.data(), w.data(), y.data());
    if (direction == kInputGradient) conv.input_gradient(pool(), y.data(), w.data(), x.data());
    if (direction == kFilterGradient) conv.filter_gradient(pool(), x.data(), y.data(), w.data());
  }
  state.counters["GFLOPS"] =
      benchmark::Counter(18e-9 * static_cast<double>(elements), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(depthwise_conv)
    ->ArgNames({"direction", "extent", "channels"})
    ->Args({kForward, 56, 128})
    ->Args({kInputGradient, 56, 128})
    ->Args({kFilterGradient, 56, 128})
    ->UseRealTime();

void max_pool_and_gradient(benchmark::State& state) {
  const WindowSpec spec{.batch = 128, .in = {28, 28}, .channels = 32, .window = {2, 2}, .stride = {2, 2}};
  const std::vector<float> x = random_values(128 * 28 * 28 * 32);
  std::vector<float> y(x.size() / 4), dx(x.size());
  for (auto _ : state) {
    max_pool(pool(), spec, x.data(), y.data());
    max_pool_gradient(pool(), spec, x.data(), y.data(), dx.data());
  }
}
BENCHMARK(max_pool_and_gradient)->UseRealTime();

}  // namespace
}  // namespace lockstep
