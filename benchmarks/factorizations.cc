// The time of factorizations of matrices.
//
//   build/benchmarks/factorizations [--platform cpu|cuda] [--sizes 8,32,128,512,2048] [--batches 1,1000]
//                                   [--precision f32|f64] [--seconds 0.5]
//
// Prints one line of JSON per op, size and batch. Batches of more than 2^26 elements are left out. A case that fails
// prints its error to standard error, and the next one follows.
#include <fmt/format.h>
#include <lockstep/lockstep.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "flags.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Waits for the array and everything enqueued before it.
void wait_for(const Array& x) { astype(sum(x), f64).item<double>(); }

// Seconds per call of f, which returns an array.
template <class F>
double measure(F&& f, double seconds) {
  wait_for(f());  // compiles
  Clock::time_point begin = Clock::now();
  wait_for(f());
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(seconds / std::max(seconds_since(begin), 1e-6)));
  begin = Clock::now();
  Array last;
  for (int64_t i = 0; i < calls; ++i) last = f();
  wait_for(last);
  return seconds_since(begin) / static_cast<double>(calls);
}

struct Factorization {
  const char* name;
  std::function<Array(const Array&)> f;  // returns one of the results
};

const std::vector<Factorization>& all_factorizations() {
  static const std::vector<Factorization> all = {
      {"cholesky", [](const Array& a) { return linalg::cholesky(a); }},
      {"triangular_solve",
       [](const Array& a) { return linalg::triangular_solve(a, a, {.left_side = true, .lower = true}); }},
      {"lu", [](const Array& a) { return linalg::lu(a).lu; }},
      {"qr", [](const Array& a) { return linalg::qr(a).r; }},
      {"eigh", [](const Array& a) { return linalg::eigh(a).eigenvalues; }},
      {"svd", [](const Array& a) { return linalg::svd(a, {.full_matrices = false}).s; }}};
  return all;
}

void run_case(int64_t n, int64_t batch, DType dtype, double seconds) {
  const Array x = random::normal(random::key(1), {batch, n, n}, dtype);
  const Array a = matmul(x, linalg::matrix_transpose(x)) + static_cast<double>(n) * eye(n, dtype);
  for (const Factorization& each : all_factorizations()) try {
      const auto compiled = jit([&](Array y) { return each.f(y); });
      const double spent = measure([&] { return compiled(a); }, seconds);
      fmt::print(R"({{"op": "{}", "device": "{}", "n": {}, "batch": {}, "precision": "{}", "ms": {:.4f}}})"
                 "\n",
                 each.name, to_string(platform()), n, batch, name(dtype), spent * 1e3);
      std::fflush(stdout);
    } catch (const std::exception& failure) {
      fmt::print(stderr, "factorizations: {} of {} x {} x {}: {}\n", each.name, batch, n, n, failure.what());
    }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  using namespace lockstep;
  Flags given = parse_flags(argc, argv,
                            {{"--platform", "cpu"},
                             {"--sizes", "8,32,128,512,2048"},
                             {"--batches", "1,1000"},
                             {"--precision", "f32"},
                             {"--seconds", "0.5"}});
  set_platform(given["--platform"] == "cuda" ? Platform::cuda : Platform::cpu);
  for (const std::string& size : split_text(given["--sizes"], ','))
    for (const std::string& batch : split_text(given["--batches"], ',')) {
      const int64_t n = std::stoll(size), count = std::stoll(batch);
      if (n * n * count <= int64_t{1} << 26)
        run_case(n, count, given["--precision"] == "f64" ? f64 : f32, std::stod(given["--seconds"]));
    }
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "factorizations: {}\n", e.what());
  return 1;
}
