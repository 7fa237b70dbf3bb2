#include "ops/reduce.h"

#include <limits>

#include "ops/evaluate.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using Combine = std::function<double(double, double)>;

// Combines all elements in row-major order, in a plain loop.
HostArray looped(const HostArray& x, const Dims& axes, double first, const Combine& combine) {
  HostArray y({x.type.dtype, without(x.type.shape, axes)});
  std::vector<double> results(static_cast<size_t>(y.size()), first);
  for_each_index(x.type.shape, [&](const Dims& index, int64_t i) {
    Dims kept;
    for (size_t d = 0; d < index.size(); ++d)
      if (!contains(axes, static_cast<int64_t>(d))) kept.push_back(index[d]);
    double& result = results[static_cast<size_t>(position(y.type.shape, kept))];
    result = combine(result, x.get(i));
  });
  for (int64_t i = 0; i < y.size(); ++i) y.set(i, results[static_cast<size_t>(i)]);
  return y;
}

HostArray reduced(const Op& op, const HostArray& x, const Dims& axes) { return run_op(op, {x}, {{"axes", axes}})[0]; }

struct ReduceCase {
  Shape shape;
  Dims axes;
};
// Rows, columns, few columns, several groups, chunks, sizes that do not divide evenly, and empty arrays.
const std::vector<ReduceCase> kReduceCases = {{{}, {}},
                                              {{7}, {0}},
                                              {{5, 7}, {1}},
                                              {{5, 7}, {0}},
                                              {{5, 7}, {0, 1}},
                                              {{3, 1, 5}, {1}},
                                              {{37, 301}, {1}},
                                              {{37, 301}, {0}},
                                              {{128, 3}, {0}},
                                              {{131, 3}, {0}},
                                              {{4, 3, 5, 2}, {0, 2}},
                                              {{4, 3, 5, 2}, {1, 3}},
                                              {{4, 3, 5, 2}, {0, 3}},
                                              {{100003}, {0}},
                                              {{30011, 3}, {0}},
                                              {{2, 40000, 2}, {1}},
                                              {{0, 3}, {0}},
                                              {{3, 0}, {0}},
                                              {{2, 0, 3, 4}, {1, 3}},
                                              {{0}, {0}}};

TEST(Reduce, SumsExactlyInEveryType) {
  for (DType t : kAllDTypes) {
    if (t == boolean) continue;
    for (const ReduceCase& c : kReduceCases) {
      if (size_of(t) <= 2 && t != u8 && count(c.shape) > 1000) continue;  // the sum is not exact in 16 bits
      HostArray x = small_integers({t, c.shape});
      SCOPED_TRACE(to_string(x.type) + " over " + to_string(c.axes));
      const HostArray wanted =
          looped(x, c.axes, 0, [t](double a, double b) { return t == u8 ? std::fmod(a + b, 256) : a + b; });
      expect_equal(reduced(reduce_sum_op, x, c.axes), wanted);
    }
  }
}

TEST(Reduce, FindsExtremesInEveryType) {
  const auto lowest = [](DType t) {
    return is_floating(t) ? -INFINITY : is_signed(t) ? -std::ldexp(0.5, static_cast<int>(size_of(t)) * 8) : 0;
  };
  const auto highest = [](DType t) {
    return t == boolean ? 1
           : t == u8    ? 255
           : t == u16   ? 65535
           : t == i8    ? 127
           : t == i16   ? 32767
           : t == i32   ? 0x1p31 - 1
           : t == i64   ? 0x1p62
           : t == u32   ? 0x1p32 - 1
                        : INFINITY;
  };
  for (DType t : kAllDTypes) {
    for (const ReduceCase& c : kReduceCases) {
      const HostArray x = small_integers({t, c.shape});
      SCOPED_TRACE(to_string(x.type) + " over " + to_string(c.axes));
      expect_equal(reduced(reduce_max_op, x, c.axes),
                   looped(x, c.axes, lowest(t), [](double a, double b) { return std::max(a, b); }));
      if ((t == i64 || t == u64) && count(c.shape) == 0) continue;  // its highest value is not a double
      expect_equal(reduced(reduce_min_op, x, c.axes),
                   looped(x, c.axes, highest(t), [](double a, double b) { return std::min(a, b); }));
    }
  }
  EXPECT_EQ(reduced(reduce_min_op, HostArray({i64, {0}}), {0}).buffer->as<int64_t>()[0],
            std::numeric_limits<int64_t>::max());
}

