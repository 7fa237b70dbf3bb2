// Random programs that index, move, update, combine and reduce a large array give the elements that a function of the
// position gives, which is evaluated at a few places only.
#include <random>

#include "large/large.h"
#include "support/long_tests.h"

namespace lockstep {
namespace {

using Element = std::function<int64_t(int64_t)>;

// A u8 array of one dimension, and what its elements are.
struct Modelled {
  Array array;
  int64_t size;
  Element element;
};

// Makes one program; the same seed gives the same one. Arrays keep more than 2^31 elements.
class LargeProgram {
 public:
  LargeProgram(uint32_t seed, int64_t n) : random_(seed), n_(n) {}

  // What the next step of the program does, as text.
  const std::string& text() const { return text_; }

  Modelled step(const Modelled& x) {
    static constexpr Modelled (LargeProgram::*kSteps[])(const Modelled&) = {
        &LargeProgram::flipped, &LargeProgram::rolled,      &LargeProgram::cut,      &LargeProgram::padded,
        &LargeProgram::joined,  &LargeProgram::computed,    &LargeProgram::selected, &LargeProgram::set_range,
        &LargeProgram::turned,  &LargeProgram::set_indices, &LargeProgram::set_block};
    return (this->*kSteps[below(std::size(kSteps))])(x);
  }

  // A position, often near the ends or 2^31.
  int64_t place(int64_t size) {
    const std::vector<int64_t> all = interesting_places(size);
    return below(4) == 0 ? below(size) : all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
  }
  int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_); }
  DType index_dtype() {
    static constexpr DType kAll[] = {i32, u32, i64};
    return kAll[below(3)];
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    text_ += fmt::format(text, std::forward<Args>(args)...) + "\n";
  }

  Modelled flipped(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    say("flip");
    return {flip(x.array), size, [=](int64_t i) { return was(size - 1 - i); }};
  }
  Modelled rolled(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t by = place(size);
    say("roll by {}", by);
    return {roll(x.array, by), size, [=](int64_t i) { return was((i - by + size) % size); }};
  }
  Modelled cut(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t spare = size - (n_ - 8);
    if (spare < 2) return padded(x);
    const int64_t before = below(spare / 2 + 1), after = below(spare / 2 + 1);
    say("without {} at the beginning and {} at the end", before, after);
    return {x.array(range(before, size - after)), size - before - after, [=](int64_t i) { return was(i + before); }};
  }
  Modelled padded(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t before = below(3), after = below(3), value = below(200);
    say("padded by {} and {}", before, after);
    return {pad(x.array, {{before, after}}, value), size + before + after,
            [=](int64_t i) { return i < before || i >= before + size ? value : was(i - before); }};
  }
  Modelled joined(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t head = below(3) + 1;
    say("the first {} elements after it", head);
    return {concatenate({x.array, x.array(range(head))}), size + head,
            [=](int64_t i) { return was(i < size ? i : i - size); }};
  }
  Modelled computed(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t by = below(250) + 1, kind = below(3);
    say("computed with {} ({})", by, kind);
    const Array y = kind == 0 ? x.array + by : kind == 1 ? maximum(x.array, by) : x.array * by;
    return {y, size, [=](int64_t i) {
              const int64_t e = was(i);
              return kind == 0 ? (e + by) & 0xff : kind == 1 ? std::max(e, by) : (e * by) & 0xff;
            }};
  }
  Modelled selected(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t limit = below(250), value = below(200);
    say("where greater than {}, else {}", limit, value);
    return {where(x.array > limit, x.array, value), size, [=](int64_t i) {
              const int64_t e = was(i);
              return e > limit ? e : value;
            }};
  }
  Modelled turned(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    if (size % 2 != 0) return rolled(x);
    const int64_t columns = below(2) == 0 ? 2 : size / 2, rows = size / columns;
    say("transposed as [{}, {}]", rows, columns);
    return {ravel(transpose(reshape(x.array, {rows, columns}))), size,
            [=](int64_t i) { return was(i % rows * columns + i / rows); }};
  }
  Modelled set_range(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const int64_t begin = place(size), length = below(4) + 1, step = below(3) + 1, value = below(200);
    const int64_t end = std::min(begin + length, size);
    say("at {} to {} in steps of {}: {}", begin, end, step, value);
    return {x.array.at(range(begin, end, step)).set(value), size,
            [=](int64_t i) { return i >= begin && i < end && (i - begin) % step == 0 ? value : was(i); }};
  }
  // Indices from the end where the type is signed.
  Array indices(const std::vector<int64_t>& places, int64_t size, DType dtype) {
    std::vector<int64_t> out;
    for (const int64_t i : places) out.push_back(dtype == u32 || (dtype == i64 && below(2) == 0) ? i : i - size);
    return index_array(out, dtype);
  }
  // Places that this type can name, negative ones from the end.
  std::vector<int64_t> places_for(DType dtype, int64_t size, int64_t count) {
    std::vector<int64_t> out;
    while (static_cast<int64_t>(out.size()) < count) {
      const int64_t i = place(size);
      if (dtype == u32 ? i <= UINT32_MAX : dtype == i64 || i - size >= INT32_MIN) out.push_back(i);
    }
    return out;
  }
  Modelled set_indices(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const DType dtype = index_dtype();
    const std::vector<int64_t> places = places_for(dtype, size, 5);
    const int64_t value = below(100) + 1, kind = below(3);
    say("at {} indices {}: {} ({})", name(dtype), to_string(places), value, kind);
    const IndexedArray chosen = x.array.at(indices(places, size, dtype));
    const Array y = kind == 0 ? chosen.set(value) : kind == 1 ? chosen.add(value) : chosen.max(value);
    return {y, size, [=](int64_t i) {
              int64_t e = was(i);
              for (const int64_t at : places)
                if (at == i) e = kind == 0 ? value : kind == 1 ? (e + value) & 0xff : std::max(e, value);
              return e;
            }};
  }
  Modelled set_block(const Modelled& x) {
    const Element was = x.element;
    const int64_t size = x.size;
    const DType dtype = index_dtype();
    const int64_t at = places_for(dtype, size, 1)[0], first = std::min(at, size - 3);
    say("a block at {} index {}", name(dtype), at);
    return {dynamic_update_slice(x.array, astype(array({201, 202, 203}), u8), {indices({at}, size, dtype)(0)}), size,
            [=](int64_t i) { return i >= first && i < first + 3 ? 201 + i - first : was(i); }};
  }

