// Loops and choices, for comparison with benchmarks/neighbours/control_jax.py.
//
//   build/benchmarks/control [--platform cpu|cuda] [--functions iterate,sort,product,choose] [--rounds 1000]
//                            [--seconds 0.5]
//
// Prints one line of JSON per function: microseconds of a round of a compiled loop.
//   iterate   while_loop of a small matrix product: one kernel on a GPU
//   sort      while_loop that sorts 4096 numbers: several kernels
//   product   while_loop of a 2048 x 2048 bf16 product, by a library on a GPU
//   choose    scan of a cond between a sort and a product
#include <fmt/format.h>
#include <lockstep/lockstep.h>

#include <functional>
#include <map>

#include "flags.h"
#include "timing.h"

namespace lockstep {
namespace {

using Round = std::function<Array(const Array&)>;

// As many rounds as the array says.
Array repeat(const Round& round, const Array& rounds, const Array& x) {
  using State = std::pair<Array, Array>;
  return while_loop([](const State& s) { return s.first > 0; },
                    [&](const State& s) { return State(s.first - 1, round(s.second)); }, State(rounds, x))
      .second;
}

Array sorted(const Array& x) { return sort(1 - x); }
Array multiplied(const Array& x) { return tanh(matmul(x, x)); }

struct Case {
  std::function<Array(const Array& rounds, const Array& x)> run;
  Shape shape;
  DType dtype = DType::f32;
};

Array choose(const Array& first, int64_t rounds) {
  const auto sort_all = [](const Array& x) { return reshape(sorted(reshape(x, {64 * 64})), {64, 64}); };
  const auto body = [&](const Array& x, const Array& i) {
    const Array next = cond(i % 2 == 0, sort_all, multiplied, x);
    return std::pair(next, sum(next));
  };
  return scan(body, first, arange(rounds)).first;
}

void run_case(const std::string& name, int64_t rounds, double seconds) {
  const std::map<std::string, Case> cases = {
      {"iterate", {[](const Array& n, const Array& x) { return repeat(multiplied, n, x); }, {64, 64}}},
      {"sort", {[](const Array& n, const Array& x) { return repeat(sorted, n, x); }, {4096}}},
      {"product", {[](const Array& n, const Array& x) { return repeat(multiplied, n, x); }, {2048, 2048}, DType::bf16}},
      {"choose", {[rounds](const Array&, const Array& x) { return choose(x, rounds); }, {64, 64}}},
  };
  if (!cases.contains(name))
    throw Error("control: there is no function " + name + "; use choose, iterate, product or sort");
  const Case& one = cases.at(name);
  const Array x = astype(random::normal(random::key(0), one.shape) / 64, one.dtype),
              n = Array(static_cast<int32_t>(rounds));
  const auto f =
      jit([&](const Array& limit, const Array& first) { return sum(astype(one.run(limit, first), DType::f32)); });
  const double each = seconds_per_call([&] { return f(n, x); }, [](const Array& sum) { sum.item<float>(); }, seconds);
  fmt::print(R"({{"peer": "lockstep", "device": "{}", "function": "{}", "rounds": {}, "us_per_round": {:.3f}}})"
             "\n",
             to_string(platform()), name, rounds, each / static_cast<double>(rounds) * 1e6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_benchmark(argc, argv,
                       {{"--functions", "iterate,sort,product,choose"}, {"--rounds", "1000"}, {"--seconds", "0.5"}},
                       [](Flags& given) {
                         for (const std::string& name : split_text(given["--functions"], ','))
                           run_case(name, std::stoll(given["--rounds"]), std::stod(given["--seconds"]));
                       });
}
