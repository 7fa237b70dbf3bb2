// Convolutions on the GPU, and an elementwise program of their result.
#include <memory>

#include "lane/cuda/cuda_lane.h"
#include "ops/conv.h"
#include "ops/cuda/conv_choice.h"

namespace lockstep {
namespace {

// x [n, h, w, c] and w [kh, kw, ci, co] are the shapes of conv2d's operands; the result has so many bytes.
ConvWork prepare(ConvPass pass, const KernelSpec& spec, const Shape& x, const Shape& w, int64_t bytes) {
  if (count(spec.in[0].shape) == 0 || count(spec.in[1].shape) == 0 || bytes == 0)
    return [=, lane = spec.cuda](const void*, const void*, void* out) { lane->clear(out, bytes); };
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
                      spec);
}

}  // namespace

Kernel conv_kernel_cuda(ConvPass pass, const KernelSpec& spec) {
  const Shape& x = pass == ConvPass::input_grad ? spec.out[0].shape : spec.in[0].shape;
  const Shape& w = pass == ConvPass::filter_grad ? spec.out[0].shape : spec.in[1].shape;
  return [run = prepare(pass, spec, x, w, spec.out[0].bytes())](const void* const* in, void* const* out) {
    run(in[0], in[1], out[0]);
  };
}

Kernel conv2d_fused_cuda(const KernelSpec& spec) {
  const Program& body = spec.attrs.program("body");
  const Type& type = body.types[body.inputs[0]];
  struct State {
    ConvWork conv;
    Kernel rest;
    BufferPtr whole;
    std::vector<const void*> in;
  };
  auto state =
      std::make_shared<State>(State{prepare(ConvPass::forward, spec, spec.in[0].shape, spec.in[1].shape, type.bytes()),
                                    elementwise_program_cuda(body, spec), spec.cuda->allocate(type.bytes()),
                                    std::vector<const void*>(body.inputs.size())});
  return [state](const void* const* in, void* const* out) {
    state->conv(in[0], in[1], state->whole->data());
    state->in[0] = state->whole->data();
    for (size_t i = 1; i < state->in.size(); ++i) state->in[i] = in[i + 1];
    state->rest(state->in.data(), out);
  };
}

}  // namespace lockstep
