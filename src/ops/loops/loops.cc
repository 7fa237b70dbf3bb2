#include "ops/loops/loops.h"

#include <vector>

namespace lockstep {

extern const Loops kLoopsBaseline;
#if defined(__x86_64__)
extern const Loops kLoopsAvx2;
extern const Loops kLoopsAvx512;
#endif

namespace {

std::vector<const Loops*> supported() {
  std::vector<const Loops*> tables{&kLoopsBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) tables.push_back(&kLoopsAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    tables.push_back(&kLoopsAvx512);
#endif
  return tables;
}

}  // namespace

std::span<const Loops* const> all_loops() {
  static const std::vector<const Loops*> tables = supported();
  return tables;
}

Loop Loops::with_uniform(Loop loop, size_t operand) const {
  for (size_t id = 0; id < static_cast<size_t>(LoopId::count); ++id)
    for (size_t t = 0; t < kRegisterTypes; ++t)
      if (map[id][t] == loop && uniform[operand][id][t]) return uniform[operand][id][t];
  return loop;
}

const Loops& loops() {
  static const Loops& best = *all_loops().back();
  return best;
}

}  // namespace lockstep
