// A reduction is a list of steps, each over one group of adjacent dimensions:
//   [outer, n, inner] -> [outer, chunks, inner]
// Most reductions have one step. Several groups take one step each, innermost first. If a group is long while outer and
// inner are short, it is divided into chunks that a second step combines, so that all threads have work.
//
// Elements are combined block by block in lanes (f32 for 16 and 32 bits), and blocks in a total (double for sums and
// products of floats). There are many independent lanes, so that they become vector registers.
#include "ops/reduce_cpu.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/pool.h"
#include "ops/dims.h"
#include "ops/view_copy.h"
#include "ops/wrapped.h"

namespace lockstep {
namespace {

constexpr int64_t kReduceGrain = 16384;   // elements per task
constexpr int64_t kReduceColumns = 1024;  // columns per task
constexpr int64_t kLineBlock = 2048;      // elements of a line combined in lanes
constexpr int64_t kRowBlock = 64;         // rows of columns combined in lanes
constexpr int64_t kFewTasks = 16;         // with fewer tasks, work is divided further
constexpr int64_t kChunkRows = 128;       // minimum, so that a second step reads little

template <class T>
inline constexpr bool kFloating = is_half<T> || std::is_floating_point_v<T>;

// The type in which elements of type T are combined.
template <ReduceKind kR, class T>
auto lane_of() {
  if constexpr (kR == ReduceKind::all || kR == ReduceKind::any)
    return uint8_t{};
  else if constexpr (kR == ReduceKind::max || kR == ReduceKind::min)
    return std::conditional_t<is_half<T>, float, T>{};
  else if constexpr (!kFloating<T>)
    return std::make_unsigned_t<T>{};
  else if constexpr (sizeof(T) == 8 || kR == ReduceKind::prod)
    return double{};
  else
    return float{};
}
template <ReduceKind kR, class T>
using LaneOf = decltype(lane_of<kR, T>());
template <ReduceKind kR, class Lane>
using TotalOf = std::conditional_t<std::is_same_v<Lane, float> && kR == ReduceKind::sum, double, Lane>;

template <ReduceKind kR, class A>
A identity() {
  if constexpr (kR == ReduceKind::sum || kR == ReduceKind::any)
    return A{0};
  else if constexpr (kR == ReduceKind::prod || kR == ReduceKind::all)
    return A{1};
  else {
    using Limits = std::numeric_limits<A>;
    if constexpr (std::is_floating_point_v<A>)
      return kR == ReduceKind::max ? -Limits::infinity() : Limits::infinity();
    else
      return kR == ReduceKind::max ? Limits::lowest() : Limits::max();
  }
}

// For max and min: a NaN b replaces a, and nothing replaces a NaN.
template <ReduceKind kR, class A>
A combine(A a, A b) {
  if constexpr (kR == ReduceKind::sum)
    return wrapped_sum(a, b);
  else if constexpr (kR == ReduceKind::prod)
    return wrapped_product(a, b);
  else if constexpr (kR == ReduceKind::all)
    return static_cast<A>(a & b);
  else if constexpr (kR == ReduceKind::any)
    return static_cast<A>(a | b);
  else if constexpr (kR == ReduceKind::max)
    return ((b > a) | (b != b)) ? b : a;
  else
    return ((b < a) | (b != b)) ? b : a;
}

template <class A, class T>
A load(T x) {
  if constexpr (is_half<T>)
    return static_cast<A>(static_cast<float>(x));
  else
    return static_cast<A>(x);
}

template <class T, class A>
T store(A x) {
  if constexpr (is_half<T>)
    return T(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

// A contiguous line of at most kLineBlock elements.
template <ReduceKind kR, class Lane, class In>
Lane reduce_block(const In* in, int64_t n) {
  constexpr int64_t kLanes = 128 / sizeof(Lane);
  Lane result = identity<kR, Lane>();
  int64_t i = 0;
  if (n >= kLanes) {
    std::array<Lane, kLanes> lanes;
    lanes.fill(result);
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) lanes[k] = combine<kR>(lanes[k], load<Lane>(in[i + k]));
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t k = 0; k < half; ++k) lanes[k] = combine<kR>(lanes[k], lanes[k + half]);
    result = lanes[0];
  }
  for (; i < n; ++i) result = combine<kR>(result, load<Lane>(in[i]));
  return result;
}

template <ReduceKind kR, class Lane, class Total, class In>
Total reduce_line(const In* in, int64_t n) {
  Total total = identity<kR, Total>();
  for (int64_t i = 0; i < n; i += kLineBlock)
    total = combine<kR>(total, static_cast<Total>(reduce_block<kR, Lane>(in + i, std::min(kLineBlock, n - i))));
  return total;
}

// `n` rows of `columns` elements, `stride` apart, combined into one row of totals.
template <ReduceKind kR, class Lane, class Total, class In>
void reduce_columns(const In* in, int64_t n, int64_t stride, int64_t columns, Total* total) {
  std::array<Lane, kReduceColumns> lanes;
  std::fill(total, total + columns, identity<kR, Total>());
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    const int64_t end = std::min(n, begin + kRowBlock);
    std::fill(lanes.begin(), lanes.begin() + columns, identity<kR, Lane>());
    int64_t r = begin;
    for (; r + 4 <= end; r += 4) {
      const In *a = in + r * stride, *b = a + stride, *c = b + stride, *d = c + stride;
      for (int64_t k = 0; k < columns; ++k) {
        const Lane ab = combine<kR>(load<Lane>(a[k]), load<Lane>(b[k])),
                   cd = combine<kR>(load<Lane>(c[k]), load<Lane>(d[k]));
        lanes[k] = combine<kR>(lanes[k], combine<kR>(ab, cd));
      }
    }
    for (; r < end; ++r)
      for (int64_t k = 0; k < columns; ++k) lanes[k] = combine<kR>(lanes[k], load<Lane>(in[r * stride + k]));
    for (int64_t k = 0; k < columns; ++k) total[k] = combine<kR>(total[k], static_cast<Total>(lanes[k]));
  }
}

struct Step {
  int64_t outer, n, inner;
  int64_t chunk;  // elements of n combined into one
  int64_t width;  // columns per task

