// x(...) and x.at(...) against a plain reference: a loop over the elements of the result.
#include "lockstep/index.h"

#include <cmath>
#include <functional>
#include <random>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

// For each element of x[indices], its position in x; `inside`: whether no index array is out of range there.
struct Selection {
  Shape shape;
  Ints at;
  std::vector<bool> inside;
};

struct IndexPart {
  char kind;  // r: range, i: integer, n: new axis, a: array
  Ints places;
  Shape shape;
};

Ints places_in_range(const IndexRange& range, int64_t n) {
  Ints out;
  const auto bound = [&](int64_t at) { return at < 0 ? at + n : at; };
  if (range.step > 0) {
    for (int64_t i = range.begin ? std::max<int64_t>(bound(*range.begin), 0) : 0; i < n; i += range.step)
      if (!range.end || i < bound(*range.end)) out.push_back(i);
  } else {
    for (int64_t i = range.begin ? std::min(bound(*range.begin), n - 1) : n - 1; i >= 0; i += range.step)
      if (!range.end || i > bound(*range.end)) out.push_back(i);
  }
  return out;
}

std::vector<IndexPart> parts_of(const Shape& x, const std::vector<Index>& indices) {
  size_t taken = 0, d = 0;
  for (const Index& i : indices)
    taken += i.kind() == Index::Kind::rest || i.kind() == Index::Kind::inserted ? 0
             : i.kind() == Index::Kind::array && i.array().dtype() == boolean   ? static_cast<size_t>(i.array().rank())
                                                                                : 1;
  std::vector<IndexPart> out;
  const auto add_all = [&] { out.push_back({'r', places_in_range({}, x[d]), {}}), ++d; };
  for (const Index& index : indices) {
    switch (index.kind()) {
      case Index::Kind::rest:
        for (size_t k = x.size() - taken; k > 0; --k) add_all();
        break;
      case Index::Kind::inserted:
        out.push_back({'n', {0}, {}});
        break;
      case Index::Kind::range:
        out.push_back({'r', places_in_range(index.range(), x[d]), {}});
        ++d;
        break;
      case Index::Kind::integer:
        out.push_back({'i', {index.integer() < 0 ? index.integer() + x[d] : index.integer()}, {}});
        ++d;
        break;
      case Index::Kind::array: {
        const Ints values = astype(index.array(), i64).to_vector<int64_t>();
        if (index.array().dtype() != boolean) {
          out.push_back({'a', values, index.array().shape()});
          for (int64_t& v : out.back().places) v = v < 0 ? v + x[d] : v;
          ++d;
          break;
        }
        const Shape& shape = index.array().shape();
        for (size_t k = 0; k < shape.size(); ++k, ++d) {
          out.push_back({'a', {}, {}});
          int64_t inner = 1;
          for (size_t j = k + 1; j < shape.size(); ++j) inner *= shape[j];
          for (size_t p = 0; p < values.size(); ++p)
            if (values[p] != 0) out.back().places.push_back(static_cast<int64_t>(p) / inner % shape[k]);
          out.back().shape = {static_cast<int64_t>(out.back().places.size())};
        }
      }
    }
  }
  while (d < x.size()) add_all();
  return out;
}

// An element of an array that is broadcast: the trailing dimensions of `at` correspond to those of `shape`.
int64_t broadcast_element(const IndexPart& part, const Ints& at) {
  int64_t position = 0;
  for (size_t d = 0; d < part.shape.size(); ++d)
    position = position * part.shape[d] + (part.shape[d] == 1 ? 0 : at[at.size() - part.shape.size() + d]);
  return part.places[static_cast<size_t>(position)];
}

