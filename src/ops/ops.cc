#include "ops/ops.h"

namespace lockstep {

std::span<const Op* const> all_ops() {
  static constexpr const Op* kOps[] = {
#define OP(name) &name##_op,
#include "ops/ops.def"
#undef OP
  };
  return kOps;
}

}  // namespace lockstep
