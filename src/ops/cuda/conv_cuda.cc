// Convolutions on the GPU, optionally followed by an elementwise program of the result.
#include "lane/cuda/cuda_stream.h"
#include "ops/conv.h"
#include "ops/cuda/conv_choice.h"
#include "ops/cuda/elementwise_cuda.h"

namespace lockstep {
namespace {

// x [n, h, w, c] and w [kh, kw, ci, co] are the shapes of conv2d's operands.
Kernel prepare(ConvPass pass, const KernelSpec& spec, const Shape& x, const Shape& w, const Program* body = nullptr) {
  const ConvOptions o = conv_options(spec.attrs);
  return prepare_conv(pass,
                      {.dtype = spec.in[0].dtype,
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
                       .groups = o.groups},
                      spec, body);
}

bool any_empty(const KernelSpec& spec, int64_t results) {
  return count(spec.in[0].shape) == 0 || count(spec.in[1].shape) == 0 || results == 0;
}

}  // namespace

Kernel conv_kernel_cuda(ConvPass pass, const KernelSpec& spec) {
  const int64_t bytes = spec.out[0].bytes();
  if (any_empty(spec, bytes))
    return [bytes, lane = spec.cuda](const void* const*, void* const* out) { lane->clear(out[0], bytes); };
  const Shape& x = pass == ConvPass::input_grad ? spec.out[0].shape : spec.in[0].shape;
  const Shape& w = pass == ConvPass::filter_grad ? spec.out[0].shape : spec.in[1].shape;
  return prepare(pass, spec, x, w);
}

Kernel conv2d_fused_cuda(const KernelSpec& spec) {
  const Program& body = spec.attrs.program("body");
  const int64_t bytes = body.types[body.inputs[0]].bytes();
  if (!any_empty(spec, bytes)) return prepare(ConvPass::forward, spec, spec.in[0].shape, spec.in[1].shape, &body);
  // The sum over empty windows is zero.
  return then_body([bytes, lane = spec.cuda](const void* const*, void* out) { lane->clear(out, bytes); }, 2, body,
                   spec);
}

}  // namespace lockstep
