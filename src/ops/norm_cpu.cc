// Normalization on the CPU, row by row: a row stays in the first-level cache between its passes. Rows of 16-bit floats
// are widened to f32 in scratch memory.
//
// dscale and dbias are sums over rows. A task adds up a block of rows, whose size depends on the shape only; then the
// sums of the blocks are added up in order.
#include "ops/norm_cpu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/pool.h"
#include "ops/loops/loops.h"
#include "ops/norm.h"

namespace lockstep {
namespace {

constexpr int64_t kNormGrain = 16384;    // elements per task
constexpr int64_t kNormColumns = 256;    // of dscale and dbias per task
constexpr int64_t kLeastNormBlock = 16;  // rows per block
constexpr int64_t kMostNormBlock = 64;

const NormLoops<float>& norm_loops(float) { return loops().norm_f32; }
const NormLoops<double>& norm_loops(double) { return loops().norm_f64; }

// Rows of d elements in memory, read and written as elements of type T, which is the register type of `dtype`.
template <class T>
struct NormRows {
  DType dtype;
  int64_t d;

  bool direct() const { return register_type(dtype) == dtype; }
  int64_t offset(int64_t row) const { return row * d * size_of(dtype); }
  // The row itself, or a copy in `scratch`.
  const T* read(const void* base, int64_t row, T* scratch) const {
    const std::byte* at = static_cast<const std::byte*>(base) + offset(row);
    if (direct()) return reinterpret_cast<const T*>(at);
    loops().load[static_cast<int>(dtype)](scratch, at, 1, d);
    return scratch;
  }
  // Where to compute a row that write() then stores.
  T* target(void* base, int64_t row, T* scratch) const {
    return direct() ? reinterpret_cast<T*>(static_cast<std::byte*>(base) + offset(row)) : scratch;
  }
  void write(void* base, int64_t row, const T* from) const {
    if (direct()) return;
    const void* in[] = {from};
    loops().narrow[narrow_index(dtype)](static_cast<std::byte*>(base) + offset(row), in, d);
  }
};

// Scales or biases of any floating type as elements of type T.
template <class T>
class NormParameters {
 public:
  explicit NormParameters(const Type& type) : dtype_(type.dtype), n_(count(type.shape)) {
    if (!direct()) converted_ = allocate(n_ * static_cast<int64_t>(sizeof(T)));
  }
  const T* read(const void* from, Pool& pool) const {
    if (direct()) return static_cast<const T*>(from);
    T* to = converted_->as<T>();
    with_dtype(dtype_, [&]<class P>() {
      if constexpr (is_half<P> || std::is_floating_point_v<P>)
        pool.parallel_range(n_, kNormGrain, [&](int64_t begin, int64_t end, int) {
          const auto* x = static_cast<const P*>(from);
          for (int64_t i = begin; i < end; ++i) {
            if constexpr (is_half<P>)
              to[i] = static_cast<float>(x[i]);
            else
              to[i] = static_cast<T>(x[i]);
          }
        });
    });
    return to;
  }

 private:
  bool direct() const { return dtype_ == (sizeof(T) == 4 ? DType::f32 : DType::f64); }

  DType dtype_;
  int64_t n_;
  BufferPtr converted_;
};

// Adds up the blocks' sums [groups, blocks, d] in order, and stores them as elements of type P in out [groups, d].
template <class T, class P>
void add_norm_blocks(const T* sums, int64_t blocks, const NormSizes& s, void* out, Pool& pool) {
  const int64_t tasks = (s.d + kNormColumns - 1) / kNormColumns;
  pool.parallel_for(s.groups * tasks, [&](int64_t task, int) {
    const int64_t group = task / tasks, first = task % tasks * kNormColumns, n = std::min(kNormColumns, s.d - first);
    std::array<double, kNormColumns> totals{};
    for (int64_t b = 0; b < blocks; ++b) {
      const T* from = sums + (group * blocks + b) * s.d + first;
      for (int64_t k = 0; k < n; ++k) totals[static_cast<size_t>(k)] += static_cast<double>(from[k]);
    }
    P* to = static_cast<P*>(out) + group * s.d + first;
    for (int64_t k = 0; k < n; ++k) {
      if constexpr (is_half<P>)
        to[k] = P(static_cast<float>(totals[static_cast<size_t>(k)]));
      else
        to[k] = static_cast<P>(totals[static_cast<size_t>(k)]);
    }
  });
}

template <class T>
using NormAdder = void (*)(const T* sums, int64_t blocks, const NormSizes& s, void* out, Pool& pool);
template <class T>
NormAdder<T> norm_adder_for(DType parameter) {
  return with_dtype(parameter, []<class P>() -> NormAdder<T> {
    if constexpr (is_half<P> || std::is_floating_point_v<P>) return add_norm_blocks<T, P>;
    return nullptr;
  });
}

// Operands x, scale and, if `centered`, bias; results y, mean if `centered`, rstd.
template <class T>
Kernel norm_forward(const KernelSpec& spec, bool centered) {
  const NormSizes s(spec.in[0].shape, spec.attrs.integer("batch_dims"));
  return [=, rows = NormRows<T>{spec.in[0].dtype, s.d}, scales = NormParameters<T>(spec.in[1]),
          biases = NormParameters<T>(spec.in.back()), epsilon = spec.attrs.get<double>("epsilon"), pool = &spec.pool,
          &loop = norm_loops(T())](const void* const* in, void* const* out) {
    const T* scale = scales.read(in[1], *pool);
    const T* bias = centered ? biases.read(in[2], *pool) : nullptr;
    T* means = centered ? static_cast<T*>(out[1]) : nullptr;
    T* rstds = static_cast<T*>(out[centered ? 2 : 1]);
    const int64_t grain = std::max<int64_t>(kNormGrain / std::max<int64_t>(s.d, 1), 1);
    pool->parallel_range(s.groups * s.rows, grain, [&](int64_t begin, int64_t end, int thread) {
      auto* scratch = static_cast<T*>(pool->scratch(thread, s.d * static_cast<int64_t>(sizeof(T))));
      const auto d = static_cast<double>(s.d);
      for (int64_t r = begin; r < end; ++r) {
        const T* x = rows.read(in[0], r, scratch);
        const T mean = centered ? static_cast<T>(loop.sum(x, s.d) / d) : T(0);
        const T rstd = static_cast<T>(1 / std::sqrt(loop.square_sum(x, mean, s.d) / d + epsilon));
        if (centered) means[r] = mean;
        rstds[r] = rstd;
        const int64_t parameter = r / s.rows * s.d;
        T* y = rows.target(out[0], r, scratch);
        loop.normalize({x, scale + parameter, mean, rstd, s.d}, bias ? bias + parameter : nullptr, y);
        rows.write(out[0], r, y);
      }
    });
  };
}

// The operands of a row of the gradient: x, scale, mean if it is centered, rstd, dy.
template <class T>
struct NormGradient {
  NormSizes s;
  bool centered;
  int64_t own, blocks;  // rows of a block, blocks of a batch element
  NormRows<T> rows;

