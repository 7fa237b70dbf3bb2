// Errors name the line of the user's program.
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

// The message of the Error that f() throws.
template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string here(int line) { return "caller_line_test.cc:" + std::to_string(line) + ": "; }

void expect_start(const std::string& text, const std::string& start) {
  EXPECT_EQ(text.substr(0, start.size()), start) << text;
}

TEST(CallerLine, IsThatOfTheOperation) {
  const Array a = zeros({7, 3}), b = zeros({4});
  const int line = __LINE__ + 1;
  expect_start(message_of([&] { return a + b; }), here(line) + "add: shapes [7, 3] and [4] do not broadcast");
}

TEST(CallerLine, IsThatOfAnOperandInACallOfSeveralLines) {
  const Array a = zeros({7, 3}), b = zeros({4});
  // clang-format off
  const int line = __LINE__ + 2;
  const std::string text = message_of([&] {
    return maximum(a * 2,
                   b);
  });
  // clang-format on
  // Compilers evaluate the operands in different orders.
  EXPECT_TRUE(text.starts_with(here(line)) || text.starts_with(here(line + 1))) << text;
}

TEST(CallerLine, IsThatInsideTransformedFunctions) {
  const Array a = zeros({7, 3}), b = zeros({4});
  int line = 0;
  const auto f = [&](Array x, Array y) {
    line = __LINE__ + 1;
    return x * y;
  };
  EXPECT_NE(message_of([&] { jit(f)(a, b); }).find(here(line)), std::string::npos);
  const auto loss = [&](Array x) { return f(x, b); };
  EXPECT_NE(message_of([&] { grad(loss)(a); }).find(here(line)), std::string::npos);
  EXPECT_NE(message_of([&] { vmap(loss)(zeros({2, 7, 3})); }).find(here(line)), std::string::npos);
}

TEST(CallerLine, IsNamedByEveryFamilyOfFunctions) {
  const Array a = zeros({7, 3}), b = zeros({4}), key = random::key(1);
  struct Case {
    int line;
    std::function<void()> f;
  };
  // A case per line.
  // clang-format off
  const Case cases[] = {
      {__LINE__, [&] { maximum(a, b); }},
      {__LINE__, [&] { where(a > 0, b, a); }},
      {__LINE__, [&] { zeros({-1}); }},
      {__LINE__, [&] { eye(-1); }},
      {__LINE__, [&] { arange(0, 3, 0); }},
      {__LINE__, [&] { linspace(0, 1, -1); }},
      {__LINE__, [&] { full({-2}, 1); }},
      {__LINE__, [&] { reshape(a, {5}); }},
      {__LINE__, [&] { concatenate({a, b}); }},
      {__LINE__, [&] { stack({a, b}); }},
      {__LINE__, [&] { vstack({a, b}); }},
      {__LINE__, [&] { meshgrid({a, b}); }},
      {__LINE__, [&] { transpose(a, {0, 0}); }},
      {__LINE__, [&] { broadcast_to(a, {2, 2}); }},
      {__LINE__, [&] { pad(a, {{1, 1}, {1, 1}, {1, 1}}); }},
      {__LINE__, [&] { sum(a, 3); }},
      {__LINE__, [&] { max(zeros({0})); }},
      {__LINE__, [&] { median(a, 7); }},
      {__LINE__, [&] { cumsum(a, 4); }},
      {__LINE__, [&] { sort(a, 5); }},
      {__LINE__, [&] { top_k(a, 9); }},
      {__LINE__, [&] { take(a, b, 0); }},
      {__LINE__, [&] { segment_sum(a, b, 3); }},
      {__LINE__, [&] { searchsorted(a, b); }},
      {__LINE__, [&] { einsum("ij,jk->ik", {a, b}); }},
      {__LINE__, [&] { matmul(a, b); }},
      {__LINE__, [&] { linalg::cholesky(a); }},
      {__LINE__, [&] { linalg::solve(a, b); }},
      {__LINE__, [&] { fft::fft(b, {}, 3); }},
      {__LINE__, [&] { special::xlogy(a, b); }},
      {__LINE__, [&] { random::normal(a, {2}); }},
      {__LINE__, [&] { random::permutation(a, 4); }},
      {__LINE__, [&] { conv2d(a, b); }},
      {__LINE__, [&] { max_pool(a, {2, 2}); }},
      {__LINE__, [&] { interp(a, a, b); }},
      {__LINE__, [&] { softmax(a, 6); }},
      {__LINE__, [&] { complex(a, b); }},
      {__LINE__, [&] { fori_loop( a, 3, [](Array, Array x) { return x; }, b); }},
      {__LINE__, [&] { cond( b, [](Array x) { return x; }, [](Array x) { return x; }, a); }},
  };
  // clang-format on
  for (const Case& each : cases) expect_start(message_of(each.f), here(each.line));
}

TEST(CallerLine, OfATransformIsWhereItWasMade) {
  const Array x = zeros({4, 3}), y = zeros({5});
  const auto pair = [](Array a, Array b) { return std::pair{a, b}; };
  const auto twice = [](Array a) { return a + a; };
  struct Case {
    int line;
    std::function<void()> f;
  };
  // A case per line.
  // clang-format off
  const Case cases[] = {
      {__LINE__, [&] { grad(twice)(x); }},
      {__LINE__, [&] { value_and_grad(twice)(x); }},
      {__LINE__, [&] { vmap(pair)(x, y); }},
      {__LINE__, [&] { shard_map(twice, {.mesh = make_mesh({{"data", 1}}), .in_specs = {P("model")}, .out_specs = {P()}})(x); }},
      {__LINE__, [&] { scan([](Array c, Array i) { return std::pair{concatenate({c, c}), i}; }, x, y); }},
      {__LINE__, [&] { while_loop([](Array c) { return c; }, twice, x); }},
      {__LINE__, [&] { map([](std::pair<Array, Array> e) { return e.first; }, std::pair{x, y}); }},
      {__LINE__, [&] { associative_scan([](Array a, Array) { return a > 0; }, y); }},
  };
  // clang-format on
  for (const Case& each : cases) expect_start(message_of(each.f), here(each.line));
}

TEST(CallerLine, IsNotOneOfTheLibrary) {
  const Array a = zeros({7, 3});
  EXPECT_EQ(message_of([&] { astype(a, f32) / zeros({4}); }).find("functions_"), std::string::npos);
}

TEST(CallerLine, IsForgottenAfterTheExpression) {
  const Array sum = zeros({2}) + 1;
  EXPECT_EQ(detail::CallerLine::current().line, 0);
}

}  // namespace
}  // namespace lockstep
