// What shape ops state without being run: sharding rules, folding and errors.
#include "ops/evaluate.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// ---- sharding rules

TEST(ShapeOps, RulesShareFactorsOfUnchangedDimensions) {
  auto text = [](const Rule& r) {
    std::string out;
    for (const auto& t : r.in) out += t + ",";
    out.back() = '>';
    out += r.out[0] + " unsharded " + r.unsharded;
    for (const auto& [factor, step] : r.in_step.empty() ? std::map<char, int64_t>() : r.in_step[0])
      out += std::string(" ") + factor + " before by " + std::to_string(step);
    for (const auto& [factor, step] : r.out_step.empty() ? std::map<char, int64_t>() : r.out_step[0])
      out += std::string(" ") + factor + " after by " + std::to_string(step);
    return out;
  };
  const std::vector<Type> x = {{f32, {4, 6, 5}}};
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{4, 2, 3, 5}}})), "abd>abcd unsharded c b before by 3");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{8, 15}}})), "abc>ad unsharded bcd a after by 2");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{6, 20}}})), "abc>ad unsharded bcd a before by 2 a after by 3");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{1, 4, 6, 5}}})), "bcd>abcd unsharded a");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{5, 24}}})), "abc>de unsharded abcde");
  EXPECT_EQ(text(slice_op.rule(x, {{"starts", Dims{0, 0, 1}}, {"limits", Dims{4, 6, 3}}, {"strides", Dims{1, 1, 1}}})),
            "abc>abd unsharded cd");
  EXPECT_EQ(text(broadcast_op.rule(x, {{"shape", Dims{4, 2, 6, 5}}, {"dims", Dims{0, 2, 3}}})), "acd>abcd unsharded ");
  EXPECT_EQ(text(transpose_op.rule(x, {{"permutation", Dims{2, 0, 1}}})), "abc>cab unsharded ");
}

// A batch of empty arrays, and an empty batch.
TEST(Reshape, SharesEqualLeadingDimensionsOfEmptyArrays) {
  for (const Shape& x : {Shape{5, 0, 3}, Shape{0, 2, 6}}) {
    const std::vector<Type> in{{f32, x}};
    const Rule rule = reshape_op.rule(in, {{"shape", x[0] == 0 ? Shape{0, 3, 4} : Shape{5, 4, 0}}});
    EXPECT_EQ(rule.in[0][0], rule.out[0][0]);
    EXPECT_EQ(rule.unsharded, rule.in[0].substr(1) + rule.out[0].substr(1));
  }
}

// As many operands as a large model has parameters; a factor for each would exceed the limit.
TEST(Concatenate, CanBeShardedWithHundredsOfOperands) {
  std::vector<Type> in(300, {f32, {1, 4}});
  in[7].shape[0] = 2;
  const Rule rule = concatenate_op.rule(in, {{"axis", 0}});
  ASSERT_EQ(rule.in.size(), 300u);
  EXPECT_EQ(rule.in[0], rule.in[299]);
  EXPECT_NE(rule.in[0], rule.in[7]);
  EXPECT_EQ(rule.out[0][1], rule.in[0][1]);
  for (const std::string& term : {rule.in[0], rule.in[7], rule.out[0]})
    EXPECT_NE(rule.unsharded.find(term[0]), std::string::npos) << term;
}

// Operands of more different extents than there are letters.
TEST(Concatenate, CanBeShardedAndBatchedWithAnyExtents) {
  std::vector<Type> in;
  for (int64_t n = 1; n <= 100; ++n) in.push_back({f32, {n, 4}});
  const Rule rule = concatenate_op.rule(in, {{"axis", 0}});
  ASSERT_EQ(rule.in.size(), 100u);
  for (const std::string& term : rule.in) {
    EXPECT_NE(rule.unsharded.find(term[0]), std::string::npos) << term;
    EXPECT_EQ(term[1], rule.out[0][1]);
  }
  EXPECT_EQ(rule.unsharded.find(rule.out[0][1]), std::string::npos);

  Builder b;
  Values operands;
  for (const Type& type : in) operands.push_back(b.input(type));
  const Value joined = concatenate(operands, 0);
  const BatchedProgram batched = batch(b.take(Values{joined}), std::vector<bool>(100, true), 3, {});
  EXPECT_EQ(to_string(batched.program.output_types()[0]), "f32[3,5050,4]");
}

// ---- folding

// The body of a simplified program of one f32[2,3] input.
std::string folded(const ValueFunction& f) {
  const std::string text = simplified({{f32, {2, 3}}}, f);
  const size_t begin = text.find('\n') + 1;
  return text.substr(begin, text.rfind('\n', text.size() - 2) + 1 - begin);
}