Selection select_by_loops(const Shape& x, const std::vector<Index>& indices) {
  const std::vector<IndexPart> parts = parts_of(x, indices);
  Shape arrays;
  for (const IndexPart& part : parts) {
    if (part.shape.size() > arrays.size()) arrays.insert(arrays.begin(), part.shape.size() - arrays.size(), 1);
    for (size_t k = 1; k <= part.shape.size(); ++k)
      if (part.shape[part.shape.size() - k] != 1) arrays[arrays.size() - k] = part.shape[part.shape.size() - k];
  }
  const auto is_array = [&](const IndexPart& p) { return p.kind == 'a' || (p.kind == 'i' && !arrays.empty()); };
  int64_t first = -1, last = -1, number = 0;
  for (size_t k = 0; k < parts.size(); ++k)
    if (is_array(parts[k])) {
      if (first < 0) first = static_cast<int64_t>(k);
      last = static_cast<int64_t>(k);
      ++number;
    }
  const bool adjacent = number == last - first + 1;
  Selection out;
  size_t arrays_at = 0;
  if (!adjacent) out.shape = arrays;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (adjacent && static_cast<int64_t>(k) == first) {
      arrays_at = out.shape.size();
      out.shape.insert(out.shape.end(), arrays.begin(), arrays.end());
    }
    if (parts[k].kind == 'r' || parts[k].kind == 'n') out.shape.push_back(static_cast<int64_t>(parts[k].places.size()));
  }
  for (int64_t e = 0; e < count(out.shape); ++e) {
    Ints at(out.shape.size());
    for (size_t d = at.size(), rest = static_cast<size_t>(e); d-- > 0; rest /= static_cast<size_t>(out.shape[d]))
      at[d] = static_cast<int64_t>(rest % static_cast<size_t>(out.shape[d]));
    const auto begin = at.begin() + static_cast<std::ptrdiff_t>(arrays_at);
    const Ints in_arrays(begin, begin + static_cast<std::ptrdiff_t>(arrays.size()));
    size_t next = adjacent ? 0 : arrays.size(), d = 0;
    int64_t position = 0;
    bool inside = true;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (adjacent && static_cast<int64_t>(k) == first) next += arrays.size();
      if (parts[k].kind == 'n') {
        ++next;
        continue;
      }
      int64_t place = parts[k].kind == 'r'   ? parts[k].places[static_cast<size_t>(at[next++])]
                      : parts[k].kind == 'i' ? parts[k].places[0]
                                             : broadcast_element(parts[k], in_arrays);
      inside = inside && place >= 0 && place < x[d];
      place = std::clamp<int64_t>(place, 0, x[d] - 1);
      position = position * x[d++] + place;
    }
    out.at.push_back(position);
    out.inside.push_back(inside);
  }
  return out;
}

struct IndexCase {
  const char* text;
  std::vector<Index> indices;
};

Array ints(std::initializer_list<int> values) { return array(values); }

// Of an array [3, 4, 5]. Indices -9 and 7 are out of range.
const std::vector<IndexCase>& index_cases() {
  static const std::vector<IndexCase> cases = {
      {"", {}},
      {"1", {1}},
      {"-1, 2, -5", {-1, 2, -5}},
      {":, -1", {_, -1}},
      {"..., 0", {ellipsis, 0}},
      {"1, ..., 2", {1, ellipsis, 2}},
      {"1:, :-1, ::2", {range(1, _), range(-1), range(_, _, 2)}},
      {"::-1, 3:0:-2, 4::-3", {range(_, _, -1), range(3, 0, -2), range(4, _, -3)}},
      {"-9:9, 2:2, 0", {range(-9, 9), range(2, 2), 0}},
      {"1::7, ::-9", {range(1, _, 7), range(_, _, -9)}},
      {"None, 0, None, ..., None", {new_axis, 0, new_axis, ellipsis, new_axis}},
      {"[2, 0, 2]", {ints({2, 0, 2})}},
      {":, [[3, -4, 7]]", {_, array({{3, -4, 7}})}},
      {"..., [4, -9]", {ellipsis, ints({4, -9})}},
      {"[0, 2, 0], [1, -1, 1]", {ints({0, 2, 0}), ints({1, -1, 1})}},
      {"[[0], [2]], :, [1, 1, 3]", {array({{0}, {2}}), _, ints({1, 1, 3})}},
      {":, [1, 1], [0, 0]", {_, ints({1, 1}), ints({0, 0})}},
      {"[0, 1], ::-2, 2", {ints({0, 1}), range(_, _, -2), 2}},
      {":, 1, [0, 4]", {_, 1, ints({0, 4})}},
      {"0, :, [0, 4]", {0, _, ints({0, 4})}},
      {":2, None, [1, 1], [3, 3]", {range(2), new_axis, ints({1, 1}), ints({3, 3})}},
      {"1:, [1, 1], None, [3, 3]", {range(1, _), ints({1, 1}), new_axis, ints({3, 3})}},
      {"scalar 1, :, scalar -2", {Array(1), _, Array(-2)}},
      {"::2, scalar 7", {range(_, _, 2), Array(7)}},
      {"mask 3", {array({true, false, true})}},
      {":, mask 4, 1:3", {_, array({false, true, true, false}), range(1, 3)}},
      {"mask [3, 4]", {array({{true, false, false, true}, {false, false, false, false}, {true, true, false, false}})}},
      {"mask 3 (2 true), [0, 1]", {array({true, false, true}), ints({0, 1})}},
      {"mask of nothing", {array({false, false, false})}},
      {"no indices", {zeros({0}, i32), range(1, 3)}},
      {"i64, u8", {astype(ints({-1, 1}), i64), astype(ints({3, 200}), u8)}},
  };
  return cases;
}

