// Schedules as text: what parse() reads, print() writes.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#include "plan/cuda/rewrites.h"
#include "support/text_file.h"

namespace lockstep::detail {
namespace {

// A scan whose body one launch repeats, and a row that runs on the host.
constexpr const char* kScanAndHost =
    R"(schedule(processors=132, shared=232448, capability=9, tf32=1, dependent_launch=1) {
  library kernel(%0:f32[2], %1:f32[5,2]) {
    %2:f32[2], %3:f32[5,2] = scan[body=program(%0:f32[2], %1:f32[2]) {
        %2:f32[2] = maximum %0 %1
        %3:f32[2] = sub %2 %1
        return %2 %3
      }, carry=1, length=5, reverse=false, xs=1] %0 %1
    body {
      repeated kernel(%0:f32[2], %1:f32[2]) {
        phase {
          %2:f32[2] = maximum %0 %1 (blocks=1)
        }
        phase {
          %3:f32[2] = sub %2 %1 (blocks=1)
        }
        return %2 %3
      }
    }
    return %3
  }
  host kernel(%3:f32[5,2]) {
    %4:f32[5,2] = sort[axis=0] %3
    return %4
  }
}
)";

TEST(ScheduleText, BodiesOfLibraryKernelsPrintAndParse) {
  const GpuSchedule schedule = parse_schedule(kScanAndHost);
  EXPECT_EQ(print(schedule), kScanAndHost);
  ASSERT_EQ(schedule.kernels.size(), 2u);
  EXPECT_TRUE(schedule.kernels[1].on_host);
  const KernelSchedule& scan = schedule.kernels[0];
  EXPECT_TRUE(scan.library && !scan.on_host && !scan.repeated);
  ASSERT_EQ(scan.bodies.size(), 1u);
  ASSERT_EQ(scan.bodies[0].size(), 1u);
  EXPECT_TRUE(scan.bodies[0][0].repeated && !scan.bodies[0][0].library);
  GpuSchedule other = schedule;
  other.kernels[0].bodies[0][0].repeated = false;
  EXPECT_NE(other, schedule);
}

TEST(ScheduleText, InputsAreInTheOrderOfPhases) {
  constexpr const char* kKernel = R"(kernel(%1:f32[8], %0:f32[8]) {
  phase {
    %3:f32[8] = neg %1
  }
  phase {
    %2:f32[8] = neg %0
  }
  return %2 %3
}
)";
  KernelSchedule kernel = parse_kernel(kKernel, {});
  std::swap(kernel.tasks[0], kernel.tasks[1]);
  kernel.phases = {{1}, {0}};
  EXPECT_EQ(print(kernel), kKernel);
}

TEST(ScheduleText, ValuesOfABodyAreNotThoseOfItsKernel) {
  EXPECT_THROWS(parse_kernel(R"(library kernel(%0:f32[2]) {
    %1:f32[2] = neg %0
    body {
      kernel() {
        %2:f32[2] = neg %0
        return %2
      }
    }
    return %1
  })",
                             {}),
                Error, "%0 is used before it is defined");
}

TEST(ScheduleText, DocumentationHasARowForEveryRewrite) {
  const std::string page = read_text(LOCKSTEP_SOURCE_DIR "/docs/notes/gpu-schedule.md");
  for (const Rewrite& rewrite : all_rewrites())
    EXPECT_NE(page.find(fmt::format("\n| `{0}` | {1} | `{0}.cc` |\n", rewrite.name, rewrite.purpose)), page.npos)
        << "docs/notes/gpu-schedule.md has no row for " << rewrite.name << ": " << rewrite.purpose;
}

}  // namespace
}  // namespace lockstep::detail
#endif
