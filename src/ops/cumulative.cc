// Rows that process one axis in order: argmax, argmin, cumsum. Arrays are treated as [outer, n, inner],
// n along the axis.
#include <algorithm>
#include <array>
#include <limits>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/complex.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/reduce.h"

namespace lockstep {
namespace {

constexpr int64_t kScanGrain = 16384;
constexpr int64_t kScanColumns = 128;  // per task

struct Lines {
  int64_t outer, n, inner;

  Lines(const Shape& shape, int64_t axis)
      : outer(extent(shape, 0, axis)),
        n(shape[static_cast<size_t>(axis)]),
        inner(extent(shape, axis + 1, static_cast<int64_t>(shape.size()))) {}
};

// Runs f(o, first, columns) over blocks of columns [first, first + columns) of every o, in parallel.
template <class F>
void for_columns(const Lines& l, Pool& pool, F&& f) {
  const int64_t blocks = (l.inner + kScanColumns - 1) / kScanColumns;
  const int64_t task = std::max<int64_t>(l.n * std::min(l.inner, kScanColumns), 1);
  pool.parallel_range(l.outer * blocks, std::max<int64_t>(kScanGrain / task, 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kScanColumns;
      f(i / blocks, first, std::min(kScanColumns, l.inner - first));
    }
  });
}

// ---- argmax, argmin

const Op& arg_row(bool greatest) { return greatest ? argmax_op : argmin_op; }

template <bool kGreatest>
std::vector<Type> arg_type(Types in, const Attrs& attrs) {
  const std::string_view op = arg_row(kGreatest).name;
  expect_operands(op, in, 1);
  const int64_t axis = attrs.integer("axis");
  expect_axis(op, axis, in[0].shape);
  const int64_t n = in[0].shape[static_cast<size_t>(axis)];
  if (n == 0)
    throw_error("{}: axis {} of {} is empty; it must have at least one element", op, axis, to_string(in[0].shape));
  if (n > std::numeric_limits<int32_t>::max())
    throw_error("{}: axis {} of {} is too long for i32 indices; split it", op, axis, to_string(in[0].shape));
  return {{DType::i32, without(in[0].shape, {axis})}};
}

Rule arg_rule(Types in, const Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  const std::string term = Factors().next(in[0].rank());
  std::string kept = term;
  kept.erase(axis, 1);
  return {{term}, {kept}, term.substr(axis, 1)};
}

template <bool kGreatest, class T>
bool beyond(T x, T best) {
  return kGreatest ? x > best : x < best;
}

// The index of the extreme of a contiguous line.
template <bool kGreatest, class Number, class T>
int32_t arg_line(const T* from, int64_t n) {
  constexpr int64_t kLanes = 16;
  if (n < 4 * kLanes) {
    auto best = static_cast<Number>(from[0]);
    int32_t where = 0;
    if (best != best) return 0;
    for (int64_t i = 1; i < n; ++i) {
      const auto x = static_cast<Number>(from[i]);
      if (x != x) return static_cast<int32_t>(i);
      if (!beyond<kGreatest>(x, best)) continue;
      best = x;
      where = static_cast<int32_t>(i);
    }
    return where;
  }
  // First the extreme, in lanes that become vector registers and keep any NaN; then its position.
  auto extreme = [](Number a, Number b) { return (beyond<kGreatest>(b, a) | (b != b)) ? b : a; };
  std::array<Number, kLanes> lanes;
  for (int64_t k = 0; k < kLanes; ++k) lanes[k] = static_cast<Number>(from[k]);
  int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = extreme(lanes[k], static_cast<Number>(from[i + k]));
  Number best = lanes[0];
  for (Number lane : lanes) best = extreme(best, lane);
  for (; i < n; ++i) best = extreme(best, static_cast<Number>(from[i]));
  for (i = 0; i + 1 < n; ++i) {
    const auto x = static_cast<Number>(from[i]);
    if (x == best || x != x) break;
  }
  return static_cast<int32_t>(i);
}

// The same for `columns` adjacent lines, with elements `stride` apart.
template <bool kGreatest, class Number, class T>
void arg_columns(const T* from, int64_t n, int64_t stride, int64_t columns, int32_t* where) {
  std::array<Number, kScanColumns> best;
  for (int64_t c = 0; c < columns; ++c) {
    best[static_cast<size_t>(c)] = static_cast<Number>(from[c]);
    where[c] = 0;
  }
  for (int64_t i = 1; i < n; ++i) {
    const T* row = from + i * stride;
    for (int64_t c = 0; c < columns; ++c) {
      const auto x = static_cast<Number>(row[c]);
      Number& so_far = best[static_cast<size_t>(c)];
      // The first NaN is kept.
      const bool replaces = beyond<kGreatest>(x, so_far) | ((x != x) & (so_far == so_far));
      so_far = replaces ? x : so_far;
      where[c] = replaces ? static_cast<int32_t>(i) : where[c];
    }
  }
}

template <bool kGreatest>
Kernel arg_cpu(const KernelSpec& spec) {
  return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
    using Number = std::conditional_t<is_half<T>, float, T>;
    return [lines = Lines(spec.in[0].shape, spec.attrs.integer("axis")), pool = &spec.pool](const void* const* in,
                                                                                            void* const* out) {
      for_columns(lines, *pool, [&](int64_t o, int64_t first, int64_t columns) {
        const T* from = static_cast<const T*>(in[0]) + o * lines.n * lines.inner + first;
        int32_t* to = static_cast<int32_t*>(out[0]) + o * lines.inner + first;
        if (lines.inner == 1)
          *to = arg_line<kGreatest, Number>(from, lines.n);
        else
          arg_columns<kGreatest, Number>(from, lines.n, lines.inner, columns, to);
      });
    };
  });
}

