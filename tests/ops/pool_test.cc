#include "ops/pool.h"

#include <limits>

#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "rows/eager.h"

namespace lockstep {
namespace {

struct PoolCase {
  Shape x;
  PoolingOptions options;

  Shape y() const {
    Shape out = x;
    for (size_t d = 0; d < 2; ++d)
      out[d + 1] = (x[d + 1] + options.pad[2 * d] + options.pad[2 * d + 1] - options.window[d]) / options.stride[d] + 1;
    return out;
  }
};

// The positions in x of one window, in row-major order.
std::vector<int64_t> window(const PoolCase& c, const Dims& i) {
  const PoolingOptions& o = c.options;
  std::vector<int64_t> places;
  for (int64_t a = 0; a < o.window[0]; ++a)
    for (int64_t b = 0; b < o.window[1]; ++b) {
      const int64_t h = i[1] * o.stride[0] + a - o.pad[0], w = i[2] * o.stride[1] + b - o.pad[2];
      if (h >= 0 && h < c.x[1] && w >= 0 && w < c.x[2]) places.push_back(position(c.x, {i[0], h, w, i[3]}));
    }
  return places;
}

// The position of the first maximum; NaN is the largest.
int64_t first_maximum(const PoolCase& c, const HostArray& x, const Dims& i) {
  const std::vector<int64_t> places = window(c, i);
  int64_t best = places[0];
  for (int64_t p : places)
    if (x.get(p) > x.get(best) || (std::isnan(x.get(p)) && !std::isnan(x.get(best)))) best = p;
  return best;
}

ValueFunction max_pool_of(const PoolCase& c) {
  return [c](const Values& in) { return Values{max_pool(in[0], c.options)}; };
}
ValueFunction sum_pool_of(const PoolCase& c) {
  return [c](const Values& in) { return Values{sum_pool(in[0], c.options)}; };
}
ValueFunction sum_pool_grad_of(const PoolCase& c) {
  return [c](const Values& in) { return Values{sum_pool_grad(in[0], c.x, c.options)}; };
}
// The two rows that use the positions of the maxima, on (x, dy) and (x, t).
ValueFunction max_pool_grad_of(const PoolCase& c) {
  return [c](const Values& in) { return Values{max_pool_grad(in[0], max_pool(in[0], c.options), in[1], c.options)}; };
}
ValueFunction max_pool_pick_of(const PoolCase& c) {
  return [c](const Values& in) { return Values{max_pool_pick(in[0], max_pool(in[0], c.options), in[1], c.options)}; };
}

// Small integers have many equal maxima, and their sums are exact in every type.
void expect_definition(const PoolCase& c, const HostArray& x) {
  const DType t = x.type.dtype;
  SCOPED_TRACE(to_string(x.type));
  const HostArray dy = small_integers({t, c.y()}, 2), u = small_integers({t, c.x}, 3);
  HostArray largest({t, c.y()}), sums({t, c.y()}), picked({t, c.y()});
  std::vector<double> sent(static_cast<size_t>(x.size()), 0), spread = sent;
  for_each_index(c.y(), [&](const Dims& i, int64_t at_y) {
    const int64_t best = first_maximum(c, x, i);
    largest.set(at_y, x.get(best));
    picked.set(at_y, u.get(best));
    sent[static_cast<size_t>(best)] += dy.get(at_y);
    double sum = 0;
    for (int64_t p : window(c, i)) {
      sum += u.get(p);
      spread[static_cast<size_t>(p)] += dy.get(at_y);
    }
    sums.set(at_y, sum);
  });
  expect_equal(evaluate({x}, max_pool_of(c))[0], largest);
  expect_equal(evaluate({x, dy}, max_pool_grad_of(c))[0], HostArray({t, c.x}, sent));
  expect_equal(evaluate({x, u}, max_pool_pick_of(c))[0], picked);
  expect_equal(evaluate({u}, sum_pool_of(c))[0], sums);
  expect_equal(evaluate({dy}, sum_pool_grad_of(c))[0], HostArray({t, c.x}, spread));
}

std::vector<PoolCase> random_pools(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  std::vector<PoolCase> cases;
  while (cases.size() < n) {
    PoolCase c;
    PoolingOptions& o = c.options;
    c.x = {pick(1, 2), pick(1, 8), pick(1, 8), pick(1, 4)};
    o.window = {pick(1, 4), pick(1, 4)};
    o.stride = {pick(1, 4), pick(1, 4)};
    for (size_t i = 0; i < 4; ++i) o.pad[i] = pick(0, o.window[i / 2] - 1);
    bool fits = true;
    for (size_t d = 0; d < 2; ++d) fits &= c.x[d + 1] + o.pad[2 * d] + o.pad[2 * d + 1] >= o.window[d];
    if (fits) cases.push_back(c);
  }
  return cases;
}

const PoolCase kCase = {{2, 6, 5, 3}, {.window = {3, 2}, .stride = {2, 1}, .pad = {1, 1, 0, 1}}};

TEST(Pooling, MatchesItsDefinition) {
  for (const PoolCase& c : random_pools(150, 1)) expect_definition(c, small_integers({f64, c.x}));
}

TEST(Pooling, MatchesItsDefinitionInEveryType) {
  for (DType t : {u8, i32, i64, u32, bf16, f16, f32}) expect_definition(kCase, small_integers({t, kCase.x}));
}

TEST(Pooling, MatchesItsDefinitionOnLargerImages) {
  const PoolCase halves = {{4, 28, 28, 33}, {.window = {2, 2}, .stride = {2, 2}}};
  expect_definition(halves, small_integers({f32, halves.x}));
  const PoolCase overlap = {{3, 29, 31, 20}, {.window = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}}};
  expect_definition(overlap, small_integers({f32, overlap.x}));
}

TEST(Pooling, PropagatesNaNAndInfinity) {
  HostArray x = small_integers({f32, kCase.x});
  for (int64_t i = 0; i < x.size(); i += 7) x.set(i, i % 2 == 0 ? NAN : -std::numeric_limits<double>::infinity());
  expect_definition(kCase, x);
  const PoolCase low = {{1, 4, 4, 1}, {.window = {2, 2}, .stride = {2, 2}}};
  expect_definition(low, HostArray({f32, low.x}, std::vector<double>(16, -std::numeric_limits<double>::infinity())));
}

// The backward pass of a relu followed by pooling.
TEST(Pooling, GradientEpilogueMatchesSeparateOps) {
  std::vector<PoolCase> cases = random_pools(20, 5);
  cases.push_back({{3, 28, 28, 8}, {.window = {2, 2}, .stride = {2, 2}}});
  cases.push_back({{5, 9, 8, 3}, {.window = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}}});
  cases.push_back({{0, 4, 4, 2}, {.window = {2, 2}, .stride = {2, 2}}});
  cases.push_back({{4, 300, 301, 3}, {.window = {3, 3}, .stride = {2, 2}}});  // too large to run image by image
  for (DType t : {f64, bf16}) {
    for (const PoolCase& c : cases) {
      const HostArrays in = {small_integers({t, c.x}, 1), small_integers({t, c.y()}, 2), small_integers({t, c.x}, 3)};
      const Program plain = trace({in[0].type, in[1].type, in[2].type}, [&](const Values& v) {
        const Value dx = max_pool_grad(v[0], max_pool(v[0], c.options), v[1], c.options);
        return Values{select(gt(v[0], zeros_like(v[0])), dx, zeros_like(dx)), mul(dx, v[2])};
      });
      const Program fused = lower(plain);
      ASSERT_EQ(fused.eqns.size(), 2u) << print(fused);
      EXPECT_EQ(fused.eqns[1].op, &max_pool_grad_fused_op);
      const HostArrays wanted = evaluate(plain, in);
      const HostArrays got = planned(plain, in);
      for (size_t k = 0; k < 2; ++k) expect_equal(got[k], wanted[k]);
    }
  }
}

