// The loss of many classes: the row cross_entropy, and the loss of a last layer in chunks.
#include <cmath>
#include <limits>
#include <sstream>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/losses.h"
#include "nn/differences.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

// The same loss, written with other functions.
Array plain_loss(const Array& logits, const Array& labels, double smoothing) {
  const Array z = logits.dtype() == f64 ? logits : astype(logits, f32);
  const Array shifted = z - stop_gradient(max(z, -1, {.keepdims = true}));
  const Array log_p = shifted - expand_dims(log(sum(exp(shifted), -1)), -1);
  const Array own = sum(where(expand_dims(labels, -1) == arange(z.shape(-1)), log_p, 0.0), -1);
  const Array loss = smoothing == 0 ? -own : -(1 - smoothing) * own - smoothing * mean(log_p, -1);
  return where(logical_and(labels >= 0, labels < z.shape(-1)), loss, std::nan(""));
}

struct LossAndGradient {
  std::vector<double> loss, gradient;
};
template <class F>
LossAndGradient loss_and_gradient(const F& loss_of, const Array& logits) {
  const Array factors = arange(logits.shape(0)) + 1;
  const auto both = jit([&](Array z) {
    auto [loss, vjp_of] = vjp([&](Array x) { return loss_of(x); }, z);
    return std::pair{loss, std::get<0>(vjp_of(astype(factors, loss.dtype())))};
  });
  const auto [loss, gradient] = both(logits);
  return {loss.template to_vector<double>(), astype(gradient, f64).template to_vector<double>()};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(got[i])) continue;
    ASSERT_LE(std::abs(got[i] - wanted[i]), tolerance * (1 + std::abs(wanted[i]))) << i;
  }
}

TEST(LargeVocabulary, MatchesThePlainFormulation) {
  struct Case {
    int64_t rows, classes;
  };
  for (const Case& c : {Case{1, 65}, Case{7, 1000}, Case{300, 65}, Case{300, 1000}, Case{7, 50257}})
    for (const DType dtype : {f32, bf16, f16, f64})
      for (const double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(to_string(Type{dtype, {c.rows, c.classes}}));
        const Array logits = astype(random::normal(random::key(1), {c.rows, c.classes}) * 4.f, dtype);
        const Array labels = random::randint(random::key(2), {c.rows}, -1, static_cast<int32_t>(c.classes));
        const auto row = [&](const Array& z) {
          return softmax_cross_entropy(z, labels, {.label_smoothing = smoothing});
        };
        const LossAndGradient got = loss_and_gradient(row, logits);
        const LossAndGradient wanted =
            loss_and_gradient([&](const Array& z) { return plain_loss(z, labels, smoothing); }, logits);
        expect_near(got.loss, wanted.loss, dtype == f64 ? 1e-13 : 2e-6);
        const double rounding = dtype == bf16 ? 0x1p-8 : dtype == f16 ? 0x1p-11 : 0;
        expect_near(got.gradient, wanted.gradient,
                    dtype == f64 ? 1e-12 : 1e-5 + static_cast<double>(c.rows) * 1e-6 + rounding);
        const LossAndGradient again = loss_and_gradient(row, logits);
        expect_near(again.loss, got.loss, 0);
        expect_near(again.gradient, got.gradient, 0);
      }
}

TEST(LargeVocabulary, FewClassesStayElementwise) {
  const auto text = [](int64_t classes) {
    return program_text([](Array z, Array y) { return softmax_cross_entropy(z, y); }, zeros({3, classes}),
                        zeros({3}, i32));
  };
  EXPECT_EQ(text(10).find("cross_entropy"), std::string::npos);
  EXPECT_NE(text(64).find("cross_entropy"), std::string::npos);
}

TEST(LargeVocabulary, LogitsOf16BitsAreNotCopied) {
  const Array z = astype(random::normal(random::key(1), {6, 200}), bf16),
              y = random::randint(random::key(2), {6}, 0, 200);
  const auto direct = jit([](Array a, Array labels) {
    return value_and_grad([&](Array x) { return mean(softmax_cross_entropy(x, labels)); })(a);
  });
  const auto widened = jit([](Array a, Array labels) {
    return value_and_grad([&](Array x) { return mean(softmax_cross_entropy(astype(x, f32), labels)); })(a);
  });
  std::ostringstream text;
  text << widened.lowered(z, y);
  EXPECT_EQ(text.str().find("f32[6,200]"), std::string::npos) << text.str();
  const auto [loss, gradient] = direct(z, y);
  const auto [same_loss, same_gradient] = widened(z, y);
  EXPECT_EQ(loss.item<float>(), same_loss.item<float>());
  EXPECT_EQ(gradient.dtype(), bf16);
  EXPECT_EQ(gradient.to_vector<float>(), same_gradient.to_vector<float>());
}

TEST(LargeVocabulary, GradientOfIgnoredExamplesIsZero) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array labels = array({3, -1, 70, 5});
  const Array bad = reshape(array({0.f, std::nanf(""), inf, 0.f}), {4, 1});
  const Array logits = random::normal(random::key(1), {4, 70}) + bad;
  const Array gradient = grad([&](Array z) {
    const Array known = logical_and(labels >= 0, labels < 70);
    return sum(where(known, softmax_cross_entropy(z, labels), 0.0));
  })(logits);
  const std::vector<float> g = gradient.to_vector<float>();
  for (size_t i = 0; i < g.size(); ++i) EXPECT_EQ(g[i] == 0, i / 70 == 1 || i / 70 == 2) << i;
}