TEST(Reduce, MultipliesInEveryType) {
  for (DType t : kAllDTypes) {
    if (t == boolean) continue;
    for (const ReduceCase& c : kReduceCases) {
      // Ones and a few twos: exact.
      HostArray x({t, c.shape});
      for (int64_t i = 0; i < x.size(); ++i) x.set(i, i == 1 || i == 3 ? 2 : 1);
      SCOPED_TRACE(to_string(x.type) + " over " + to_string(c.axes));
      expect_equal(reduced(reduce_prod_op, x, c.axes), looped(x, c.axes, 1, [](double a, double b) { return a * b; }));
    }
  }
}

TEST(Reduce, CombinesBooleans) {
  for (const ReduceCase& c : kReduceCases) {
    const HostArray x = small_integers({boolean, c.shape}, 3);
    SCOPED_TRACE(to_string(c.shape));
    expect_equal(reduced(reduce_and_op, x, c.axes), looped(x, c.axes, 1, [](double a, double b) { return a && b; }));
    expect_equal(reduced(reduce_or_op, x, c.axes), looped(x, c.axes, 0, [](double a, double b) { return a || b; }));
  }
}

TEST(Reduce, IntegersWrap) {
  const HostArray big({i32, {3}}, {2147483647, 2, 3});
  EXPECT_EQ(reduced(reduce_sum_op, big, {0}).get(0), -2147483644);
  EXPECT_EQ(reduced(reduce_prod_op, big, {0}).get(0), -6);
  EXPECT_EQ(reduced(reduce_prod_op, HostArray({u16, {3}}, {65535, 65535, 3}), {0}).get(0), 3);
}

TEST(Reduce, PropagatesNaN) {
  for (DType t : {bf16, f16, f32, f64}) {
    for (int64_t where : {0, 5, 31, 99}) {
      HostArray x = small_integers({t, {100}});
      x.set(where, NAN);
      EXPECT_TRUE(std::isnan(reduced(reduce_max_op, x, {0}).get(0)));
      EXPECT_TRUE(std::isnan(reduced(reduce_min_op, x, {0}).get(0)));
      x.type.shape = {20, 5};
      const HostArray columns = reduced(reduce_max_op, x, {0});
      for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(std::isnan(columns.get(i)), i == where % 5);
    }
  }
}

TEST(Reduce, LongSumsStayAccurate) {
  const int64_t n = 10'000'000;
  HostArray x({f32, {n}});
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform;
  double wanted = 0;
  for (int64_t i = 0; i < n; ++i) wanted += x.buffer->as<float>()[i] = uniform(random);
  EXPECT_NEAR(reduced(reduce_sum_op, x, {0}).get(0) / wanted, 1, 1e-7);
  x.type.shape = {n / 4, 4};
  double total = 0;
  for (double column : reduced(reduce_sum_op, x, {0}).values()) total += column;
  EXPECT_NEAR(total / wanted, 1, 1e-7);
  HostArray ones({bf16, {100000}});
  for (int64_t i = 0; i < ones.size(); ++i) ones.set(i, 1);
  EXPECT_EQ(reduced(reduce_sum_op, ones, {0}).get(0), 99840);  // 100000 rounded to bf16
}

