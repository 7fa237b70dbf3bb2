// Random programs (random_training_program.h; 4 unless LOCKSTEP_RANDOM_PROGRAMS says otherwise): a GPU computes the same
// bits as a plain evaluation. LOCKSTEP_REWRITES=each: also without each optional rewrite of the schedule.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <cstdlib>

#include "hardware/cuda/api.h"
#include "plan/cuda/rewrites.h"
#include "plan/random_training_program.h"
#include "rows/on_gpu.h"

namespace lockstep {
namespace {

// The rewrites to switch off, one at a time. The first, none, switches nothing off.
std::vector<std::vector<std::string>> rewrites_to_switch_off() {
  std::vector<std::vector<std::string>> out = {{}};
  const char* const text = std::getenv("LOCKSTEP_REWRITES");
  if (text && std::string_view(text) == "each")
    for (const detail::Rewrite& rewrite : detail::all_rewrites())
      if (rewrite.optional) out.push_back({std::string(rewrite.name)});
  return out;
}

TEST(RandomProgramsOnGpu, ComputeTheSame) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  const RandomSeeds seeds = RandomSeeds::of(4);
  for (uint32_t seed = seeds.first; seed < seeds.end && !HasFailure(); ++seed) {
    RandomTrainingProgram random(seed);
    const Program program = random.take();
    const HostArrays in = RandomTrainingProgram::inputs(program, seed), wanted = eager(program, in);
    for (const std::vector<std::string>& off : rewrites_to_switch_off()) {
      SCOPED_TRACE(fmt::format("LOCKSTEP_RANDOM_SEED={}, without {}", seed, off.empty() ? "no rewrite" : off[0]));
      const detail::RewritesOff switched_off(off);
      const HostArrays got = planned_on_gpu(program, in, random.donated());
      for (size_t o = 0; o < got.size(); ++o)
        EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o << " of\n" << print(program);
    }
  }
}

}  // namespace
}  // namespace lockstep
#endif
