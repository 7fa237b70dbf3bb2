// Training steps compared with the time of their matrix products alone, measured alternately in one run.
//
//   build/benchmarks/training [mlp1024|mlp|cnn] [rounds]
//
// For each model: the median time of a compiled step (loss, gradients, update; batch 128); the lower bound, which is
// the sum over the step's matrix products of the faster of OpenBLAS and our kernel on the same shapes; and their
// ratio. Then the cost of calling a compiled function, of compiling the step, and of an empty parallel region.
#include <cblas.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "lane/cpu/gemm.h"
#include "plan/lanes.h"
#include "support/models.h"
#include "timing.h"

namespace lockstep {
namespace {

constexpr double kSettle = 0.06;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// A matrix product of the step: m x n, summed over k, and which operands are transposed.
struct Shape3 {
  int64_t m, n, k;
  bool ta, tb;
};

std::vector<Shape3> products(const std::string& model) {
  constexpr int64_t kBatch = 128;
  std::vector<Shape3> out;
  auto dense = [&](int64_t in, int64_t units, bool first) {
    out.push_back({kBatch, units, in, false, false});
    out.push_back({in, units, kBatch, true, false});
    if (!first) out.push_back({kBatch, in, units, false, true});
  };
  // A convolution as the product of its column matrix.
  auto conv = [&](int64_t pixels, int64_t taps, int64_t channels, bool first) {
    out.push_back({kBatch * pixels, channels, taps, false, false});
    out.push_back({taps, channels, kBatch * pixels, true, false});
    if (!first) out.push_back({kBatch * pixels, taps, channels, false, true});
  };
  if (model == "mlp1024") dense(784, 1024, true), dense(1024, 1024, false), dense(1024, 10, false);
  if (model == "mlp") dense(784, 256, true), dense(256, 128, false), dense(128, 10, false);
  if (model == "cnn")
    conv(784, 25, 32, true), conv(196, 800, 64, false), dense(3136, 128, false), dense(128, 10, false);
  return out;
}

class Product {
 public:
  explicit Product(const Shape3& s)
      : s_(s),
        a_(fill(s.m * s.k)),
        b_(fill(s.k * s.n)),
        c_(static_cast<size_t>(s.m * s.n)),
        gemm_(Gemm::prepare({.m = s.m, .n = s.n, .k = s.k, .transpose_a = s.ta, .transpose_b = s.tb},
                            Lanes::current().host_pool().threads())) {}

  double ours() {
    const auto begin = Clock::now();
    gemm_.run(Lanes::current().host_pool(), a_.data(), b_.data(), c_.data());
    return seconds_since(begin);
  }
  double library() {
    const auto begin = Clock::now();
    const auto m = static_cast<int>(s_.m), n = static_cast<int>(s_.n), k = static_cast<int>(s_.k);
    cblas_sgemm(CblasRowMajor, s_.ta ? CblasTrans : CblasNoTrans, s_.tb ? CblasTrans : CblasNoTrans, m, n, k, 1.f,
                a_.data(), s_.ta ? m : k, b_.data(), s_.tb ? k : n, 0.f, c_.data(), n);
    return seconds_since(begin);
  }

