// Rows that move, combine and reduce the elements of large arrays; and those that refuse them.
#include "base/throws.h"
#include "large/large.h"
#include "support/long_tests.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

// One thread of a CPU takes many seconds for these.
bool runs_slow_tests() { return long_tests() || platform() == Platform::cuda; }

class LargeMoves : public LargeArrays {};

TEST_P(LargeMoves, FlipRollAndConcatenate) {
  const int64_t size = n();
  expect_elements(flip(x()), [&](int64_t i) { return number_at(size - 1 - i); });
  for (const int64_t shift : {int64_t{-3}, (int64_t{1} << 31) + 1})
    expect_elements(roll(x(), shift), [&](int64_t i) { return number_at(((i - shift) % size + size) % size); });
  const Array joined = concatenate({x()(range(size - 2, _)), x()(range(size - 5)), x()(range(3))});
  ASSERT_EQ(joined.size(), size);
  expect_elements(joined, [&](int64_t i) {
    return number_at(i < 2 ? size - 2 + i : i < size - 3 ? i - 2 : i - (size - 3));
  });
}

TEST_P(LargeMoves, Pad) {
  const int64_t size = n();
  const auto inside = [&](int64_t i) { return i >= 2 && i < size + 2; };
  expect_elements(pad(x(), {{2, 3}}, 254), [&](int64_t i) { return inside(i) ? number_at(i - 2) : 254; });
  expect_elements(pad(x(), {{-1, -2}}), [](int64_t i) { return number_at(i + 1); });
  expect_elements(pad(x(), {{2, 3}}, "edge"),
                  [&](int64_t i) { return number_at(std::clamp<int64_t>(i - 2, 0, size - 1)); });
  expect_elements(pad(x(), {{2, 3}}, "wrap"), [&](int64_t i) { return number_at((i - 2 + size) % size); });
  expect_elements(pad(x(), {{2, 3}}, "reflect"), [&](int64_t i) {
    return number_at(i < 2 ? 2 - i : i < size + 2 ? i - 2 : 2 * (size - 1) - (i - 2));
  });
}

TEST_P(LargeMoves, MatricesAndTransposes) {
  const int64_t size = n(), half = size / 2;
  for (const bool wide : {true, false}) {
    const int64_t columns = wide ? half : 2;
    const Array turned = ravel(transpose(reshape(x(), {size / columns, columns})));
    expect_elements(turned, [&](int64_t i) {
      const int64_t rows = size / columns;
      return number_at(i % rows * columns + i / rows);
    });
  }
  const int64_t rows = n() == kAbove31 ? 136 : 24, columns = (n() - 2) / rows;  // n - 2 elements
  ASSERT_EQ(rows * columns, n() - 2);
  const Array matrix = reshape(x()(range(rows * columns)), {rows, columns});
  expect_elements(ravel(transpose(matrix)), [&](int64_t i) { return number_at(i % rows * columns + i / rows); });
  if (!runs_slow_tests()) return;
  expect_elements(ravel(flip(matrix, 1)),
                  [&](int64_t i) { return number_at(i / columns * columns + columns - 1 - i % columns); });
}

TEST_P(LargeMoves, Broadcast) {
  const int64_t columns = 54013, rows = n() / columns + 1;
  const Array row = x()(range(columns)), column = expand_dims(x()(range(rows)), 1);
  expect_elements(ravel(broadcast_to(row, {rows, columns})), [&](int64_t i) { return number_at(i % columns); });
  expect_elements(ravel(broadcast_to(column, {rows, columns})), [&](int64_t i) { return number_at(i / columns); });
  if (!runs_slow_tests()) return;
  expect_elements(repeat(x()(range(n() / 2)), 2, 0), [](int64_t i) { return number_at(i / 2); });
  expect_elements(tile(x()(range(columns)), {rows}), [&](int64_t i) { return number_at(i % columns); });
}

TEST_P(LargeMoves, Elementwise) {
  expect_elements(x() * 3 + 1, [](int64_t i) { return (number_at(i) * 3 + 1) & 0xff; });
  expect_elements(where(x() > 100, x(), 7), [](int64_t i) { return number_at(i) > 100 ? number_at(i) : 7; });
  expect_elements(astype(x(), i8), [](int64_t i) { return number_at(i) > 127 ? number_at(i) - 256 : number_at(i); });
  expect_elements(astype(x() == number_at(n() - 1), u8),
                  [&](int64_t i) { return number_at(i) == number_at(n() - 1) ? 1 : 0; });
  // A fused program whose operands are views of one array.
  const auto sum = jit([size = n()](const Array& y) { return slice(y, {0}, {size - 1}) + slice(y, {1}, {size}) * 2; });
  expect_elements(sum(x()), [](int64_t i) { return (number_at(i) + 2 * number_at(i + 1)) & 0xff; });
  if (!runs_slow_tests()) return;
  const auto mixed = jit([](const Array& y) { return flip(y) ^ y; });
  expect_elements(mixed(x()), [&](int64_t i) { return number_at(i) ^ number_at(n() - 1 - i); });
}

