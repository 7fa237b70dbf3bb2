// Elementwise kernels compared with simple implementations in one run: the C library called per element, and an Adam
// update written as one loop. Counters: ns per element, and GB/s of the minimum memory traffic of an update.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>

#include "lane/buffer.h"
#include "lane/pool.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/tiled_program.h"

namespace lockstep {
namespace {

Pool& one_thread() {
  static Pool pool({.threads = 1});
  return pool;
}
Pool& all_threads() {
  static Pool pool;
  return pool;
}

BufferPtr floats(int64_t n, float scale) {
  BufferPtr buffer = allocate(n * 4);
  for (int64_t i = 0; i < n; ++i) buffer->as<float>()[i] = scale * static_cast<float>(i % 1000 + 1);
  return buffer;
}

void count_elements(benchmark::State& state, int64_t n) {
  state.counters["ns/element"] =
      benchmark::Counter(static_cast<double>(n) * 1e-9 * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

constexpr int64_t kSize = 128 * 1024;

void row(benchmark::State& state, const Op& op) {
  const std::vector<Type> types{{f32, {128, 1024}}};
  const Attrs none;
  const Kernel kernel = op.cpu({types, types, none, one_thread(), {}, {}});
  const BufferPtr x = floats(kSize, 0.002f), y = floats(kSize, 0);
  const void* in[] = {x->data()};
  void* out[] = {y->data()};
  for (auto _ : state) kernel(in, out);
  count_elements(state, kSize);
}

template <float (*f)(float)>
void library(benchmark::State& state) {
  const BufferPtr x = floats(kSize, 0.002f), y = floats(kSize, 0);
  for (auto _ : state) {
    for (int64_t i = 0; i < kSize; ++i) y->as<float>()[i] = f(x->as<float>()[i]);
    benchmark::ClobberMemory();
  }
  count_elements(state, kSize);
}

BENCHMARK_CAPTURE(row, tanh, tanh_op);
BENCHMARK(library<std::tanh>)->Name("library/tanh");
BENCHMARK_CAPTURE(row, exp, exp_op);
BENCHMARK(library<std::exp>)->Name("library/exp");
BENCHMARK_CAPTURE(row, log, log_op);
BENCHMARK(library<std::log>)->Name("library/log");
BENCHMARK_CAPTURE(row, erf, erf_op);
BENCHMARK(library<std::erf>)->Name("library/erf");
BENCHMARK_CAPTURE(row, neg, neg_op);

// Adam

struct AdamArrays {
  explicit AdamArrays(int64_t n)
      : p(floats(n, 0.1f)), m(floats(n, 0.01f)), v(floats(n, 0.001f)), g(floats(n, 0.1f)), rate(floats(1, 0.001f)) {}
  BufferPtr p, m, v, g, rate;
};

Program adam(int64_t n) {
  Builder b;
  const Type type{f32, {n}};
  const Value p = b.input(type), m = b.input(type), v = b.input(type), g = b.input(type), rate = b.input({f32, {}});
  const Value m1 = m * 0.9 + g * 0.1;
  const Value v1 = v * 0.999 + g * g * 0.001;
  const Value step = (m1 * 1.1) / (sqrt(v1 * 1.01) + 1e-8);
  const Value p1 = p - broadcast(rate, {n}, {}) * step;
  return b.take(Values{p1, m1, v1});
}

void count_traffic(benchmark::State& state, int64_t n) {
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(n) * 28e-9 * static_cast<double>(state.iterations()),
                                              benchmark::Counter::kIsRate);
}

void adam_fused(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Program program = adam(n);
  const std::vector<Type> in_types = program.input_types(), out_types = program.output_types();
  const Attrs attrs{{"body", std::make_shared<const Program>(program)}};
  const int alias[] = {0, 1, 2};
  const Kernel kernel = fused_op.cpu({in_types, out_types, attrs, all_threads(), alias, {}});
  AdamArrays a(n);
  const void* in[] = {a.p->data(), a.m->data(), a.v->data(), a.g->data(), a.rate->data()};
  void* out[] = {a.p->data(), a.m->data(), a.v->data()};
  for (auto _ : state) kernel(in, out);
  count_traffic(state, n);
}
BENCHMARK(adam_fused)->Arg(235146)->Arg(4 << 20)->UseRealTime();

void adam_by_hand(benchmark::State& state) {
  const int64_t n = state.range(0);
  AdamArrays a(n);
  const float rate = *a.rate->as<float>();
  for (auto _ : state) {
    all_threads().parallel_range(n, 8192, [&](int64_t begin, int64_t end, int) {
      float* __restrict p = a.p->as<float>(), * __restrict m = a.m->as<float>(), * __restrict v = a.v->as<float>();
      const float* __restrict g = a.g->as<float>();
      for (int64_t i = begin; i < end; ++i) {
        m[i] = m[i] * 0.9f + g[i] * 0.1f;
        v[i] = v[i] * 0.999f + g[i] * g[i] * 0.001f;
        p[i] -= rate * ((m[i] * 1.1f) / (std::sqrt(v[i] * 1.01f) + 1e-8f));
      }
    });
  }
  count_traffic(state, n);
}
BENCHMARK(adam_by_hand)->Arg(235146)->Arg(4 << 20)->UseRealTime();

// Epilogues

// The cost of one call of bias and relu on row segments of a tile of a matrix product.
void segment(benchmark::State& state) {
  const int64_t n = state.range(0);
  Builder b;
  const Value x = b.input({f32, {64, 1024}}), bias = b.input({f32, {1024}});
  const Value sum = x + broadcast(bias, {64, 1024}, {1});
  const TiledProgram tiled = TiledProgram::compile(b.take(Values{maximum(sum, zeros_like(sum))}));
  const BufferPtr tile = floats(n, 0.1f), row_of_bias = floats(1024, 0.1f), y = floats(64 * 1024, 0);
  const BufferPtr scratch = allocate(tiled.scratch_bytes());
  const void* in[] = {nullptr, row_of_bias->data()};
  void* out[] = {y->data()};
  int64_t begin = 0;
  for (auto _ : state) {
    tiled.run_segment(in, out, begin, begin + n, scratch->data(), tile->data());
    begin = (begin + 1024) % (64 * 1024);
  }
  count_elements(state, n);
}
BENCHMARK(segment)->Arg(16)->Arg(64)->Arg(256);

}  // namespace
}  // namespace lockstep
