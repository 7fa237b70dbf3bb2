#include "ops/norm.h"

#include <limits>
#include <random>

#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/rotary.h"
#include "ops/shape_ops.h"
#include "rows/eager.h"

namespace lockstep {
namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

Value as_f32(Value x) { return cast(x, f32); }
Value over_row(Value x, const Shape& shape) { return broadcast(x, shape, counting(0, x.rank())); }
Value over_rows(Value x, const Shape& shape) {
  return broadcast(as_f32(x), shape, {static_cast<int64_t>(shape.size()) - 1});
}

// The norm by other rows; RMS norm without a bias.
Value norm_formula(Value x, Value scale, Value bias, double epsilon) {
  const Shape shape = x.shape();
  const double d = static_cast<double>(shape.back());
  const Dims last{x.rank() - 1};
  Value centered = as_f32(x);
  if (bias) centered = centered - over_row(reduce_sum(centered, last) / d, shape);
  const Value y =
      centered * over_row(rsqrt(reduce_sum(centered * centered, last) / d + epsilon), shape) * over_rows(scale, shape);
  return cast(bias ? y + over_rows(bias, shape) : y, x.dtype());
}

Values layer_by_rows(const Values& v) { return {norm_formula(v[0], v[1], v[2], 1e-5)}; }
Values layer_by_row(const Values& v) { return {layer_norm(v[0], v[1], v[2], 1e-5)[0]}; }
Values rms_by_rows(const Values& v) { return {norm_formula(v[0], v[1], {}, 1e-5)}; }
Values rms_by_row(const Values& v) { return {rms_norm(v[0], v[1], 1e-5)[0]}; }

// The value and all gradients of `f`.
HostArrays with_gradients(const HostArrays& in, const ValueFunction& f, const HostArray& ct) {
  HostArrays all = in;
  all.push_back(ct);
  return evaluate(joint(trace(types_of(in), f), std::vector<bool>(in.size(), true)), all);
}

double allowed(DType t) { return t == bf16 ? 0x1p-6 : t == f16 ? 0x1p-9 : 2e-5; }

void expect_near(const HostArrays& got, const HostArrays& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t k = 0; k < got.size(); ++k) {
    double scale = 1;
    for (const double x : wanted[k].values()) scale = std::max(scale, std::abs(x));
    ASSERT_EQ(to_string(got[k].type), to_string(wanted[k].type));
    for (int64_t i = 0; i < got[k].size(); ++i)
      ASSERT_NEAR(got[k].get(i), wanted[k].get(i), allowed(got[k].type.dtype) * scale) << "result " << k << " at " << i;
  }
}

TEST(Norm, EqualsItsFormulaWithOtherRows) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const int64_t d : {1, 7, 65, 384, 5000})
    for (const int64_t rows : {0, 1, 3, 1000}) {
      if (d * rows > 400000) continue;
      const DType dtype = std::array{f32, bf16, f16}[random() % 3],
                  parameter = std::array{f32, bf16, f64}[random() % 3];
      SCOPED_TRACE(to_string(Type{dtype, {rows, d}}) + " " + std::string(name(parameter)));
      const HostArray x = normal_numbers({dtype, {rows, d}}, random()),
                      scale = normal_numbers({parameter, {d}}, random()),
                      bias = normal_numbers({parameter, {d}}, random()), ct = normal_numbers(x.type, random());
      // A row of one element has the variance 0: its gradient is a difference of equal large terms.
      if (d > 1)
        expect_near(with_gradients({x, scale, bias}, layer_by_row, ct),
                    with_gradients({x, scale, bias}, layer_by_rows, ct));
      expect_near(with_gradients({x, scale}, rms_by_row, ct), with_gradients({x, scale}, rms_by_rows, ct));
    }
}

