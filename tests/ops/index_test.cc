#include "ops/index_ops.h"

#include <numeric>

#include "ops/evaluate.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

HostArray taken(const HostArray& x, const HostArray& indices, int64_t axis, int64_t batch_dims) {
  return run_op(gather_op, {x, indices}, {{"axis", axis}, {"batch_dims", batch_dims}})[0];
}

// The positions that gather reads for an index of its result: in x, and in the indices.
struct GatherPositions {
  Dims x, indices;
};
GatherPositions source(const Dims& out, int64_t places, int64_t axis, int64_t batch_dims) {
  GatherPositions s;
  s.indices.assign(out.begin(), out.begin() + batch_dims);
  s.indices.insert(s.indices.end(), out.begin() + axis, out.begin() + axis + places);
  s.x.assign(out.begin(), out.begin() + axis);
  s.x.push_back(0);
  s.x.insert(s.x.end(), out.begin() + axis + places, out.end());
  return s;
}

struct IndexCase {
  Shape x, indices;
  int64_t axis, batch_dims;
};
const std::vector<IndexCase> kIndexCases = {
    {{5}, {3}, 0, 0},          {{5, 4}, {3}, 0, 0},          {{5, 4}, {2, 3}, 1, 0},    {{3, 5, 4}, {7}, 1, 0},
    {{3, 5, 4}, {3, 7}, 1, 1}, {{2, 3, 5}, {2, 3, 4}, 2, 2}, {{2, 3, 5, 3}, {2}, 2, 1}, {{2, 3, 5, 3}, {2, 0}, 2, 1},
    {{4, 3}, {}, 0, 0},        {{300, 70}, {900}, 0, 0},     {{30, 300}, {200}, 0, 0}};

HostArray random_indices(const Shape& shape, DType dtype, int64_t low, int64_t high) {
  HostArray out({dtype, shape});
  std::mt19937 random(5);
  for (int64_t i = 0; i < out.size(); ++i)
    out.set(i, static_cast<double>(std::uniform_int_distribution<int64_t>(low, high)(random)));
  return out;
}

TEST(Gather, TakesSlicesAndClampsIndices) {
  for (DType t : kAllDTypes)
    for (DType it : {i32, i64, u32})
      for (const IndexCase& c : kIndexCases) {
        const HostArray x = small_integers({t, c.x});
        const int64_t n = c.x[static_cast<size_t>(c.axis)];
        const HostArray indices = random_indices(c.indices, it, it == u32 ? 0 : -3, n + 2);
        const int64_t places = indices.type.rank() - c.batch_dims;
        expect_elements(taken(x, indices, c.axis, c.batch_dims), [&](const Dims& out) {
          GatherPositions s = source(out, places, c.axis, c.batch_dims);
          s.x[static_cast<size_t>(c.axis)] =
              std::clamp<int64_t>(static_cast<int64_t>(at(indices, s.indices)), 0, n - 1);
          return at(x, s.x);
        });
      }
}

TEST(ScatterAdd, AddsAtIndicesAndDropsThoseOutOfRange) {
  for (DType t : kAllDTypes) {
    if (t == boolean) continue;
    for (DType it : {i32, i64, u32})
      for (const IndexCase& c : kIndexCases) {
        const HostArray x = small_integers({t, c.x});
        const int64_t n = c.x[static_cast<size_t>(c.axis)];
        const HostArray indices = random_indices(c.indices, it, it == u32 ? 0 : -3, n + 2);
        const int64_t places = indices.type.rank() - c.batch_dims;
        const HostArray updates = small_integers(taken(x, indices, c.axis, c.batch_dims).type, 9);
        HostArray wanted(x.type, x.values());
        for_each_index(updates.type.shape, [&](const Dims& out, int64_t i) {
          GatherPositions s = source(out, places, c.axis, c.batch_dims);
          const auto index = static_cast<int64_t>(at(indices, s.indices));
          if (index < 0 || index >= n) return;
          s.x[static_cast<size_t>(c.axis)] = index;
          const int64_t where = position(c.x, s.x);
          wanted.set(where, wanted.get(where) + updates.get(i));
        });
        expect_equal(run_op(scatter_add_op, {x, indices, updates}, {{"axis", c.axis}, {"batch_dims", c.batch_dims}})[0],
                     wanted);
      }
  }
}

TEST(ScatterAdd, SumsHalvesInSinglePrecision) {
  const HostArray x({bf16, {1}}, {0}), indices({i32, {1000}}, std::vector<double>(1000, 0));
  const HostArray ones({bf16, {1000}}, std::vector<double>(1000, 1));
  const HostArray y = run_op(scatter_add_op, {x, indices, ones}, {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}})[0];
  EXPECT_EQ(y.get(0), 1000);
}