  int64_t chunks() const { return n <= chunk ? 1 : (n + chunk - 1) / chunk; }
  int64_t results() const { return outer * chunks() * inner; }
};

template <ReduceKind kR, class Lane, class Total, class In, class Out>
void run_step(const Step& s, const In* in, Out* out, Pool& pool) {
  const int64_t chunks = s.chunks();
  auto rows = [&](int64_t item) { return std::min(s.chunk, s.n - item % chunks * s.chunk); };
  auto source = [&](int64_t item) { return in + (item / chunks * s.n + item % chunks * s.chunk) * s.inner; };
  const int64_t items = s.outer * chunks;
  if (s.inner == 1) {
    pool.parallel_range(items, std::max<int64_t>(kReduceGrain / std::max<int64_t>(std::min(s.n, s.chunk), 1), 1),
                        [&](int64_t begin, int64_t end, int) {
                          for (int64_t i = begin; i < end; ++i)
                            out[i] = store<Out>(reduce_line<kR, Lane, Total>(source(i), rows(i)));
                        });
    return;
  }
  const int64_t width = s.width;
  const int64_t blocks = (s.inner + width - 1) / width;
  const int64_t task = std::max<int64_t>(std::min(s.n, s.chunk), 1) * std::min(width, s.inner);
  pool.parallel_range(
      items * blocks, std::max<int64_t>(kReduceGrain / 2 / task, 1), [&](int64_t begin, int64_t end, int) {
        std::array<Total, kReduceColumns> totals;
        for (int64_t i = begin; i < end; ++i) {
          const int64_t item = i / blocks, first = i % blocks * width, columns = std::min(width, s.inner - first);
          reduce_columns<kR, Lane>(source(item) + first, rows(item), s.inner, columns, totals.data());
          for (int64_t k = 0; k < columns; ++k)
            out[item * s.inner + first + k] = store<Out>(totals[static_cast<size_t>(k)]);
        }
      });
}

void add_steps(std::vector<Step>& steps, int64_t outer, int64_t n, int64_t inner) {
  // Few columns: treats several adjacent rows as one longer row.
  if (inner > 1 && inner < 32 && n >= 8) {
    int64_t side = 256 / inner;
    while (n % side != 0) --side;
    if (side * inner >= 32 && side < n) {
      add_steps(steps, outer, n / side, side * inner);
      add_steps(steps, outer, side, inner);
      return;
    }
  }
  const Step whole{outer, n, inner, std::max<int64_t>(n, 1), kReduceColumns};
  const int64_t blocks = (inner + kReduceColumns - 1) / kReduceColumns,
                chunk = std::max(2 * kReduceGrain / inner, kChunkRows);
  if (outer * blocks >= kFewTasks || n * inner <= kReduceGrain) {
    steps.push_back(whole);
  } else if (n >= 2 * chunk) {
    Step cut = whole;
    cut.chunk = chunk;
    steps.push_back(cut);
    add_steps(steps, outer, cut.chunks(), inner);
  } else {
    Step narrow = whole;
    narrow.width = std::clamp<int64_t>((inner / kFewTasks + 63) / 64 * 64, 64, kReduceColumns);
    steps.push_back(narrow);
  }
}

std::vector<Step> plan_steps(const Shape& shape, const Dims& axes) {
  struct Group {
    int64_t size;
    bool reduced;
  };
  std::vector<Group> groups;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = contains(axes, static_cast<int64_t>(d));
    if (shape[d] == 1) continue;
    if (!groups.empty() && groups.back().reduced == reduced)
      groups.back().size *= shape[d];
    else
      groups.push_back({shape[d], reduced});
  }
  std::vector<Step> steps;
  int64_t inner = 1;
  for (size_t g = groups.size(); g-- > 0;) {
    if (!groups[g].reduced) {
      inner *= groups[g].size;
      continue;
    }
    int64_t outer = 1;
    for (size_t before = 0; before < g; ++before) outer *= groups[before].size;
    add_steps(steps, outer, groups[g].size, inner);
  }
  return steps;
}