const Shape kShape = {3, 4, 5};

Array numbers(const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> out;
  for (int64_t i = 0; i < count(shape); ++i) out.push_back(std::normal_distribution<double>(1)(random));
  return astype(Array::from(std::move(out), shape), dtype);
}

void expect_values(const Array& got, const std::vector<double>& wanted, double tolerance = 0) {
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(values[i])) << i;
    else
      EXPECT_NEAR(values[i], wanted[i], tolerance) << i;
  }
}

TEST(Index, SelectsAsNumPy) {
  const Array x = numbers(kShape, f64, 1);
  const std::vector<double> from = x.to_vector<double>();
  for (const IndexCase& c : index_cases()) {
    SCOPED_TRACE(c.text);
    const Selection s = select_by_loops(kShape, c.indices);
    std::vector<double> clipped, filled, chosen;
    for (size_t i = 0; i < s.at.size(); ++i) {
      clipped.push_back(from[static_cast<size_t>(s.at[i])]);
      filled.push_back(s.inside[i] ? clipped[i] : NAN);
      chosen.push_back(s.inside[i] ? clipped[i] : 0.1);
    }
    const IndexedArray at(x, c.indices);
    EXPECT_EQ(at.get().shape(), s.shape);
    expect_values(detail::indexed(x, c.indices), clipped);
    expect_values(at.get({.mode = IndexMode::promise_in_bounds}), clipped);
    expect_values(at.get({.mode = IndexMode::fill}), filled);
    expect_values(at.get({.mode = IndexMode::drop, .fill_value = 0.1}), chosen);
    expect_values(jit([&](const Array& y) { return detail::indexed(y, c.indices); })(x), clipped);
    expect_values(jit([&](const Array& y) { return IndexedArray(y, c.indices).get({.mode = IndexMode::fill}); })(x),
                  filled);
  }
}

using Update = Array (IndexedArray::*)(const Operand&, UpdateOptions) const;
struct UpdateCase {
  const char* name;
  Update update;
  double (*combine)(double x, double v);
};
const std::vector<UpdateCase> kUpdates = {
    {"set", &IndexedArray::set, [](double, double v) { return v; }},
    {"add", &IndexedArray::add, [](double x, double v) { return x + v; }},
    {"subtract", &IndexedArray::subtract, [](double x, double v) { return x - v; }},
    {"multiply", &IndexedArray::multiply, [](double x, double v) { return x * v; }},
    {"min", &IndexedArray::min, [](double x, double v) { return std::min(x, v); }},
    {"max", &IndexedArray::max, [](double x, double v) { return std::max(x, v); }},
    {"divide", &IndexedArray::divide, [](double x, double v) { return x / v; }},
};

std::vector<double> updated_by_loops(const Array& x, const Selection& s, const Array& values, const UpdateCase& how,
                                     bool clips) {
  std::vector<double> out = x.to_vector<double>();
  const std::vector<double> v = broadcast_to(values, s.shape).to_vector<double>();
  for (size_t i = 0; i < v.size(); ++i)
    if (s.inside[i] || clips) {
      double& element = out[static_cast<size_t>(s.at[i])];
      element = how.combine(element, v[i]);
    }
  return out;
}

