// Rewrites of GPU schedules never change what a program computes: schedules of random programs, with all rewrites and
// without each optional one, are executed on the host (schedule_interpreter.h) and compared with a plain evaluation.
// Each also prints, parses and passes check(). `./dev test --long` runs 1,000 programs.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lockstep/error.h"
#include "passes/passes.h"
#include "plan/cuda/rewrites.h"
#include "plan/random_training_program.h"
#include "plan/schedule_interpreter.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

int64_t random_schedule_count() { return kSanitized ? 20 : long_tests() ? 1000 : 300; }

// Half of the programs are for a GPU of the size of the emulated one.
GpuTarget target_of(uint32_t seed) { return {.processors = seed % 2 == 0 ? 132 : 16}; }

// What occurs in a schedule: forms of tasks, and choices that rewrites make.
std::set<std::string> features_of(const detail::GpuSchedule& schedule) {
  std::set<std::string> out;
  const auto visit = [&](const auto& self, const GpuTask& task) -> void {
    constexpr const char* kForms[] = {"row", "chain", "elements", "ranges", "exchange"};
    out.insert(kForms[static_cast<size_t>(task.form)]);
    if (!task.producers.empty()) out.insert("producer");
    for (const GpuTask::Producer& producer : task.producers) {
      if (!producer.task.producers.empty()) out.insert("nested producer");
      if (producer.written) out.insert("written producer");
    }
    if (task.summed) out.insert("summed");
    if (!task.column_sums.empty()) out.insert("column sums");
    if (task.stage == TaskStage::partial) out.insert("split reduction");
    for (const TaskValue& result : task.out)
      if (result.memory != result.id) out.insert("in place");
    for (const GpuTask& member : task.members) self(self, member);
  };
  for (const detail::KernelSchedule& kernel : schedule.kernels)
    for (const GpuTask& task : kernel.tasks) visit(visit, task);
  return out;
}

void expect_valid(const detail::GpuSchedule& schedule, const std::string& text) {
  for (const detail::KernelSchedule& kernel : schedule.kernels) check(kernel);
  EXPECT_EQ(print(detail::parse_schedule(text)), text);
}

void expect_computes(const ScheduledProgram& scheduled, const HostArrays& in, const std::vector<bool>& donated,
                     const HostArrays& wanted, uint32_t seed) {
  ScheduleInterpreter interpreter(scheduled, in, seed);
  interpreter.run(scheduled.schedule);
  for (size_t o = 0; o < wanted.size(); ++o)
    EXPECT_TRUE(same_bits(interpreter.value(scheduled.outputs[o]), wanted[o])) << "result " << o << " differs";
  for (size_t i = 0; i < in.size(); ++i)
    if (!donated[i]) {
      EXPECT_TRUE(same_bits(interpreter.value(scheduled.inputs[i]), in[i])) << "input " << i << " was overwritten";
    }
}

// Expects that schedules of a program are correct. Returns what is in that with all rewrites, and counts in `changed`
// which rewrites made a difference.
std::set<std::string> expect_correct_schedules(uint32_t seed, std::map<std::string_view, int>& changed) {
  RandomTrainingProgram random(seed);
  const Program program = random.take(), lowered = lower(program);
  const HostArrays in = RandomTrainingProgram::inputs(program, seed), wanted = eager(program, in);
  std::string with_all;
  std::set<std::string> features;
  const auto test = [&](const std::vector<std::string>& off) {
    SCOPED_TRACE(fmt::format("LOCKSTEP_RANDOM_SEED={}, without {}", seed, off.empty() ? "no rewrite" : off[0]));
    const detail::RewritesOff switched_off(off);
    const ScheduledProgram scheduled = schedule_program(lowered, random.donated(), target_of(seed));
    const std::string text = print(scheduled.schedule);
    if (text == with_all) return false;
    if (off.empty()) {
      with_all = text;
      features = features_of(scheduled.schedule);
    }
    try {
      expect_valid(scheduled.schedule, text);
      expect_computes(scheduled, in, random.donated(), wanted, seed);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure()) ADD_FAILURE() << text << "\n" << print(lowered);
    return true;
  };
  test({});
  for (const detail::Rewrite& rewrite : detail::all_rewrites())
    if (rewrite.optional && !testing::Test::HasFailure())
      changed[rewrite.name] += test({std::string(rewrite.name)}) ? 1 : 0;
  return features;
}

TEST(RandomSchedules, RewritesDoNotChangeResults) {
  const RandomSeeds seeds = RandomSeeds::of(random_schedule_count());
  std::map<std::string_view, int> changed;
  std::map<std::string, int> seen;
  for (uint32_t seed = seeds.first; seed < seeds.end && !HasFailure(); ++seed)
    for (const std::string& feature : expect_correct_schedules(seed, changed)) ++seen[feature];
  if (HasFailure()) return;
  // A rewrite that never applies would not be tested.
  const int programs = static_cast<int>(seeds.end - seeds.first);
  for (const auto& [name, times] : changed) EXPECT_GE(times, programs / 20) << name;
  for (const char* const feature : {"chain", "elements", "ranges", "exchange", "nested producer", "written producer",
                                    "summed", "column sums", "split reduction", "in place"})
    EXPECT_GE(seen[feature], programs / 100) << feature;
}

}  // namespace
}  // namespace lockstep
#endif