template <ReduceKind kR, class T>
Kernel prepare(const KernelSpec& spec) {
  using Lane = LaneOf<kR, T>;
  using Total = TotalOf<kR, Lane>;
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  std::vector<Step> steps = plan_steps(spec.in[0].shape, spec.attrs.ints("axes"));
  Pool* pool = &spec.pool;
  if (steps.empty())
    return [pool, bytes = spec.out[0].bytes()](const void* const* in, void* const* out) {
      copy_bytes(in[0], out[0], bytes, *pool);
    };
  if (steps.size() == 1)
    return [pool, step = steps[0]](const void* const* in, void* const* out) {
      run_step<kR, Lane, Total>(step, static_cast<const T*>(in[0]), static_cast<T*>(out[0]), *pool);
    };
  // The intermediate results of all steps share one buffer.
  int64_t between = 0;
  for (size_t i = 0; i + 1 < steps.size(); ++i) between += steps[i].results();
  return [pool, steps, buffer = allocate(between * static_cast<int64_t>(sizeof(Total)))](const void* const* in,
                                                                                         void* const* out) {
    Total* to = buffer->as<Total>();
    run_step<kR, Lane, Total>(steps[0], static_cast<const T*>(in[0]), to, *pool);
    for (size_t i = 1; i < steps.size(); ++i) {
      const Total* from = to;
      to += steps[i - 1].results();
      if (i + 1 == steps.size())
        run_step<kR, Total, Total>(steps[i], from, static_cast<T*>(out[0]), *pool);
      else
        run_step<kR, Total, Total>(steps[i], from, to, *pool);
    }
  };
}

template <ReduceKind kR>
Kernel prepare_numbers(const KernelSpec& spec) {
  return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, bool>) {
      LOCKSTEP_CHECK(false, "a reduction of bool other than and, or");
      return {};
    } else {
      return prepare<kR, T>(spec);
    }
  });
}

}  // namespace

Kernel reduce_kernel(ReduceKind reduction, const KernelSpec& spec) {
  const bool boolean_operand = spec.in[0].dtype == DType::boolean;
  switch (reduction) {
    case ReduceKind::sum:
      return prepare_numbers<ReduceKind::sum>(spec);
    case ReduceKind::prod:
      return prepare_numbers<ReduceKind::prod>(spec);
    case ReduceKind::max:
      return boolean_operand ? prepare<ReduceKind::any, uint8_t>(spec) : prepare_numbers<ReduceKind::max>(spec);
    case ReduceKind::min:
      return boolean_operand ? prepare<ReduceKind::all, uint8_t>(spec) : prepare_numbers<ReduceKind::min>(spec);
    case ReduceKind::all:
      return prepare<ReduceKind::all, uint8_t>(spec);
    case ReduceKind::any:
      break;
  }
  return prepare<ReduceKind::any, uint8_t>(spec);
}

}  // namespace lockstep