TEST_P(LargeMoves, Reductions) {
  const int64_t half = n() / 2, most = 252;
  const Array y = x().at(index_array({n() - 2, 5}, i64)).set(array({most, most}));
  EXPECT_EQ(max(y).item<int64_t>(), most);
  EXPECT_EQ(min(x() + 4).item<int64_t>(), 4);
  EXPECT_EQ(max(y(range(6, n() - 2))).item<int64_t>(), 250);
  EXPECT_EQ(max(y(range(6, _))).item<int64_t>(), most);
  EXPECT_TRUE(any(y(range(n() - 3, _)) == most).item<bool>());
  EXPECT_FALSE(all(y != most).item<bool>());
  const Array wide = reshape(y, {2, half}), tall = reshape(y, {half, 2});
  EXPECT_EQ(max(wide, 1).to_vector<int64_t>(), (Ints{most, most}));
  EXPECT_EQ(min(wide, 1).to_vector<int64_t>(), (Ints{0, 0}));
  expect_elements(max(wide, 0), [&](int64_t i) {
    return i == 5 || i + half == n() - 2 ? most : std::max(number_at(i), number_at(i + half));
  });
  EXPECT_EQ(max(tall, 0).to_vector<int64_t>(), (Ints{most, most}));
  if (!runs_slow_tests()) return;
  expect_elements(max(tall, 1), [&](int64_t i) {
    return i == 2 || i == half - 1 ? most : std::max(number_at(2 * i), number_at(2 * i + 1));
  });
  if (half > INT32_MAX) return;
  EXPECT_EQ(argmax(wide, 1).to_vector<int64_t>(), (Ints{5, n() - 2 - half}));
  EXPECT_EQ(argmax(tall, 0).to_vector<int64_t>(), (Ints{half - 1, 2}));
}

TEST_P(LargeMoves, Sums) {
  // The operand is widened first: to u32, or to i64 for counts.
  const std::string reason = missing_memory(12 * n(), n());
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto total = [](int64_t count) {  // of number_at(i) for i < count
    const int64_t periods = count / 251, rest = count % 251;
    return periods * (250 * 251 / 2) + rest * (rest - 1) / 2;
  };
  EXPECT_EQ(sum(x()).item<int64_t>(), total(n()) & UINT32_MAX);
  EXPECT_EQ(sum(reshape(x(), {2, n() / 2}), 1)(0).item<int64_t>(), total(n() / 2) & UINT32_MAX);
  EXPECT_EQ(sum(x() >= 0).item<int64_t>(), n());
  EXPECT_EQ(count_nonzero(x()).item<int64_t>(), n() - (n() + 250) / 251);
}

TEST_P(LargeMoves, SearchesAndCumulativeSums) {
  const int64_t first = (int64_t{1} << 31) + 3;
  const Array steps = zeros({n()}, u8).at(range(first, _)).set(1);
  EXPECT_EQ(searchsorted(steps, 1).item<int64_t>(), first);
  EXPECT_EQ(searchsorted(steps, array({0, 1, 2}), Side::right).to_vector<int64_t>(), (Ints{first, n(), n()}));
  if (!runs_slow_tests()) return;
  expect_elements(cumsum(steps), [&](int64_t i) { return i < first ? 0 : (i - first + 1) & 0xff; });
}

TEST_P(LargeMoves, RowsWithI32ResultsRefuseThem) {
  const std::string long_axis = fmt::format("axis 0 of [{}] is too long for i32 indices; split it", n());
  EXPECT_THROWS(argmax(x()), Error, "argmax: " + long_axis);
  EXPECT_THROWS(argmin(x()), Error, "argmin: " + long_axis);
  EXPECT_THROWS(sort(x()), Error, "sort: " + long_axis);
  EXPECT_THROWS(argsort(x()), Error, "sort: " + long_axis);
  EXPECT_THROWS(top_k(x(), 2), Error, "top_k: " + long_axis);
  EXPECT_THROWS(random::permutation(random::key(0), x()), Error, "sort: " + long_axis);
}

INSTANTIATE_TEST_SUITE_P(Of, LargeMoves, testing::Values(kAbove31, kAbove32),
                         [](const auto& one) { return one.param == kAbove31 ? "2G" : "4G"; });

}  // namespace
}  // namespace lockstep
