// Calls every recorded JAX function and compares values and gradients.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "conformance/suite.h"

namespace lockstep::conformance {
namespace {

// The relative error that a case of tolerance 1 may have: some units in the last place.
double unit(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 1.6e-2;
    case DType::f16:
      return 2e-3;
    case DType::f64:
      return 2e-15;
    case DType::c128:
      return 2e-15;
    default:
      return 6e-7;
  }
}

// Real parts, then imaginary parts.
std::vector<double> numbers(const Array& x) {
  if (!is_complex(x.dtype())) return x.to_vector<double>();
  std::vector<double> all = real(x).to_vector<double>();
  const std::vector<double> rest = imag(x).to_vector<double>();
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

bool is_close(double got, double wanted, double tolerance, double scale) {
  if (std::isnan(wanted) || std::isnan(got)) return std::isnan(wanted) && std::isnan(got);
  if (std::isinf(wanted) || std::isinf(got)) return wanted == got;
  return std::abs(got - wanted) <= tolerance * std::max(std::abs(wanted), scale);
}

// What is wrong with `got`, or an empty text.
std::string mismatch(const Array& got, const Array& wanted, double tolerance) {
  if (!wanted.defined()) return {};  // a type that does not exist here
  if (got.dtype() != wanted.dtype() || got.shape() != wanted.shape())
    return "the result is " + to_string(got.type()) + ", JAX's is " + to_string(wanted.type());
  const std::vector<double> ours = numbers(got), theirs = numbers(wanted);
  const bool exact = !is_inexact(wanted.dtype());
  double largest = 0;
  for (const double value : theirs)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  const double allowed = exact ? 0 : tolerance * unit(wanted.dtype());
  for (size_t i = 0; i < ours.size(); ++i)
    if (!is_close(ours[i], theirs[i], allowed, 0.1 * largest))
      return fmt::format("element {} of {} is {:.9g}, JAX's is {:.9g}", i, to_string(got.type()), ours[i], theirs[i]);
  return {};
}

// The weights of the sum whose gradient is recorded.
Array weights(const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<size_t>(count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<double>(i * 7 % 11) - 5) / 4;
  return astype(Array::from(values, shape), dtype);
}

// What a case computes: its results, then the gradients if some are recorded.
Arrays evaluate(const Function& function, const Case& c, const Arrays& in) {
  Arrays all = function.call(Call(c, in));
  if (!c.gradients) return all;
  Arrays chosen;
  for (const Array& x : in)
    if (is_floating(x.dtype())) chosen.push_back(x);
  const auto total = [&](const Arrays& floats) {
    Arrays operands = in;
    size_t next = 0;
    for (Array& x : operands)
      if (is_floating(x.dtype())) x = floats[next++];
    Array whole;
    for (const Array& out : function.call(Call(c, operands))) {
      if (!is_floating(out.dtype())) continue;
      const DType wide = out.dtype() == f64 ? f64 : f32;
      const Array part = sum(astype(out, wide) * weights(out.shape(), wide));
      whole = whole.defined() ? whole + part : part;
    }
    return whole;
  };
  for (Array& slope : grad(total)(chosen)) all.push_back(std::move(slope));
  return all;
}

// What differs from JAX, or an empty text.
std::string compare(const Case& c, std::span<const Array> got) {
  const size_t results = c.out.size(), wanted = results + (c.gradients ? c.gradients->size() : 0);
  if (got.size() != wanted) return fmt::format("{} results and gradients instead of {}", got.size(), wanted);
  for (size_t i = 0; i < results; ++i)
    if (const std::string wrong = mismatch(got[i], c.out[i], c.tolerance); !wrong.empty()) return wrong;
  for (size_t i = results; i < wanted; ++i)
    if (const std::string wrong = mismatch(got[i], c.gradients->at(i - results), 4 * c.tolerance); !wrong.empty())
      return fmt::format("gradient {}: {}", i - results, wrong);
  return {};
}

bool has_every_type(const Case& c) {
  const auto defined = [](const Array& x) { return x.defined(); };
  return std::all_of(c.in.begin(), c.in.end(), defined) && std::all_of(c.out.begin(), c.out.end(), defined);
}

// Differences that many functions share, by design: integers become f32, of any width, where JAX has a 64-bit mode that
// makes 64-bit integers f64; and u32 with a signed integer is i64, where JAX without that mode has no i64.
bool has_other_default(const Case& c) {
  const bool wide_float = has_type(c, "f64") || has_type(c, "c128"), wide_integer = has_type(c, "i64") || has_type(c, "u64");
  const DType result = c.out.empty() ? boolean : c.out[0].dtype();
  if (wide_integer && !wide_float && (result == f64 || result == c128)) return true;
  return has_type(c, "u32") && result == i32 && (has_type(c, "i8") || has_type(c, "i16") || has_type(c, "i32"));
}

// The cases of a function that are compared, with its entry in the table.
class Conformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto found = all_functions().find(GetParam());
    ASSERT_NE(found, all_functions().end()) << "no entry for " << GetParam();
    function_ = &found->second;
    for (const Case& c : all_cases().at(GetParam()))
      if (has_every_type(c) && !has_other_default(c) && !(function_->differs && function_->differs(c))) cases_.push_back(&c);
  }
  void TearDown() override { EXPECT_EQ(wrong_, 0) << "of " << cases_.size() << " cases of " << GetParam(); }

