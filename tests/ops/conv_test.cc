#include "ops/conv.h"

#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "rows/eager.h"

namespace lockstep {
namespace {

struct ConvCase {
  Shape x, w;
  ConvOptions options;

  Shape y() const {
    Shape out{x[0], 0, 0, w[3]};
    for (size_t d = 0; d < 2; ++d) {
      const int64_t dilated = (x[d + 1] - 1) * options.lhs_dilation[d] + 1;
      const int64_t window = (w[d] - 1) * options.rhs_dilation[d] + 1;
      out[d + 1] = (dilated + options.pad[2 * d] + options.pad[2 * d + 1] - window) / options.stride[d] + 1;
    }
    return out;
  }
};

// Calls f(position in x, position in w, position in y) for every product of the convolution's definition.
void for_each_product(const ConvCase& c, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const ConvOptions& o = c.options;
  const int64_t in_group = c.w[2], out_group = c.w[3] / o.groups;
  const Shape y = c.y();
  for_each_index(y, [&](const Dims& i, int64_t at_y) {
    for_each_index(c.w, [&](const Dims& k, int64_t at_w) {
      if (k[3] != i[3]) return;
      Dims at = {i[0], 0, 0, i[3] / out_group * in_group + k[2]};
      for (size_t d = 0; d < 2; ++d) {
        const int64_t p = i[d + 1] * o.stride[d] + k[d] * o.rhs_dilation[d] - o.pad[2 * d];
        if (p < 0 || p % o.lhs_dilation[d] != 0 || p / o.lhs_dilation[d] >= c.x[d + 1]) return;
        at[d + 1] = p / o.lhs_dilation[d];
      }
      f(position(c.x, at), at_w, at_y);
    });
  });
}

using Sums = std::vector<double>;

HostArray reference_conv2d(const ConvCase& c, const HostArray& x, const HostArray& w) {
  Sums y(static_cast<size_t>(count(c.y())), 0);
  for_each_product(c, [&](int64_t i, int64_t k, int64_t o) { y[static_cast<size_t>(o)] += x.get(i) * w.get(k); });
  return HostArray({x.type.dtype, c.y()}, y);
}

HostArray reference_input_grad(const ConvCase& c, const HostArray& dy, const HostArray& w) {
  Sums dx(static_cast<size_t>(count(c.x)), 0);
  for_each_product(c, [&](int64_t i, int64_t k, int64_t o) { dx[static_cast<size_t>(i)] += dy.get(o) * w.get(k); });
  return HostArray({dy.type.dtype, c.x}, dx);
}

HostArray reference_filter_grad(const ConvCase& c, const HostArray& x, const HostArray& dy) {
  Sums dw(static_cast<size_t>(count(c.w)), 0);
  for_each_product(c, [&](int64_t i, int64_t k, int64_t o) { dw[static_cast<size_t>(k)] += x.get(i) * dy.get(o); });
  return HostArray({x.type.dtype, c.w}, dw);
}

ValueFunction conv2d_of(const ConvCase& c) {
  return [c](const Values& in) { return Values{conv2d(in[0], in[1], c.options)}; };
}
ValueFunction input_grad_of(const ConvCase& c) {
  return [c](const Values& in) { return Values{conv2d_input_grad(in[0], in[1], c.x, c.options)}; };
}
ValueFunction filter_grad_of(const ConvCase& c) {
  return [c](const Values& in) { return Values{conv2d_filter_grad(in[0], in[1], c.w, c.options)}; };
}

// Compares the three rows with the definition on small integers, whose sums are exact in every type.
void expect_definition(const ConvCase& c, DType t) {
  SCOPED_TRACE(to_string(Type{t, c.x}) + " " + to_string(Type{t, c.w}));
  const HostArray x = small_integers({t, c.x}, 1), w = small_integers({t, c.w}, 2), dy = small_integers({t, c.y()}, 3);
  expect_equal(evaluate({x, w}, conv2d_of(c))[0], reference_conv2d(c, x, w));
  expect_equal(evaluate({dy, w}, input_grad_of(c))[0], reference_input_grad(c, dy, w));
  expect_equal(evaluate({x, dy}, filter_grad_of(c))[0], reference_filter_grad(c, x, dy));
}

// Small convolutions that use every option.
std::vector<ConvCase> random_convs(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  std::vector<ConvCase> cases;
  while (cases.size() < n) {
    ConvCase c;
    ConvOptions& o = c.options;
    o.groups = pick(1, 3);
    const int64_t in_group = pick(1, 3), out_group = pick(1, 3);
    c.x = {pick(1, 2), pick(1, 7), pick(1, 7), o.groups * in_group};
    c.w = {pick(1, 3), pick(1, 3), in_group, o.groups * out_group};
    o.stride = {pick(1, 3), pick(1, 3)};
    o.pad = {pick(0, 2), pick(0, 2), pick(0, 2), pick(0, 2)};
    o.lhs_dilation = {pick(1, 2), pick(1, 2)};
    o.rhs_dilation = {pick(1, 2), pick(1, 2)};
    bool fits = true;
    for (size_t d = 0; d < 2; ++d)
      fits &=
          (c.x[d + 1] - 1) * o.lhs_dilation[d] + o.pad[2 * d] + o.pad[2 * d + 1] >= (c.w[d] - 1) * o.rhs_dilation[d];
    if (fits) cases.push_back(c);
  }
  return cases;
}

const ConvCase kGrouped = {
    {2, 5, 4, 4}, {3, 2, 2, 6}, {.stride = {2, 1}, .pad = {1, 0, 1, 1}, .rhs_dilation = {1, 2}, .groups = 2}};
const ConvCase kPlain = {{2, 5, 4, 3}, {3, 3, 3, 2}, {.stride = {1, 2}, .pad = {1, 1, 0, 1}, .lhs_dilation = {2, 1}}};

TEST(Conv, MatchesItsDefinition) {
  for (const ConvCase& c : random_convs(120, 1)) expect_definition(c, f64);
}

TEST(Conv, MatchesItsDefinitionInEveryFloatingType) {
  for (DType t : {bf16, f16, f32})
    for (const ConvCase& c : {kGrouped, kPlain}) expect_definition(c, t);
}

TEST(Conv, MatchesItsDefinitionOnLargerImages) {
  expect_definition({{3, 28, 28, 4}, {5, 5, 4, 8}, {.pad = {2, 2, 2, 2}}}, f32);
  expect_definition({{2, 17, 19, 16}, {3, 3, 16, 24}, {.stride = {2, 2}, .pad = {1, 1, 1, 1}}}, f32);
  expect_definition({{2, 9, 9, 32}, {3, 3, 1, 32}, {.pad = {1, 1, 1, 1}, .groups = 32}}, f32);
  expect_definition({{2, 12, 12, 24}, {1, 1, 24, 16}, {}}, f32);
  expect_definition({{2, 9, 8, 12}, {3, 2, 6, 10}, {.stride = {2, 1}, .rhs_dilation = {1, 2}, .groups = 2}}, f32);
  // Groups of a few channels are computed directly; the last case in several tasks.
  for (DType t : {f32, bf16}) {
    expect_definition({{2, 18, 17, 21}, {3, 5, 1, 21}, {.stride = {1, 2}, .pad = {1, 1, 2, 2}, .groups = 21}}, t);
    expect_definition({{1, 1, 90, 8}, {1, 4, 2, 16}, {.pad = {0, 0, 3, 0}, .rhs_dilation = {1, 3}, .groups = 4}}, t);
  }
  expect_definition({{1, 130, 120, 4}, {3, 3, 2, 2}, {.pad = {1, 1, 1, 1}, .groups = 2}}, bf16);
}

TEST(Conv, EmptyOperandsAreSupported) {
  expect_definition({{0, 5, 5, 2}, {3, 3, 2, 4}, {}}, f32);
  expect_definition({{2, 5, 5, 0}, {3, 3, 0, 4}, {}}, f32);
  expect_definition({{2, 5, 5, 2}, {3, 3, 2, 0}, {}}, f32);
  expect_definition({{2, 0, 5, 2}, {3, 3, 2, 4}, {.pad = {2, 2, 0, 0}}}, f32);
}

TEST(Conv, GradientMatchesFiniteDifference) {
  for (const ConvCase& c : random_convs(20, 2)) {
    const HostArray x = normal_numbers({f64, c.x}, 1), w = normal_numbers({f64, c.w}, 2),
                    dy = normal_numbers({f64, c.y()}, 3);
    expect_gradient({x, w}, conv2d_of(c));
    expect_gradient({dy, w}, input_grad_of(c));
    expect_gradient({x, dy}, filter_grad_of(c));
  }
}

// The gradient of the gradient uses the rows of both.
TEST(Conv, SecondGradientMatchesFiniteDifference) {
  const ConvCase c = kGrouped;
  const Program first = joint(trace({{f64, c.x}, {f64, c.w}}, conv2d_of(c)), {true, true});
  expect_gradient({normal_numbers({f64, c.x}, 1), normal_numbers({f64, c.w}, 2), normal_numbers({f64, c.y()}, 3)},
                  [&](const Values& in) { return in[0].builder().inline_program(first, in); });
}

TEST(Conv, BatchMatchesLoop) {
  for (const ConvCase& c : {kGrouped, kPlain}) {
    const HostArray x = normal_numbers({f64, c.x}, 1), w = normal_numbers({f64, c.w}, 2),
                    dy = normal_numbers({f64, c.y()}, 3);
    const auto make = [](Type t, uint32_t seed) { return normal_numbers(std::move(t), seed); };
    expect_batch_is_loop({x, w}, conv2d_of(c), make);
    expect_batch_is_loop({dy, w}, input_grad_of(c), make);
    expect_batch_is_loop({x, dy}, filter_grad_of(c), make);
  }
}

TEST(Conv, EmptyBatchHasEmptyResults) {
  for (const std::vector<bool>& batched :
       {std::vector{true, false}, std::vector{false, true}, std::vector{true, true}}) {
    const auto result = [&](Shape a, Shape b, const ValueFunction& f) {
      return batch(trace({{f64, a}, {f64, b}}, f), batched, 0, {}).program.output_types()[0].shape;
    };
    const ConvCase c = kGrouped;
    EXPECT_EQ(result(c.x, c.w, conv2d_of(c)), prepend(0, c.y()));
    EXPECT_EQ(result(c.y(), c.w, input_grad_of(c)), prepend(0, c.x));
    EXPECT_EQ(result(c.x, c.y(), filter_grad_of(c)), prepend(0, c.w));
  }
}

// relu(conv + bias) and conv + bias, and a residual input of the full shape.
Values biased(const ConvCase& c, const Values& in) {
  const Value y = conv2d(in[0], in[1], c.options);
  const Value sum = add(y, broadcast(in[2], y.shape(), {3}));
  return {maximum(sum, zeros_like(sum)), mul(sum, in[3])};
}

TEST(Conv, EpilogueMatchesSeparateOps) {
  std::vector<ConvCase> cases = random_convs(20, 3);
  cases.push_back({{3, 28, 28, 4}, {5, 5, 4, 40}, {.pad = {2, 2, 2, 2}}});
  for (DType t : {f64, bf16}) {
    for (const ConvCase& c : cases) {
      const HostArrays in = {small_integers({t, c.x}, 1), small_integers({t, c.w}, 2), small_integers({t, {c.w[3]}}, 3),
                             small_integers({t, c.y()}, 4)};
      const Program plain =
          trace({in[0].type, in[1].type, in[2].type, in[3].type}, [&](const Values& v) { return biased(c, v); });
      const Program fused = lower(plain);
      ASSERT_EQ(fused.eqns.size(), 1u) << print(fused);
      EXPECT_EQ(fused.eqns[0].op, &conv2d_fused_op);
      const HostArrays wanted = evaluate(plain, in);
      const HostArrays got = planned(plain, in);
      for (size_t k = 0; k < 2; ++k) expect_equal(got[k], wanted[k]);
    }
  }
}

TEST(Conv, RejectsInvalidShapes) {
  Builder b;
  const Value x = b.input({f32, {2, 5, 5, 4}}), w = b.input({f32, {3, 3, 4, 6}}), flat = b.input({f32, {5, 5, 4}});
  const Value narrow = b.input({f32, {3, 3, 3, 6}}), half = b.input({bf16, {3, 3, 4, 6}}),
              dy = b.input({f32, {2, 3, 3, 6}});
  const Value empty = b.input({f32, {0, 3, 4, 6}}), whole = b.input({i32, {3, 3, 4, 6}});
  EXPECT_EQ(error_of([&] { conv2d(flat, w); }),
            "conv2d: the input is [5, 5, 4], of rank 3; it must have the dimensions [n, h, w, c]");
  EXPECT_EQ(error_of([&] { conv2d(x, flat); }),
            "conv2d: the filter is [5, 5, 4], of rank 3; it must have the dimensions [kh, kw, c / groups, co]");
  EXPECT_EQ(error_of([&] { conv2d(x, half); }),
            "conv2d: f32[2,5,5,4] and bf16[3,3,4,6] differ in type; cast one of them");
  EXPECT_EQ(error_of([&] { conv2d(whole, whole); }), "conv2d: i32[3,3,4,6] is not floating; cast it to f32");
  EXPECT_EQ(
      error_of([&] { conv2d(x, narrow); }),
      "conv2d: filter [3, 3, 3, 6] reads 3 channels and input [2, 5, 5, 4] has 4 in each of 1 group; they must agree");
  EXPECT_EQ(
      error_of([&] { conv2d(x, w, {.groups = 3}); }),
      "conv2d: input [2, 5, 5, 4] and filter [3, 3, 4, 6] do not divide into 3 groups; the channels of both must be "
      "multiples of the groups");
  EXPECT_EQ(error_of([&] { conv2d(x, w, {.groups = 0}); }), "conv2d: groups is 0; it must be at least 1");
  EXPECT_EQ(error_of([&] {
              conv2d(x, w, {.rhs_dilation = {1, 3}});
            }),
            "conv2d: the window spans 7 along w and the padded input 5; pad more, or use a smaller filter or dilation");
  EXPECT_EQ(error_of([&] {
              conv2d(x, w, {.stride = {0, 1}});
            }),
            "conv2d: stride is [0, 1]; each number must be at least 1 and fit 31 bits");
  EXPECT_EQ(error_of([&] {
              conv2d(x, w, {.pad = {0, 0, -1, 0}});
            }),
            "conv2d: pad is [0, 0, -1, 0]; each number must be at least 0 and fit 31 bits");
  EXPECT_EQ(error_of([&] { conv2d(x, empty); }),
            "conv2d: filter [0, 3, 4, 6] has an empty window; each extent is at least 1");
  EXPECT_EQ(error_of([&] {
              emit(conv2d_op, {x, w}, {{"stride", Shape{1}}});
            }),
            "conv2d: stride is [1]; it takes 2 numbers");
  EXPECT_EQ(
      error_of([&] {
        conv2d_input_grad(dy, w, {2, 6, 5, 4});
      }),
      "conv2d_input_grad: the cotangent is [2, 3, 3, 6] where the convolution gives [2, 4, 3, 6]; pass the gradient of "
      "its result");
  EXPECT_EQ(
      error_of([&] {
        conv2d_filter_grad(x, dy, {2, 3, 4, 6});
      }),
      "conv2d_filter_grad: the cotangent is [2, 3, 3, 6] where the convolution gives [2, 4, 3, 6]; pass the gradient "
      "of its result");
}

}  // namespace
}  // namespace lockstep
