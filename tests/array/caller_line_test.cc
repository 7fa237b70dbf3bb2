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

TEST(CallerLine, IsThatOfAnIndex) {
  const Array a = zeros({7, 3}), mask = ones({2}) > 0, rows = array({0, 1});
  const auto later = a.at(0);
  struct Case {
    int line;
    std::function<void()> f;
  };
  // A case per line.
  // clang-format off
  const Case cases[] = {
      {__LINE__, [&] { a(0, 7); }},
      {__LINE__, [&] { a(7); }},
      {__LINE__, [&] { a(0, 0, 0); }},
      {__LINE__, [&] { a(mask); }},
      {__LINE__, [&] { a(range(0, 2, 0)); }},
      {__LINE__, [&] { a(_, rows, ellipsis, ellipsis); }},
      {__LINE__, [&] { a.at(9).set(1); }},
      {__LINE__, [&] { a.at(0).set(ones({2})); }},
      {__LINE__, [&] { a.at(rows).add(ones({4})); }},
      {__LINE__, [&] { a.at(0).apply([](const Array&) { return ones({2}); }); }},
      {__LINE__, [&] { later.multiply(ones({2})); }},
      {__LINE__, [&] { Array().at(0).get(); }},
  };
  // clang-format on
  for (const Case& each : cases) expect_start(message_of(each.f), here(each.line));
}

TEST(CallerLine, IsThatOfAnIndexInsideTransformedFunctions) {
  int line = 0;
  const auto f = [&](Array x) {
    const Array y = x * 2;
    line = __LINE__ + 1;
    return y(0, 7) + 1;
  };
  const Array a = zeros({7, 3});
  EXPECT_EQ(message_of([&] { jit(f)(a); }).find(here(line)), 0u);
  EXPECT_EQ(message_of([&] { vmap(f)(zeros({2, 7, 3})); }).find(here(line)), 0u);
  EXPECT_EQ(message_of([&] { jvp(f, a, a); }).find(here(line)), 0u);
}

TEST(CallerLine, IsNamedByAllEntryPoints) {
  const Array x = zeros({4, 3}), y = zeros({5}), integers = arange(3);
  const Mesh mesh = make_mesh({{"data", 1}});
  const auto twice = [](Array a) { return a + a; };
  const auto sum_of = [](Array a, Array b) { return a + b; };
  const auto to_integers = [](Array a) { return astype(a, i32); };
  const auto pullback = vjp(twice, x).second;
  const auto linear = linearize(twice, x).second;
  const auto transposed = linear_transpose(twice, x);
  const auto step = jit(twice, {.donate = {0}});
  const Array donated = ones({2});
  step(donated);
  const std::vector<Array> one{x}, two{x, x};
  struct Case {
    int line;
    std::function<void()> f;
  };
  // A case per line.
  // clang-format off
  const Case cases[] = {
      {__LINE__, [&] { jvp(twice, x, y); }},
      {__LINE__, [&] { pullback(y); }},
      {__LINE__, [&] { linear(y); }},
      {__LINE__, [&] { transposed(y); }},
      {__LINE__, [&] { linear_transpose([](Array a) { return a * a; }, x); }},
      {__LINE__, [&] { tree_map(sum_of, one, two); }},
      {__LINE__, [&] { tree_unflatten(one, two); }},
      {__LINE__, [&] { tree_structure(one).unflatten(two); }},
      {__LINE__, [&] { tree_transpose(std::vector{one, two}); }},
      {__LINE__, [&] { ravel_pytree(one).second(y); }},
      {__LINE__, [&] { jacfwd(to_integers)(x); }},
      {__LINE__, [&] { jacrev(to_integers)(x); }},
      {__LINE__, [&] { hessian(twice)(integers); }},
      {__LINE__, [&] { custom_jvp(twice, [](Array a, Array) { return std::pair{a, zeros({9})}; })(x); }},
      {__LINE__, [&] { grad([&](Array a) { return sum(custom_vjp(twice, [](Array b) { return std::pair{b, b}; }, [](Array, Array) { return zeros({9}); })(a)); })(x); }},
      {__LINE__, [&] { array({{1.f, 2.f}, {3.f}}); }},
      {__LINE__, [&] { array({{1, 2.f}, {3}}); }},
      {__LINE__, [&] { Array::from(std::vector<float>{1, 2, 3}, {2}); }},
      {__LINE__, [&] { Array::from(std::vector<bool>{true}, {2}); }},
      {__LINE__, [&] { x.shape(5); }},
      {__LINE__, [&] { x.item<float>(); }},
      {__LINE__, [&] { x.data<int32_t>(); }},
      {__LINE__, [&] { Array().shape(); }},
      {__LINE__, [&] { if (x > 0) return; }},
      {__LINE__, [&] { make_mesh({{"data", 1'000'000}}); }},
      {__LINE__, [&] { mesh.size("model"); }},
      {__LINE__, [&] { NamedSharding(mesh, P("model")); }},
      {__LINE__, [&] { NamedSharding(mesh, P("data")).shard_shape({}); }},
      {__LINE__, [&] { device_put(x, NamedSharding(mesh, P({}, {}, "data"))); }},
      {__LINE__, [&] { make_array_from_process_local_data(NamedSharding(mesh, P()), x, {9}); }},
      {__LINE__, [&] { step(donated); }},
      {__LINE__, [&] { pmap(twice)(Array(1.f)); }},
      {__LINE__, [&] { psum(one, "nowhere"); }},
      {__LINE__, [&] { axis_index("nowhere"); }},
      {__LINE__, [&] { axis_size("nowhere"); }},
      {__LINE__, [&] { broadcast_shapes({{2}, {3}}); }},
      {__LINE__, [&] { block({{x}, {y}}); }},
      {__LINE__, [&] { identity(-1); }},
      {__LINE__, [&] { indices({-1}); }},
      {__LINE__, [&] { diag_indices(-1); }},
      {__LINE__, [&] { fft::fftfreq(-1); }},
      {__LINE__, [&] { checkpoint_name(x, ""); }},
      {__LINE__, [&] { debug::print("{} {}", x); }},
      {__LINE__, [&] { debug::print("{a}", {{"b", x}}); }},
      {__LINE__, [&] { conv2d(zeros({1, 2, 2, 1}), zeros({1, 1, 1, 1}), {.padding = "ALL"}); }},
      {__LINE__, [&] { max_pool(zeros({1, 2, 2, 1}), {.padding = "ALL"}); }},
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
