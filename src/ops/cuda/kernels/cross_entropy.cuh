// The softmax cross-entropy of rows of logits, and its gradient. A row is read in vectors of 16 bytes, once by each of
// loss() and gradient(), and computed by a warp or a thread block. loss_and_gradient() keeps it in shared memory in
// between. The order of the sums depends only on the shape.
#pragma once
#include "elements.cuh"

namespace lockstep {

// C describes the rows (cross_entropy_cuda.cc): T is a logit in memory, Label a label, R the type of the loss. There
// are kRows rows of kClasses logits, which an Index counts. Thread blocks have kThreads threads, kWidth of them for each
// row: 32 or all. kAligned: the arrays are aligned to 16 bytes. kApproximate: exp within 2^-20 of its value instead of 2
// ulp. kHeld: loss_and_gradient() has a row of logits in shared memory; then thread blocks compute a row, and rows are
// aligned to 16 bytes.
template <class C>
struct CrossEntropy {
  using T = typename C::T;
  using R = typename C::R;
  using Label = typename C::Label;
  using Index = typename C::Index;
  static constexpr uint32_t kWidth = C::kWidth, kSide = 16 / sizeof(T);
  static constexpr Index kClasses = C::kClasses;
  static constexpr uint32_t kTogether = 4;  // vectors that a thread has in flight
  static constexpr bool kSmooth = C::kSmoothing != 0;
  static constexpr R kNone = -R(math::kInf);
  static constexpr float kLog2E = 1.44269504089f;

  static uint64_t own_row() { return (uint64_t(blockIdx.x) * C::kThreads + threadIdx.x) / kWidth; }
  static bool is_class(int64_t label) { return label >= 0 && label < int64_t(kClasses); }

  static R exp(R x) {
    if constexpr (C::kApproximate)
      return approx_exp2(x * kLog2E);
    else
      return math::exp(x);
  }

  template <int kCount>
  static Side<T, kCount> read(const T* from) {
    Side<T, kCount> x;
    if constexpr (C::kAligned) return *reinterpret_cast<const Side<T, kCount>*>(from);
#pragma unroll
    for (int q = 0; q < kCount; ++q) x.v[q] = from[q];
    return x;
  }
  template <int kCount>
  static void write(T* to, const Side<T, kCount>& x) {
    if constexpr (C::kAligned) {
      *reinterpret_cast<Side<T, kCount>*>(to) = x;
      return;
    }
#pragma unroll
    for (int q = 0; q < kCount; ++q) to[q] = x.v[q];
  }