TEST(Norm, IsAccurateFarFromZero) {
  HostArray x({f32, {4, 300}});
  const HostArray noise = normal_numbers(x.type, 3);
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, 4096 + std::round(noise.get(i) * 64) / 64);
  const HostArray ones({f32, {300}}, std::vector<double>(300, 1.0)), zeros({f32, {300}}, std::vector<double>(300, 0.0));
  const HostArray y = evaluate({x, ones, zeros}, layer_by_row)[0];
  for (int64_t r = 0; r < 4; ++r) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < 300; ++i) mean += x.row(r).get(i) / 300;
    for (int64_t i = 0; i < 300; ++i) square += std::pow(x.row(r).get(i) - mean, 2) / 300;
    for (int64_t i = 0; i < 300; ++i)
      EXPECT_NEAR(y.row(r).get(i), (x.row(r).get(i) - mean) / std::sqrt(square + 1e-5), 5e-4);
  }
}

TEST(Norm, NanAndInfinityPropagateAsInTheFormula) {
  for (const double special : {kNaN, kInfinity, -kInfinity}) {
    HostArray x = normal_numbers({f32, {3, 70}}, 5);
    x.set(71, special);
    const HostArray scale = normal_numbers({f32, {70}}, 6), bias = normal_numbers({f32, {70}}, 7);
    expect_equal(evaluate({x, scale, bias}, layer_by_row)[0], evaluate({x, scale, bias}, layer_by_rows)[0], 1e-5);
    expect_equal(evaluate({x, scale}, rms_by_row)[0], evaluate({x, scale}, rms_by_rows)[0], 1e-5);
    const HostArray dx = with_gradients({x, scale, bias}, layer_by_row, normal_numbers(x.type, 8))[1];
    for (int64_t i = 0; i < 70; ++i) {
      EXPECT_TRUE(std::isfinite(dx.row(0).get(i)));
      EXPECT_TRUE(std::isnan(dx.row(1).get(i)));
      EXPECT_TRUE(std::isfinite(dx.row(2).get(i)));
    }
  }
}

TEST(Norm, RowsWithoutElementsAndEmptyBatchesAreValid) {
  const HostArray scale({f32, {0}}), x({f32, {2, 0}});
  const HostArrays y = run_op(layer_norm_op, {x, scale, scale}, {{"batch_dims", int64_t{0}}, {"epsilon", 0.0}});
  EXPECT_TRUE(std::isnan(y[1].get(0)) && std::isnan(y[2].get(1)));
  const HostArray none({f32, {0, 3}}), statistic({f32, {0}}), three = normal_numbers({f32, {3}});
  const HostArrays grads =
      run_op(layer_norm_grad_op, {none, three, statistic, statistic, none}, {{"batch_dims", int64_t{0}}});
  EXPECT_EQ(grads[1].values(), std::vector<double>(3, 0.0));
  EXPECT_EQ(grads[2].values(), std::vector<double>(3, 0.0));
}

// Operands of a norm and of its gradient.
HostArrays norm_operands(const Type& x, bool grad) {
  const Type statistic{f32, {x.shape[0]}};
  HostArrays in{normal_numbers(x, 1), normal_numbers({f32, {x.shape[1]}}, 2)};
  if (!grad) {
    in.push_back(normal_numbers(in[1].type, 3));
  } else {
    in.push_back(normal_numbers(statistic, 4));
    in.push_back(normal_numbers(statistic, 5));
    in.push_back(normal_numbers(x, 6));
  }
  return in;
}

