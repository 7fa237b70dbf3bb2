// Elements of large arrays are updated at their places, in place and in a copy.
#include <map>

#include "large/large.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

// The elements of an array of numbers() that were updated since.
class Updated {
 public:
  explicit Updated(int64_t n) : n_(n) {}

  int64_t size() const { return n_; }
  int64_t get(int64_t i) const {
    const auto at = changed_.find(i);
    return at == changed_.end() ? number_at(i) : at->second;
  }
  void set(int64_t i, int64_t value) { changed_[i < 0 ? i + n_ : i] = value & 0xff; }
  template <class F>
  void apply(const Ints& places, const F& f) {
    for (const int64_t i : places)
      if (i >= -n_ && i < n_) set(i, f(get(i < 0 ? i + n_ : i)));
  }
  void expect(const Array& y) const {
    Ints places;
    for (const auto& [i, value] : changed_) places.insert(places.end(), {i - 1, i, i + 1});
    expect_elements(
        y, [&](int64_t i) { return get(i); }, places);
  }

 private:
  int64_t n_;
  std::map<int64_t, int64_t> changed_;
};

struct Update {
  const char* name;
  std::function<Array(const Array&)> f;
  std::function<void(Updated&)> expected;
};

// Updates at numbers and ranges.
std::vector<Update> static_updates(int64_t n) {
  const int64_t two31 = int64_t{1} << 31;
  return {
      {"at(n - 1).set", [=](const Array& y) { return y.at(n - 1).set(9); }, [=](Updated& u) { u.set(n - 1, 9); }},
      {"at(-2).add", [=](const Array& y) { return y.at(-2).add(1); },
       [=](Updated& u) { u.apply({n - 2}, [](int64_t v) { return v + 1; }); }},
      {"at(2^31).multiply", [=](const Array& y) { return y.at(two31).multiply(3); },
       [=](Updated& u) { u.apply({two31}, [](int64_t v) { return v * 3; }); }},
      {"at(range).set",
       [=](const Array& y) {
         return y.at(range(n - 6, n - 4)).set(array({3, 4}));
       },
       [=](Updated& u) { u.set(n - 6, 3), u.set(n - 5, 4); }},
      {"at(range).min", [=](const Array& y) { return y.at(range(two31 - 2, two31 + 2)).min(2); },
       [=](Updated& u) {
         u.apply({two31 - 2, two31 - 1, two31, two31 + 1}, [](int64_t v) { return std::min<int64_t>(v, 2); });
       }},
      {"at(strided range).set",
       [=](const Array& y) {
         return y.at(range(n - 1, n - 8, -3)).set(array({5, 6, 7}));
       },
       [=](Updated& u) { u.set(n - 1, 5), u.set(n - 4, 6), u.set(n - 7, 7); }},
  };
}

// Updates at arrays of indices of this type, of which negative ones count from the end.
std::vector<Update> indexed_updates(int64_t n, DType dtype) {
  const Ints near = dtype == i32 ? Ints{-1, -9, INT32_MAX, 5, -1} : Ints{n - 1, n - 9, INT32_MAX, 5, n - 1};
  Ints places;
  for (const int64_t i : near)
    if (dtype != u32 || i <= UINT32_MAX) places.push_back(i);
  Ints once = places;
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  const Array i = index_array(places, dtype);
  const Array values = arange(i.size()) + 1;
  const auto in_order = [=](auto combine) {
    return [=](Updated& u) {
      for (size_t k = 0; k < places.size(); ++k)
        u.apply({places[k]}, [&](int64_t v) { return combine(v, static_cast<int64_t>(k) + 1); });
    };
  };
  return {
      {"at(i).set", [=](const Array& y) { return y.at(i).set(values); },
       in_order([](int64_t, int64_t v) { return v; })},
      {"at(i).add", [=](const Array& y) { return y.at(i).add(values); },
       in_order([](int64_t a, int64_t v) { return a + v; })},
      {"at(i).subtract", [=](const Array& y) { return y.at(i).subtract(values); },
       in_order([](int64_t a, int64_t v) { return a - v; })},
      {"at(i).multiply", [=](const Array& y) { return y.at(i).multiply(values); },
       in_order([](int64_t a, int64_t v) { return (a * v) & 0xff; })},
      {"at(i).min", [=](const Array& y) { return y.at(i).min(values); },
       in_order([](int64_t a, int64_t v) { return std::min(a, v); })},
      {"at(i).max", [=](const Array& y) { return y.at(i).max(values * 50); },
       in_order([](int64_t a, int64_t v) { return std::max(a, v * 50); })},
      {"at(i).apply", [=](const Array& y) { return y.at(i).apply([](const Array& e) { return e + 7; }); },
       [=](Updated& u) { u.apply(once, [](int64_t v) { return v + 7; }); }},
      {"at(i[0]).add", [=](const Array& y) { return y.at(i(0)).add(1); },
       [=](Updated& u) { u.apply({places[0]}, [](int64_t v) { return v + 1; }); }},
      {"dynamic_update_slice",
       [=](const Array& y) {
         return dynamic_update_slice(y, astype(array({11, 12}), u8), {i(1)});
       },
       [=](Updated& u) {
         const int64_t first = places[1] < 0 ? places[1] + u.size() : places[1];
         u.set(first, 11), u.set(first + 1, 12);
       }},
      {"put_along_axis", [=](const Array& y) { return put_along_axis(y, i, values + 20, 0); },
       in_order([](int64_t, int64_t v) { return v + 20; })},
      {"scatter_add", [=](const Array& y) { return scatter_add(y, i, values); },
       in_order([](int64_t a, int64_t v) { return a + v; })},
  };
}

