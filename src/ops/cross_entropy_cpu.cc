// Cross-entropy on the CPU. A task has some rows. A row is read once, block by block: a block is converted to f32 in
// cache, and if its largest logit is a new maximum, the sum of the blocks before it is scaled accordingly. The order of
// the sums depends only on the number of classes.
#include "ops/cross_entropy_cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/loops/cross_entropy_loops.h"
#include "ops/loops/loops.h"
#include "ops/math.h"

namespace lockstep {

namespace {

constexpr int64_t kLossGrain = 16384;  // logits per task
constexpr int64_t kLossBlock = 2048;   // logits that are converted and summed in cache

// The loops for f64.
struct WideLossLoops {
  static double max(const double* x, int64_t n) {
    double most = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
    return most;
  }
  static double sum_exp(const double* x, int64_t n, double shift) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += math::exp(x[i] - shift);
    return sum;
  }
  static double sum(const double* x, int64_t n, double shift) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] - shift;
    return sum;
  }
  static void gradient(double* out, const double* x, int64_t n, double lse, double less, double scale) {
    for (int64_t i = 0; i < n; ++i) out[i] = (math::exp(x[i] - lse) - less) * scale;
  }
};

// The loops of logits of type T, and blocks of them in the type in which they are computed.
template <class T>
struct LossOf {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Loops = std::conditional_t<std::is_same_v<T, double>, WideLossLoops, CrossEntropyLoops>;
  using Block = std::array<Wide, kLossBlock>;

  static const Loops& loops() {
    if constexpr (std::is_same_v<T, double>) {
      static constexpr WideLossLoops kWide;
      return kWide;
    } else {
      return cross_entropy_loops();
    }
  }
  static constexpr DType kDType = std::is_same_v<T, BFloat16> ? DType::bf16 : DType::f16;  // if is_half<T>
  // Converts n logits; `block` holds them if they must be converted.
  static const Wide* widened(const T* z, int64_t n, Block& block) {
    if constexpr (is_half<T>) {
      lockstep::loops().load[static_cast<int>(kDType)](block.data(), z, 1, n);
      return block.data();
    } else {
      return z;
    }
  }
};

// The label of each row, of any integer type.
using LabelAt = int64_t (*)(const void* labels, int64_t row);
LabelAt label_at(DType dtype) {
  return with_dtype(dtype, [&]<class I>() -> LabelAt {
    return [](const void* labels, int64_t row) { return static_cast<int64_t>(static_cast<const I*>(labels)[row]); };
  });
}

// Sums over the logits z of a row, each less the largest one.
struct RowSums {
  double max = -std::numeric_limits<double>::infinity();
  double exp = 0;  // of exp(z - max)
  double all = 0;  // of z - max, if wanted
};

template <class T>
RowSums row_sums(const T* z, int64_t classes, bool want_all) {
  using Of = LossOf<T>;
  const typename Of::Loops& f = Of::loops();
  typename Of::Block block;
  RowSums sums;
  double shift = 0;  // the largest logit, or 0 while there are only -inf
  for (int64_t i = 0; i < classes; i += kLossBlock) {
    const int64_t n = std::min(kLossBlock, classes - i);
    const typename Of::Wide* x = Of::widened(z + i, n, block);
    const double most = f.max(x, n);
    if (most > sums.max) {
      sums.exp *= std::exp(sums.max - most);
      sums.all += static_cast<double>(i) * (shift - most);
      sums.max = shift = most;
    }
    const auto narrow = static_cast<typename Of::Wide>(shift);
    sums.exp += f.sum_exp(x, n, narrow);
    if (want_all) sums.all += f.sum(x, n, narrow);
  }
  return sums;
}

