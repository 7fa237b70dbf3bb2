// The `jvp` column of rows that are linear in their floating operands. A Builder belongs to one thread.
#pragma once

#include "ops/shape_ops.h"
#include "program/op.h"

namespace lockstep {

// The op of the tangents, with zeros for those that are absent; operands without a derivative, such as indices, stay.
inline JvpResult tangents_of_linear(const Jvp& v) {
  Values in(v.in.begin(), v.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (is_inexact(in[i].dtype())) in[i] = v.tangents[i] ? v.tangents[i] : zeros_like(in[i]);
  return {v.builder.emit(v.op, in, v.attrs), {}};
}

}  // namespace lockstep