TEST(Reduce, DoesNotDependOnTheNumberOfThreads) {
  Pool one({.threads = 1}), four({.threads = 4});
  for (const ReduceCase& c : kReduceCases) {
    const HostArray x = normal_numbers({f32, c.shape});
    const Attrs attrs = {{"axes", c.axes}};
    const HostArray a = run_op(reduce_sum_op, {x}, attrs, one)[0], b = run_op(reduce_sum_op, {x}, attrs, four)[0];
    EXPECT_EQ(std::memcmp(a.buffer->data(), b.buffer->data(), static_cast<size_t>(a.type.bytes())), 0);
  }
}

// ---- argmax, argmin, cumsum

TEST(Argmax, FindsTheFirstExtremeInEveryType) {
  for (DType t : kAllDTypes) {
    const HostArray x = small_integers({t, {6, 40, 5}});
    for (int64_t axis = 0; axis < 3; ++axis) {
      for (bool greatest : {true, false}) {
        const HostArray y = run_op(greatest ? argmax_op : argmin_op, {x}, {{"axis", axis}})[0];
        EXPECT_EQ(y.type.dtype, i32);
        expect_elements(y, [&](const Dims& kept) {
          Dims index = kept;
          index.insert(index.begin() + axis, 0);
          const auto d = static_cast<size_t>(axis);
          int64_t best = 0;
          double value = at(x, index);
          for (int64_t i = 1; i < x.type.shape[d]; ++i) {
            index[d] = i;
            if (greatest ? at(x, index) > value : at(x, index) < value) {
              best = i;
              value = at(x, index);
            }
          }
          return static_cast<double>(best);
        });
      }
    }
  }
}

TEST(Argmax, TakesTheFirstNaN) {
  for (int64_t n : {5, 100}) {
    HostArray x = small_integers({f32, {n}});
    x.set(1, NAN);
    x.set(3, NAN);
    HostArray columns({f32, {n, 2}});
    for (int64_t i = 0; i < 2 * n; ++i) columns.set(i, x.get(i / 2));
    for (const Op* op : {&argmax_op, &argmin_op}) {
      EXPECT_EQ(run_op(*op, {x}, {{"axis", int64_t{0}}})[0].get(0), 1);
      EXPECT_EQ(run_op(*op, {columns}, {{"axis", int64_t{0}}})[0].values(), (std::vector<double>{1, 1}));
    }
  }
}

TEST(Argmax, FindsTheIndexInLongLines) {
  for (int64_t n : {64, 100, 1000}) {
    const HostArray x = normal_numbers({f32, {3, n}});
    for (bool greatest : {true, false}) {
      const HostArray y = run_op(greatest ? argmax_op : argmin_op, {x}, {{"axis", int64_t{1}}})[0];
      const float* data = x.buffer->as<float>();
      expect_elements(y, [&](const Dims& i) {
        const float *line = data + i[0] * n, *end = line + n;
        return static_cast<double>((greatest ? std::max_element(line, end) : std::min_element(line, end)) - line);
      });
    }
  }
}

TEST(Cumsum, AddsUpInBothDirections) {
  for (DType t : kAllDTypes) {
    if (t == boolean) continue;
    for (const Shape& shape : {Shape{4, 7, 3}, Shape{2, 9, 200}, Shape{3, 0, 2}}) {
      const HostArray x = small_integers({t, shape});
      for (int64_t axis = 0; axis < 3; ++axis) {
        for (bool backwards : {false, true}) {
          const HostArray y = run_op(cumsum_op, {x}, {{"axis", axis}, {"reverse", backwards}})[0];
          expect_elements(y, [&](const Dims& index) {
            const auto d = static_cast<size_t>(axis);
            double sum = 0;
            Dims i = index;
            for (i[d] = 0; i[d] < shape[d]; ++i[d])
              if (backwards ? i[d] >= index[d] : i[d] <= index[d]) sum += at(x, i);
            return sum;
          });
        }
      }
    }
  }
}

// ---- batching, gradients, folding, errors