TEST(LargeVocabulary, SpecialLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> row(5000, -inf);
  row[4000] = 0;
  row[4999] = 0;
  const auto loss = [](const std::vector<float>& z, int label) {
    return softmax_cross_entropy(Array::from(z, {1, 5000}), array({label})).item<float>();
  };
  EXPECT_NEAR(loss(row, 4000), std::log(2.f), 1e-6);
  EXPECT_EQ(loss(row, 3), inf);
  row[10] = inf;
  EXPECT_TRUE(std::isnan(loss(row, 4000)));
  EXPECT_TRUE(std::isnan(loss(std::vector<float>(5000, -inf), 0)));
  std::vector<float> large(5000, 1e4f);
  EXPECT_NEAR(loss(large, 7), std::log(5000.f), 1e-6);
  large[4500] = 1e30f;
  EXPECT_EQ(loss(large, 4500), 0);
}

// ---- linear_cross_entropy

TEST(LinearCrossEntropy, MatchesTheDirectForm) {
  for (const bool class_rows : {false, true})
    for (const int64_t chunk : {1, 4, 5, 12, 100}) {
      SCOPED_TRACE(chunk);
      const Array x = random::normal(random::key(1), {3, 4, 8});
      const Array w = random::normal(random::key(2), class_rows ? Shape{70, 8} : Shape{8, 70});
      const Array labels = reshape(array({3, 0, 69, 12, -1, 5, 70, 8, 9, 10, 11, 3}), {3, 4});
      const Array factors = random::normal(random::key(3), {3, 4});
      const auto of = [&](const auto& losses) {
        return value_and_grad<0, 1>([&](Array a, Array b) {
          const Array loss = losses(a, b);
          return sum(where(logical_and(labels >= 0, labels < 70), loss * factors, 0.0));
        })(x, w);
      };
      const LinearCrossEntropyOptions options{.label_smoothing = 0.1, .chunk = chunk, .class_rows = class_rows};
      const auto [value, grads] = of([&](Array a, Array b) { return linear_cross_entropy(a, b, labels, options); });
      const auto [wanted, wanted_grads] = of([&](Array a, Array b) {
        const Array logits = einsum(class_rows ? "btd,vd->btv" : "btd,dv->btv", a, b);
        return softmax_cross_entropy(logits, labels, {.label_smoothing = 0.1});
      });
      EXPECT_NEAR(value.template item<float>(), wanted.template item<float>(), 1e-5);
      EXPECT_ELEMENTS(std::get<0>(grads), std::get<0>(wanted_grads).template to_vector<double>(), 1e-5);
      EXPECT_ELEMENTS(std::get<1>(grads), std::get<1>(wanted_grads).template to_vector<double>(), 1e-5);
      const Array losses = linear_cross_entropy(x, w, labels, options);
      EXPECT_EQ(losses.shape(), (Shape{3, 4}));
      EXPECT_TRUE(std::isnan(losses.to_vector<double>()[4]));
    }
}

TEST(LinearCrossEntropy, NeverHoldsAllLogits) {
  const auto step = jit([](Array x, Array w, Array labels) {
    return grad<0, 1>([&](Array a, Array b) { return mean(linear_cross_entropy(a, b, labels, {.chunk = 16})); })(x, w);
  });
  const Array x = astype(ones({64, 8}), bf16), w = astype(ones({8, 300}), bf16), labels = zeros({64}, i32);
  std::ostringstream text;
  text << step.lowered(x, w, labels);
  EXPECT_EQ(text.str().find("[64,300]"), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find("[4,16,300]"), std::string::npos) << text.str();
  const auto [dx, dw] = step(x, w, labels);
  EXPECT_EQ(dx.dtype(), bf16);
  EXPECT_EQ(dw.dtype(), bf16);
  EXPECT_EQ(linear_cross_entropy(zeros({0, 8}), zeros({8, 300}), zeros({0}, i32)).shape(), Shape{0});
}

TEST(LinearCrossEntropy, InvalidArgumentsAreRejected) {
  const Array x = ones({5, 4}), w = ones({4, 7}), labels = zeros({5}, i32);
  EXPECT_ERROR(linear_cross_entropy(zeros({5, 4}, i32), w, labels), "linear_cross_entropy: x is i32[5,4]");
  EXPECT_ERROR(linear_cross_entropy(x, ones({4}), labels), "they must be floating, [..., d] and two-dimensional");
  EXPECT_ERROR(linear_cross_entropy(x, ones({7, 4}), labels),
               "w must be [4, classes]; for the other order set class_rows = true");
  EXPECT_ERROR(linear_cross_entropy(x, ones({3, 7}), labels), "w must be [4, classes]");
  EXPECT_ERROR(linear_cross_entropy(x, ones({4, 0}), labels), "w [4, 0] has no classes");
  EXPECT_ERROR(linear_cross_entropy(x, w, zeros({4}, i32)), "labels i32[4] for x f32[5,4]");
  EXPECT_ERROR(linear_cross_entropy(x, w, zeros({5})), "the labels must be integers [5]");
  EXPECT_ERROR(linear_cross_entropy(x, w, labels, {.chunk = 0}), "the chunk is 0; it must be at least 1");
  EXPECT_ERROR(linear_cross_entropy(x, w, labels, {.label_smoothing = 1}), "it must be at least 0 and less than 1");
}

}  // namespace
}  // namespace lockstep