TEST(Index, UpdatesAsNumPyInOrder) {
  const Array x = numbers(kShape, f64, 1);
  for (const IndexCase& c : index_cases()) {
    SCOPED_TRACE(c.text);
    const Selection s = select_by_loops(kShape, c.indices);
    Shape last = s.shape;
    if (!last.empty()) last = {last.back()};
    for (const UpdateCase& how : kUpdates) {
      SCOPED_TRACE(how.name);
      for (const Array& values : {numbers(s.shape, f64, 2), numbers(last, f64, 3), Array(1.5)}) {
        const IndexedArray at(x, c.indices);
        expect_values((at.*how.update)(values, {}), updated_by_loops(x, s, values, how, false), 1e-12);
        expect_values((at.*how.update)(values, {.mode = IndexMode::clip}), updated_by_loops(x, s, values, how, true),
                      1e-12);
      }
      const Array values = numbers(s.shape, f64, 4);
      const auto f = [&](const Array& y, const Array& v) { return (IndexedArray(y, c.indices).*how.update)(v, {}); };
      expect_values(jit(f)(x, values), updated_by_loops(x, s, values, how, false), 1e-12);
    }
  }
}

TEST(Index, IsBatchedByVmap) {
  const Array xs = numbers({2, 3, 4, 5}, f64, 1);
  for (const IndexCase& c : index_cases()) {
    SCOPED_TRACE(c.text);
    const Selection s = select_by_loops(kShape, c.indices);
    Shape batch = s.shape;
    batch.insert(batch.begin(), 2);
    const Array vs = numbers(batch, f64, 2);
    const Array got = vmap([&](const Array& x) { return detail::indexed(x, c.indices); })(xs);
    for (const UpdateCase& how : {kUpdates[0], kUpdates[3]}) {
      const auto update = [&](const Array& x, const Array& v) {
        return (IndexedArray(x, c.indices).*how.update)(v, {});
      };
      const Array both = vmap(update)(xs, vs);
      const Array one = vmap(update, {.in_axes = {std::nullopt, 0}})(at(xs, 0), vs);
      for (int64_t b = 0; b < 2; ++b) {
        expect_values(at(got, b), detail::indexed(at(xs, b), c.indices).to_vector<double>());
        expect_values(at(both, b), update(at(xs, b), at(vs, b)).to_vector<double>(), 1e-12);
        expect_values(at(one, b), update(at(xs, 0), at(vs, b)).to_vector<double>(), 1e-12);
      }
    }
  }
}

TEST(Index, BatchesOfIndicesMatchLoops) {
  const Array x = numbers(kShape, f64, 1), rows = array({{0, 2, -1}, {1, 7, 1}}), one = array({2, -9});
  const auto read = [&](const Array& i, const Array& k) { return x(i, range(_, _, 2), k); };
  const auto write = [&](const Array& i, const Array& k) { return x.at(i, _, k).multiply(2.0); };
  const Array got = vmap(read)(rows, one), put = vmap(write)(rows, one);
  const Array scalars = vmap([&](const Array& k) { return x(_, k).at(0).set(k); })(one);
  for (int64_t b = 0; b < 2; ++b) {
    const Array i = at(rows, b), k = at(one, b);
    expect_values(at(got, b), read(i, k).to_vector<double>());
    expect_values(at(put, b), write(i, k).to_vector<double>());
    expect_values(at(scalars, b), x(_, k).at(0).set(k).to_vector<double>());
  }
}

// The gradients of sum(w * f(x, v)) with respect to both.
void expect_gradients(const std::function<Array(const Array&, const Array&)>& f, const Array& x, const Array& v) {
  const Array w = numbers(f(x, v).shape(), f64, 9);
  const auto loss = [&](const Array& a, const Array& b) { return sum(w * f(a, b)); };
  const auto [gx, gv] = grad<0, 1>(loss)(x, v);
  for (const bool first : {true, false}) {
    const Array& of = first ? x : v;
    std::vector<double> wanted, values = of.to_vector<double>();
    for (double& each : values) {
      const double kept = each, step = 1e-4;
      const auto at = [&](double value) {
        each = value;
        const Array changed = Array::from(values, of.shape());
        return (first ? loss(changed, v) : loss(x, changed)).item<double>();
      };
      wanted.push_back((at(kept + step) - at(kept - step)) / (2 * step));
      each = kept;
    }
    expect_values(first ? gx : gv, wanted, 1e-5);
  }
}

