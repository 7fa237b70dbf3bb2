// Factorizations, for comparison with benchmarks/neighbours/linalg_jax.py.
//
//   build/benchmarks/linalg [--platform cpu|cuda] [--sizes 1x1024,1000x32] [--functions cholesky,...] [--seconds 0.5]
//
// A size is the number of matrices, an x, and the number of rows. The matrices are f32, symmetric and positive definite.
// Prints one line of JSON per function and size: milliseconds of a compiled call. "gradient" is that of the logarithm of
// the determinant.
#include <fmt/format.h>
#include <lockstep/lockstep.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "flags.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Milliseconds per call of f, which returns a scalar.
double measure(const std::function<Array()>& f, double seconds) {
  f().item<float>();  // compiles
  Clock::time_point begin = Clock::now();
  f().item<float>();
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(seconds / std::max(seconds_since(begin), 1e-6)));
  begin = Clock::now();
  Array last;
  for (int64_t i = 0; i < calls; ++i) last = f();
  last.item<float>();
  return seconds_since(begin) / static_cast<double>(calls) * 1e3;
}

Array log_determinant(const Array& a) { return sum(linalg::slogdet(a).logabsdet); }

// Each returns a number that depends on all of the result.
const std::map<std::string, std::function<Array(const Array& a)>> kFunctions = {
    {"cholesky", [](const Array& a) { return sum(linalg::cholesky(a)); }},
    {"solve", [](const Array& a) { return sum(linalg::solve(a, a)); }},
    {"qr", [](const Array& a) { return sum(linalg::qr(a).r); }},
    {"eigh", [](const Array& a) { return sum(linalg::eigh(a).eigenvectors); }},
    {"svd", [](const Array& a) { return sum(linalg::svd(a).s); }},
    {"gradient", [](const Array& a) { return sum(grad(log_determinant)(a)); }},
};

void run_case(const std::string& function, int64_t matrices, int64_t n, double seconds) {
  const Array x = random::normal(random::key(0), {matrices, n, n});
  const Array a = matmul(x, swapaxes(x, 1, 2)) / static_cast<double>(n) + eye(n);
  const auto f = jit(kFunctions.at(function));
  fmt::print(R"({{"peer": "lockstep", "device": "{}", "function": "{}", "matrices": {}, "rows": {}, "ms": {:.4f}}})"
             "\n",
             to_string(platform()), function, matrices, n, measure([&] { return f(a); }, seconds));
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  using namespace lockstep;
  Flags given = parse_flags(argc, argv,
                            {{"--platform", "cpu"},
                             {"--sizes", "1x1024,1000x32"},
                             {"--functions", "cholesky,solve,qr,eigh,svd,gradient"},
                             {"--seconds", "0.5"}});
  set_platform(given["--platform"] == "cuda" ? Platform::cuda : Platform::cpu);
  for (const std::string& function : split_text(given["--functions"], ',')) {
    if (!kFunctions.contains(function)) throw Error("linalg: there is no function " + function);
    for (const std::string& size : split_text(given["--sizes"], ',')) {
      const size_t cross = size.find('x');
      if (cross == std::string::npos) throw Error("linalg: the size " + size + " is not MATRICESxROWS, such as 1x1024");
      run_case(function, std::stoll(size.substr(0, cross)), std::stoll(size.substr(cross + 1)),
               std::stod(given["--seconds"]));
    }
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
