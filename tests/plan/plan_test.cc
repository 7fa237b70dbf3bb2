#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "passes/passes.h"
#include "plan/lanes.h"

namespace lockstep {
namespace {

// A plan of a program given as text, with memory for its inputs and outputs. Inputs hold 1, 2, 3, ... as floats.
struct Planned {
  Program program;
  std::unique_ptr<Plan> plan;
  std::vector<BufferPtr> in, out;

  explicit Planned(std::string_view text, std::vector<bool> donated = {}, bool in_place = false)
      : Planned(parse(text, all_ops()), std::move(donated), in_place) {}

  explicit Planned(const Program& given, std::vector<bool> donated = {}, bool in_place = false)
      : program(lower(given)),
        plan(std::make_unique<Plan>(program, Lanes::current().host_pool(),
                                    PlannerOptions{.donated = std::move(donated), .in_place = in_place})) {
    for (const Type& t : program.input_types()) {
      in.push_back(allocate(t.bytes()));
      for (int64_t i = 0; i < count(t.shape); ++i) in.back()->as<float>()[i] = static_cast<float>(i + 1);
    }
    for (size_t j = 0; j < program.outputs.size(); ++j) {
      const int from = plan->donated_input(j);
      out.push_back(from < 0 ? allocate(program.output_types()[j].bytes()) : in[static_cast<size_t>(from)]);
    }
  }

  std::vector<float> result(size_t j) {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const BufferPtr& b : in) from.push_back(b->data());
    for (const BufferPtr& b : out) to.push_back(b->data());
    plan->run(from.data(), to.data());
    const auto n = count(program.output_types()[j].shape);
    return {out[j]->as<float>(), out[j]->as<float>() + n};
  }
  size_t instructions() const {
    const std::string text = plan->describe();
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) - 1;
  }
};

using Floats = std::vector<float>;

TEST(Plan, ReshapesAreFree) {
  Planned run(R"(program(%0:f32[2,3]) {
  %1:f32[6] = reshape[shape=[6]] %0
  %2:f32[6] = neg %1
  %3:f32[3,2] = reshape[shape=[3, 2]] %2
  return %3
})");
  EXPECT_EQ(run.instructions(), 1u) << run.plan->describe();
  EXPECT_EQ(run.result(0), (Floats{-1, -2, -3, -4, -5, -6}));
}

TEST(Plan, ConstantsAreComputedAtCompileTime) {
  Planned run(R"(program(%0:f32[2]) {
  %1:f32[2,2] = full[dtype=f32, shape=[2, 2], value=3.0]
  %2:f32[2] = reduce_sum[axes=[0]] %1
  %3:f32[2] = mul %0 %2
  return %3
})");
  EXPECT_EQ(run.instructions(), 1u) << run.plan->describe();
  EXPECT_EQ(run.result(0), (Floats{6, 12}));
}

TEST(Plan, ChainOfProductsUsesTwoBlocks) {
  std::string text = "program(%0:f32[16,16]) {\n";
  for (int i = 1; i <= 8; ++i)
    text += "  %" + std::to_string(i) + ":f32[16,16] = einsum[spec=\"ij,jk->ik\"] %" + std::to_string(i - 1) + " %0\n";
  Planned run(text + "  return %8\n}");
  EXPECT_EQ(run.plan->arena_bytes(), 2 * 16 * 16 * 4) << run.plan->describe();
}

TEST(Plan, OutputsMayBeInputsDuplicatesAndViews) {
  Planned run(R"(program(%0:f32[4]) {
  %1:f32[4] = neg %0
  %2:f32[2,2] = reshape[shape=[2, 2]] %1
  return %0 %1 %1 %2
})");
  EXPECT_EQ(run.result(0), (Floats{1, 2, 3, 4}));
  for (size_t j : {1, 2, 3}) EXPECT_EQ(run.result(j), (Floats{-1, -2, -3, -4}));
}

TEST(Plan, ResultsOverwriteDonatedInputs) {
  Planned run("program(%0:f32[4], %1:f32[4]) {\n  %2:f32[4] = add %0 %1\n  return %2\n}", {true, false});
  EXPECT_EQ(run.plan->donated_input(0), 0);
  EXPECT_EQ(run.result(0), (Floats{2, 4, 6, 8}));
}

TEST(Plan, DonatedInputsThatAreReadLaterAreNotOverwritten) {
  // The product reads %0 after the first result is computed, and a product cannot run in place.
  Planned run(R"(program(%0:f32[2,2]) {
  %1:f32[2,2] = neg %0
  %2:f32[2,2] = einsum[spec="ij,jk->ik"] %0 %1
  return %1 %2
})",
              {true});
  EXPECT_EQ(run.plan->donated_input(0), -1) << run.plan->describe();
  EXPECT_EQ(run.plan->donated_input(1), -1) << run.plan->describe();
  EXPECT_EQ(run.result(1), (Floats{-7, -10, -15, -22}));
}

