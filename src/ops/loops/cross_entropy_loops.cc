#include "ops/loops/cross_entropy_loops.h"

#include "ops/loops/loops.h"

namespace lockstep {

extern const CrossEntropyLoops kCrossEntropyBaseline;
#if defined(__x86_64__)
extern const CrossEntropyLoops kCrossEntropyAvx2;
extern const CrossEntropyLoops kCrossEntropyAvx512;
#endif

std::span<const CrossEntropyLoops* const> all_cross_entropy_loops() {
  static constexpr const CrossEntropyLoops* kTables[] = {&kCrossEntropyBaseline,
#if defined(__x86_64__)
                                                         &kCrossEntropyAvx2, &kCrossEntropyAvx512
#endif
  };
  return std::span(kTables).first(all_loops().size());
}

const CrossEntropyLoops& cross_entropy_loops() {
  static const CrossEntropyLoops& best = *all_cross_entropy_loops().back();
  return best;
}

}  // namespace lockstep
