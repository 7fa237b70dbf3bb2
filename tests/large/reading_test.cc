// Elements of large arrays are read from their places, by numbers, ranges, arrays and masks.
#include "large/large.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

// Negative indices count from the end; those out of range are clamped.
int64_t read_place(int64_t index, int64_t n) { return std::clamp<int64_t>(index < 0 ? index + n : index, 0, n - 1); }

// What i32, u32 and i64 can name.
Ints indices_of(DType dtype, int64_t n) {
  const Ints all = {0,  1,  INT32_MAX, int64_t{1} << 31, (int64_t{1} << 31) + 1, UINT32_MAX, n - 1, n - 3, n, INT64_MAX,
                    -1, -2, -n,        INT32_MIN};
  Ints out;
  for (const int64_t i : all) {
    const int64_t least = dtype == i64 ? INT64_MIN : dtype == i32 ? INT32_MIN : 0;
    const int64_t most = dtype == i64 ? INT64_MAX : dtype == i32 ? INT32_MAX : UINT32_MAX;
    if (i >= least && i <= most) out.push_back(i);
  }
  return out;
}

class LargeReads : public LargeArrays {};

TEST_P(LargeReads, NumbersAndRanges) {
  const int64_t size = n();
  expect_elements(x(), number_at);
  for (const int64_t i : interesting_places(size)) {
    EXPECT_EQ(x()(i).item<int64_t>(), number_at(i)) << i;
    EXPECT_EQ(x()(i - size).item<int64_t>(), number_at(i)) << i;
    EXPECT_EQ(at(x(), i).item<int64_t>(), number_at(i)) << i;
  }
  EXPECT_EQ(x().at(size - 1).get().item<int64_t>(), number_at(size - 1));
  EXPECT_EQ(x()(range(size - 3, _)).to_vector<int64_t>(),
            (Ints{number_at(size - 3), number_at(size - 2), number_at(size - 1)}));
  EXPECT_EQ(x()(range(-1, -6, -2)).to_vector<int64_t>(),
            (Ints{number_at(size - 1), number_at(size - 3), number_at(size - 5)}));
  EXPECT_EQ(x()(range(5, _, int64_t{1} << 31)).to_vector<int64_t>().at(1), number_at((int64_t{1} << 31) + 5));
  const Array odd = x()(range(1, _, 2));
  ASSERT_EQ(odd.size(), size / 2);
  expect_elements(odd, [](int64_t i) { return number_at(2 * i + 1); });
}

TEST_P(LargeReads, IndexArrays) {
  const std::vector<std::pair<const char*, std::function<Array(const Array&, const Array&)>>> reads = {
      {"x(i)", [](const Array& y, const Array& i) { return y(i); }},
      {"at.get", [](const Array& y, const Array& i) { return y.at(i).get(); }},
      {"take", [](const Array& y, const Array& i) { return take(y, i); }},
      {"take_along_axis", [](const Array& y, const Array& i) { return take_along_axis(y, i, 0); }},
  };
  for (const DType dtype : {i32, u32, i64}) {
    const Ints indices = indices_of(dtype, n());
    Ints expected;
    for (const int64_t i : indices) expected.push_back(number_at(read_place(i, n())));
    const Array i = index_array(indices, dtype);
    for (const auto& [what, read] : reads) {
      EXPECT_EQ(read(x(), i).to_vector<int64_t>(), expected) << what << " " << name(dtype);
      EXPECT_EQ(jit(read)(x(), i).to_vector<int64_t>(), expected) << what << " compiled " << name(dtype);
    }
  }
}

TEST_P(LargeReads, ScalarIndices) {
  const auto read = [](const Array& y, const Array& i) { return y(i); };
  const auto compiled = jit(read);
  for (const DType dtype : {i32, u32, i64})
    for (const int64_t i : indices_of(dtype, n())) {
      const int64_t expected = number_at(read_place(i, n()));
      EXPECT_EQ(read(x(), full({}, i, dtype)).item<int64_t>(), expected) << i;
      EXPECT_EQ(compiled(x(), full({}, i, dtype)).item<int64_t>(), expected) << i;
    }
  EXPECT_EQ(x()(index_array({-1}, i8)).to_vector<int64_t>(), Ints{number_at(n() - 1)});
  EXPECT_EQ(at(x(), full({}, n() - 2, i64)).item<int64_t>(), number_at(n() - 2));
  EXPECT_EQ(x()(full({}, n() - 1, u64)).item<int64_t>(), number_at(n() - 1));
}

