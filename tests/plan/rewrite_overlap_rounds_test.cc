// The last phase of a kernel of several rounds that overlaps the next round: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/rewrites/overlap_rounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

// The kernel after overlap_rounds(), and "overlaps" in front of it if its last phase overlaps the next round.
std::string overlapped(const std::string& text, const RoundStrides& strides = {}, int processors = 132) {
  const GpuTarget target{.processors = processors};
  KernelSchedule kernel = parse_kernel(text, target);
  overlap_rounds(kernel, strides, target);
  check(kernel);
  return (overlaps_next_round(kernel, strides) ? "overlaps " : "") + print(kernel);
}

// New weights, and a metric of their gradient: the last phase adds it up. `first` and `last` are further rows of the
// first and last phase.
std::string step_with_metric(const std::string& first = "", const std::string& last = "") {
  return fmt::format(R"(kernel(%0:f32[64,256], %1:f32[256,256]{}) {{
  phase {{
    %3:f32[64,256] = einsum[spec="mk,kn->mn"] %0 %1
{}  }}
  phase {{
    %4:f32[256,256] = einsum[spec="mk,mn->kn"] %0 %3 (prefetch=[%0])
  }}
  phase {{
    %5:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %4
{}  }}
  return %4 %5
}}
)",
                     first.empty() ? "" : ", %2:f32[1,8]", first, last);
}

TEST(OverlapRounds, SmallLastPhaseOverlapsTheNextRound) {
  EXPECT_EQ(overlapped(step_with_metric()), "overlaps " + step_with_metric());
}

// The first phase reads what the last one writes; the last one reads what the first one writes.
TEST(OverlapRounds, LastPhaseThatConflictsWithTheFirstDoesNotOverlap) {
  const std::string written = R"(kernel(%0:f32[64,256], %1:f32[256,256]) {
  phase {
    %3:f32[64,256] = einsum[spec="mk,kn->mn"] %0 %1
  }
  phase {
    %4:f32[256,256] = einsum[spec="mk,mn->kn"] %0 %3
  }
  phase {
    %5:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %3
  }
  return %4 %5
}
)";
  EXPECT_EQ(overlapped(written), written);
  const std::string read = R"(kernel(%0:f32[64,256], %1:f32[256,256], %2:f32[1,256]) {
  phase {
    %3:f32[64,256] = einsum_fused[body=program(%0:f32[64,256], %1:f32[1,256]) {
        %2:f32[256] = reshape[shape=[256]] %1
        %3:f32[64,256] = broadcast[dims=[1], shape=[64,256]] %2
        %4:f32[64,256] = add %0 %3
        return %4
      }, spec="mk,kn->mn"] %0 %1 %2
  }
  phase {
    %4:f32[256,256] = einsum[spec="mk,mn->kn"] %0 %3
  }
  phase {
    %5:f32[1,256] over %2 = slice[limits=[1,256], starts=[0,0], strides=[1,1]] %4
  }
  return %4 %5
}
)";
  EXPECT_EQ(overlapped(read), read);
}

TEST(OverlapRounds, LargeLastPhaseDoesNotOverlap) {
  const std::string large = step_with_metric("", "    %6:f32[256,256] = tanh %4\n");
  EXPECT_EQ(overlapped(large), large);
  const std::string alone = R"(kernel(%0:f32[8]) {
  phase {
    %1:f32[8] = tanh %0
  }
  return %1
}
)";
  EXPECT_EQ(overlapped(alone), alone);
}

TEST(OverlapRounds, ManyTasksDoNotOverlap) {
  std::string rows;
  for (int id = 6; id < 9; ++id)
    rows += fmt::format("    %{}:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %4\n", id);
  EXPECT_EQ(overlapped(step_with_metric("", rows)).substr(0, 8), "overlaps");
  rows += "    %9:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %4\n";
  EXPECT_EQ(overlapped(step_with_metric("", rows)), step_with_metric("", rows));
}

// The next round reads a value that alternates between two buffers as the result of this one.
TEST(OverlapRounds, DoubleBufferedCarriesDoNotOverlap) {
  const std::string text = step_with_metric();
  EXPECT_EQ(overlapped(text, {{{5, 0}}}), text);
  EXPECT_EQ(overlapped(text, {{{4, 0}}}), text);
  EXPECT_EQ(overlapped(text, {{{3, 0}}}), "overlaps " + text);
  EXPECT_EQ(overlapped(text, {{{5, 64}}}), "overlaps " + text) << "each round writes another row of a result";
}

// A small task of the first phase whose result the last phase reads moves to the second phase, unless that needs it or
// has no idle multiprocessor.
TEST(OverlapRounds, SmallTasksMoveFromTheFirstToTheSecondPhase) {
  const std::string last = "    %7:f32[1,8] = add %6 %2\n";
  const std::string text = step_with_metric("    %6:f32[1,8] = tanh %2\n", last);
  EXPECT_EQ(overlapped(text), R"(overlaps kernel(%0:f32[64,256], %1:f32[256,256], %2:f32[1,8]) {
  phase {
    %3:f32[64,256] = einsum[spec="mk,kn->mn"] %0 %1
  }
  phase {
    %4:f32[256,256] = einsum[spec="mk,mn->kn"] %0 %3 (prefetch=[%0])
    %6:f32[1,8] = tanh %2
  }
  phase {
    %5:f32[1,8] = slice[limits=[1,8], starts=[0,0], strides=[1,1]] %4
    %7:f32[1,8] = add %6 %2
  }
  return %4 %5
}
)");
  std::string needed = text;
  needed.insert(needed.find("  }\n  phase {\n    %5"), "    %8:f32[1,8] = exp %6\n");
  EXPECT_EQ(overlapped(needed), needed);
  EXPECT_EQ(overlapped(text, {}, 4).find("overlaps"), std::string::npos);
}

// The last phase of the previous round may still write what the second phase would prefetch.
TEST(OverlapRounds, SecondPhaseDoesNotPrefetchResultsOfTheLast) {
  const auto text = [](const std::string& prefetched) {
    return fmt::format(R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[8,64]) {{
  phase {{
    %3:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  }}
  phase {{
    %4:f32[64,64] = einsum[spec="mk,kn->mn"] %3 %1 (prefetch=[%1])
    %5:f32[8,64] = einsum[spec="mk,kn->mn"] %2 %1 (prefetch=[{}])
  }}
  phase {{
    %7:f32[8,64] over %2 = slice[limits=[8,64], starts=[0,0], strides=[1,1]] %4
  }}
  return %4 %5 %7
}}
)",
                       prefetched);
  };
  EXPECT_EQ(overlapped(text("%2,%1")), "overlaps " + text("%1"));
}

}  // namespace
}  // namespace lockstep::detail
#endif