TEST(Index, GradientsMatchFiniteDifferences) {
  const Shape shape = {3, 4};
  const std::vector<std::vector<Index>> places = {{ints({2, 0, 2, 2})},
                                                  {ints({0, 2, 0, 9}), ints({1, 3, 1, 0})},
                                                  {range(_, _, -2), ints({1, 1})},
                                                  {range(1, _), range(_, _, 3)},
                                                  {Array(1), Array(-1)}};
  const Array x = numbers(shape, f64, 1);
  for (const std::vector<Index>& indices : places) {
    const Array some = numbers(select_by_loops(shape, indices).shape, f64, 2);
    const Array v = where(some < 0.0, some - 0.5, some + 0.5);  // no divisors near 0
    for (const UpdateCase& how : kUpdates) {
      SCOPED_TRACE(how.name);
      expect_gradients([&](const Array& a, const Array& b) { return (IndexedArray(a, indices).*how.update)(b, {}); }, x,
                       v);
    }
    const GetOptions filled{.mode = IndexMode::fill, .fill_value = 2};
    expect_gradients([&](const Array& a, const Array& b) { return IndexedArray(a, indices).get(filled) * b; }, x, v);
  }
  const Array unique = numbers({2, 4}, f64, 2);
  for (const Update update : {&IndexedArray::set, &IndexedArray::multiply})
    expect_gradients(
        [&](const Array& a, const Array& b) {
          return (a.at(array({2, 0})).*update)(b, {.unique_indices = true});
        },
        x, unique);
}

TEST(Index, ProductsWithZerosHaveExactGradients) {
  const Array i = array({1, 1, 1, 0}), v = array({0.0, 3.0, 2.0, 0.0}, f64), x = array({5.0, 7.0}, f64);
  const auto f = [&](const Array& u) { return sum(x.at(i).multiply(u)); };
  EXPECT_TEXT(grad(f)(v), "f64[4] [42, 0, 0, 5]");
  const Array twice = grad([&](const Array& u) { return sum(grad(f)(u) * array({1.0, 0.0, 0.0, 0.0}, f64)); })(v);
  EXPECT_TEXT(twice, "f64[4] [0, 14, 21, 0]");
}

TEST(Index, TiesShareTheGradientOfExtremes) {
  const Array x = array({1.0f, 5.0f}), i = array({0, 0, 1});
  const auto f = [&](const Array& y, const Array& v) { return sum(y.at(i).max(v) * array({6.0f, 1.0f})); };
  const auto [gx, gv] = grad<0, 1>(f)(x, array({1.0f, 1.0f, 2.0f}));
  EXPECT_TEXT(gx, "f32[2] [2, 1]");
  EXPECT_TEXT(gv, "f32[3] [2, 2, 0]");
}

TEST(Index, ReadsLikeNumPy) {
  const Array x = reshape(arange(6), {2, 3});
  EXPECT_TEXT(x(_, -1), "i32[2] [2, 5]");
  EXPECT_TEXT(x(1), "i32[3] [3, 4, 5]");
  EXPECT_TEXT(x(1, 2), "i32[] 5");
  EXPECT_TEXT(x(ellipsis, range(0, _, 2)), "i32[2,2] [[0, 2], [3, 5]]");
  EXPECT_TEXT(x(range(_, _, -1), new_axis, 0), "i32[2,1] [[3], [0]]");
  EXPECT_TEXT(x.at(0, _).set(array({7, 8, 9})), "i32[2,3] [[7, 8, 9], [3, 4, 5]]");
  EXPECT_TEXT(zeros({3}, i32).at(array({1, 1, -1})).add(1), "i32[3] [0, 2, 1]");
  EXPECT_TEXT(zeros({2}, i32).at(array({1, 1, 1})).set(array({4, 5, 6})), "i32[2] [0, 6]");
  EXPECT_TEXT(x.at(_, 1).apply([](const Array& v) { return v * 10; }), "i32[2,3] [[0, 10, 2], [3, 40, 5]]");
  EXPECT_TEXT(array({2.f, 3.f}).at(array({1, 1})).power(2), "f32[2] [2, 81]");
  EXPECT_TEXT(array({true, false}).at(1).add(true), "bool[2] [true, true]");
  EXPECT_TEXT(x.at(array({5})).get({.mode = IndexMode::fill}), "i32[1,3] [[-2147483648, -2147483648, -2147483648]]");
  EXPECT_TEXT(astype(x, u8).at(Array(9), 0).get({.mode = IndexMode::fill}), "u8[] 255");
  EXPECT_TEXT(jit([](const Array& y, const Array& i) { return y(i, i); })(x, 1), "i32[] 4");
}