  NormGradient(const KernelSpec& spec, bool is_centered)
      : s(spec.in[0].shape, spec.attrs.integer("batch_dims")),
        centered(is_centered),
        own(std::clamp(2 * kNormGrain / std::max<int64_t>(s.d, 1), kLeastNormBlock, kMostNormBlock)),
        blocks((s.rows + own - 1) / own),
        rows{spec.in[0].dtype, s.d} {}

  // Computes dx of the rows of one block, and the block's sums for dscale and dbias. `scratch` has space for 2 rows.
  void block(int64_t number, const T* scale, const void* const* in, void* dx, T* dscale, T* dbias, T* scratch) const {
    const NormLoops<T>& loop = norm_loops(T());
    const int64_t group = number / blocks, first = number % blocks * own;
    const auto d = static_cast<double>(s.d);
    std::fill(dscale, dscale + s.d, T(0));
    if (dbias) std::fill(dbias, dbias + s.d, T(0));
    for (int64_t i = first; i < std::min(first + own, s.rows); ++i) {
      const int64_t r = group * s.rows + i;
      const T* x = rows.read(in[0], r, scratch);
      const T* dy = rows.read(in[centered ? 4 : 3], r, scratch + s.d);
      const T mean = centered ? static_cast<const T*>(in[2])[r] : T(0);
      const NormRow<T> row{x, scale + group * s.d, mean, static_cast<const T*>(in[centered ? 3 : 2])[r], s.d};
      const NormSums sums = loop.gradient_sums(row, dy, dscale, dbias);
      T* to = rows.target(dx, r, scratch);
      loop.gradient(row, dy, static_cast<T>(sums.g / d), static_cast<T>(sums.g_normal / d), to);
      rows.write(dx, r, to);
    }
  }
};

template <class T>
Kernel norm_backward(const KernelSpec& spec, bool centered) {
  const NormGradient<T> g(spec, centered);
  const int64_t sums = g.s.groups * g.blocks * g.s.d;  // of dscale; those of dbias follow
  return [=, scales = NormParameters<T>(spec.in[1]), pool = &spec.pool,
          buffer = allocate(sums * (centered ? 2 : 1) * static_cast<int64_t>(sizeof(T))),
          add = norm_adder_for<T>(spec.in[1].dtype)](const void* const* in, void* const* out) {
    const NormSizes& s = g.s;
    const T* scale = scales.read(in[1], *pool);
    T *dscale = buffer->template as<T>(), *dbias = centered ? dscale + sums : nullptr;
    const int64_t grain = std::max<int64_t>(kNormGrain / std::max<int64_t>(g.own * s.d, 1), 1);
    pool->parallel_range(s.groups * g.blocks, grain, [&](int64_t begin, int64_t end, int thread) {
      auto* scratch = static_cast<T*>(pool->scratch(thread, 2 * s.d * static_cast<int64_t>(sizeof(T))));
      for (int64_t b = begin; b < end; ++b)
        g.block(b, scale, in, out[0], dscale + b * s.d, dbias ? dbias + b * s.d : nullptr, scratch);
    });
    add(dscale, g.blocks, s, out[1], *pool);
    if (centered) add(dbias, g.blocks, s, out[2], *pool);
  };
}

}  // namespace

Kernel layer_norm_cpu(const KernelSpec& spec) {
  return spec.in[0].dtype == DType::f64 ? norm_forward<double>(spec, true) : norm_forward<float>(spec, true);
}
Kernel rms_norm_cpu(const KernelSpec& spec) {
  return spec.in[0].dtype == DType::f64 ? norm_forward<double>(spec, false) : norm_forward<float>(spec, false);
}
Kernel layer_norm_grad_cpu(const KernelSpec& spec) {
  return spec.in[0].dtype == DType::f64 ? norm_backward<double>(spec, true) : norm_backward<float>(spec, true);
}
Kernel rms_norm_grad_cpu(const KernelSpec& spec) {
  return spec.in[0].dtype == DType::f64 ? norm_backward<double>(spec, false) : norm_backward<float>(spec, false);
}

}  // namespace lockstep
