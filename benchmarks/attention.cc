// The rate of causal attention alone, for comparison with benchmarks/neighbours/attention_torch.py and attention_jax.py.
//
//   build/benchmarks/attention [--platform cpu|cuda] [--lengths 1024,...,65536] [--head-widths 64,128] [--width 2048]
//                              [--tokens 65536] [--precision bf16|f32] [--seconds 0.5]
//
// Each length has the same number of tokens, --tokens, divided into sequences. --width is the number of heads times the
// width of a head. Prints one line of JSON per length, head width and pass. TFLOP/s count the products of the visible
// half: 2 T^2 e per head and sequence forward, and 2.5 times that backward. "backward" is both passes. A case that fails,
// for example because it needs too much memory, prints its error to standard error, and the next one follows.
#include <fmt/format.h>
#include <lockstep/lockstep.h>
#include <lockstep/transformer.h>

#include <algorithm>
#include <chrono>

#include "flags.h"
#include "timing.h"

namespace lockstep {
namespace {

struct Case {
  int64_t batch, tokens, heads, head_width;
  DType dtype;
};

struct Operands {
  Array q, k, v;
};

// Waits for the array and everything enqueued before it, with a copy of one element.
void wait_for(const Array& x) {
  const std::vector<int64_t> begin(static_cast<size_t>(x.rank()), 0), end(static_cast<size_t>(x.rank()), 1);
  reshape(astype(slice(x, begin, end), f32), {}).item<float>();
}

Array attend(const Operands& x) { return nn::attention(x.q, x.k, x.v, {.causal = true}); }

void run_case(const Case& c, double seconds) {
  const auto operand = [&](int64_t key) {
    return astype(random::normal(random::key(key), {c.batch, c.tokens, c.heads, c.head_width}), c.dtype);
  };
  const Operands x{operand(0), operand(1), operand(2)};
  const Array dy = operand(3);
  const auto forward = jit([](const Operands& o) { return attend(o); });
  // The loss itself is not computed: its gradient needs only dy.
  const auto both = jit([](const Operands& o, const Array& d) {
    return grad([&](const Operands& p) { return sum(astype(attend(p) * d, f32)); })(o);
  });
  const auto b = static_cast<double>(c.batch * c.heads), t = static_cast<double>(c.tokens);
  const double operations = 2 * b * t * t * static_cast<double>(c.head_width);
  const auto print = [&](const char* pass, double spent, double work) {
    fmt::print(
        R"({{"peer": "lockstep", "device": "{}", "length": {}, "head_width": {}, "precision": "{}", "pass": "{}", )"
        R"("ms": {:.4f}, "tflops": {:.2f}}})"
        "\n",
        to_string(platform()), c.tokens, c.head_width, name(c.dtype), pass, spent * 1e3, work / spent * 1e-12);
    std::fflush(stdout);
  };
  print("forward", seconds_per_call([&] { return forward(x); }, wait_for, seconds), operations);
  print("backward", seconds_per_call([&] { return both(x, dy).q; }, wait_for, seconds), 3.5 * operations);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_benchmark(argc, argv,
                       {{"--lengths", "1024,2048,4096,8192,16384,32768,65536"},
                        {"--head-widths", "64,128"},
                        {"--width", "2048"},
                        {"--tokens", "65536"},
                        {"--precision", "bf16"},
                        {"--seconds", "0.5"}},
                       [](Flags& given) {
                         const int64_t tokens = std::stoll(given["--tokens"]), width = std::stoll(given["--width"]);
                         for (const std::string& head_width : split_text(given["--head-widths"], ','))
                           for (const std::string& length : split_text(given["--lengths"], ',')) {
                             const int64_t t = std::stoll(length), e = std::stoll(head_width);
                             const Case c{std::max<int64_t>(tokens / t, 1), t, std::max<int64_t>(width / e, 1), e,
                                          given["--precision"] == "f32" ? f32 : bf16};
                             try {
                               run_case(c, std::stod(given["--seconds"]));
                             } catch (const std::exception& failure) {
                               fmt::print(stderr, "attention: length {}, head width {}: {}\n", length, head_width,
                                          failure.what());
                             }
                           }
                       });
}