TEST(Pooling, EmptyImagesAreSupported) {
  for (const Shape& x : {Shape{0, 4, 4, 2}, Shape{2, 4, 4, 0}}) {
    const PoolCase c = {x, {.window = {2, 2}, .stride = {2, 2}}};
    expect_definition(c, HostArray({f32, x}));
  }
}

TEST(Pooling, GradientMatchesFiniteDifference) {
  for (const PoolCase& c : random_pools(20, 2)) {
    const HostArray x = normal_numbers({f64, c.x}, 1), dy = normal_numbers({f64, c.y()}, 2),
                    t = normal_numbers({f64, c.x}, 3);
    expect_gradient({x}, max_pool_of(c));
    expect_gradient({x, dy}, max_pool_grad_of(c));
    expect_gradient({x, t}, max_pool_pick_of(c));
    expect_gradient({x}, sum_pool_of(c));
    expect_gradient({dy}, sum_pool_grad_of(c));
  }
}

TEST(Pooling, BatchMatchesLoop) {
  const auto make = [](Type t, uint32_t seed) { return normal_numbers(std::move(t), seed); };
  const PoolCase& c = kCase;
  const HostArray x = make({f64, c.x}, 1), dy = make({f64, c.y()}, 2), t = make({f64, c.x}, 3);
  expect_batch_is_loop({x}, max_pool_of(c), make);
  expect_batch_is_loop({x, dy}, max_pool_grad_of(c), make);
  expect_batch_is_loop({x, t}, max_pool_pick_of(c), make);
  expect_batch_is_loop({x}, sum_pool_of(c), make);
  expect_batch_is_loop({dy}, sum_pool_grad_of(c), make);
}