  std::mt19937 random_;
  int64_t n_;
  std::string text_;
};

class LargePrograms : public LargeArrays {};

TEST_P(LargePrograms, HaveTheElementsOfTheirModels) {
  const uint32_t programs = long_tests() ? 50 : 2;
  for (uint32_t seed = 0; seed < programs && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    LargeProgram program(seed, n());
    Modelled result;
    const bool compiled = program.below(2) == 0;
    const auto run = [&](const Array& x) {
      Modelled now{x, n(), number_at};
      for (int k = 0; k < 4; ++k) now = program.step(now);
      result = {Array(), now.size, now.element};
      return now.array;
    };
    const Array y = compiled ? jit(run)(x()) : run(x());
    SCOPED_TRACE(program.text());
    ASSERT_EQ(y.size(), result.size);
    std::vector<int64_t> more;
    for (int k = 0; k < 20; ++k) more.push_back(program.below(result.size));
    expect_elements(y, result.element, more);
    // The same elements by arrays of indices, and in a reduction.
    std::vector<int64_t> places, wanted;
    for (int k = 0; k < 8; ++k) places.push_back(program.place(result.size));
    for (const int64_t i : places) wanted.push_back(result.element(i));
    EXPECT_EQ(take(y, index_array(places, i64)).to_vector<int64_t>(), wanted);
    int64_t most = 0;
    for (int64_t i = result.size - 40; i < result.size; ++i) most = std::max(most, result.element(i));
    EXPECT_EQ(max(y(range(-40, _))).item<int64_t>(), most);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, LargePrograms, testing::Values(kAbove31, kAbove32),
                         [](const auto& one) { return one.param == kAbove31 ? "2G" : "4G"; });

}  // namespace
}  // namespace lockstep
