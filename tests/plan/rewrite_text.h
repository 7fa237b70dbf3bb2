// Tests of rewrites: a kernel's text before and after. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "plan/cuda/rewrites.h"

namespace lockstep::detail {

using RewriteFunction = void (*)(KernelSchedule&, const GpuTarget&);

inline std::string rewritten(std::string_view text, RewriteFunction rewrite, const GpuTarget& target = {}) {
  KernelSchedule kernel = parse_kernel(text, target);
  rewrite(kernel, target);
  check(kernel);
  return print(kernel);
}

}  // namespace lockstep::detail