TEST(Reduce, BatchMatchesLoop) {
  auto numbers = [](Type t, uint32_t seed) { return small_integers(std::move(t), seed); };
  const HostArray x = small_integers({f64, {4, 3}});
  for (const auto& f :
       std::vector<Value (*)(Value, std::vector<int64_t>)>{reduce_sum, reduce_prod, reduce_max, reduce_min}) {
    expect_batch_is_loop(
        {x}, [&](const Values& in) { return Values{f(in[0], {0})}; }, numbers);
    expect_batch_is_loop(
        {x},
        [&](const Values& in) {
          return Values{f(in[0], {1, 0})};
        },
        numbers);
  }
  expect_batch_is_loop(
      {x},
      [](const Values& in) {
        return Values{argmax(in[0], 1), argmin(in[0], 0)};
      },
      numbers);
  expect_batch_is_loop(
      {x}, [](const Values& in) { return Values{cumsum(in[0], 0, true)}; }, numbers);
}

TEST(Reduce, GradientsMatchFiniteDifferences) {
  const HostArray x = normal_numbers({f64, {4, 3, 2}});
  for (const Dims& axes : {Dims{0}, Dims{2}, Dims{0, 2}, Dims{0, 1, 2}}) {
    for (const auto& f :
         std::vector<Value (*)(Value, std::vector<int64_t>)>{reduce_sum, reduce_prod, reduce_max, reduce_min})
      expect_gradient({x}, [&](const Values& in) { return Values{f(in[0], axes)}; });
  }
  for (const auto& f : std::vector<Value (*)(Value, int64_t, bool)>{cumsum, cumprod, cummax, cummin, cumlogsumexp})
    expect_gradient({x}, [&](const Values& in) { return Values{f(in[0], 1, false), f(in[0], 0, true)}; });
}

