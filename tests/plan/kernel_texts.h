// Kernel texts in tests: a schedule from its text, and whether a kernel text compiles.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "plan/cuda/rewrites.h"

namespace lockstep::detail {

// A kernel with phases and prefetched operands.
inline KernelSchedule scheduled(const std::string& text, const GpuTarget& target = {}) {
  KernelSchedule kernel = parse_kernel(text, target);
  assign_phases(kernel, target);
  prefetch_operands(kernel, target);
  check(kernel);
  return kernel;
}

// Skips the test if there is no compiler.
inline void expect_compiles(const std::string& text, const std::string& architecture) {
  try {
    EXPECT_FALSE(compile_quickly(text, architecture).empty());
  } catch (const Error& e) {
    if (std::string(e.what()).find("cannot load") != std::string::npos) GTEST_SKIP() << e.what();
    FAIL() << e.what();
  }
}

}  // namespace lockstep::detail
