// Errors name the line of the user's program.
#include <gtest/gtest.h>

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
  const int line = __LINE__ + 2;
  const std::string text = message_of([&] {
    return maximum(a * 2,
                   b);
  });
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