TEST(ReduceProd, GradientIsExactIfElementsAreZero) {
  auto gradient = [](const std::vector<double>& x) {
    const Program p = trace({{f64, {4}}}, [](const Values& in) { return Values{reduce_prod(in[0], {0})}; });
    return evaluate(joint(p, {true}), {HostArray({f64, {4}}, x), HostArray({f64, {}}, {1})})[1].values();
  };
  EXPECT_EQ(gradient({2, 0, 3, 5}), (std::vector<double>{0, 30, 0, 0}));
  EXPECT_EQ(gradient({2, 0, 0, 5}), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Cumprod, GradientIsExactIfElementsAreZero) {
  const Program p = trace({{f64, {4}}}, [](const Values& in) { return Values{cumprod(in[0], 0)}; });
  const auto gradient = [&](const std::vector<double>& x) {
    return evaluate(joint(p, {true}), {HostArray({f64, {4}}, x), HostArray({f64, {4}}, {1, 1, 1, 1})})[1].values();
  };
  EXPECT_EQ(gradient({2, 3, 5, 7}), (std::vector<double>{1 + 3 + 15 + 105, 2 + 10 + 70, 6 + 42, 30}));
  EXPECT_EQ(gradient({2, 0, 3, 5}), (std::vector<double>{1, 2 + 6 + 30, 0, 0}));
}

TEST(Cummax, GradientGoesToTheFirstMaximum) {
  const Program p = trace({{f64, {5}}}, [](const Values& in) { return Values{cummax(in[0], 0)}; });
  const HostArrays out =
      evaluate(joint(p, {true}), {HostArray({f64, {5}}, {2, 1, 2, 3, 0}), HostArray({f64, {5}}, {1, 2, 4, 8, 16})});
  EXPECT_EQ(out[0].values(), (std::vector<double>{2, 2, 2, 3, 3}));
  EXPECT_EQ(out[1].values(), (std::vector<double>{7, 0, 0, 24, 0}));
}

TEST(ReduceMax, TiesShareTheGradient) {
  const Program p = trace({{f64, {4}}}, [](const Values& in) { return Values{reduce_max(in[0], {0})}; });
  const HostArrays out = evaluate(joint(p, {true}), {HostArray({f64, {4}}, {1, 7, 7, 2}), HostArray({f64, {}}, {1})});
  EXPECT_EQ(out[1].values(), (std::vector<double>{0, 0.5, 0.5, 0}));
}

TEST(Reduce, FoldsMatchTheirText) {
  auto text = [](const ValueFunction& f) { return simplified({{f32, {2, 1, 3}}}, f); };
  EXPECT_EQ(text([](const Values& in) { return Values{reduce_sum(in[0], {})}; }),
            "program(%0:f32[2,1,3]) {\n  return %0\n}\n");
  EXPECT_EQ(text([](const Values& in) { return Values{reduce_max(in[0], {1})}; }),
            "program(%0:f32[2,1,3]) {\n  %1:f32[2,3] = reshape[shape=[2,3]] %0\n  return %1\n}\n");
  EXPECT_EQ(text([](const Values& in) { return Values{reduce_sum(reduce_sum(in[0], {2}), {0})}; }),
            "program(%0:f32[2,1,3]) {\n  %1:f32[1] = reduce_sum[axes=[0,2]] %0\n  return %1\n}\n");
  auto of_full = [&](double value, Value (*f)(Value, std::vector<int64_t>)) {
    const std::string out = text([&](const Values& in) { return Values{f(full_like(in[0], value), {0, 1, 2})}; });
    const size_t begin = out.find("%1:f32[] = ");
    return begin == std::string::npos ? "reduced" : out.substr(begin, out.find('\n', begin) - begin);
  };
  EXPECT_EQ(of_full(0.25, reduce_sum), "%1:f32[] = full[dtype=f32, shape=[], value=1.5]");
  EXPECT_EQ(of_full(0.1, reduce_sum), "reduced");
  EXPECT_EQ(of_full(0.1, reduce_min), "%1:f32[] = full[dtype=f32, shape=[], value=0.10000000149011612]");
  EXPECT_EQ(of_full(1, reduce_prod), "%1:f32[] = full[dtype=f32, shape=[], value=1.0]");
  EXPECT_EQ(of_full(0.5, reduce_prod), "reduced");
}

TEST(Reduce, ErrorsNameTheFactAndTheRemedy) {
  Builder b;
  const Value x = b.input({f32, {2, 3}}), flags = b.input({boolean, {2}}), none = b.input({f32, {0, 3}});
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[&] { reduce_sum(x, {2}); }, "reduce_sum: axis 2 is out of range for [2, 3]; valid axes: 0 to 1"},
      {[&] {
         reduce_max(x, {1, 1});
       },
       "reduce_max: the axes [1, 1] do not increase; name each axis once, in order"},
      {[&] { reduce_and(x, {0}); }, "reduce_and: f32[2,3] is not bool; compare it with something first"},
      {[&] { reduce_sum(flags, {0}); }, "reduce_sum: bool[2] has no arithmetic; cast it to i32 first"},
      {[&] { cumsum(flags, 0); }, "cumsum: bool[2] has no arithmetic; cast it to i32 first"},
      {[&] { cumprod(flags, 1); }, "cumprod: axis 1 is out of range for [2]; valid axes: 0 to 0"},
      {[&] {
         cumlogsumexp(iota(b, {i32, {3}}, 0), 0);
       },
       "cumlogsumexp: i32[3] is not floating; cast it to f32 first"},
      {[&] { argmax(none, 0); }, "argmax: axis 0 of [0, 3] is empty; it must have at least one element"},
      {[&] { argmin(x, -1); }, "argmin: axis -1 is out of range for [2, 3]; valid axes: 0 to 1"},
  };
  for (const auto& [f, wanted] : cases) EXPECT_EQ(error_of(f), wanted);
}

}  // namespace
}  // namespace lockstep
