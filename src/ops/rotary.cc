// The row of rotary positions: it rotates pairs of features. Its gradient is the same row with the opposite angle.
#include "ops/rotary.h"

#include <cmath>

#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kRotaryGrain = 16384;  // elements per task

std::vector<Type> rotary_type(Types in, const Attrs& attrs) {
  expect_operands("rotary", in, 2);
  if (!is_floating(in[0].dtype) || in[0].rank() != 4 || in[0].shape[3] % 2 != 0)
    throw_error(
        "rotary: x is {}; it must be floating, [batch, tokens, heads, features] with an even number of features",
        to_string(in[0]));
  if (in[1] != Type{DType::i32, {in[0].shape[1]}})
    throw_error("rotary: the positions are {}; they must be i32[{}], one for each token of x", to_string(in[1]),
                in[0].shape[1]);
  const double base = attrs.get<double>("base");
  if (!(base > 0) || std::isinf(base)) throw_error("rotary: the base is {}; it must be a positive number", base);
  return {in[0]};
}

Rule rotary_rule(Types, const Attrs&) {
  Rule rule = parse_rule("bthe,t->bthe");
  rule.unsharded = "e";
  return rule;
}

Grads rotary_vjp(const Vjp& v) {
  if (!v.wanted[0]) return Grads(2);
  return {rotary(v.ct(), v.in[1], v.attrs.get<double>("base"), !v.attrs.get<bool>("inverse")), {}};
}

// Examples that share the positions are a larger batch of x. Otherwise each has its own tokens: the batch becomes a part
// of dimension t. The rule has no factor for a batch of positions.
Batched rotary_batch(const Batch& b) {
  const double base = b.attrs.get<double>("base");
  const bool inverse = b.attrs.get<bool>("inverse");
  const Value x = with_batch(b, 0);
  const Shape shape = x.shape();  // [n, b, t, h, e]
  if (!b.batched[1]) {
    const Value all = reshape(x, {shape[0] * shape[1], shape[2], shape[3], shape[4]});
    return reshape(rotary(all, b.in[1], base, inverse), shape);
  }
  const Dims order{1, 0, 2, 3, 4};
  const Value by_example = transpose(x, order);
  const Shape moved = by_example.shape();
  const Value all = reshape(by_example, {shape[1], shape[0] * shape[2], shape[3], shape[4]});
  const Value turned = rotary(all, reshape(b.in[1], {shape[0] * shape[2]}), base, inverse);
  return transpose(reshape(turned, moved), order);
}

bool rotary_alias(Types, Types, const Attrs&, size_t in, size_t) { return in == 0; }

// Rotates the halves of a head by angles with these cosines and sines. `sign` is -1 for the opposite angles.
template <class A, class T>
void turn_pairs(const T* x, const A* cosine, const A* sine, A sign, int64_t half, T* y) {
  const auto widen = [](T element) {
    if constexpr (is_half<T>)
      return static_cast<A>(static_cast<float>(element));
    else
      return static_cast<A>(element);
  };
  for (int64_t i = 0; i < half; ++i) {
    const A a = widen(x[i]), b = widen(x[half + i]), c = cosine[i], s = sign * sine[i];
    y[i] = T(a * c - b * s);
    y[half + i] = T(b * c + a * s);
  }
}

// The cosines and sines [t, half] of all angles.
template <class A>
struct RotaryAngles {
  int64_t t, half;
  std::vector<A> frequencies;
  BufferPtr buffer;
  Loop cosine, sine;

  RotaryAngles(const Type& x, double base) : t(x.shape[1]), half(x.shape[3] / 2) {
    const DType dtype = sizeof(A) == 4 ? DType::f32 : DType::f64;
    for (const double f : rotary_frequencies(x.shape[3], base, dtype)) frequencies.push_back(static_cast<A>(f));
    buffer = allocate(2 * t * half * static_cast<int64_t>(sizeof(A)));
    cosine = loops().map[static_cast<int>(LoopId::cos)][register_index(dtype)];
    sine = loops().map[static_cast<int>(LoopId::sin)][register_index(dtype)];
  }
  const A* cosines() const { return buffer->as<A>(); }
  const A* sines() const { return cosines() + t * half; }

  void compute(const int32_t* positions, Pool& pool) const {
    A *cosines = buffer->as<A>(), *sines = cosines + t * half;
    pool.parallel_range(t, std::max<int64_t>(kRotaryGrain / 8 / std::max<int64_t>(half, 1), 1),
                        [&](int64_t begin, int64_t end, int thread) {
                          const int64_t bytes = half * static_cast<int64_t>(sizeof(A));
                          A* angles = static_cast<A*>(pool.scratch(thread, bytes));
                          const void* const in[] = {angles};
                          for (int64_t r = begin; r < end; ++r) {
                            const auto position = static_cast<A>(positions[r]);
                            for (int64_t i = 0; i < half; ++i)
                              angles[i] = position * frequencies[static_cast<size_t>(i)];
                            cosine(cosines + r * half, in, half);
                            sine(sines + r * half, in, half);
                          }
                        });
  }
};

template <class A, class T>
Kernel rotary_kernel(const KernelSpec& spec) {
  const Shape& x = spec.in[0].shape;
  const int64_t rows = x[0] * x[1], t = x[1], heads = x[2], e = x[3];
  if (count(x) == 0) return [](const void* const*, void* const*) {};
  return [=, angles = RotaryAngles<A>(spec.in[0], spec.attrs.get<double>("base")),
          sign = spec.attrs.get<bool>("inverse") ? A(-1) : A(1),
          pool = &spec.pool](const void* const* in, void* const* out) {
    angles.compute(static_cast<const int32_t*>(in[1]), *pool);
    pool->parallel_range(rows, std::max<int64_t>(kRotaryGrain / (heads * e), 1), [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t first = r % t * angles.half;
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = (r * heads + h) * e;
          turn_pairs(static_cast<const T*>(in[0]) + at, angles.cosines() + first, angles.sines() + first, sign,
                     angles.half, static_cast<T*>(out[0]) + at);
        }
      }
    });
  };
}

Kernel rotary_cpu(const KernelSpec& spec) {
  switch (spec.in[0].dtype) {
    case DType::bf16:
      return rotary_kernel<float, BFloat16>(spec);
    case DType::f16:
      return rotary_kernel<float, Float16>(spec);
    case DType::f32:
      return rotary_kernel<float, float>(spec);
    default:
      return rotary_kernel<double, double>(spec);
  }
}

}  // namespace

constinit const Op rotary_op = {
    .name = "rotary",
    .rule = rotary_rule,
    .type = rotary_type,
    .vjp = rotary_vjp,
    .batch = rotary_batch,
    .alias = rotary_alias,
    .cpu = rotary_cpu,
    .cuda = LOCKSTEP_CUDA(rotary_cuda),
};

Value rotary(Value x, Value positions, double base, bool inverse) {
  return emit(rotary_op, {x, positions}, {{"base", base}, {"inverse", inverse}});
}

std::vector<double> rotary_frequencies(int64_t e, double base, DType dtype) {
  std::vector<double> out;
  for (int64_t i = 0; i < e / 2; ++i)
    out.push_back(round_to(dtype, std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(e))));
  return out;
}

}  // namespace lockstep
