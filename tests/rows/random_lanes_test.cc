// Random programs of all rows, on random lanes with random shardings, give the same results as on one lane: exact for
// integers and for moved elements, within rounding where the order of a sum differs.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ops/ops.h"
#include "passes/lanes_difference.h"
#include "rows/rows.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

// `./dev test --long` runs all of them.
uint32_t program_count() { return long_tests() && !kSanitized ? 10000 : 1000; }

// Rows that do not occur in programs to be partitioned, and why.
const std::map<std::string_view, const char*> kNotGenerated = {
    {"fused", "fusion makes it, of each lane's program"},
    {"einsum_fused", "fusion makes it, of each lane's program"},
    {"conv2d_fused", "fusion makes it, of each lane's program"},
    {"max_pool_grad_fused", "fusion makes it, of each lane's program"},
    {"remat", "its body is inlined before; random programs have it by steps of their own"},
    {"custom_vjp", "its body is inlined before"},
    {"custom_jvp", "its body is inlined before"},
    {"pvary", "per-device code is batched before"},
    {"psum", "per-device code is batched before"},
    {"pmax", "per-device code is batched before"},
    {"pmin", "per-device code is batched before"},
    {"all_gather", "per-device code is batched before"},
    {"psum_scatter", "per-device code is batched before"},
    {"all_to_all", "per-device code is batched before"},
    {"ppermute", "per-device code is batched before"},
    {"axis_index", "per-device code is batched before"},
    {"quantize", "a small difference of x may round to another 8-bit float"},
    {"scaled_product", "its operands are results of quantize"},
};

// Small, and without NaN and infinities.
bool is_usable(const Sample& sample) {
  int64_t elements = 0;
  for (const SampleOperand& operand : sample.in) {
    elements += count(operand.type.shape);
    if (operand.domain.kind == Domain::special) return false;
  }
  return sample.devices == 0 && elements <= 600;
}

struct Choice {
  const Op* op;
  std::vector<const Sample*> samples;
};

// Every row, with its samples, except those above and those that only the partitioner emits.
std::vector<Choice> choices() {
  std::vector<Choice> out;
  for (const Op* op : all_ops()) {
    if (op->is_collective() || kNotGenerated.contains(op->name)) continue;
    Choice choice{op, {}};
    for (const Sample& sample : row_of(*op).samples)
      if (is_usable(sample)) choice.samples.push_back(&sample);
    out.push_back(std::move(choice));
  }
  return out;
}

RandomEquation equation_of(const std::vector<Choice>& all, std::mt19937& random) {
  const Choice& choice = all[random() % all.size()];
  const Sample& sample = *choice.samples[random() % choice.samples.size()];
  return {choice.op, sample.attrs, make_inputs(sample, static_cast<uint32_t>(random()))};
}

TEST(RandomLanes, EveryRowIsGeneratedOrExcluded) {
  for (const Choice& choice : choices()) EXPECT_FALSE(choice.samples.empty()) << choice.op->name;
  std::set<std::string_view> names;
  for (const Op* op : all_ops()) names.insert(op->name);
  for (const auto& [name, reason] : kNotGenerated) EXPECT_TRUE(names.contains(name)) << name << ": " << reason;
}

// A spec may give lanes empty shards: 3 rows on 7 lanes. Every op must accept them.
TEST(RowsOnLanes, EveryOpAcceptsEmptyShards) {
  const LaneGrid grid{{{"x", 7, 1}}};
  int programs = 0;
  for (const Choice& choice : choices())
    for (const Sample* original : choice.samples) {
      // Every partial sum is rounded, which is visible in 16 bits.
      const Sample sample = choice.op->pending == PendingReduction::sum ? in_f64(*original) : *original;
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
  const std::vector<Choice> all = choices();
  std::map<std::string_view, int> seen;
  for (uint32_t seed = 0; seed < program_count(); ++seed) {
    const RandomProgram r =
        RandomPrograms(seed, false, [&](std::mt19937& random) { return equation_of(all, random); }).make();
    for (const Eqn& eqn : r.program.eqns) ++seen[eqn.op->name];
    std::string wrong;
    try {
      wrong = difference_on_lanes(r, seed);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << print(r.program);
  }
  const int least = static_cast<int>(program_count() / 500);
  for (const Choice& choice : all) EXPECT_GE(seen[choice.op->name], least) << choice.op->name;
}

// Lowers the thresholds of the schedule, so that everything is large enough to be moved, regathered or chunked.
TEST(RandomLanes, ScheduledProgramsMatchOneLane) {
  const std::vector<Choice> all = choices();
  const CollectiveScheduleOptions tiny{.regather = {.keep_within = 0, .min_bytes = 1},
                                       .chunks = {.min_bytes = 1, .min_bytes_per_lane = 1, .min_extent = 1},
                                       .early_updates = {.min_bytes = 1}};
  for (uint32_t seed = 0; seed < program_count() / 5; ++seed) {
    const RandomProgram r =
        RandomPrograms(seed, false, [&](std::mt19937& random) { return equation_of(all, random); }).make();
    std::string wrong;
    try {
      wrong = difference_on_lanes(r, seed, &tiny);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << print(r.program);
  }
}

}  // namespace
}  // namespace lockstep
