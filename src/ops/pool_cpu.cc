#include "ops/pool_cpu.h"

#include "lane/buffer.h"
#include "lane/cpu/window.h"
#include "ops/epilogue.h"
#include "ops/pool.h"

namespace lockstep {
namespace {

// x [n, h, w, c] is the shape that the windows slide over.
WindowSpec windows(const KernelSpec& spec, const Shape& x) {
  const PoolingOptions o = pooling_options(spec.attrs);
  return {.dtype = spec.in[0].dtype,
          .batch = x[0],
          .in = {x[1], x[2]},
          .channels = x[3],
          .window = o.window,
          .stride = o.stride,
          .pad_lo = {o.pad[0], o.pad[2]},
          .pad_hi = {o.pad[1], o.pad[3]}};
}

}  // namespace

Kernel max_pool_cpu(const KernelSpec& spec) {
  return [w = windows(spec, spec.in[0].shape), pool = &spec.pool](const void* const* in, void* const* out) {
    max_pool(*pool, w, in[0], out[0]);
  };
}

Kernel max_pool_grad_cpu(const KernelSpec& spec) {
  return [w = windows(spec, spec.in[0].shape), pool = &spec.pool](const void* const* in, void* const* out) {
    max_pool_gradient(*pool, w, in[0], in[2], out[0]);
  };
}

Kernel max_pool_grad_fused_cpu(const KernelSpec& spec) {
  const Shape& x = spec.in[0].shape;
  if (count(x) == 0) return [](const void* const*, void* const*) {};
  const auto epilogue = std::make_shared<const BodyEpilogue>(spec, 3);
  // If a single image fits the cache, the epilogue runs image by image.
  constexpr int64_t kMaxImage = int64_t{1} << 20;
  if (spec.in[0].bytes() > kMaxImage * x[0] || x[0] < spec.pool.threads())
    return [w = windows(spec, x), epilogue, whole = allocate(spec.in[0].bytes()), pool = &spec.pool](
               const void* const* in, void* const* out) {
      max_pool_gradient(*pool, w, in[0], in[2], whole->data());
      epilogue->run_on_array(*pool, whole->data(), in, out);
    };
  return [w = windows(spec, x), epilogue, rows = x[0] * x[1] * x[2], cols = x[3], pool = &spec.pool](
             const void* const* in, void* const* out) {
    max_pool_gradient(*pool, w, in[0], in[2], nullptr,
                      [&](const Tile& tile) { (*epilogue)(tile, rows, cols, *pool, in, out); });
  };
}

Kernel max_pool_pick_cpu(const KernelSpec& spec) {
  return [w = windows(spec, spec.in[0].shape), pool = &spec.pool](const void* const* in, void* const* out) {
    max_pool_pick(*pool, w, in[0], in[2], out[0]);
  };
}

Kernel sum_pool_cpu(const KernelSpec& spec) {
  return [w = windows(spec, spec.in[0].shape), pool = &spec.pool](const void* const* in, void* const* out) {
    sum_pool(*pool, w, in[0], out[0]);
  };
}

Kernel sum_pool_grad_cpu(const KernelSpec& spec) {
  return [w = windows(spec, spec.out[0].shape), pool = &spec.pool](const void* const* in, void* const* out) {
    sum_pool_gradient(*pool, w, in[0], out[0]);
  };
}

}  // namespace lockstep