TEST(Index, MasksUpdateWithoutTheirSize) {
  const Array x = array({1.f, -2.f, 3.f});
  const auto relu = [](const Array& y) { return y.at(y < 0.f).set(0.f); };
  EXPECT_TEXT(relu(x), "f32[3] [1, 0, 3]");
  EXPECT_TEXT(jit(relu)(x), "f32[3] [1, 0, 3]");
  EXPECT_TEXT(grad([&](const Array& y) { return sum(relu(y)); })(x), "f32[3] [1, 0, 1]");
  EXPECT_TEXT(x(x > 0.f), "f32[2] [1, 3]");
  EXPECT_TEXT(x.at(x > 0.f).set(array({7.f, 8.f})), "f32[3] [7, -2, 8]");
}

TEST(Index, EmptyArraysAreAllowed) {
  const Array none = zeros({0, 3});
  EXPECT_EQ(none(_, 1).shape(), (Shape{0}));
  EXPECT_EQ(none(zeros({0}, i32)).shape(), (Shape{0, 3}));
  EXPECT_EQ(none(range(_, _, -1), new_axis).shape(), (Shape{0, 1, 3}));
  EXPECT_EQ(none.at(array({1, 2})).set(1.f).shape(), (Shape{0, 3}));
  EXPECT_TEXT(none.at(array({1}), 0).get({.mode = IndexMode::fill, .fill_value = 4.f}), "f32[1] [4]");
  EXPECT_TEXT(Array(3.f)(new_axis, ellipsis), "f32[1] [3]");
}

TEST(Index, ErrorsNameTheShape) {
  const Array x = zeros({3, 4});
  EXPECT_THROWS(x(0, 1, 2), Error, "index: 3 indices for f32[3,4], which has 2 dimensions; leave some out");
  EXPECT_THROWS(x(3), Error, "index: 3 is out of range for dimension 0 of [3, 4]; valid indices: -3 to 2");
  EXPECT_THROWS(x(_, -5), Error, "index: -5 is out of range for dimension 1 of [3, 4]; valid indices: -4 to 3");
  EXPECT_THROWS(x(array({1.f})), Error, "index: the index is f32[1]; an index must be an integer or a mask");
  EXPECT_THROWS(x(array({true, false})), Error, "index: the mask [2] does not fit [3, 4] from dimension 0 on");
  EXPECT_THROWS(x(_, array({true, false})), Error, "index: the mask [2] does not fit [3, 4] from dimension 1 on");
  EXPECT_THROWS(x.at(array({true, false})).set(0), Error, "index: the mask [2] does not fit [3, 4]");
  EXPECT_THROWS(x(ellipsis, 0, ellipsis), Error, "index: 2 ellipses; at most one");
  EXPECT_THROWS(x(range(_, _, 0)), Error, "index: a range with step 0");
  EXPECT_THROWS(x(array({0, 1}), array({0, 1, 2})), Error, "index: shapes [2] and [3] do not broadcast");
  EXPECT_THROWS(x(x(0, 0) > 0.f), Error, "index: the index is bool[]; a mask needs at least one dimension");
  EXPECT_THROWS(jit([](const Array& y) { return y(y > 0.f); })(x), Error,
                "index: the mask bool[3,4] is computed in a traced function");
  EXPECT_THROWS(zeros({0})(0), Error, "index: index 0 into dimension 0 of [0], which is empty");
  EXPECT_THROWS(zeros({0})(array({0})), Error, "index: elements are selected from an empty dimension");
  EXPECT_THROWS(
      x.at(0).set(zeros({3})), Error,
      "at().set: the value f32[3] does not broadcast to the elements that the index selects, [4]; give one of that "
      "shape");
  EXPECT_THROWS(x.at(0).divide(zeros({3})), Error, "at().divide: the value f32[3] does not broadcast");
  EXPECT_THROWS(x.at(x > 100).add(zeros({3, 3})), Error, "at().add: the value f32[3,3] does not broadcast");
  EXPECT_THROWS(array({true}).at(0).subtract(true), Error, "index: bools cannot be subtracted");
}

}  // namespace
}  // namespace lockstep
