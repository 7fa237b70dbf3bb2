// Small tasks that move to a later phase: text in, text out.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/rewrite_text.h"

namespace lockstep::detail {
namespace {

// The phases of a kernel as numbers of results: "%4 %5-%6 | %7".
std::string phases(const std::string& text, RewriteFunction rewrite = balance_phases) {
  KernelSchedule kernel = parse_kernel(text, {});
  rewrite(kernel, {});
  check(kernel);
  std::string out;
  for (const std::vector<size_t>& phase : kernel.phases) {
    out += out.empty() ? "" : " | ";
    for (size_t k = 0; k < phase.size(); ++k) {
      out += k > 0 ? " " : "";
      const std::vector<TaskValue> all = results(kernel.tasks[phase[k]]);
      for (size_t r = 0; r < all.size(); ++r) out += fmt::format("{}%{}", r > 0 ? "-" : "", all[r].id);
    }
  }
  return out;
}

// A kernel with these rows, all of whose last results are returned.
std::string kernel_of_rows(const std::string& rows, const std::string& returned) {
  return "kernel(%0:f32[128,512], %1:f32[512,1024], %2:f32[64,128], %3:f32[128,64], %4:f32[128,2048], "
         "%5:f32[1024,2048], "
         "%6:f32[8], %7:f32[2048,256], %8:f32[2048,1024], %9:f32[4,200000]) {\n" +
         rows + "  return" + returned + "\n}\n";
}

// Two products use all of the GPU. A product and an elementwise row, which nothing needs, move to a phase with at least
// as much work; what the next phase needs stays, and so does the small row, which an idle thread block runs.
TEST(BalancePhases, IndependentTasksAreDelayed) {
  std::string rows = R"(  %10:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %11:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %3
  %12:f32[128,2048] = tanh %4
  %13:f32[1024,2048] = tanh %5
  %14:f32[8] = tanh %6
  %15:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %16:f32[128,2048] = einsum[spec="mk,kn->mn"] %10 %13
)";
  std::string returned = " %11 %12 %14 %15 %16";
  const auto balanced = [&] { return phases(kernel_of_rows(rows, returned)); };
  EXPECT_EQ(phases(kernel_of_rows(rows, returned), assign_phases), "%10 %15 %11 %12 %13 %14 | %16");
  EXPECT_EQ(balanced(), "%10 %15 %13 %14 | %16 %11 %12");
  rows += "  %17:f32[128,2048] = add %16 %12\n";  // a short phase
  EXPECT_EQ(balanced(), "%10 %15 %13 %14 | %16 %11 %12 | %17");
  rows += "  %18:f32[128,256] = einsum[spec=\"mk,kn->mn\"] %17 %7\n";  // a longer one, but not long enough
  returned += " %18";
  EXPECT_EQ(balanced(), "%10 %15 %13 %14 | %16 %11 %12 | %17 | %18");
  rows += "  %19:f32[128,1024] = einsum[spec=\"mk,kn->mn\"] %17 %8\n";
  returned += " %19";
  EXPECT_EQ(balanced(), "%10 %15 %13 %14 | %16 %12 | %17 | %19 %18 %11");
}

// A small task that reads only the product may move with it, and then joins a chain.
TEST(BalancePhases, SmallTasksMoveWithAProduct) {
  std::string rows = R"(  %10:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %11:f32[1,64] = einsum[spec="mk,kn->mn"] %20 %21
  %12:i32[1] = argmax[axis=1] %11
  %13:f32[128,2048] = einsum[spec="mk,kn->mn"] %10 %5
  %14:f32[1,2048] = gather[axis=0, batch_dims=0] %13 %12
)";
  const auto text = [&](const std::string& returned) {
    std::string all = kernel_of_rows(rows, returned);
    return all.insert(all.find("%0:"), "%20:f32[1,8192], %21:f32[8192,64], ");
  };
  EXPECT_EQ(phases(text(" %14"), assign_phases), "%10 %11 | %13 %12 | %14");
  EXPECT_EQ(phases(text(" %14")), "%10 | %13 %11 | %12-%14");
  // Not if a task that is not small needs it.
  rows += "  %15:f32[1,200000] = gather[axis=0, batch_dims=0] %9 %12\n";
  EXPECT_EQ(phases(text(" %14 %15")), "%10 %11 | %13 %12 | %14 %15");
}

