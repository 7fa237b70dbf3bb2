// Attrs and the Builder.
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "rows/eager.h"

namespace lockstep {
namespace {

TEST(Attrs, AreSortedAndReplaced) {
  Attrs a{{"b", int64_t{1}}, {"a", true}};
  EXPECT_EQ(a.begin()->first, "a");
  a.set("b", int64_t{2});
  a.set("c", 0.5);
  EXPECT_EQ(a.integer("b"), 2);
  EXPECT_EQ(a.get_or<double>("c", 0), 0.5);
  EXPECT_EQ(a.get_or<double>("d", 7), 7);
  a.erase("c");
  EXPECT_EQ(a.find("c"), nullptr);
  EXPECT_EQ(a, (Attrs{{"a", true}, {"b", int64_t{2}}}));
}

TEST(Attrs, CompareBitsOfRealsAndContentOfPrograms) {
  auto one = [](Attr value) { return Attrs{{"x", std::move(value)}}; };
  EXPECT_EQ(one(std::nan("")), one(-std::nan("")));
  EXPECT_FALSE(one(0.0) == one(-0.0));
  EXPECT_FALSE(one(1.0) == one(int64_t{1}));
  auto body = [](DType t) {
    Builder b;
    return std::make_shared<const Program>(b.take(Values{b.input({t, {}})}));
  };
  EXPECT_EQ(one(body(f32)), one(body(f32)));
  EXPECT_FALSE(one(body(f32)) == one(body(f64)));
}

TEST(Builder, DerivesTypesAndRejectsMismatches) {
  Builder b;
  const Value x = b.input({f32, {2, 3}}), n = b.input({i32, {2, 3}});
  EXPECT_EQ(to_string(lt(x, x).type()), "bool[2,3]");
  const Program before = b.finish({});
  EXPECT_EQ(error_of([&] { add(x, n); }), "add: operands are f32[2,3] and i32[2,3]; cast one of them");
  EXPECT_EQ(b.finish({}), before);
}

TEST(Builder, FindsTheDefinitionOfAValue) {
  Builder b;
  const Value x = b.input({f32, {}}), y = tanh(x);
  EXPECT_EQ(b.definition(x), nullptr);
  EXPECT_EQ(b.definition(y)->op, &tanh_op);
}

TEST(Builder, InlinesAProgram) {
  const Program square = trace({{f32, {2}}}, [](const Values& in) { return Values{in[0] * in[0], in[0]}; });
  Builder b;
  const Value x = b.input({f32, {2}});
  const Values out = b.inline_program(square, Values{neg(x)});
  EXPECT_EQ(out[1], (Value(&b, 1)));
  EXPECT_EQ(print(b.take(out)),
            "program(%0:f32[2]) {\n  %1:f32[2] = neg %0\n  %2:f32[2] = mul %1 %1\n  return %2 %1\n}\n");
}

TEST(Builder, FinishLeavesTheBuilderUsable) {
  Builder b;
  const Value x = b.input({f32, {}});
  const Program first = b.finish(Values{x});
  const Program second = b.finish(Values{neg(x)});
  EXPECT_EQ(first.eqns.size(), 0u);
  EXPECT_EQ(second.eqns.size(), 1u);
}

TEST(BuilderDeathTest, OperandsBelongToOneBuilder) {
  Builder a, b;
  const Value x = a.input({f32, {}}), y = b.input({f32, {}});
  EXPECT_DEATH(add(x, y), "an operand belongs to another builder");
}

TEST(Rule, IsParsedFromText) {
  const Rule r = parse_rule("ik, kj->ij");
  EXPECT_EQ(r.in, (std::vector<std::string>{"ik", "kj"}));
  EXPECT_EQ(r.out, (std::vector<std::string>{"ij"}));
}

TEST(InferTypes, FollowsTheRule) {
  const Op product{.name = "product", .rule = [](Types, const Attrs&) { return parse_rule("ik,kj->ij"); }};
  auto infer = [&](const std::vector<Type>& in) { return infer_types(product, in, {}); };
  EXPECT_EQ(infer({{f64, {2, 3}}, {f64, {3, 4}}}), (std::vector<Type>{{f64, {2, 4}}}));
  EXPECT_EQ(
      error_of([&] {
        infer({{f64, {2, 3}}, {f64, {5, 4}}});
      }),
      "product: dimension 0 of operand 1, [5, 4], has extent 5, but another operand has 3; the extents must agree");
  EXPECT_EQ(error_of([&] {
              infer({{f64, {2, 3}}, {f32, {3, 4}}});
            }),
            "product: operand 0 is f64[2,3] and operand 1 is f32[3,4]; cast one of them");
  EXPECT_EQ(error_of([&] {
              infer({{f64, {2, 3}}, {f64, {3}}});
            }),
            "product: operand 1 is f64[3], of rank 1; rank 2 is required");
  EXPECT_EQ(error_of([&] { infer({{f64, {2, 3}}}); }), "product: 1 operands given; the op takes 2");
}

}  // namespace
}  // namespace lockstep
