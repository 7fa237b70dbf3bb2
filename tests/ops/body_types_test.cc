// Ops that contain programs have the types of their bodies: a sum over an axis inside a body does not vary over it.
#include "ops/collectives.h"
#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

const Type kInvariant{f32, {2}}, kVarying{f32, {2}, {"i"}};

// The types, with the axes over which they vary.
std::vector<Type> types_of_values(const Values& values) {
  std::vector<Type> out;
  for (const Value& value : values) out.push_back(value.type());
  return out;
}

TEST(BodyTypes, OnlyWhatVariesInTheBodyVaries) {
  const auto total = std::make_shared<const Program>(trace({kVarying}, [](const Values& in) {
    return Values{psum(in[0], "i"), in[0]};
  }));
  const std::vector<Type> expected = {kInvariant, kVarying};
  Builder b;
  const Value x = b.input(kVarying), yes = b.input({boolean, {}});
  EXPECT_EQ(types_of_values(remat(b, total, {x})), expected);
  EXPECT_EQ(types_of_values(cond(yes, total, total, {x})), expected);
  EXPECT_EQ(types_of_values(custom_vjp(b, total, total, total, 1, {x})), expected);
}

TEST(BodyTypes, CarryOfAScanDoesNotVaryBecauseItsXsDo) {
  const auto body = std::make_shared<const Program>(trace({kInvariant, kVarying}, [](const Values& in) {
    return Values{emit(add_op, {in[0], psum(in[1], "i")}), in[1]};
  }));
  Builder b;
  const Values out = scan(b, body, {b.input(kInvariant)}, {b.input({f32, {3, 2}, {"i"}})}, {}, 3, false);
  EXPECT_EQ(types_of_values(out), (std::vector<Type>{kInvariant, {f32, {3, 2}, {"i"}}}));
}

}  // namespace
}  // namespace lockstep