TEST(Pooling, RejectsInvalidShapes) {
  Builder b;
  const Value x = b.input({f32, {2, 5, 5, 4}}), flat = b.input({f32, {5, 5, 4}}),
              truth = b.input({boolean, {2, 5, 5, 4}});
  const Value y = b.input({f32, {2, 4, 4, 4}}), empty = b.input({f32, {2, 0, 5, 4}});
  const PoolingOptions two = {.window = {2, 2}};
  EXPECT_EQ(error_of([&] { max_pool(flat, two); }),
            "max_pool: the input is [5, 5, 4], of rank 3; it must have the dimensions [n, h, w, c]");
  EXPECT_EQ(error_of([&] { sum_pool(truth, two); }), "sum_pool: bool[2,5,5,4] has no arithmetic; cast it to a number");
  EXPECT_EQ(error_of([&] {
              max_pool(x, {.window = {2, 6}});
            }),
            "max_pool: the window is 6 along w and the padded input 5; pad more, or use a smaller window");
  EXPECT_EQ(error_of([&] {
              max_pool(empty, {.window = {1, 1}});
            }),
            "max_pool: the images of [2, 0, 5, 4] are empty; a window needs an element");
  EXPECT_EQ(error_of([&] {
              sum_pool(x, {.window = {2, 2}, .pad = {0, 2, 0, 0}});
            }),
            "sum_pool: padding [0, 2, 0, 0] is not smaller than the window [2, 2]; a window of padding alone has no "
            "elements");
  EXPECT_EQ(error_of([&] {
              max_pool(x, {.window = {2, 0}});
            }),
            "max_pool: window is [2, 0]; each number must be at least 1 and fit 31 bits");
  EXPECT_EQ(error_of([&] { max_pool_grad(x, x, y, two); }),
            "max_pool_grad: the result of the pooling is f32[2,5,5,4]; it must be f32[2,4,4,4]");
  EXPECT_EQ(error_of([&] { max_pool_pick(x, y, y, two); }),
            "max_pool_pick: the array to pick from is f32[2,4,4,4]; it must be f32[2,5,5,4]");
  EXPECT_EQ(error_of([&] {
              sum_pool_grad(y, {2, 6, 5, 4}, two);
            }),
            "sum_pool_grad: the cotangent is f32[2,4,4,4]; it must be f32[2,5,4,4]");
}

}  // namespace
}  // namespace lockstep
