// The C++ columns of rows.def that are functions. An emitter belongs to one thread.
#pragma once

#include "export/c_emitter.h"

namespace lockstep {

// An elementwise op whose expression has the operands x, y and z.
void c_elementwise(CEmitter&, const char* expression);

void c_full(CEmitter&);
void c_iota(CEmitter&);
void c_alias(CEmitter&);
void c_view(CEmitter&);  // any op with the column `view`
void c_pad(CEmitter&);
void c_concatenate(CEmitter&);
void c_gather(CEmitter&);
void c_cast(CEmitter&);
void c_not(CEmitter&);
void c_reduce_sum(CEmitter&);
void c_reduce_prod(CEmitter&);
void c_reduce_max(CEmitter&);
void c_reduce_min(CEmitter&);
void c_einsum(CEmitter&);
void c_conv2d(CEmitter&);
void c_max_pool(CEmitter&);
void c_sum_pool(CEmitter&);

}  // namespace lockstep