TEST_P(LargeReads, OutOfRangeIsFilled) {
  const auto read = [](const Array& y, const Array& i) {
    return y.at(i).get({.mode = IndexMode::fill, .fill_value = 254});
  };
  const Array i = index_array({n() - 1, n(), -n() - 1, -1, INT64_MAX}, i64);
  const Ints expected = {number_at(n() - 1), 254, 254, number_at(n() - 1), 254};
  EXPECT_EQ(read(x(), i).to_vector<int64_t>(), expected);
  EXPECT_EQ(jit(read)(x(), i).to_vector<int64_t>(), expected);
}

TEST_P(LargeReads, DynamicSlices) {
  const auto read = [](const Array& y, const Array& start) { return dynamic_slice(y, {start}, {3}); };
  const auto compiled = jit(read);
  for (const DType dtype : {i32, u32, i64})
    for (const int64_t i : indices_of(dtype, n())) {
      const int64_t first = std::clamp<int64_t>(i < 0 ? i + n() : i, 0, n() - 3);
      const Ints expected = {number_at(first), number_at(first + 1), number_at(first + 2)};
      EXPECT_EQ(read(x(), full({}, i, dtype)).to_vector<int64_t>(), expected) << i;
      EXPECT_EQ(compiled(x(), full({}, i, dtype)).to_vector<int64_t>(), expected) << i;
    }
}

TEST_P(LargeReads, TwoIndexArrays) {
  const int64_t columns = n() / 2;
  const auto read = [](const Array& y, const Array& i, const Array& k) { return y(i, k); };
  for (const bool wide : {false, true}) {
    const Array y = reshape(x(), wide ? Shape{2, columns} : Shape{columns, 2});
    const Array i = array({0, -1, 1, 1}), k = array({0, -1, 5, 7});
    const Array own = wide ? i : k % 2, other = wide ? k : i * 3;
    const Array rows = wide ? own : other, across = wide ? other : own;
    Ints expected;
    const Ints r = rows.to_vector<int64_t>(), c = across.to_vector<int64_t>(), extents = {y.shape(0), y.shape(1)};
    for (size_t e = 0; e < r.size(); ++e)
      expected.push_back(
          number_at((r[e] < 0 ? r[e] + extents[0] : r[e]) * extents[1] + (c[e] < 0 ? c[e] + extents[1] : c[e])));
    EXPECT_EQ(read(y, rows, across).to_vector<int64_t>(), expected);
    EXPECT_EQ(jit(read)(y, rows, across).to_vector<int64_t>(), expected);
    EXPECT_EQ(y(-1, -1).item<int64_t>(), number_at(n() - 1));
    EXPECT_EQ(take_along_axis(y, broadcast_to(index_array({-1}, i32), wide ? Shape{2, 1} : Shape{1, 2}), wide ? 1 : 0)
                  .to_vector<int64_t>()
                  .back(),
              number_at(n() - 1));
  }
}

TEST_P(LargeReads, Masks) {
  const Ints marked = {7, INT32_MAX, int64_t{1} << 31, n() - 1};
  const Array mask = x().at(index_array(marked, i64)).set(255) == 255;
  Ints expected;
  for (const int64_t i : marked) expected.push_back(number_at(i));
  EXPECT_EQ(x()(mask).to_vector<int64_t>(), expected);
  EXPECT_EQ(extract(mask, x()).to_vector<int64_t>(), expected);
  EXPECT_EQ(compress(mask, x(), 0, {.size = 5, .fill_value = 253}).to_vector<int64_t>(),
            (Ints{expected[0], expected[1], expected[2], expected[3], 253}));
  EXPECT_EQ(nonzero(mask)[0].to_vector<int64_t>(), marked);
  EXPECT_EQ(flatnonzero(mask, {.size = 6, .fill_value = -1}).to_vector<int64_t>(),
            (Ints{marked[0], marked[1], marked[2], marked[3], -1, -1}));
  EXPECT_EQ(argwhere(mask, {.size = 2}).to_vector<int64_t>(), (Ints{marked[0], marked[1]}));
  const std::vector<Array> places = nonzero(reshape(mask, {2, n() / 2}));
  EXPECT_EQ(places[1].dtype(), n() / 2 > INT32_MAX ? i64 : i32);
  EXPECT_EQ(places[0].to_vector<int64_t>().back(), 1);
  EXPECT_EQ(places[1].to_vector<int64_t>().back(), n() / 2 - 1);
}

INSTANTIATE_TEST_SUITE_P(Of, LargeReads, testing::Values(kAbove31, kAbove32),
                         [](const auto& one) { return one.param == kAbove31 ? "2G" : "4G"; });

}  // namespace
}  // namespace lockstep