TEST(Plan, LaterResultsReuseDeadDonatedInputs) {
  // The row sums are the last use of the input; the product of the sums has the same size.
  Planned run(R"(program(%0:f32[2,2]) {
  %1:f32[2] = reduce_sum[axes=[1]] %0
  %2:f32[2,2] = einsum[spec="i,j->ij"] %1 %1
  return %2
})",
              {true});
  EXPECT_EQ(run.plan->donated_input(0), 0) << run.plan->describe();
  EXPECT_EQ(run.result(0), (Floats{9, 21, 21, 49}));
}

TEST(Plan, DonatedInputsThatAreOutputsKeepTheirMemory) {
  Planned run("program(%0:f32[2], %1:f32[2]) {\n  return %1 %0 %0\n}", {true, true});
  EXPECT_EQ(run.plan->donated_input(0), 1);
  EXPECT_EQ(run.plan->donated_input(1), 0);
  EXPECT_EQ(run.plan->donated_input(2), -1);
  EXPECT_EQ(run.instructions(), 1u) << run.plan->describe();
  EXPECT_EQ(run.result(2), (Floats{1, 2}));
}

TEST(Plan, InPlaceAnInputIsOverwrittenByItsOwnResultOnly) {
  const auto crossed = "program(%0:f32[2], %1:f32[2]) {\n  %2:f32[2] = neg %1\n  return %2 %0\n}";
  Planned anywhere(crossed, {true, true});
  EXPECT_EQ(anywhere.plan->donated_input(0), 1) << anywhere.plan->describe();
  EXPECT_EQ(anywhere.plan->donated_input(1), 0) << anywhere.plan->describe();
  Planned run(crossed, {true, true}, true);
  EXPECT_EQ(run.plan->donated_input(0), -1) << run.plan->describe();
  EXPECT_EQ(run.plan->donated_input(1), -1) << run.plan->describe();
  EXPECT_EQ(run.result(0), (Floats{-1, -2}));
  EXPECT_EQ(run.result(1), (Floats{1, 2}));
  Planned own("program(%0:f32[2], %1:f32[2]) {\n  %2:f32[2] = neg %0\n  return %2 %1\n}", {true, true}, true);
  EXPECT_EQ(own.plan->donated_input(0), 0);
  EXPECT_EQ(own.plan->donated_input(1), 1);
  EXPECT_EQ(own.instructions(), 1u) << own.plan->describe();
  EXPECT_EQ(own.result(0), (Floats{-1, -2}));
}

// More than one iteration: with one the body would read and write the same memory.
TEST(Plan, CarriesOfScansAreUpdatedInPlace) {
  Builder inner;
  const Type one{DType::f32, {2}};
  const Value a = inner.input(one), c = inner.input(one), x = inner.input(one);
  const auto body = std::make_shared<const Program>(inner.take(Values{c, a + c + x, a}));
  for (const int64_t length : {1, 2, 3}) {
    Builder b;
    const Value first = b.input(one), second = b.input(one), xs = b.input({DType::f32, {length, 2}});
    Planned run(b.take(scan(b, body, {first, second}, {xs}, {}, length, false)), {true, true, false});
    for (const size_t i : {0, 1})
      EXPECT_EQ(run.plan->donated_input(i), length > 1 ? static_cast<int>(i) : -1) << run.plan->describe();
    const Floats last = run.result(1);
    const std::vector<Floats> wanted = {{3, 6}, {7, 12}, {15, 24}};
    EXPECT_EQ(last, wanted[static_cast<size_t>(length - 1)]) << length;
  }
}

TEST(Plan, EmptyArraysAndEmptyProgramsRun) {
  Planned empty(
      "program(%0:f32[0,3]) {\n  %1:f32[0,3] = neg %0\n  %2:f32[3] = reduce_sum[axes=[0]] %1\n  return %1 %2\n}");
  EXPECT_EQ(empty.result(1), (Floats{0, 0, 0}));
  Planned nothing("program(%0:f32[2]) {\n  return\n}");
  EXPECT_EQ(nothing.instructions(), 0u);
}

TEST(Plan, DescribesInstructionsAndMemory) {
  Planned run("program(%0:f32[4]) {\n  %1:f32[4] = cumsum[axis=0, reverse=false] %0\n  return %1\n}");
  EXPECT_TRUE(run.plan->describe().starts_with("cumsum f32[4]@in0 -> f32[4]@out0\n")) << run.plan->describe();
}

TEST(Plan, SchedulesContainThoseOfSubPrograms) {
  Planned run(R"(program(%0:bool[], %1:f32[4]) {
    %2:f32[4] = cond[if_false=program(%0:f32[4]) {
      return %0
    }, if_true=program(%0:f32[4]) {
      %1:f32[4] = cumsum[axis=0, reverse=false] %0
      return %1
    }] %0 %1
    return %2
  })");
  EXPECT_EQ(run.plan->schedule(), R"(cond bool[]@in0 f32[4]@in1 -> f32[4]@out0
  body:
    copy f32[4]@in0 -> out0
    arena and constants: 0 bytes
  body:
    cumsum f32[4]@in0 -> f32[4]@out0
    arena and constants: 0 bytes
arena and constants: 0 bytes
)");
  EXPECT_EQ(run.plan->describe(), "cond bool[]@in0 f32[4]@in1 -> f32[4]@out0\narena and constants: 0 bytes\n");
}

}  // namespace
}  // namespace lockstep