TEST(ScatterAdd, HasTheSameBitsForAnyNumberOfThreads) {
  for (const DType t : {f32, bf16}) {
    const HostArray x = normal_numbers({t, {3000, 300}}, 1), indices = random_indices({5000}, i32, -1, 400);
    const HostArray updates = normal_numbers({t, {5000, 300}}, 2);
    const Attrs attrs{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}};
    const auto added = [&](int threads) {
      Pool pool({.threads = threads});
      return run_op(scatter_add_op, {x, indices, updates}, attrs, pool)[0].values();
    };
    EXPECT_EQ(added(4), added(1));
  }
}

TEST(Scatter, KeepsTheLastUpdateForAnyNumberOfThreads) {
  const HostArray x = normal_numbers({f32, {3000, 60}}, 1), indices = random_indices({9000}, i64, -1, 400);
  const HostArray updates = normal_numbers({f32, {9000, 60}}, 2);
  for (const std::string how : {"set", "multiply", "min", "max"}) {
    const Attrs attrs{{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}, {"how", how}, {"unique", false}};
    const auto combined = [&](int threads) {
      Pool pool({.threads = threads});
      return run_op(scatter_op, {x, indices, updates}, attrs, pool)[0].values();
    };
    EXPECT_EQ(combined(4), combined(1));
    if (how != "set") continue;
    std::vector<double> wanted = x.values();
    for (int64_t i = 0; i < 9000; ++i)
      if (const auto row = static_cast<int64_t>(indices.get(i)); row >= 0)
        for (int64_t k = 0; k < 60; ++k) wanted[static_cast<size_t>(row * 60 + k)] = updates.get(i * 60 + k);
    EXPECT_EQ(combined(3), wanted);
  }
}

TEST(Gather, TakesRowsOfALargeTable) {
  const HostArray x = small_integers({u8, {3000, 784}}), indices = random_indices({512}, i32, 0, 2999);
  expect_elements(taken(x, indices, 0, 0), [&](const Dims& i) {
    return at(x, {static_cast<int64_t>(indices.get(i[0])), i[1]});
  });
}

TEST(IndexOps, BatchMatchesLoop) {
  auto numbers = [](Type t, uint32_t seed) {
    return t.dtype == i32 ? random_indices(t.shape, i32, -1, 5) : small_integers(t, seed);
  };
  for (const IndexCase& c : kIndexCases) {
    if (count(c.x) > 1000) continue;
    const HostArray x = small_integers({f64, c.x}), indices = random_indices(c.indices, i32, -1, 5);
    const HostArray updates = small_integers(taken(x, indices, c.axis, c.batch_dims).type, 3);
    expect_batch_is_loop(
        {x, indices}, [&](const Values& in) { return Values{gather(in[0], in[1], c.axis, c.batch_dims)}; }, numbers);
    expect_batch_is_loop(
        {x, indices, updates},
        [&](const Values& in) { return Values{scatter_add(in[0], in[1], in[2], c.axis, c.batch_dims)}; }, numbers);
  }
  const HostArray key = small_integers({f64, {3, 4}}), load = small_integers({f64, {3, 4}}, 2);
  expect_batch_is_loop(
      {key, load}, [](const Values& in) { return sort(in, 0, true); }, numbers);
  expect_batch_is_loop(
      {key}, [](const Values& in) { return top_k(in[0], 2); }, numbers);
}

TEST(IndexOps, GradientsMatchFiniteDifferences) {
  for (const IndexCase& c : kIndexCases) {
    if (count(c.x) > 1000) continue;
    const HostArray x = normal_numbers({f64, c.x}), indices = random_indices(c.indices, i32, -2, 6);
    const HostArray updates = normal_numbers(taken(x, indices, c.axis, c.batch_dims).type, 3);
    expect_gradient({x, indices}, [&](const Values& in) { return Values{gather(in[0], in[1], c.axis, c.batch_dims)}; });
    expect_gradient({x, indices, updates},
                    [&](const Values& in) { return Values{scatter_add(in[0], in[1], in[2], c.axis, c.batch_dims)}; });
  }
  const HostArray key = normal_numbers({f64, {3, 5, 2}}), load = normal_numbers({f64, {3, 5, 2}}, 2);
  for (int64_t axis = 0; axis < 3; ++axis)
    for (bool descending : {false, true})
      expect_gradient({key, load}, [&](const Values& in) { return sort(in, axis, descending); });
  expect_gradient({normal_numbers({f64, {3, 7}})}, [](const Values& in) { return Values{top_k(in[0], 3)[0]}; });
}

// ---- sort, top_k

// Indices along a line in sorted order, by a stable comparison sort with NaN greatest.
std::vector<int64_t> order(const std::vector<double>& keys, bool descending) {
  std::vector<int64_t> out(keys.size());
  std::iota(out.begin(), out.end(), 0);
  std::stable_sort(out.begin(), out.end(), [&](int64_t i, int64_t j) {
    const double a = keys[static_cast<size_t>(i)], b = keys[static_cast<size_t>(j)];
    if (std::isnan(a) || std::isnan(b)) return std::isnan(descending ? a : b) && !std::isnan(descending ? b : a);
    return descending ? a > b : a < b;
  });
  return out;
}

