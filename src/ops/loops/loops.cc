#include "ops/loops/loops.h"

#include <vector>

namespace lockstep {

extern const Loops kLoopsBaseline;
extern const AttentionLoops kAttentionLoopsBaseline;
#if defined(__x86_64__)
extern const Loops kLoopsAvx2;
extern const Loops kLoopsAvx512;
extern const AttentionLoops kAttentionLoopsAvx2;
extern const AttentionLoops kAttentionLoopsAvx512;
#endif

namespace {

// The tables that this machine supports; those of x86 are null elsewhere.
template <class Table>
std::vector<const Table*> supported(const Table& baseline, [[maybe_unused]] const Table* avx2,
                                    [[maybe_unused]] const Table* avx512) {
  std::vector<const Table*> tables{&baseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) tables.push_back(avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    tables.push_back(avx512);
#endif
  return tables;
}

#if defined(__x86_64__)
#define LOCKSTEP_TABLES(name) supported(name##Baseline, &name##Avx2, &name##Avx512)
#else
#define LOCKSTEP_TABLES(name) supported(name##Baseline, decltype (&name##Baseline)(), decltype (&name##Baseline)())
#endif

}  // namespace

std::span<const Loops* const> all_loops() {
  static const std::vector<const Loops*> tables = LOCKSTEP_TABLES(kLoops);
  return tables;
}

std::span<const AttentionLoops* const> all_attention_loops() {
  static const std::vector<const AttentionLoops*> tables = LOCKSTEP_TABLES(kAttentionLoops);
  return tables;
}
#undef LOCKSTEP_TABLES

Loop Loops::with_uniform(Loop loop, size_t operand) const {
  for (size_t id = 0; id < static_cast<size_t>(LoopId::count); ++id)
    for (size_t t = 0; t < kRegisterTypes; ++t)
      if (map[id][t] == loop && uniform[operand][id][t]) return uniform[operand][id][t];
  return loop;
}

Loop Loops::convert(DType from, DType to) const {
  if (is_narrow(to) && is_integer(to) && is_floating(from)) return clamp[from == DType::f64][narrow_index(to)];
  return cast[register_index(from)][register_index(register_type(to))];
}

const Loops& loops() {
  static const Loops& best = *all_loops().back();
  return best;
}

}  // namespace lockstep
