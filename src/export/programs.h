// Ops as programs of simpler ops: the column `program` of rows.def. Pure functions, safe from any thread.
#pragma once

#include "program/op.h"

namespace lockstep {

Program attention_as_program(Types in, const Attrs& attrs);
Program layer_norm_as_program(Types in, const Attrs& attrs);
Program rms_norm_as_program(Types in, const Attrs& attrs);
Program rotary_as_program(Types in, const Attrs& attrs);
Program gelu_as_program(Types in, const Attrs& attrs);
Program gelu_exact_as_program(Types in, const Attrs& attrs);
Program silu_as_program(Types in, const Attrs& attrs);
Program log1p_as_program(Types in, const Attrs& attrs);
Program expm1_as_program(Types in, const Attrs& attrs);
Program logaddexp_as_program(Types in, const Attrs& attrs);

// The program with equations replaced by their programs where `is_written` is false and the row has one.
Program expand_programs(const Program& program, const std::function<bool(const Op&)>& is_written);

}  // namespace lockstep
