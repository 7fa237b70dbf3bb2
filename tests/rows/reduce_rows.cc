// References and samples of the rows that combine elements along dimensions, including einsum.
#include <map>

#include "rows/rows.h"

namespace lockstep {
namespace {

using Combine = Real (*)(Real, Real);

Reference reduction(Combine combine, Real (*start)(DType)) {
  return [=](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
    for (Real& x : y[0].data) x = start(in[0].type.dtype);
    for_each_index(in[0].shape(), [&](const Dims& at, int64_t i) {
      Dims kept;
      for (size_t d = 0; d < at.size(); ++d)
        if (!contains(attrs.ints("axes"), static_cast<int64_t>(d))) kept.push_back(at[d]);
      Real& sum = y[0].at(kept);
      sum = combine(sum, in[0].data[static_cast<size_t>(i)]);
    });
  };
}

Real highest(DType t) {
  switch (t) {
    case boolean:
      return 1;
    case u8:
      return 255;
    case i32:
      return 2147483647;
    case u32:
      return 4294967295;
    case i64:
      return 9223372036854775807.0L;
    default:
      return std::numeric_limits<Real>::infinity();
  }
}
Real lowest(DType t) { return !is_signed(t) ? 0 : is_floating(t) ? -highest(t) : -highest(t) - 1; }

// Propagates NaN.
Real greater(Real a, Real b) { return std::isnan(a) || a >= b ? a : b; }
Real lesser(Real a, Real b) { return std::isnan(a) || a <= b ? a : b; }

void add_reductions(std::vector<Row>& out) {
  using Ints = std::vector<int64_t>;
  auto samples = [](const std::vector<DType>& dtypes, Domain domain) {
    std::vector<Sample> s;
    auto add = [&](DType t, Shape shape, Ints axes) {
      s.push_back({{{{t, std::move(shape)}, domain}}, {{"axes", std::move(axes)}}});
    };
    for (DType t : dtypes) {
      add(t, {3, 4}, {0});
      add(t, {3, 4}, {1});
      add(t, {6}, {0});
    }
    add(dtypes[0], {2, 3, 4}, {0, 2});
    add(dtypes[0], {2, 3, 4, 2}, {1, 2});
    add(dtypes[0], {2, 3, 4, 2}, {0, 1, 2, 3});
    add(dtypes[0], {2, 3}, {});
    add(dtypes[0], {}, {});
    add(dtypes[0], {0, 3}, {0});
    add(dtypes[0], {0, 3}, {1});
    add(dtypes[0], {1, 3, 1}, {0, 2});
    return s;
  };
  auto with_large = [](std::vector<Sample> s, Domain domain) {
    s.push_back({{{{f32, {300, 120}}, domain}}, {{"axes", Ints{0}}}, false});
    s.push_back({{{{f32, {120, 300}}, domain}}, {{"axes", Ints{1}}}, false});
    s.push_back({{{{f32, {40000}}, domain}}, {{"axes", Ints{0}}}, false});
    return s;
  };
  const std::vector<DType> numbers = {f32, f64, bf16, f16, i32, i64, u8, u32}, all = kAllDTypes;
  std::vector<DType> ordered = numbers;
  ordered.push_back(boolean);
  const Domain plain{}, near_one{Domain::real, 0.5, 1.5}, distinct{Domain::distinct};
  out.push_back({&reduce_sum_op, reduction([](Real a, Real b) { return a + b; }, [](DType) -> Real { return 0; }),
                 with_large(samples(numbers, plain), plain)});
  out.push_back({&reduce_prod_op, reduction([](Real a, Real b) { return a * b; }, [](DType) -> Real { return 1; }),
                 samples(numbers, near_one)});
  // Zeros in a product: the gradient must not divide by them.
  out.back().samples.push_back({{{{f64, {3, 4}}, {Domain::ties}}}, {{"axes", Ints{1}}}});
  out.push_back({&reduce_max_op, reduction(greater, lowest), with_large(samples(ordered, distinct), plain)});
  out.push_back({&reduce_min_op, reduction(lesser, highest), with_large(samples(ordered, distinct), plain)});
  for (size_t i : {out.size() - 1, out.size() - 2})
    out[i].samples.push_back({{{{f32, {40, 3}}, {Domain::special}}}, {{"axes", Ints{1}}}, false});
  out.push_back({&reduce_and_op, reduction([](Real a, Real b) { return a * b; }, [](DType) -> Real { return 1; }),
                 samples({boolean}, plain)});
  out.push_back({&reduce_or_op,
                 reduction([](Real a, Real b) { return std::max(a, b); }, [](DType) -> Real { return 0; }),
                 samples({boolean}, plain)});
}

Reference extreme_index(bool greatest) {
  return [=](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
    const auto axis = static_cast<std::ptrdiff_t>(attrs.integer("axis"));
    for_each_index(y[0].shape(), [&](const Dims& at, int64_t i) {
      int64_t best = 0;
      auto element = [&](int64_t k) {
        Dims from = at;
        from.insert(from.begin() + axis, k);
        return in[0].at(from);
      };
      for (int64_t k = 1; k < in[0].shape()[static_cast<size_t>(axis)]; ++k) {
        const Real x = element(k), top = element(best);
        if (!std::isnan(top) && (std::isnan(x) || (greatest ? x > top : x < top))) best = k;
      }
      y[0].data[static_cast<size_t>(i)] = static_cast<Real>(best);
    });
  };
}

// The result of elements 0 to i of a line, or from i to the last.
Reference cumulative(Real (*combine)(Real, Real)) {
  return [=](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
    const auto axis = static_cast<size_t>(attrs.integer("axis"));
    const bool reverse = attrs.get<bool>("reverse");
    for_each_index(y[0].shape(), [&](const Dims& at, int64_t i) {
      Dims from = at;
      Real result = in[0].at(at);
      for (int64_t k = at[axis]; reverse ? ++k < y[0].shape()[axis] : --k >= 0;) {
        from[axis] = k;
        result = combine(result, in[0].at(from));
      }
      y[0].data[static_cast<size_t>(i)] = result;
    });
  };
}

void add_cumulative(std::vector<Row>& out) {
  const Domain plain{}, near_one{Domain::real, 0.5, 1.5}, distinct{Domain::distinct}, special{Domain::special};
  const auto add = [&](const Op& op, Real (*combine)(Real, Real), const Domain& domain, bool integers) {
    Row row{&op, cumulative(combine), {}};
    auto sample = [&](Type t, int64_t axis, bool reverse, bool smooth = true) {
      row.samples.push_back({{{std::move(t), domain}}, {{"axis", axis}, {"reverse", reverse}}, smooth});
    };
    for (DType t : kAllDTypes)
      if (t != boolean && (integers || is_floating(t))) sample({t, {3, 4}}, 1, is_integer(t));
    sample({f32, {3, 4}}, 0, true);
    sample({f64, {2, 3, 2, 2}}, 1, false);
    sample({f64, {3, 7}}, 1, true);
    sample({f32, {0}}, 0, false);
    sample({f32, {30, 150}}, 1, true);
    sample({f32, {2, 2500}}, 1, false, false);
    // Long products of larger integers would overflow in the reference.
    if (integers)
      row.samples.push_back({{{{i32, {2100, 2}}, {Domain::real, -1, 1}}}, {{"axis", int64_t{0}}, {"reverse", true}}});
    sample({bf16, {2, 70, 3}}, 1, false);
    if (combine == greater || combine == lesser)
      row.samples.push_back({{{{f32, {20, 5}}, special}}, {{"axis", int64_t{1}}, {"reverse", false}}, false});
    out.push_back(std::move(row));
  };
  add(
      cumsum_op, [](Real a, Real b) { return a + b; }, plain, true);
  add(
      cumprod_op, [](Real a, Real b) { return a * b; }, near_one, true);
  out.back().samples.push_back({{{{f64, {4, 5}}, {Domain::ties}}}, {{"axis", int64_t{1}}, {"reverse", false}}});
  add(cummax_op, greater, distinct, true);
  add(cummin_op, lesser, distinct, true);
  add(
      cumlogsumexp_op, [](Real a, Real b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }, plain,
      false);
}

void add_lines(std::vector<Row>& out) {
  std::vector<Sample> arg;
  auto add_arg = [&](Type t, int64_t axis, Domain::Kind kind) {
    arg.push_back({{{std::move(t), {kind}}}, {{"axis", axis}}});
  };
  for (DType t : kAllDTypes) {
    add_arg({t, {3, 5}}, 1, Domain::ties);
    add_arg({t, {3, 5}}, 0, Domain::real);
  }
  add_arg({f32, {30, 4}}, 1, Domain::special);
  add_arg({f32, {2, 3, 4, 2}}, 2, Domain::distinct);
  add_arg({i64, {7}}, 0, Domain::special);
  add_arg({f32, {12, 3, 4}}, 1, Domain::distinct);
  add_arg({f32, {0, 3}}, 1, Domain::real);
  add_arg({f32, {200, 150}}, 1, Domain::real);
  out.push_back({&argmax_op, extreme_index(true), arg});
  out.push_back({&argmin_op, extreme_index(false), arg});

  add_cumulative(out);
}

// One loop over all letters.
void einsum_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  const Rule r = parse_rule(attrs.get<std::string>("spec"));
  std::map<char, int64_t> size;
  for (size_t t = 0; t < 2; ++t)
    for (size_t d = 0; d < r.in[t].size(); ++d) size[r.in[t][d]] = in[t].shape()[d];
  std::string letters;
  Shape extents;
  for (const auto& [letter, extent] : size) {
    letters += letter;
    extents.push_back(extent);
  }
  auto pick = [&](const std::string& term, const Dims& index) {
    Dims out;
    for (char c : term) out.push_back(index[letters.find(c)]);
    return out;
  };
  for (Real& x : y[0].data) x = 0;
  for_each_index(extents, [&](const Dims& index, int64_t) {
    y[0].at(pick(r.out[0], index)) += in[0].at(pick(r.in[0], index)) * in[1].at(pick(r.in[1], index));
  });
}

void add_einsum(std::vector<Row>& out) {
  Row row{&einsum_op, einsum_reference, {}};
  auto add = [&](DType t, Shape a, Shape b, std::string spec) {
    row.samples.push_back({{{{t, std::move(a)}}, {{t, std::move(b)}}}, {{"spec", std::move(spec)}}});
  };
  for (DType t : {f32, f64, bf16, f16, i32, i64, u8, u32}) {
    add(t, {3, 4}, {4, 5}, "ik,kj->ij");
    add(t, {2, 3, 4}, {2, 4, 5}, "bik,bkj->bij");
  }
  add(f32, {4, 3}, {5, 4}, "ki,jk->ij");
  add(f32, {3, 4}, {4, 5}, "ik,kj->ji");
  add(f32, {4, 3}, {4, 5}, "ki,kj->ij");
  add(f32, {3, 4}, {5, 4}, "ik,jk->ij");
  add(f32, {6}, {6}, "i,i->");
  add(f32, {3}, {4}, "i,j->ij");
  add(f32, {3}, {4}, "i,j->ji");
  add(f32, {3, 4}, {4}, "ij,j->i");
  add(f32, {3, 4}, {3}, "ij,i->ij");
  add(f64, {3, 4}, {}, "ij,->ij");
  add(f32, {4, 6}, {}, "ij,->ij");
  add(f64, {}, {}, ",->");
  add(f32, {2, 3, 4, 5}, {4, 2, 5, 6}, "abcd,cade->be");
  add(f32, {2, 3, 4}, {3, 2, 5}, "bik,ibj->kbj");
  add(f64, {2, 3, 4, 2}, {2, 3, 2, 5}, "bhqd,bhdk->bhqk");
  add(f32, {2, 5, 3, 4}, {2, 6, 3, 4}, "bqhd,bkhd->bhqk");
  add(f32, {4, 2, 3, 4}, {4, 2, 4, 6}, "bhqd,bhdk->bhqk");
  add(f32, {0, 4}, {4, 5}, "ik,kj->ij");
  add(f32, {3, 0}, {0, 5}, "ik,kj->ij");
  add(f32, {3, 4}, {4, 0}, "ik,kj->ij");
  add(f32, {1, 4}, {4, 1}, "ik,kj->ij");
  add(f32, {70, 33}, {33, 65}, "ik,kj->ij");
  add(bf16, {40, 50}, {50, 30}, "ik,kj->ij");
  out.push_back(std::move(row));
}

}  // namespace

void add_reduce_rows(std::vector<Row>& out) {
  add_reductions(out);
  add_lines(out);
  add_einsum(out);
}

}  // namespace lockstep
