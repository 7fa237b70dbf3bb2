#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {

Value with_batch(const Batch& b, size_t operand) {
  const Value x = b.in[operand];
  if (b.batched[operand]) return x;
  return broadcast(x, prepend(b.size, x.shape()), counting(1, x.rank() + 1));
}

Batched batch_pointwise(const Batch& b) {
  Values in;
  for (size_t i = 0; i < b.in.size(); ++i) in.push_back(with_batch(b, i));
  return b.builder.emit(b.op, in, b.attrs);
}

}  // namespace lockstep
