// Random programs of all rows, on random lanes with random shardings, give the same results as on one lane: exact for
// integers and for moved elements, within rounding where the order of a sum differs.
#include <gtest/gtest.h>

#include <map>

#include "passes/lanes_difference.h"
#include "passes/random_property.h"
#include "rows/random_rows.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

// `./dev test --long` runs all of them.
uint32_t program_count() { return long_tests() && !kSanitized ? 10000 : 1000; }

RandomProgram random_program(uint32_t seed, const RandomRows& rows) {
  return RandomPrograms(seed, RandomOptions{.more = std::cref(rows)}).make();
}

// A spec may give lanes empty shards: 3 rows on 7 lanes. Every op must accept them.
TEST(RowsOnLanes, EveryOpAcceptsEmptyShards) {
  const LaneGrid grid{{{"x", 7, 1}}};
  const RandomRows rows;
  int programs = 0;
  for (const RandomRows::Choice& choice : rows.rows())
    for (const Sample& original : choice.samples) {
      // Every partial sum is rounded, which is visible in 16 bits.
      const Sample sample = choice.op->pending == PendingReduction::sum ? in_f64(original) : original;
      RandomProgram r{program_of(*choice.op, sample), {}, make_inputs(sample, 5)};
      for (const HostArray& y : eager(r.program, r.inputs)) {
        double most = 1;
        for (int64_t i = 0; i < y.size(); ++i)
          if (std::isfinite(y.get(i))) most = std::max(most, std::abs(y.get(i)));
        r.error.push_back(most * tolerance(y.type.dtype));
      }
      for (size_t i = 0; i < r.inputs.size(); ++i)
        for (size_t d = 0; d < r.inputs[i].type.shape.size(); ++d) {
          if (r.inputs[i].type.shape[d] >= 7) continue;
          LaneConstraints in(r.inputs.size());
          in[i] = LaneSpec(r.inputs[i].type.shape.size());
          (*in[i])[d] = {"x"};
          ASSERT_EQ(difference_on_lanes(r, grid, in, {}), "") << d << " of operand " << i << "\n" << print(r.program);
          ++programs;
        }
    }
  EXPECT_GT(programs, 500);
}

TEST(RandomLanes, ResultsMatchOneLane) {
  const RandomRows rows;
  std::map<std::string_view, int> seen;
  expect_always([](const RandomProgram& r, uint32_t seed) { return difference_on_lanes(r, seed); }, program_count(),
                [&](uint32_t seed) {
                  const RandomProgram r = random_program(seed, rows);
                  for (const Eqn& eqn : r.program.eqns) ++seen[eqn.op->name];
                  return r;
                });
  const int least = static_cast<int>(program_count() / 500);
  for (const RandomRows::Choice& choice : rows.rows()) EXPECT_GE(seen[choice.op->name], least) << choice.op->name;
}

// Lowers the thresholds of the schedule, so that everything is large enough to be moved, regathered or chunked.
TEST(RandomLanes, ScheduledProgramsMatchOneLane) {
  const RandomRows rows;
  const CollectiveScheduleOptions tiny{.regather = {.keep_within = 0, .min_bytes = 1},
                                       .chunks = {.min_bytes = 1, .min_bytes_per_lane = 1, .min_extent = 1},
                                       .early_updates = {.min_bytes = 1}};
  expect_always([&](const RandomProgram& r, uint32_t seed) { return difference_on_lanes(r, seed, &tiny); },
                program_count() / 5, [&](uint32_t seed) { return random_program(seed, rows); });
}

}  // namespace
}  // namespace lockstep
