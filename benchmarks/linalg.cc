// Factorizations, for comparison with benchmarks/neighbours/linalg_jax.py.
//
//   build/benchmarks/linalg [--platform cpu|cuda] [--sizes 1x1024,1000x32] [--functions cholesky,...] [--seconds 0.5]
//
// A size is the number of matrices, an x, and the number of rows. The matrices are f32, symmetric and positive definite.
// Prints one line of JSON per function and size: milliseconds of a compiled call. "gradient" is that of the logarithm of
// the determinant.
#include <fmt/format.h>
#include <lockstep/lockstep.h>

#include <functional>
#include <map>

#include "flags.h"
#include "timing.h"

namespace lockstep {
namespace {

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
             to_string(platform()), function, matrices, n,
             seconds_per_call([&] { return f(a); }, [](const Array& sum) { sum.item<float>(); }, seconds) * 1e3);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_benchmark(
      argc, argv,
      {{"--sizes", "1x1024,1000x32"}, {"--functions", "cholesky,solve,qr,eigh,svd,gradient"}, {"--seconds", "0.5"}},
      [](Flags& given) {
        for (const std::string& function : split_text(given["--functions"], ',')) {
          if (!kFunctions.contains(function))
            throw Error("linalg: there is no function " + function +
                        "; use cholesky, eigh, gradient, qr, solve or svd");
          for (const std::string& size : split_text(given["--sizes"], ',')) {
            const size_t cross = size.find('x');
            if (cross == std::string::npos)
              throw Error("linalg: the size " + size + " is not MATRICESxROWS, such as 1x1024");
            run_case(function, std::stoll(size.substr(0, cross)), std::stoll(size.substr(cross + 1)),
                     std::stod(given["--seconds"]));
          }
        }
      });
}
