// The columns jvp and batch of while_loop.
#include <gtest/gtest.h>

#include "base/throws.h"
#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "passes/passes.h"
#include "rows/eager.h"

namespace lockstep {
namespace {

// Maps inputs and tangents of the wanted ones to outputs and tangents, as the transpose of the transpose.
Program jvp_by_transposing(const Program& p, const std::vector<bool>& wanted) {
  const Program once = joint(p, wanted);
  std::vector<bool> cotangents(once.inputs.size(), true);
  std::fill_n(cotangents.begin(), p.inputs.size(), false);
  const Program twice = joint(once, cotangents);
  Builder b;
  Values args, tangents;
  for (ValueId id : p.inputs) args.push_back(b.input(p.types[id]));
  for (size_t i = 0; i < p.inputs.size(); ++i)
    if (wanted[i]) tangents.push_back(b.input(p.types[p.inputs[i]]));
  for (size_t i = p.inputs.size(); i + tangents.size() < twice.inputs.size(); ++i)
    args.push_back(full(b, twice.types[twice.inputs[i]], 0.0));
  args.insert(args.end(), tangents.begin(), tangents.end());
  Values out = b.inline_program(twice, args);
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(p.outputs.size()),
            out.begin() + static_cast<std::ptrdiff_t>(p.outputs.size() + tangents.size()));
  return b.take(out);
}

Program loop_program(std::string_view text) { return parse(text, all_ops()); }

// Multiplies x by c until it is at least 10, and counts the rounds.
Program power_program() {
  return loop_program(R"(
    program(%0:f64[], %1:f64[], %2:i32[], %3:f64[]) {
      %4:i32[], %5:f64[] = while_loop[body=program(%0:f64[], %1:i32[], %2:f64[]) {
        %3:i32[] = full[dtype=i32, shape=[], value=1]
        %4:i32[] = add %1 %3
        %5:f64[] = mul %2 %0
        return %4 %5
      }, cond=program(%0:f64[], %1:i32[], %2:f64[]) {
        %3:bool[] = lt %2 %0
        return %3
      }] %0 %1 %2 %3
      return %4 %5
    })");
}

HostArray scalar(DType dtype, double value) {
  HostArray x({dtype, {}});
  x.set(0, value);
  return x;
}

TEST(WhileLoopRow, CarriesTangents) {
  const Program p = power_program();
  SubPrograms passes = kSubPrograms;
  passes.jvp = jvp_by_transposing;
  // d(c^n x) = n c^(n-1) x dc + c^n dx; with 4 rounds of c = 2 from x = 1. The limit has a tangent, too, without
  // effect.
  for (const auto& [dc, dx] : {std::pair{true, true}, {true, false}, {false, true}}) {
    Builder b;
    Values in, tangents(4);
    for (ValueId id : p.inputs) in.push_back(b.input(p.types[id]));
    tangents[0] = b.input({f64, {}});
    if (dc) tangents[1] = b.input({f64, {}});
    if (dx) tangents[3] = b.input({f64, {}});
    const Eqn& eqn = p.eqns[0];
    const JvpResult result = eqn.op->jvp({*eqn.op, eqn.attrs, in, {}, tangents, b, passes});
    EXPECT_FALSE(result.tangents[0]);
    const Program both = b.take(Values{result.out[0], result.out[1], result.tangents[1]});
    ASSERT_NO_THROW(check(both)) << print(both);
    HostArrays args{scalar(f64, 10), scalar(f64, 2), scalar(i32, 0), scalar(f64, 1), scalar(f64, 7)};
    if (dc) args.push_back(scalar(f64, 1));
    if (dx) args.push_back(scalar(f64, 0.5));
    const HostArrays got = planned(both, args);
    EXPECT_EQ(got[0].get(0), 4);
    EXPECT_EQ(got[1].get(0), 16);
    EXPECT_EQ(got[2].get(0), (dc ? 32 : 0) + (dx ? 8 : 0));
  }
}

// The cache of keys is constant for the loop, so attention in the body sees the operand.
TEST(WhileLoopRow, ConstantsKeepTheirOperands) {
  const Program p = power_program();
  const Eqn& eqn = p.eqns[0];
  EXPECT_EQ(eqn.op->operand_of_input(eqn, "cond", 0), 0);
  EXPECT_EQ(eqn.op->operand_of_input(eqn, "body", 0), 1);
  EXPECT_EQ(eqn.op->operand_of_input(eqn, "cond", 1), -1);
  EXPECT_EQ(eqn.op->operand_of_input(eqn, "body", 2), -1);
}

TEST(WhileLoopRow, BatchOfTheConditionSelectsTheRunningExamples) {
  EXPECT_EQ(print(simplify(batch(power_program(), {false, false, false, true}, 2, {}).program)),
            R"(program(%0:f64[], %1:f64[], %2:i32[], %3:f64[2]) {
  %4:i32[2] = broadcast[dims=[], shape=[2]] %2
  %5:f64[2] = broadcast[dims=[], shape=[2]] %0
  %6:bool[2] = lt %3 %5
  %7:bool[2], %8:i32[2], %9:f64[2] = while_loop[body=program(%0:f64[], %1:f64[], %2:bool[2], %3:i32[2], %4:f64[2]) {
      %5:i32[] = full[dtype=i32, shape=[], value=1]
      %6:i32[2] = broadcast[dims=[], shape=[2]] %5
      %7:i32[2] = add %3 %6
      %8:f64[2] = broadcast[dims=[], shape=[2]] %1
      %9:f64[2] = mul %4 %8
      %10:bool[2] = broadcast[dims=[0], shape=[2]] %2
      %11:i32[2] = select %10 %7 %3
      %12:bool[2] = broadcast[dims=[0], shape=[2]] %2
      %13:f64[2] = select %12 %9 %4
      %14:f64[2] = broadcast[dims=[], shape=[2]] %0
      %15:bool[2] = lt %13 %14
      return %15 %11 %13
    }, cond=program(%0:bool[2], %1:i32[2], %2:f64[2]) {
      %3:bool[] = reduce_or[axes=[0]] %0
      return %3
    }] %0 %1 %6 %4 %3
  return %8 %9
}
)");
}

TEST(WhileLoopRow, ChecksItsTypes) {
  const auto loop = [](const char* cond, const char* body, const Type& carry) {
    Builder b;
    return while_loop(b, std::make_shared<const Program>(loop_program(cond)),
                      std::make_shared<const Program>(loop_program(body)), {}, {}, {b.input(carry)});
  };
  const char* less = "program(%0:i32[]) {\n %1:bool[] = lt %0 %0\n return %1\n}";
  const char* same = "program(%0:i32[]) {\n return %0\n}";
  EXPECT_THROWS(loop(same, same, {i32, {}}), Error, "while_loop: the condition returns i32[]; it must return one bool");
  EXPECT_THROWS(loop(less, "program(%0:i32[]) {\n %1:f32[] = cast[dtype=f32] %0\n return %1\n}", {i32, {}}), Error,
                "while_loop: carry 0 is i32[] before and f32[] after a round; the body must keep its type");
  EXPECT_THROWS(loop(less, same, {f32, {}}), Error,
                "while_loop: the condition takes i32[] as array 0 and got f32[]; pass an array of that type");
  EXPECT_THROWS(loop(less, "program(%0:i32[]) {\n return %0 %0\n}", {i32, {}}), Error,
                "while_loop: 2 carries, but the condition takes 1 arrays and the body 1; both must take all carries");
}

}  // namespace
}  // namespace lockstep