 private:
  static std::vector<float> fill(int64_t n) {
    static std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = normal(rng);
    return v;
  }
  Shape3 s_;
  std::vector<float> a_, b_, c_;
  Gemm gemm_;
};

auto make_step(const std::string& optimizer, float rate) {
  return jit(
      [optimizer, rate](models::State s, models::Batch b) {
        return models::train_step(std::move(s), std::move(b), optimizer, rate);
      },
      {.donate = {0}});
}

void bench_model(const std::string& model, int rounds) {
  const std::string optimizer = model == "mlp1024" ? "sgd" : "adam";
  const auto step = make_step(optimizer, 1e-3f);
  models::State state = models::create_state(models::init(model, 0));
  const models::Batch batch{random::uniform(random::key(1), {128, 784}), random::randint(random::key(2), {128}, 0, 10)};
  std::vector<Product> shapes;
  for (const Shape3& s : products(model)) shapes.emplace_back(s);

  std::vector<double> steps;
  std::vector<std::vector<double>> ours(shapes.size()), library(shapes.size());
  for (int round = -2; round < rounds; ++round) {
    // Steps are timed in a long series: after a pause the scheduler may leave the pool's threads on the caller's
    // core, and needs about 25 ms to spread them out again.
    for (const auto begin = Clock::now(); seconds_since(begin) < kSettle;) state = step(state, batch).state;
    for (int i = 0; i < 5; ++i) {
      const auto begin = Clock::now();
      state = step(state, batch).state;
      if (round >= 0) steps.push_back(seconds_since(begin));
    }
    for (size_t i = 0; i < shapes.size(); ++i) ours[i].push_back(shapes[i].ours());
    openblas_set_num_threads(Lanes::current().host_pool().threads());
    for (size_t i = 0; i < shapes.size(); ++i) library[i].push_back(shapes[i].library());
    openblas_set_num_threads(1);
    // OpenBLAS's threads spin on all cores for 2^28 ticks (256 ms at 1.05 GHz) before they sleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  double floor = 0, floor_ours = 0, floor_library = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    floor_ours += median(ours[i]);
    floor_library += median(library[i]);
    floor += std::min(median(ours[i]), median(library[i]));
  }
  const double t = median(steps);
  fmt::print(
      "{:8} {:5} step {:8.3f} ms   products {:8.3f} ms (ours {:.3f}, OpenBLAS threads {:.3f})   share {:5.1f} %   step "
      "/ products {:.3f}\n",
      model, optimizer, t * 1e3, floor * 1e3, floor_ours * 1e3, floor_library * 1e3, 100 * floor / t, t / floor);
}

void bench_overheads(int rounds) {
  // A step over 6 donated arrays of one element: all costs except the work of the kernels.
  struct Small {
    Array a, b, c, d, e, f;
  };
  const auto step = jit([](Small s) { return tree_map([](const Array& x) { return x + 1.f; }, s); }, {.donate = {0}});
  Small s{zeros({1}), zeros({1}), zeros({1}), zeros({1}), zeros({1}), zeros({1})};
  std::vector<double> calls;
  for (int i = 0; i < 200 * rounds; ++i) {
    const auto begin = Clock::now();
    s = step(s);
    calls.push_back(seconds_since(begin));
  }
  fmt::print("call of a compiled function of 6 donated scalars, including its 6 kernels: {:.2f} us\n",
             median(calls) * 1e6);

  std::vector<double> regions;
  Pool& pool = Lanes::current().host_pool();
  for (int i = 0; i < 200 * rounds; ++i) {
    const auto begin = Clock::now();
    pool.parallel_for(pool.threads(), [](int64_t, int) {});
    regions.push_back(seconds_since(begin));
  }
  fmt::print("parallel region over {} threads: {:.2f} us\n", pool.threads(), median(regions) * 1e6);

  std::vector<double> compiles;
  const models::State state = models::create_state(models::init("mlp1024", 0));
  const models::Batch batch{zeros({128, 784}), zeros({128}, i32)};
  for (int i = 0; i < std::max(5, rounds / 4); ++i) {
    const auto fresh = make_step("sgd", 1e-3f);
    const auto begin = Clock::now();
    (void)fresh.plan(state, batch);
    compiles.push_back(seconds_since(begin));
  }
  fmt::print("trace, differentiate and plan the mlp1024 step: {:.2f} ms\n", median(compiles) * 1e3);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  const std::string only = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::stoi(argv[2]) : 40;
  for (const std::string model : {"mlp1024", "mlp", "cnn"})
    if (only.empty() || only == model) lockstep::bench_model(model, model == "cnn" ? std::max(3, rounds / 4) : rounds);
  if (only.empty()) lockstep::bench_overheads(rounds);
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