  // Calls f(i, x) for the logits x of this thread from class i on: vectors, and single ones before and after them.
  template <class F>
  static void for_logits(const T* logits, uint64_t row, const F& f) {
    const T* const from = logits + row * kClasses;
    const uint32_t lane = threadIdx.x % kWidth;
    const uint32_t past = kClasses % kSide == 0 ? 0 : uint32_t(row * kClasses % kSide);
    Index head = past == 0 ? 0 : kSide - past;
    head = head < kClasses ? head : kClasses;
    const Index vectors = (kClasses - head) / kSide, tail = head + vectors * kSide;
    if (lane < head) f(Index(lane), read<1>(from + lane));
    for (Index first = lane; first < vectors; first += kTogether * kWidth) {
      Side<T, kSide> x[kTogether];
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u)
        if (first + u * kWidth < vectors) x[u] = read<kSide>(from + head + (first + u * kWidth) * kSide);
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u)
        if (first + u * kWidth < vectors) f(head + (first + u * kWidth) * kSide, x[u]);
    }
    if (lane < kClasses - tail) f(tail + lane, read<1>(from + tail + lane));
  }

  // Combines a value of all threads of a row.
  template <class X, class F>
  static X combined(X x, const F& f) {
    for (int d = 16; d > 0; d /= 2) x = f(x, X(__shfl_xor_sync(0xffffffffu, x, d)));
    if constexpr (kWidth > 32) {
      __shared__ X parts[kWidth / 32];
      __syncthreads();  // an earlier call may still read them
      if (threadIdx.x % 32u == 0) parts[threadIdx.x / 32u] = x;
      __syncthreads();
      x = parts[0];
      for (uint32_t w = 1; w < kWidth / 32; ++w) x = f(x, parts[w]);
    }
    return x;
  }

  struct Sums {
    R max = kNone;
    R exp_sum = 0;   // of exp(logit - max)
    double all = 0;  // of the logits, if they are needed

    template <int kCount>
    void add(const Side<T, kCount>& logits) {
      R x[kCount];
      R most = max;
#pragma unroll
      for (int q = 0; q < kCount; ++q) {
        x[q] = load(logits.v[q]);
        most = x[q] > most ? x[q] : most;
      }
      if (most > max) {
        exp_sum *= exp(max - most);
        max = most;
      }
      const R shift = max == kNone ? R(0) : max;
#pragma unroll
      for (int q = 0; q < kCount; ++q) {
        exp_sum += exp(x[q] - shift);
        if constexpr (kSmooth) all += double(x[q]);
      }
    }
  };

  // The loss of a row and the logarithm of the sum of exp(logit), in all of its threads. `own` is the logit of the label.
  struct Loss {
    R loss, lse;
  };
  static Loss loss_of(const Sums& s, bool is_known, R own) {
    const R max = combined(s.max, [](R a, R b) { return a > b ? a : b; });
    const auto sum = [](auto a, auto b) { return a + b; };
    const R total = math::log(combined(s.max == max ? s.exp_sum : s.exp_sum * exp(s.max - max), sum));
    double all = 0;
    if constexpr (kSmooth) all = combined(s.all, sum);
    own -= max;
    R result = R(math::kNan);
    if (is_known) {
      result = total - own;
      if constexpr (kSmooth)
        result = total - R(C::kSmoothing) * R(all / double(kClasses) - double(max)) - R(1 - C::kSmoothing) * own;
    }
    return {result, max + total};
  }

  // Of the logits x, the first of which is that of class `first`.
  struct Gradient {
    R scale, shift;  // the cotangent of the loss; lse
    int64_t label;
    bool zero;

    Gradient(R dloss, R lse, int64_t own) : scale(dloss), shift(lse), label(own), zero(dloss == 0 || !is_class(own)) {}

    template <int kCount>
    Side<T, kCount> of(Index first, const Side<T, kCount>& x) const {
      constexpr R kEven = R(C::kSmoothing / double(kClasses)), kOwn = R(1 - C::kSmoothing);
      R y[kCount] = {};
      if (!zero) {
#pragma unroll
        for (int q = 0; q < kCount; ++q) y[q] = exp(load(x.v[q]) - shift) - kEven;
        const Index own = Index(label) - first;
        if (own < Index(kCount)) {
#pragma unroll
          for (int q = 0; q < kCount; ++q)
            if (own == Index(q)) y[q] -= kOwn;
        }
#pragma unroll
        for (int q = 0; q < kCount; ++q) y[q] *= scale;
      }
      Side<T, kCount> out;
      store_side(out, y);
      return out;
    }
  };

  static void loss(const T* logits, const Label* labels, R* loss, R* lse) {
    const uint64_t row = own_row();
    if (row >= C::kRows) return;  // complete warps
    Sums s;
    for_logits(logits, row, [&](Index, const auto& x) { s.add(x); });
    const int64_t label = int64_t(labels[row]);
    const bool known = is_class(label);
    const Loss result = loss_of(s, known, known ? load(logits[row * kClasses + uint64_t(label)]) : R(0));
    if (threadIdx.x % kWidth != 0) return;
    loss[row] = result.loss;
    lse[row] = result.lse;
  }

  // `out` may be `logits`.
  static void gradient(const T* logits, const Label* labels, const R* lse, const R* dloss, T* out) {
    const uint64_t row = own_row();
    if (row >= C::kRows) return;
    const Gradient gradient(dloss[row], lse[row], int64_t(labels[row]));
    T* const to = out + row * kClasses;
    for_logits(logits, row, [&](Index first, const auto& x) { write(to + first, gradient.of(first, x)); });
  }

  // Both. `out` may be `logits`; `loss` and `lse` may be null.
  static void loss_and_gradient(const T* logits, const Label* labels, const R* dloss, R* loss, R* lse, T* out,
                                char* shared) {
    const uint64_t row = own_row();
    if (row >= C::kRows) return;
    T* const held = reinterpret_cast<T*>(shared);
    const int64_t label = int64_t(labels[row]);
    const bool known = is_class(label);
    const R own = known ? load(logits[row * kClasses + uint64_t(label)]) : R(0), scale = dloss[row];
    Sums s;
    for_logits(logits, row, [&]<int kCount>(Index first, const Side<T, kCount>& x) {
      if constexpr (C::kHeld) *reinterpret_cast<Side<T, kCount>*>(held + first) = x;  // read by this thread only
      s.add(x);
    });
    const Loss result = loss_of(s, known, own);
    __syncwarp();  // `own` has been read
    if (threadIdx.x % kWidth == 0) {
      if (loss) loss[row] = result.loss;
      if (lse) lse[row] = result.lse;
    }
    const Gradient gradient(scale, result.lse, label);
    T* const to = out + row * kClasses;
    if constexpr (C::kHeld) {
      for (uint32_t first = threadIdx.x * kSide; first < kClasses; first += kWidth * kSide)
        write(to + first, gradient.of(first, *reinterpret_cast<const Side<T, int(kSide)>*>(held + first)));
    } else {
      for_logits(logits, row, [&](Index first, const auto& x) { write(to + first, gradient.of(first, x)); });
    }
  }
};

}  // namespace lockstep