TEST(Sort, IsStableInEveryTypeAlongEveryAxis) {
  for (DType t : kAllDTypes)
    for (const Shape& shape : {Shape{4, 9, 3}, Shape{1, 300, 2}, Shape{2, 0, 3}})
      for (int64_t axis = 0; axis < 3; ++axis)
        for (bool descending : {false, true}) {
          const HostArray key = small_integers({t, shape});
          HostArray place({i64, shape});
          for (int64_t i = 0; i < place.size(); ++i) place.set(i, static_cast<double>(i));
          const HostArrays out = run_op(sort_op, {key, place}, {{"axis", axis}, {"descending", descending}});
          const auto d = static_cast<size_t>(axis);
          expect_elements(out[1], [&](const Dims& index) {
            std::vector<double> line;
            Dims i = index;
            for (i[d] = 0; i[d] < shape[d]; ++i[d]) line.push_back(at(key, i));
            i[d] = order(line, descending)[static_cast<size_t>(index[d])];
            return static_cast<double>(position(shape, i));
          });
          for (int64_t i = 0; i < key.size(); ++i)
            EXPECT_EQ(out[0].get(i), key.get(static_cast<int64_t>(out[1].get(i))));
        }
}

TEST(Sort, OrdersInfinitiesZerosAndNaN) {
  for (DType t : {bf16, f16, f32, f64}) {
    const HostArray x({t, {8}}, {NAN, 1, -INFINITY, 0.0, -0.0, INFINITY, -NAN, -2});
    for (bool descending : {false, true}) {
      const HostArray place({i32, {8}}, {0, 1, 2, 3, 4, 5, 6, 7});
      const HostArrays out = run_op(sort_op, {x, place}, {{"axis", int64_t{0}}, {"descending", descending}});
      const std::vector<double> wanted =
          descending ? std::vector<double>{0, 6, 5, 1, 3, 4, 7, 2} : std::vector<double>{2, 7, 3, 4, 1, 5, 0, 6};
      EXPECT_EQ(out[1].values(), wanted);
    }
  }
}

TEST(TopK, TakesTheGreatestWithLowerIndicesFirst) {
  for (DType t : kAllDTypes)
    for (int64_t k : {0, 1, 4, 11}) {
      const HostArray x = small_integers({t, {5, 11}});
      const HostArrays out = run_op(top_k_op, {x}, {{"k", k}});
      expect_elements(out[1], [&](const Dims& i) {
        std::vector<double> line;
        for (int64_t c = 0; c < 11; ++c) line.push_back(at(x, {i[0], c}));
        return static_cast<double>(order(line, true)[static_cast<size_t>(i[1])]);
      });
      expect_elements(out[0], [&](const Dims& i) { return at(x, {i[0], static_cast<int64_t>(at(out[1], i))}); });
    }
}

TEST(IndexOps, ErrorsNameTheFactAndTheRemedy) {
  Builder b;
  const Value x = b.input({f32, {4, 3}}), i = b.input({i32, {2}}), f = b.input({f32, {2}}),
              none = b.input({f32, {0, 3}}), mask = b.input({boolean, {2}});
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[&] { gather(x, f, 0); }, "gather: the indices are f32[2]; cast them to i32, i64 or u32"},
      {[&] { gather(x, i, 2); }, "gather: axis 2 is out of range for [4, 3]; valid axes: 0 to 1"},
      {[&] { gather(x, i, 0, 1); },
       "gather: 1 batch dimensions do not fit axis 0 of [4, 3] and indices [2]; they must come before the axis in "
       "both"},
      {[&] { gather(x, i, 1, 1); },
       "gather: the first 1 dimensions of [4, 3] and of the indices [2] differ; batch dimensions must be equal"},
      {[&] { gather(none, i, 0); }, "gather: axis 0 of [0, 3] is empty; 2 slices cannot be taken from it"},
      {[&] { scatter_add(x, i, x, 0); },
       "scatter_add: the updates are f32[4,3]; they must be f32[2,3] for f32[4,3] at indices i32[2]"},
      {[&] { scatter(x, i, x, "set", 0); },
       "scatter: the updates are f32[4,3]; they must be f32[2,3] for f32[4,3] at indices i32[2]"},
      {[&] { scatter(x, i, x, "last", 0); }, "scatter: how is \"last\"; use \"set\", \"multiply\", \"min\" or \"max\""},
      {[&] { scatter(mask, i, mask, "multiply", 0); }, "scatter: bool[2] cannot be multiplied; cast it to i32 first"},
      {[&] {
         sort({x, i}, 0);
       },
       "sort: operand 1 is [2] and the key is [4, 3]; all operands must have the shape of the key"},
      {[&] { sort({}, 0); }, "sort: got no operands; give at least the key"},
      {[&] { top_k(x, 4); }, "top_k: k is 4, out of range for the last dimension of [4, 3]; valid: 0 to 3"},
  };
  for (const auto& [call, wanted] : cases) EXPECT_EQ(error_of(call), wanted);
}

}  // namespace
}  // namespace lockstep