TEST(Norm, ResultsDoNotDependOnThreadsOrRuns) {
  Pool one({.threads = 1}), four({.threads = 4});
  for (const Type& x : {Type{f32, {1000, 384}}, Type{bf16, {333, 65}}, Type{f32, {70, 5000}}})
    for (const bool grad : {false, true}) {
      const Op& op = grad ? layer_norm_grad_op : layer_norm_op;
      Attrs attrs{{"batch_dims", int64_t{0}}};
      if (!grad) attrs.set("epsilon", 1e-5);
      const HostArrays in = norm_operands(x, grad), wanted = run_op(op, in, attrs, one);
      for (int time = 0; time < 3; ++time) {
        const HostArrays got = run_op(op, in, attrs, four);
        for (size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(same_bits(got[k], wanted[k])) << to_string(x) << k;
      }
    }
}

template <class T>
void expect_equal_loops(const NormLoops<T>& a, const NormLoops<T>& b, int64_t n) {
  std::mt19937 random(11);
  std::normal_distribution<T> normal;
  const auto numbers = [&] {
    std::vector<T> out(static_cast<size_t>(n));
    for (T& x : out) x = normal(random);
    return out;
  };
  const std::vector<T> x = numbers(), scale = numbers(), bias = numbers(), dy = numbers();
  const NormRow<T> row{x.data(), scale.data(), T(0.3), T(0.7), n};
  EXPECT_EQ(a.sum(x.data(), n), b.sum(x.data(), n));
  EXPECT_EQ(a.square_sum(x.data(), T(0.2), n), b.square_sum(x.data(), T(0.2), n));
  for (const bool centered : {false, true}) {
    std::vector<T> some = x, others = x, sums = x, other_sums = x, more = dy, other_more = dy;
    a.normalize(row, centered ? bias.data() : nullptr, some.data());
    b.normalize(row, centered ? bias.data() : nullptr, others.data());
    EXPECT_EQ(some, others);
    const NormSums s = a.gradient_sums(row, dy.data(), sums.data(), centered ? more.data() : nullptr);
    const NormSums t = b.gradient_sums(row, dy.data(), other_sums.data(), centered ? other_more.data() : nullptr);
    EXPECT_EQ(s.g, t.g);
    EXPECT_EQ(s.g_normal, t.g_normal);
    EXPECT_EQ(sums, other_sums);
    EXPECT_EQ(more, other_more);
    a.gradient(row, dy.data(), T(0.1), T(0.2), some.data());
    b.gradient(row, dy.data(), T(0.1), T(0.2), others.data());
    EXPECT_EQ(some, others);
  }
}

TEST(Norm, EveryInstructionSetGivesTheSameBits) {
  const Loops& first = *all_loops()[0];
  for (const Loops* table : all_loops())
    for (const int64_t n : {0, 1, 31, 33, 65, 384, 2049, 5000}) {
      expect_equal_loops(first.norm_f32, table->norm_f32, n);
      expect_equal_loops(first.norm_f64, table->norm_f64, n);
    }
}

TEST(Norm, ResultMayReplaceItsOperand) {
  for (const DType dtype : {f32, bf16})
    for (const bool grad : {false, true}) {
      const Op& op = grad ? layer_norm_grad_op : layer_norm_op;
      Attrs attrs{{"batch_dims", int64_t{0}}};
      if (!grad) attrs.set("epsilon", 1e-5);
      const HostArrays in = norm_operands({dtype, {50, 65}}, grad), wanted = run_op(op, in, attrs);
      for (const size_t replaced : grad ? std::vector<size_t>{0, 4} : std::vector<size_t>{0}) {
        ASSERT_TRUE(op.alias(types_of(in), types_of(wanted), attrs, replaced, 0));
        HostArrays copies, out;
        for (const HostArray& x : in) copies.push_back(copy_of(x));
        for (const HostArray& y : wanted) out.emplace_back(y.type);
        out[0] = copies[replaced];
        std::vector<const void*> from;
        std::vector<void*> to;
        for (const HostArray& x : copies) from.push_back(x.buffer->data());
        for (const HostArray& y : out) to.push_back(y.buffer->data());
        const std::vector<Type> in_types = types_of(in), out_types = types_of(out);
        op.cpu({in_types, out_types, attrs, test_pool(), {}, {}})(from.data(), to.data());
        for (size_t k = 0; k < out.size(); ++k) EXPECT_TRUE(same_bits(out[k], wanted[k]));
      }
    }
}

std::string norm_error(const Op& op, const std::vector<Type>& in, int64_t batch_dims = 0, double epsilon = 1e-5) {
  return error_of([&] { infer_types(op, in, {{"batch_dims", batch_dims}, {"epsilon", epsilon}}); });
}

TEST(Norm, OperandsThatDoNotFitAreErrors) {
  const Type x{f32, {2, 3}}, d{f32, {3}}, rows{f32, {2}};
  EXPECT_EQ(norm_error(layer_norm_op, {x, d}), "layer_norm: takes 3 operands and got 2");
  EXPECT_EQ(norm_error(layer_norm_op, {{i32, {2, 3}}, d, d}),
            "layer_norm: x is i32[2,3]; cast it to a floating-point type");
  EXPECT_EQ(norm_error(rms_norm_op, {{f32, {}}, d}), "rms_norm: x is a scalar; it needs a dimension to normalize");
  EXPECT_EQ(norm_error(rms_norm_op, {x, d}, 2),
            "rms_norm: 2 batch dimensions do not fit x [2, 3]; they must come before the last dimension");
  EXPECT_EQ(norm_error(layer_norm_op, {x, rows, d}),
            "layer_norm: the scale is f32[2]; for x f32[2,3] it must be floating, of shape [3]");
  EXPECT_EQ(norm_error(layer_norm_op, {x, d, {bf16, {3}}}), "layer_norm: the bias is bf16[3]; it must be f32[3]");
  EXPECT_EQ(norm_error(layer_norm_op, {x, d, d}, 0, -1),
            "layer_norm: the epsilon is -1; it must be finite and not negative");
  EXPECT_EQ(norm_error(layer_norm_grad_op, {x, d, d, rows, x}),
            "layer_norm_grad: the mean is f32[3]; it must be f32[2]");
  EXPECT_EQ(norm_error(layer_norm_grad_op, {x, d, rows, d, x}),
            "layer_norm_grad: the rstd is f32[3]; it must be f32[2]");
  EXPECT_EQ(norm_error(rms_norm_grad_op, {x, d, rows, {bf16, {2, 3}}}),
            "rms_norm_grad: the cotangent is bf16[2,3]; it must be f32[2,3]");
}

TEST(Norm, SharedScaleIsNotCopiedForABatch) {
  const Program one = trace({{f32, {4}}, {f32, {4}}}, rms_by_row);
  EXPECT_EQ(print(batch(one, {true, false}, 3, {}).program),
            "program(%0:f32[3,4], %1:f32[4]) {\n"
            "  %2:f32[3,4], %3:f32[3] = rms_norm[batch_dims=0, epsilon=1e-05] %0 %1\n"
            "  return %2\n"
            "}\n");
}

TEST(Rotary, PositionsOfABatchAreThoseOfItsExamples) {
  const HostArrays in{normal_numbers({f64, {3, 2, 5, 2, 4}}, 1),
                      HostArray({i32, {3, 5}}, {0, 1, 2, 3, 4, 9, 8, 7, 6, 5, 100, 3, 1, 4, 1})};
  expect_batch_is_loop(in, {true, true}, [](const Values& v) { return Values{rotary(v[0], v[1], 10000)}; });
}

TEST(Rotary, InverseUndoesIt) {
  const HostArray x = normal_numbers({f64, {2, 5, 2, 6}}), at({i32, {5}}, {0, 1, 100, 7, 1000000});
  const HostArray y = evaluate(
      {x, at}, [](const Values& v) { return Values{rotary(rotary(v[0], v[1], 10000), v[1], 10000, true)}; })[0];
  expect_equal(y, x, 1e-13);
}

TEST(Rotary, OperandsThatDoNotFitAreErrors) {
  const auto error = [](const Type& x, const Type& positions, double base = 10000) {
    return error_of([&] {
      infer_types(rotary_op, std::vector<Type>{x, positions}, {{"base", base}, {"inverse", false}});
    });
  };
  EXPECT_EQ(error({f32, {2, 3, 1, 5}}, {i32, {3}}),
            "rotary: x is f32[2,3,1,5]; it must be floating, [batch, tokens, heads, features] with an even number of "
            "features");
  EXPECT_EQ(error({f32, {2, 3, 1, 4}}, {i64, {3}}),
            "rotary: the positions are i64[3]; they must be i32[3], one for each token of x");
  EXPECT_EQ(error({f32, {2, 3, 1, 4}}, {i32, {3}}, 0), "rotary: the base is 0; it must be a positive number");
}

}  // namespace
}  // namespace lockstep