// ---- cumsum

std::vector<Type> cumsum_type(Types in, const Attrs& attrs) {
  expect_operands("cumsum", in, 1);
  expect_axis("cumsum", attrs.integer("axis"), in[0].shape);
  if (in[0].dtype == DType::boolean)
    throw_error("cumsum: {} has no arithmetic; cast it to i32 first", to_string(in[0]));
  return {in[0]};
}

Rule cumsum_rule(Types in, const Attrs& attrs) {
  Rule rule = pointwise_rule(in, attrs);
  rule.unsharded = rule.in[0].substr(static_cast<size_t>(attrs.integer("axis")), 1);
  return rule;
}

Grads cumsum_vjp(const Vjp& v) { return {cumsum(v.ct(), v.attrs.integer("axis"), !v.attrs.get<bool>("reverse"))}; }

Value cumsum_fold(const Fold& f) {
  return f.type.shape[static_cast<size_t>(f.attrs.integer("axis"))] <= 1 ? f.in[0] : Value();
}

// Floats are summed in double; integers wrap.
template <class T, bool = std::is_integral_v<T>>
struct Summed {
  using type = double;
};
template <class T>
struct Summed<T, true> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using SumOf = typename Summed<T>::type;

bool in_place(Types, Types, const Attrs&, size_t, size_t) { return true; }

Kernel cumsum_cpu(const KernelSpec& spec) {
  return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, bool>) {
      LOCKSTEP_CHECK(false, "cumsum of bool");
      return {};
    } else {
      return [lines = Lines(spec.in[0].shape, spec.attrs.integer("axis")), backwards = spec.attrs.get<bool>("reverse"),
              pool = &spec.pool](const void* const* in, void* const* out) {
        for_columns(lines, *pool, [&](int64_t o, int64_t first, int64_t columns) {
          using Sum = SumOf<T>;
          std::array<Sum, kScanColumns> sums{};
          const int64_t base = o * lines.n * lines.inner + first;
          for (int64_t i = 0; i < lines.n; ++i) {
            const int64_t at = base + (backwards ? lines.n - 1 - i : i) * lines.inner;
            const T* from = static_cast<const T*>(in[0]) + at;
            T* to = static_cast<T*>(out[0]) + at;
            for (int64_t c = 0; c < columns; ++c) {
              Sum& sum = sums[static_cast<size_t>(c)];
              if constexpr (is_half<T>) {
                sum += static_cast<float>(from[c]);
                to[c] = T(static_cast<float>(sum));
              } else {
                sum = static_cast<Sum>(sum + static_cast<Sum>(from[c]));
                to[c] = static_cast<T>(sum);
              }
            }
          }
        });
      };
    }
  });
}

template <bool kGreatest>
constexpr Op make_arg_row(std::string_view name) {
  return {.name = name,
          .rule = arg_rule,
          .type = arg_type<kGreatest>,
          .dim_attrs = {{"axis", DimAttr::dims}},
          .cpu = arg_cpu<kGreatest>,
          .cuda = LOCKSTEP_CUDA(arg_cuda<kGreatest>),
          .cuda_task = LOCKSTEP_CUDA(kGreatest ? &argmax_task : &argmin_task)};
}

}  // namespace

constinit const Op argmax_op = make_arg_row<true>("argmax");
constinit const Op argmin_op = make_arg_row<false>("argmin");
constinit const Op cumsum_op = {.name = "cumsum",
                                .linear = Linear::one,
                                .rule = cumsum_rule,
                                .type = cumsum_type,
                                .vjp = cumsum_vjp,
                                .dim_attrs = {{"axis", DimAttr::dims}},
                                .fold = cumsum_fold,
                                .alias = in_place,
                                .cpu = cumsum_cpu,
                                .cuda = LOCKSTEP_CUDA(cumsum_cuda)};

Value argmax(Value x, int64_t axis) { return emit(argmax_op, {x}, {{"axis", axis}}); }
Value argmin(Value x, int64_t axis) { return emit(argmin_op, {x}, {{"axis", axis}}); }
Value cumsum(Value x, int64_t axis, bool reverse) {
  if (is_complex(x.dtype())) return by_parts(x, [&](Value part) { return cumsum(part, axis, reverse); });
  return emit(cumsum_op, {x}, {{"axis", axis}, {"reverse", reverse}});
}

}  // namespace lockstep