  // Calls outcome() -> Arrays and compares what it returns.
  template <class Outcome>
  void expect_as_in_jax(const Case& c, const Outcome& outcome) {
    std::string what;
    try {
      what = compare(c, outcome());
    } catch (const std::exception& error) {
      what = error.what();
    }
    if (!what.empty() && ++wrong_ <= 4) ADD_FAILURE() << c.to_string() << ": " << what;
  }

  const Function* function_ = nullptr;
  std::vector<const Case*> cases_;
  int wrong_ = 0;
};

TEST_P(Conformance, ValuesAndGradientsAreAsInJax) {
  for (const Case* c : cases_) expect_as_in_jax(*c, [&] { return evaluate(*function_, *c, c->in); });
}

// Several cases a program, so that a GPU compiles few of them.
TEST_P(Conformance, CompiledValuesAndGradientsAreAsInJax) {
  constexpr size_t kTogether = 40;
  for (size_t first = 0; first < cases_.size(); first += kTogether) {
    const std::span<const Case* const> group = std::span(cases_).subspan(first, std::min(kTogether, cases_.size() - first));
    std::vector<std::string> errors(group.size());
    std::vector<size_t> counts(group.size());
    Arrays inputs;
    for (const Case* c : group) inputs.insert(inputs.end(), c->in.begin(), c->in.end());
    const Arrays outputs = jit([&](const Arrays& all) {
      Arrays out;
      auto next = all.begin();
      for (size_t i = 0; i < group.size(); ++i) {
        const Arrays in(next, next + static_cast<ptrdiff_t>(group[i]->in.size()));
        next += static_cast<ptrdiff_t>(in.size());
        try {
          const Arrays results = evaluate(*function_, *group[i], in);
          counts[i] = results.size();
          out.insert(out.end(), results.begin(), results.end());
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
      }
      return out;
    })(inputs);
    size_t at = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      expect_as_in_jax(*group[i], [&]() -> Arrays {
        if (!errors[i].empty()) throw Error(errors[i]);
        const auto begin = outputs.begin() + static_cast<ptrdiff_t>(at);
        return {begin, begin + static_cast<ptrdiff_t>(counts[i])};
      });
      at += counts[i];
    }
  }
}

constexpr const char* kPrefixes[] = {"jax.", "jnp.", "lax.", "random.", "scipy.", "x.at"};

// The table of docs/reference/jax-functions.md.
std::string table() {
  std::string text =
      "# Functions of JAX and their names here\n\n"
      "Each line is compared with JAX: values, gradients, types and shapes, for many types and shapes, by\n"
      "`build/tests/test_conformance`, which also writes this table. `jnp` is `jax.numpy`, `lax` is `jax.lax`, `scipy` is\n"
      "`jax.scipy`, `random` is `jax.random`.\n\n"
      "Everywhere: integers of any width become f32 where a function needs floats (JAX with `jax_enable_x64`: f64 for\n"
      "64-bit integers), and u32 with a signed integer is i64 (JAX without it: i32).\n\n"
      "| JAX | Lockstep | difference |\n| --- | --- | --- |\n";
  for (const auto& [name, f] : all_functions()) {
    const bool index = name.starts_with("index ");
    if (!index && !std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); }))
      continue;  // compared, but not a function of JAX
    std::string ours = f.ours;
    if (ours.front() == '(') ours = ours.substr(1, ours.size() - 2);
    for (size_t at = 0; (at = ours.find('|', at)) != std::string::npos; at += 2) ours.insert(at, 1, '\\');
    text += fmt::format("| `{}` | `{}` | {} |\n", index ? name.substr(6) : name, ours, f.difference);
  }
  return text;
}

TEST(Documentation, TableOfFunctionsIsCurrent) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/reference/jax-functions.md");
  std::stringstream written;
  written << file.rdbuf();
  const std::string current = table();
  if (written.str() == current) return;
  const std::string path = LOCKSTEP_BINARY_DIR "/jax-functions.md";
  std::ofstream(path) << current;
  ADD_FAILURE() << "docs/reference/jax-functions.md differs from the functions of tests/conformance; copy " << path;
}

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& [name, cases] : all_cases()) found.push_back(name);
  return found;
}

std::string printable(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Jax, Conformance, testing::ValuesIn(names()), printable);

}  // namespace
}  // namespace lockstep::conformance
