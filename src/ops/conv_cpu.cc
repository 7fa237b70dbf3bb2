#include "ops/conv_cpu.h"

#include "lane/cpu/conv.h"
#include "ops/conv.h"
#include "ops/epilogue.h"

namespace lockstep {
namespace {

// x [n, h, w, c] and w [kh, kw, ci, co] are the shapes of conv2d's operands.
Conv prepare(const KernelSpec& spec, const Shape& x, const Shape& w) {
  const ConvOptions o = conv_options(spec.attrs);
  return Conv::prepare({.dtype = spec.in[0].dtype,
                        .batch = x[0],
                        .in = {x[1], x[2]},
                        .in_channels = x[3],
                        .out_channels = w[3],
                        .kernel = {w[0], w[1]},
                        .stride = o.stride,
                        .pad_lo = {o.pad[0], o.pad[2]},
                        .pad_hi = {o.pad[1], o.pad[3]},
                        .in_dilation = o.lhs_dilation,
                        .kernel_dilation = o.rhs_dilation,
                        .groups = o.groups});
}

// A shard without images or without groups has nothing to compute.
bool is_empty(const KernelSpec& spec) { return count(spec.out[0].shape) == 0; }
void nothing(const void* const*, void* const*) {}

}  // namespace

Kernel conv2d_cpu(const KernelSpec& spec) {
  if (is_empty(spec)) return nothing;
  return [conv = prepare(spec, spec.in[0].shape, spec.in[1].shape), pool = &spec.pool](
             const void* const* in, void* const* out) { conv.forward(*pool, in[0], in[1], out[0]); };
}

Kernel conv2d_fused_cpu(const KernelSpec& spec) {
  if (is_empty(spec)) return nothing;
  const Shape& y = BodyEpilogue::product(spec).shape;
  return [conv = prepare(spec, spec.in[0].shape, spec.in[1].shape),
          epilogue = std::make_shared<const BodyEpilogue>(spec, 2), rows = y[0] * y[1] * y[2], cols = y[3],
          pool = &spec.pool](const void* const* in, void* const* out) {
    conv.forward(*pool, in[0], in[1], nullptr,
                 [&](const Tile& tile) { (*epilogue)(tile, rows, cols, *pool, in, out); });
  };
}

Kernel conv2d_input_grad_cpu(const KernelSpec& spec) {
  if (is_empty(spec)) return nothing;
  return [conv = prepare(spec, spec.out[0].shape, spec.in[1].shape), pool = &spec.pool](
             const void* const* in, void* const* out) { conv.input_gradient(*pool, in[0], in[1], out[0]); };
}

Kernel conv2d_filter_grad_cpu(const KernelSpec& spec) {
  if (is_empty(spec)) return nothing;
  return [conv = prepare(spec, spec.in[0].shape, spec.out[0].shape), pool = &spec.pool](
             const void* const* in, void* const* out) { conv.filter_gradient(*pool, in[0], in[1], out[0]); };
}

}  // namespace lockstep