template <class T>
Kernel loss_rows(const KernelSpec& spec) {
  using Wide = typename LossOf<T>::Wide;
  const int64_t classes = spec.in[0].shape.back(), rows = count(spec.in[1].shape);
  const double smoothing = spec.attrs.get<double>("smoothing");
  return [=, label_of = label_at(spec.in[1].dtype), pool = &spec.pool](const void* const* in, void* const* out) {
    const int64_t grain = std::max<int64_t>(kLossGrain / classes, 1);
    pool->parallel_range(rows, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const T* z = static_cast<const T*>(in[0]) + row * classes;
        const RowSums sums = row_sums(z, classes, smoothing != 0);
        const int64_t label = label_of(in[1], row);
        const double total = std::log(sums.exp);
        double loss = std::numeric_limits<double>::quiet_NaN();
        if (label >= 0 && label < classes) {
          const double own = static_cast<double>(static_cast<Wide>(z[label])) - sums.max;
          loss = smoothing == 0 ? total - own
                                : total - smoothing * (sums.all / static_cast<double>(classes)) - (1 - smoothing) * own;
        }
        static_cast<Wide*>(out[0])[row] = static_cast<Wide>(loss);
        static_cast<Wide*>(out[1])[row] = static_cast<Wide>(sums.max + total);
      }
    });
  };
}

// One row of the gradient. `out` may be `z`.
template <class T>
void gradient_row(const T* z, T* out, int64_t classes, int64_t label, double smoothing, typename LossOf<T>::Wide lse,
                  typename LossOf<T>::Wide dloss) {
  using Of = LossOf<T>;
  using Wide = typename Of::Wide;
  const auto less = static_cast<Wide>(smoothing / static_cast<double>(classes));
  const auto own = static_cast<Wide>(z[label]);
  typename Of::Block block;
  for (int64_t i = 0; i < classes; i += kLossBlock) {
    const int64_t n = std::min(kLossBlock, classes - i);
    const Wide* x = Of::widened(z + i, n, block);
    if constexpr (is_half<T>) {
      Of::loops().gradient(block.data(), x, n, lse, less, dloss);
      const void* from = block.data();
      lockstep::loops().narrow[narrow_index(Of::kDType)](out + i, &from, n);
    } else {
      Of::loops().gradient(out + i, x, n, lse, less, dloss);
    }
  }
  out[label] = static_cast<T>((math::exp(own - lse) - less - static_cast<Wide>(1 - smoothing)) * dloss);
}

template <class T>
Kernel gradient_rows(const KernelSpec& spec) {
  using Wide = typename LossOf<T>::Wide;
  const int64_t classes = spec.in[0].shape.back(), rows = count(spec.in[1].shape);
  const double smoothing = spec.attrs.get<double>("smoothing");
  return [=, label_of = label_at(spec.in[1].dtype), pool = &spec.pool](const void* const* in, void* const* out) {
    const int64_t grain = std::max<int64_t>(kLossGrain / classes, 1);
    pool->parallel_range(rows, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        T* to = static_cast<T*>(out[0]) + row * classes;
        const int64_t label = label_of(in[1], row);
        const Wide dloss = static_cast<const Wide*>(in[3])[row];
        if (dloss == 0 || label < 0 || label >= classes)
          std::fill(to, to + classes, T(Wide{0}));
        else
          gradient_row(static_cast<const T*>(in[0]) + row * classes, to, classes, label, smoothing,
                       static_cast<const Wide*>(in[2])[row], dloss);
      }
    });
  };
}

// prepare.template operator()<T>() for the type of the logits.
template <class F>
Kernel for_logits(DType dtype, F&& prepare) {
  return with_dtype(dtype, [&]<class T>() -> Kernel {
    if constexpr (is_half<T> || std::is_floating_point_v<T>) return prepare.template operator()<T>();
    LOCKSTEP_CHECK(false, "logits of {}", name(dtype));
    return {};
  });
}

}  // namespace

Kernel cross_entropy_cpu(const KernelSpec& spec) {
  return for_logits(spec.in[0].dtype, [&]<class T>() { return loss_rows<T>(spec); });
}

Kernel cross_entropy_grad_cpu(const KernelSpec& spec) {
  return for_logits(spec.in[0].dtype, [&]<class T>() { return gradient_rows<T>(spec); });
}

}  // namespace lockstep
