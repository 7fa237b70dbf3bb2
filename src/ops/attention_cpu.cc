#include "ops/attention_cpu.h"

#include "base/check.h"
#include "lane/buffer.h"
#include "lane/cpu/attention.h"
#include "lane/cpu/blas.h"
#include "ops/attention.h"
#include "ops/loops/loops.h"

namespace lockstep {
namespace {

AttentionProblem attention_problem(const KernelSpec& spec, const AttentionAttrs& a) {
  prepare_blas();
  const AttentionSizes n(spec.in);
  AttentionProblem p{.dtype = spec.in[0].dtype,
                     .b = n.b,
                     .t = n.t,
                     .h = n.h,
                     .e = n.e,
                     .s = n.s,
                     .g = n.g,
                     .f = n.f,
                     .causal = a.causal,
                     .window = a.window,
                     .scale = a.scale,
                     .softcap = a.softcap,
                     .dropout_threshold = a.dropout_threshold(),
                     .dropout_kept = 1 / (1 - a.dropout),
                     .first = a.first,
                     .loops = all_attention_loops().back()};
  if (p.dtype == DType::bf16 || p.dtype == DType::f16) {
    p.narrow = loops().narrow[narrow_index(p.dtype)];
    p.round = loops().round[narrow_index(p.dtype)];
  }
  return p;
}

AttentionOperands attention_operands(const AttentionAttrs& a, const void* const* in) {
  const auto integers = [&](int number) { return number < 0 ? nullptr : static_cast<const int32_t*>(in[number]); };
  return {.q = in[0],
          .k = in[1],
          .v = in[2],
          .offset = integers(a.offset),
          .lengths = integers(a.lengths),
          .query_segments = integers(a.query_segments),
          .key_segments = integers(a.key_segments),
          .dropout_key = a.dropout_key < 0 ? nullptr : static_cast<const uint32_t*>(in[a.dropout_key])};
}

}  // namespace

Kernel attention_cpu(const KernelSpec& spec) {
  const AttentionAttrs a = attention_attrs(spec.attrs, false);
  return [a, p = attention_problem(spec, a), kernel = half_kernel(spec.in[0].dtype), pool = &spec.pool](
             const void* const* in, void* const* out) {
    attention_forward(*pool, p, kernel, attention_operands(a, in), out[0], out[1]);
  };
}

Kernel attention_grad_cpu(const KernelSpec& spec) {
  const AttentionAttrs a = attention_attrs(spec.attrs, true);
  const AttentionProblem p = attention_problem(spec, a);
  return [a, p, kernel = half_kernel(spec.in[0].dtype), memory = allocate(attention_backward_bytes(p)),
          pool = &spec.pool](const void* const* in, void* const* out) {
    const AttentionGradOperands gradient{
        .y = in[3], .lse = in[4], .dy = in[5], .dlse = a.dlse < 0 ? nullptr : in[a.dlse]};
    attention_backward(*pool, p, kernel, attention_operands(a, in), gradient, out[0], out[1], out[2], memory->data());
  };
}

}  // namespace lockstep