TEST(ShapeOps, FoldToTheirOperandWhenNothingChanges) {
  const std::string same = "  return %0\n";
  EXPECT_EQ(folded([](const Values& in) { return Values{reshape(in[0], {2, 3})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{reshape(reshape(in[0], {6}), {2, 3})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{transpose(in[0], {0, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{transpose(transpose(in[0], {1, 0}), {1, 0})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{broadcast(in[0], {2, 3}, {0, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{slice(in[0], {0, 0}, {2, 3}, {1, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{reverse(reverse(in[0], {0, 1}), {0, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{concatenate({in[0]}, 0)}; }), same);
  EXPECT_EQ(folded([](const Values& in) {
              return Values{pad(in[0], full(in[0].builder(), {f32, {}}, 0), {0, 0}, {0, 0}, {0, 0})};
            }),
            same);
  EXPECT_EQ(folded([](const Values& in) {
              const Value zero = full(in[0].builder(), {i32, {}}, 0);
              return Values{dynamic_slice(in[0], {zero, zero}, {2, 3})};
            }),
            same);
}

TEST(ShapeOps, FoldPairsIntoOne) {
  EXPECT_EQ(folded([](const Values& in) {
              return Values{reshape(reshape(in[0], {6}), {3, 2})};
            }),
            "  %1:f32[3,2] = reshape[shape=[3,2]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{broadcast(in[0], {2, 1, 3}, {0, 2})};
            }),
            "  %1:f32[2,1,3] = reshape[shape=[2,1,3]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{broadcast(broadcast(in[0], {4, 2, 3}, {1, 2}), {4, 2, 5, 3}, {0, 1, 3})};
            }),
            "  %1:f32[4,2,5,3] = broadcast[dims=[1,3], shape=[4,2,5,3]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{transpose(reshape(in[0], {2, 1, 3}), {1, 0, 2})};
            }),
            "  %1:f32[1,2,3] = reshape[shape=[1,2,3]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{slice(slice(in[0], {0, 1}, {2, 3}, {1, 1}), {1, 0}, {2, 2}, {1, 1})};
            }),
            "  %1:f32[1,2] = slice[limits=[2,3], starts=[1,1], strides=[1,1]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{reverse(reverse(in[0], {0}), {0, 1})};
            }),
            "  %1:f32[2,3] = reverse[axes=[1]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              Builder& b = in[0].builder();
              return Values{dynamic_slice(in[0], {full(b, {i32, {}}, 7), full(b, {i32, {}}, 1)}, {1, 2})};
            }),
            "  %1:f32[1,2] = slice[limits=[2,3], starts=[1,1], strides=[1,1]] %0\n  return %1\n");
}

TEST(ShapeOps, ViewsOfFullFoldToFull) {
  auto made = [](const std::function<Value(Value)>& f) {
    return folded([&](const Values& in) { return Values{f(full(in[0].builder(), {f32, {2, 3}}, 2.5))}; });
  };
  const std::string wanted = "  %1:f32[3,2] = full[dtype=f32, shape=[3,2], value=2.5]\n  return %1\n";
  EXPECT_EQ(made([](Value x) { return reshape(x, {3, 2}); }), wanted);
  EXPECT_EQ(made([](Value x) { return transpose(x, {1, 0}); }), wanted);
  EXPECT_EQ(made([](Value x) { return reverse(reshape(x, {3, 2}), {0}); }), wanted);
  EXPECT_EQ(made([](Value x) {
              return slice(broadcast(x, {7, 2, 3}, {1, 2}), {1, 0, 2}, {7, 2, 3}, {2, 1, 1});
            }),
            "  %1:f32[3,2,1] = full[dtype=f32, shape=[3,2,1], value=2.5]\n  return %1\n");
  EXPECT_EQ(made([](Value x) { return pad(x, full(x.builder(), {f32, {}}, 2.5), {1, 0}, {0, -1}, {0, 0}); }), wanted);
  EXPECT_EQ(made([](Value x) {
              return reshape(concatenate({x, x}, 0), {12});
            }),
            "  %1:f32[12] = full[dtype=f32, shape=[12], value=2.5]\n  return %1\n");
}

// ---- errors

struct WrongCall {
  std::function<void()> call;
  std::string message;
};

void expect_errors(const std::vector<WrongCall>& calls) {
  for (const auto& [call, message] : calls) EXPECT_EQ(error_of(call), message);
}

TEST(ShapeOps, ErrorsOfViewsNameTheFactAndTheRemedy) {
  Builder b;
  const Value x = b.input({f32, {2, 3}});
  expect_errors({
      {[&] {
         reshape(x, {4, 2});
       },
       "reshape: [2, 3] has 6 elements and [4, 2] has 8; the number of elements must not change"},
      {[&] {
         broadcast(x, {2, 4}, {0, 1});
       },
       "broadcast: dimension 1 of [2, 3] cannot become dimension 1 of [2, 4]; the extents must be equal"},
      {[&] {
         broadcast(x, {3, 2}, {1, 0});
       },
       "broadcast: the output dimensions [1, 0] do not increase; transpose first"},
      {[&] {
         broadcast(x, {2, 3}, {0});
       },
       "broadcast: [2, 3] has 2 dimensions and got 1 output dimensions; give one for each"},
      {[&] {
         transpose(x, {0, 0});
       },
       "transpose: [0, 0] is not a permutation of the 2 dimensions of [2, 3]; name each dimension once"},
      {[&] {
         slice(x, {0, 1}, {2, 4}, {1, 1});
       },
       "slice: 1:4 is not within dimension 1 of [2, 3]; ranges must be within 0:3"},
      {[&] {
         slice(x, {0, 0}, {2, 3}, {1, 0});
       },
       "slice: stride 0 of dimension 1 is not positive; use reverse to walk backwards"},
      {[&] { slice(x, {0}, {2}, {1}); },
       "slice: [2, 3] has 2 dimensions and got 1 starts, 1 limits and 1 strides; give one of each per dimension"},
      {[&] { reverse(x, {2}); }, "reverse: axis 2 is out of range for [2, 3]; valid axes: 0 to 1"},
      {[&] {
         reverse(x, {1, 1});
       },
       "reverse: axis 1 appears twice in [1, 1]; name each axis once"},
  });
}

TEST(ShapeOps, ErrorsOfPadAndConcatenateNameTheFactAndTheRemedy) {
  Builder b;
  const Value x = b.input({f32, {2, 3}}), s = b.input({f32, {}}), i = b.input({i32, {}});
  expect_errors({
      {[&] {
         pad(x, x, {0, 0}, {0, 0}, {0, 0});
       },
       "pad: the value is f32[2,3]; it must be a scalar"},
      {[&] {
         pad(x, i, {0, 0}, {0, 0}, {0, 0});
       },
       "pad: f32[2,3] and i32[] differ in type; cast one of them"},
      {[&] {
         pad(x, s, {INT64_MAX, 0}, {INT64_MAX, 0}, {0, 0});
       },
       "pad: low 9223372036854775807, high 9223372036854775807 and interior 0 make dimension 0 of [2, 3] too large "
       "for 64 bits"},
      {[&] {
         pad(x, s, {-2, 0}, {-1, 0}, {0, 0});
       },
       "pad: low -2 and high -1 remove more than all of dimension 0 of [2, 3]; the result would have extent -1"},
      {[&] {
         pad(x, s, {0, 0}, {0, 0}, {0, -1});
       },
       "pad: interior amount -1 of dimension 1 is negative; use slice with a stride to take elements out"},
      {[&] { concatenate({}, 0); }, "concatenate: got no operands; give at least one"},
      {[&] {
         concatenate({x, reshape(x, {3, 2})}, 0);
       },
       "concatenate: [2, 3] and [3, 2] do not fit along axis 0; all other extents must be equal"},
      {[&] { concatenate({s}, 0); }, "concatenate: axis 0 is out of range; a scalar has no axes"},
  });
}

TEST(ShapeOps, ErrorsOfDynamicSlicesNameTheFactAndTheRemedy) {
  Builder b;
  const Value x = b.input({f32, {2, 3}}), s = b.input({f32, {}}), i = b.input({i32, {}});
  expect_errors({
      {[&] { dynamic_slice(x, {i}, {1}); },
       "dynamic_slice: [2, 3] has 2 dimensions and got 1 starts and a block of [1]; give one of each per dimension"},
      {[&] {
         dynamic_slice(x, {i, s}, {1, 1});
       },
       "dynamic_slice: start 1 is f32[]; starts must be i32 or i64"},
      {[&] {
         dynamic_slice(x, {i, i}, {1, 4});
       },
       "dynamic_slice: a block of 4 elements does not fit dimension 1 of [2, 3]; valid sizes: 0 to 3"},
      {[&] {
         update_slice(x, s, {i, i});
       },
       "update_slice: [] cannot replace a block of [2, 3]; the ranks must be equal"},
  });
}

}  // namespace
}  // namespace lockstep