TEST(BalancePhases, TasksDoNotMoveIfThatNeedsAnotherPhase) {
  std::string text = kernel_of_rows(R"(  %10:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %11:f32[1,64] = einsum[spec="mk,kn->mn"] %20 %21
  %12:i32[1] = argmax[axis=1] %11
  %13:f32[128,2048] = einsum[spec="mk,kn->mn"] %10 %5
)",
                                    " %12 %13");
  text.insert(text.find("%0:"), "%20:f32[1,8192], %21:f32[8192,64], ");
  EXPECT_EQ(phases(text), "%10 %11 | %13 %12");
}

TEST(BalancePhases, SmallTasksMoveWithProductsOnly) {
  std::string text = kernel_of_rows(R"(  %10:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %11:f32[1,102400] = tanh %20
  %12:i32[1] = argmax[axis=1] %11
  %13:f32[128,2048] = einsum[spec="mk,kn->mn"] %10 %5
  %14:f32[1,2048] = gather[axis=0, batch_dims=0] %13 %12
)",
                                    " %14");
  text.insert(text.find("%0:"), "%20:f32[1,102400], ");
  EXPECT_EQ(phases(text), "%10 %11 | %13 %12 | %14");
}

TEST(BalancePhases, ProductsThatLeaveProcessorsIdleKeepOtherTasks) {
  const std::string text =
      R"(kernel(%0:f32[64,1024], %1:f32[1024,64], %2:f32[64,128], %3:f32[128,64], %4:f32[64,24576]) {
  %5:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  %6:f32[64,64] = einsum[spec="mk,kn->mn"] %2 %3
  %7:f32[64,24576] = einsum[spec="mk,kn->mn"] %5 %4
  return %6 %7
}
)";
  EXPECT_EQ(phases(text), phases(text, assign_phases));
  EXPECT_EQ(phases(text), "%5 %6 | %7");
}

// The second task of the reduction could run beside the larger product, but stays behind the first.
TEST(BalancePhases, StagesOfAReductionStayTogether) {
  std::string text = kernel_of_rows(R"(  %11:f32[2048] = reduce_sum[axes=[0]] %20
  %12:f32[128,512] = tanh %0
  %13:f32[128,1024] = einsum[spec="mk,kn->mn"] %12 %1
  %14:f32[128,2048] = einsum[spec="mk,kn->mn"] %13 %5
)",
                                    " %11 %14");
  text.insert(text.find("%0:"), "%20:f32[20000,2048], ");
  EXPECT_EQ(phases(rewritten(text, split_reductions)), "%21 %12 | %13 %11 | %14");
}

// Phases are found anew; chains and tasks of the same elements are dissolved first.
TEST(BalancePhases, PhasesCanBeBalancedAgain) {
  const std::string rows = R"(  %10:f32[128,1024] = einsum[spec="mk,kn->mn"] %0 %1
  %12:f32[128,2048] = tanh %4
  %13:f32[128,2048] = exp %12
  %14:f32[8] = tanh %6
  %15:f32[8] = exp %14
  %16:f32[128,2048] = einsum[spec="mk,kn->mn"] %10 %5
)";
  KernelSchedule kernel = parse_kernel(kernel_of_rows(rows, " %12 %13 %15 %16"), {});
  balance_phases(kernel, {});
  const std::string once = print(kernel);
  EXPECT_EQ(phases(once), "%14-%15 %10 | %16 %12-%13");
  assign_phases(kernel, {});
  EXPECT_NE(print(kernel), once);
  balance_phases(kernel, {});
  EXPECT_EQ(print(kernel), once);
}

}  // namespace
}  // namespace lockstep::detail
#endif
