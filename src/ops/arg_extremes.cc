// argmax and argmin: rows that process one axis in order.
#include <algorithm>
#include <array>
#include <limits>

#include "base/dispatch.h"
#include "ops/cuda/kernels.h"
#include "ops/lines.h"
#include "ops/ops.h"
#include "ops/reduce.h"

namespace lockstep {
namespace {

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

Value argmax(Value x, int64_t axis) { return emit(argmax_op, {x}, {{"axis", axis}}); }
Value argmin(Value x, int64_t axis) { return emit(argmin_op, {x}, {{"axis", axis}}); }

}  // namespace lockstep
