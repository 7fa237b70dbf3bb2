// Works in blocks that fit the L1 cache. The running result of a block is on the stack, so every input is read once,
// every output is written once, and an output may be the memory of an input.
#include "comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/dispatch.h"

#if defined(__clang__)
#define LOCKSTEP_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define LOCKSTEP_VECTORISE _Pragma("GCC ivdep")
#endif

namespace lockstep {

namespace {

// The type in memory, and the type of the arithmetic.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

template <Reduction kReduction, class T>
T combine(T a, T b) {
  if constexpr (kReduction == Reduction::sum) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  } else {
    bool first = kReduction == Reduction::max ? a > b : a < b;
    if constexpr (std::is_floating_point_v<T>) first |= a != a;  // a NaN in b is chosen because the comparison fails
    return first ? a : b;
  }
}

template <class T, Reduction kReduction>
void reduce_as(std::span<const void* const> in, int64_t in_begin, std::span<void* const> out, int64_t out_begin,
               int64_t count) {
  using W = Wide<T>;
  constexpr int64_t kBlock = 4096 / sizeof(W);
  alignas(64) W sum[kBlock];
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t n = std::min(kBlock, count - done);
    const auto piece = [&](size_t k) { return static_cast<const T*>(in[k]) + in_begin + done; };
    const T* a = piece(0);
    if (in.size() == 1) {
      LOCKSTEP_VECTORISE
      for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<W>(a[i]);
    } else {
      const T* b = piece(1);
      LOCKSTEP_VECTORISE
      for (int64_t i = 0; i < n; ++i) sum[i] = combine<kReduction, W>(static_cast<W>(a[i]), static_cast<W>(b[i]));
    }
    for (size_t k = 2; k < in.size(); ++k) {
      const T* c = piece(k);
      LOCKSTEP_VECTORISE
      for (int64_t i = 0; i < n; ++i) sum[i] = combine<kReduction, W>(sum[i], static_cast<W>(c[i]));
    }
    const void* result = sum;
    alignas(64) T rounded[std::is_same_v<T, W> ? 1 : kBlock];
    if constexpr (!std::is_same_v<T, W>) {
      LOCKSTEP_VECTORISE
      for (int64_t i = 0; i < n; ++i) rounded[i] = T(sum[i]);
      result = rounded;
    }
    for (void* to : out)
      std::memcpy(static_cast<T*>(to) + out_begin + done, result, static_cast<size_t>(n) * sizeof(T));
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, std::span<const void* const> in, int64_t in_begin,
            std::span<void* const> out, int64_t out_begin, int64_t count) {
  with_dtype(dtype, [&]<class T>() {
    switch (reduction) {
      case Reduction::sum:
        if constexpr (std::is_same_v<T, bool>)
          LOCKSTEP_CHECK(false, "a sum of booleans");
        else
          reduce_as<T, Reduction::sum>(in, in_begin, out, out_begin, count);
        return;
      case Reduction::max:
        return reduce_as<Stored<T>, Reduction::max>(in, in_begin, out, out_begin, count);
      case Reduction::min:
        return reduce_as<Stored<T>, Reduction::min>(in, in_begin, out, out_begin, count);
    }
  });
}

}  // namespace lockstep