class LargeUpdates : public LargeArrays {
 protected:
  // One after another, each compiled and in place.
  void expect_in_place(const std::vector<Update>& updates) {
    Array y = x() + zeros({}, u8);
    Updated expected(n());
    for (const Update& update : updates) {
      SCOPED_TRACE(update.name);
      y = jit(update.f, {.donate = {0}})(y);
      update.expected(expected);
      expected.expect(y);
    }
  }
};

TEST_P(LargeUpdates, AtNumbersAndRanges) { expect_in_place(static_updates(n())); }
TEST_P(LargeUpdates, AtIndicesI32) { expect_in_place(indexed_updates(n(), i32)); }
TEST_P(LargeUpdates, AtIndicesU32) { expect_in_place(indexed_updates(n(), u32)); }
TEST_P(LargeUpdates, AtIndicesI64) { expect_in_place(indexed_updates(n(), i64)); }

TEST_P(LargeUpdates, WithoutCompilation) {
  std::vector<Update> updates = {static_updates(n())[0], static_updates(n())[3]};
  const std::vector<Update> indexed = indexed_updates(n(), i64);
  updates.insert(updates.end(), {indexed[0], indexed[7], indexed[8]});
  for (const Update& update : updates) {
    SCOPED_TRACE(update.name);
    Updated expected(n());
    update.expected(expected);
    expected.expect(update.f(x()));
  }
}

TEST_P(LargeUpdates, TracedIndices) {
  const auto step = jit([](const Array& y, const Array& i, const Array& v) { return y.at(i).set(v); }, {.donate = {0}});
  const auto block = jit([](const Array& y, const Array& i, const Array& v) { return dynamic_update_slice(y, v, {i}); },
                         {.donate = {0}});
  Array y = x() + zeros({}, u8);
  Updated expected(n());
  y = step(y, full({}, n() - 2, i64), full({}, 3, u8));
  y = step(y, full({}, -1, i32), full({}, 4, u8));
  y = step(y, full({}, n(), i64), full({}, 5, u8));  // dropped
  y = step(y, index_array({int64_t{1} << 31, n() + 1, -n() - 1}, i64), astype(array({6, 7, 8}), u8));
  y = block(y, full({}, n() - 9, i64), astype(array({9, 10}), u8));
  y = block(y, full({}, INT64_MAX, i64), astype(array({11}), u8));  // clamped
  expected.set(n() - 2, 3), expected.set(-1, 11), expected.set(int64_t{1} << 31, 6);
  expected.set(n() - 9, 9), expected.set(n() - 8, 10);
  expected.expect(y);
}

TEST_P(LargeUpdates, Masks) {
  const Ints marked = {7, int64_t{1} << 31, n() - 1};
  const Array mask = x().at(index_array(marked, i64)).set(255) == 255;
  Updated one(n()), each(n());
  one.apply(marked, [](int64_t v) { return v + 3; });
  one.expect(x().at(mask).add(3));
  for (size_t k = 0; k < marked.size(); ++k) each.set(marked[k], 200 + static_cast<int64_t>(k));
  each.expect(x().at(mask).set(array({200, 201, 202})));
}

TEST_P(LargeUpdates, SegmentsOfLargeNumbers) {
  const Array ids = index_array({n() - 1, 3, n() - 1, n(), -1}, i64), data = astype(array({5, 6, 7, 8, 9}), u8);
  const Array sums = segment_sum(data, ids, n());
  expect_elements(sums, [&](int64_t i) { return i == n() - 1 ? 12 : i == 3 ? 6 : 0; });
}

INSTANTIATE_TEST_SUITE_P(Of, LargeUpdates, testing::Values(kAbove31, kAbove32),
                         [](const auto& one) { return one.param == kAbove31 ? "2G" : "4G"; });

}  // namespace
}  // namespace lockstep
