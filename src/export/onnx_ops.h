// The ONNX columns of rows.def that are functions. An emitter belongs to one thread.
#pragma once

#include "export/onnx_emitter.h"

namespace lockstep {

// Values that are created or rearranged.
void onnx_full(OnnxEmitter&);
void onnx_iota(OnnxEmitter&);
void onnx_alias(OnnxEmitter&);
void onnx_broadcast(OnnxEmitter&);
void onnx_reshape(OnnxEmitter&);
void onnx_transpose(OnnxEmitter&);
void onnx_slice(OnnxEmitter&);
void onnx_reverse(OnnxEmitter&);
void onnx_pad(OnnxEmitter&);
void onnx_concatenate(OnnxEmitter&);
void onnx_gather(OnnxEmitter&);
void onnx_cast(OnnxEmitter&);
// Elementwise ops of more than one operator.
void onnx_not(OnnxEmitter&);
void onnx_ne(OnnxEmitter&);
void onnx_is_finite(OnnxEmitter&);
void onnx_rsqrt(OnnxEmitter&);
void onnx_rem(OnnxEmitter&);
void onnx_and(OnnxEmitter&);
void onnx_or(OnnxEmitter&);
void onnx_xor(OnnxEmitter&);
// Reductions and contractions.
void onnx_reduce_sum(OnnxEmitter&);
void onnx_reduce_prod(OnnxEmitter&);
void onnx_reduce_max(OnnxEmitter&);
void onnx_reduce_min(OnnxEmitter&);
void onnx_argmax(OnnxEmitter&);
void onnx_argmin(OnnxEmitter&);
void onnx_cumsum(OnnxEmitter&);
void onnx_einsum(OnnxEmitter&);
void onnx_layer_norm(OnnxEmitter&);
void onnx_top_k(OnnxEmitter&);
// Images.
void onnx_conv2d(OnnxEmitter&);
void onnx_max_pool(OnnxEmitter&);
void onnx_sum_pool(OnnxEmitter&);

}  // namespace lockstep
