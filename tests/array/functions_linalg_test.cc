#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

Array a23() { return reshape(arange(6, f32), {2, 3}); }
Array b32() { return reshape(arange(6, f32), {3, 2}); }

TEST(Dot, FollowsNumPy) {
  EXPECT_TEXT(dot(a23(), b32()), "f32[2,2] [[10, 13], [28, 40]]");
  EXPECT_TEXT(dot(a23(), array({1, 1, 1})), "f32[2] [3, 12]");
  EXPECT_TEXT(dot(array({1, 1}), a23()), "f32[3] [3, 5, 7]");
  EXPECT_TEXT(dot(array({1, 2, 3}), array({4, 5, 6})), "i32[] 32");
  EXPECT_TEXT(dot(2, array({4, 5})), "i32[2] [8, 10]");
  EXPECT_EQ(dot(zeros({2, 3, 4}), zeros({5, 4, 6})).shape(), (Shape{2, 3, 5, 6}));
  EXPECT_TEXT(dot(array({true, true}), array({true, true})), "i32[] 2");
  EXPECT_TEXT(dot(zeros({2, 0}), zeros({0, 1})), "f32[2,1] [[0], [0]]");
}

TEST(Dot, RejectsMismatchedDimensions) {
  EXPECT_THROWS(dot(zeros({128, 784}), zeros({785, 10})), Error,
                "dot: shapes [128, 784] and [785, 10] do not fit: dimension 1 of the first is 784, dimension 0 of the "
                "second is 785");
  EXPECT_THROWS(
      matmul(zeros({7, 2, 3}), zeros({4})), Error,
      "matmul: shapes [7, 2, 3] and [4] do not fit: dimension 2 of the first is 3, dimension 0 of the second is 4");
  EXPECT_THROWS(matmul(zeros({2, 2, 3}), zeros({3, 3, 4})), Error, "matmul: shapes [2] and [3] do not broadcast");
  EXPECT_THROWS(matmul(2, zeros({3})), Error, "matmul: operands [] and [3] include a scalar; use * to scale");
}

TEST(Matmul, BroadcastsBatches) {
  EXPECT_TEXT(matmul(a23(), b32()), "f32[2,2] [[10, 13], [28, 40]]");
  EXPECT_TEXT(matmul(array({1.0f, 1.0f}), a23()), "f32[3] [3, 5, 7]");
  EXPECT_TEXT(matmul(array({1, 2}), array({3, 4})), "i32[] 11");
  EXPECT_EQ(matmul(zeros({5, 1, 2, 3}), zeros({4, 3, 6})).shape(), (Shape{5, 4, 2, 6}));
  EXPECT_EQ(matmul(zeros({1, 2, 3}), zeros({1, 3, 6})).shape(), (Shape{1, 2, 6}));
  EXPECT_EQ(matmul(zeros({4, 2, 3}), zeros({3})).shape(), (Shape{4, 2}));
  EXPECT_EQ(matmul(zeros({3}), zeros({4, 3, 2})).shape(), (Shape{4, 2}));
  const Array x = reshape(arange(24, f32), {4, 2, 3}), y = reshape(arange(6, f32), {1, 3, 2});
  const Array batched = matmul(x, y);
  for (int i = 0; i < 4; ++i) EXPECT_ELEMENTS(at(batched, i), dot(at(x, i), at(y, 0)).to_vector<double>(), 1e-4);
}

TEST(Einsum, ContractsTwoOperands) {
  EXPECT_TEXT(einsum("ik,kj->ij", a23(), b32()), "f32[2,2] [[10, 13], [28, 40]]");
  EXPECT_TEXT(einsum(" ik , kj -> ji ", a23(), b32()), "f32[2,2] [[10, 28], [13, 40]]");
  EXPECT_TEXT(einsum("ik,kj", a23(), b32()), "f32[2,2] [[10, 13], [28, 40]]");
  EXPECT_TEXT(einsum("i,i->i", array({1, 2}), array({3, 4})), "i32[2] [3, 8]");
  EXPECT_TEXT(einsum("i,j->ij", array({1, 2}), array({3, 4})), "i32[2,2] [[3, 4], [6, 8]]");
  EXPECT_TEXT(einsum("ij,k->k", a23(), array({1.0f, 2.0f})), "f32[2] [15, 30]");
  EXPECT_TEXT(einsum("ij,j->", a23(), array({1, 2, 3})), "f32[] 34");
  EXPECT_TEXT(einsum("ii,i->i", array({{1, 2}, {3, 4}}), array({10, 100})), "i32[2] [10, 400]");
}

TEST(Einsum, RearrangesOneOperand) {
  const Array square = array({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}});
  EXPECT_TEXT(einsum("ii", square), "i32[] 15");
  EXPECT_TEXT(einsum("ii->i", square), "i32[3] [1, 5, 9]");
  EXPECT_TEXT(einsum("ij->ji", a23()), "f32[3,2] [[0, 3], [1, 4], [2, 5]]");
  EXPECT_TEXT(einsum("ba", a23()), "f32[3,2] [[0, 3], [1, 4], [2, 5]]");
  EXPECT_TEXT(einsum("ij->", a23()), "f32[] 15");
  EXPECT_TEXT(einsum("ij->j", a23()), "f32[3] [3, 5, 7]");
  const Array cube = reshape(arange(8), {2, 2, 2});
  EXPECT_TEXT(einsum("iii->i", cube), "i32[2] [0, 7]");
  EXPECT_TEXT(einsum("iji->ji", cube), "i32[2,2] [[0, 5], [2, 7]]");
}

TEST(Einsum, TakesManyOperands) {
  const Array x = array({1.0f, 2.0f}), y = array({1.0f, 1.0f, 2.0f});
  EXPECT_TEXT(einsum("i,ij,j->", {x, a23(), y}), "f32[] 39");
  EXPECT_TEXT(einsum("ij,jk,kl->il", {a23(), b32(), eye(2)}), "f32[2,2] [[10, 13], [28, 40]]");
  EXPECT_TEXT(einsum("i,i,i->i", {x, x, x}), "f32[2] [1, 8]");
}

TEST(Einsum, DotsStandForUnnamedDimensions) {
  const Array a = reshape(arange(24.f), {2, 1, 3, 4}), b = reshape(arange(40.f), {5, 4, 2});
  const std::string wanted = matmul(a, b).to_string();
  EXPECT_TEXT(einsum("...ij,...jk->...ik", a, b), wanted);
  EXPECT_TEXT(einsum("... ij, ...jk", a, b), wanted);
  EXPECT_TEXT(einsum("...AB,...BC->...AC", a, b), wanted);
  EXPECT_TEXT(jit([](Array x, Array y) { return einsum("...ij,...jk->...ik", x, y); })(a, b), wanted);
  EXPECT_TEXT(einsum("...ij,jk->...ik", a, ones({4, 2})), matmul(a, ones({4, 2})).to_string());
  EXPECT_TEXT(einsum("...i->...", array({{1, 2}, {3, 4}})), "i32[2] [3, 7]");
  EXPECT_TEXT(einsum("i...->...", array({{1, 2}, {3, 4}})), "i32[2] [4, 6]");
  EXPECT_TEXT(einsum("i...j->ji...", ones({2, 5, 3})), ones({3, 2, 5}).to_string());
  EXPECT_TEXT(einsum("...i,...i->...", array({1, 2}), array({3, 4})), "i32[] 11");
  EXPECT_TEXT(einsum("...,...->...", array({{1, 2}}), array({{3}, {4}})), "i32[2,2] [[3, 6], [4, 8]]");
  const auto total = [](Array x, Array y) { return sum(einsum("...ij,...jk->...ik", x, y)); };
  EXPECT_TEXT(grad<1>(total)(a, b), grad<1>([](Array x, Array y) { return sum(matmul(x, y)); })(a, b).to_string());
  EXPECT_THROWS(einsum("...i->i", ones({2, 3})), Error, "einsum: the result of \"...i->i\" lacks the \"...\"");
  EXPECT_THROWS(einsum("...ij->...", ones({3})), Error,
                "einsum: term \"...ij\" of \"...ij->...\" names 2 dimensions, but its operand is [3]");
  EXPECT_THROWS(einsum("...i,...i->...", ones({2, 3}), ones({4, 3})), Error,
                "einsum: shapes [2] and [4] do not broadcast");
  EXPECT_THROWS(einsum("..i->i", ones({3})), Error, "einsum: '.' in \"..i->i\" is not a letter");
  EXPECT_THROWS(einsum("......->...", ones({3})), Error, "einsum: '.' in");
}

TEST(Einsum, RejectsInvalidSpecs) {
  EXPECT_THROWS(einsum("ik,kj->ij", a23(), a23()), Error,
                "einsum: 'k' of \"ik,kj->ij\" is 3 in [2, 3] and 2 in [2, 3]; the extents must agree");
  EXPECT_THROWS(einsum("ii", a23()), Error, "einsum: 'i' of \"ii\" is 2 in [2, 3] and 3 in [2, 3]");
  EXPECT_THROWS(einsum("ijk->i", a23()), Error,
                "einsum: term \"ijk\" of \"ijk->i\" names 3 dimensions, but its operand is [2, 3]");
  EXPECT_THROWS(einsum("ij,j->i", a23()), Error, "einsum: \"ij,j->i\" has 2 terms for 1 operands");
  EXPECT_THROWS(einsum("i.j->j", a23()), Error, "einsum: '.' in \"i.j->j\" is not a letter");
  EXPECT_THROWS(einsum("ij->ii", a23()), Error, "einsum: 'i' occurs twice in the result of \"ij->ii\"");
  EXPECT_THROWS(einsum("ij->k", a23()), Error, "einsum: 'k' in the result of \"ij->k\" occurs in no operand");
}

TEST(Tensordot, SumsOverTheGivenAxes) {
  EXPECT_TEXT(outer(array({1, 2}), array({{3}, {4}})), "i32[2,2] [[3, 4], [6, 8]]");
  EXPECT_TEXT(tensordot(a23(), b32(), 1), "f32[2,2] [[10, 13], [28, 40]]");
  EXPECT_TEXT(tensordot(a23(), a23()), "f32[] 55");
  EXPECT_TEXT(tensordot(a23(), a23(), {0}, {-2}), "f32[3,3] [[9, 12, 15], [12, 17, 22], [15, 22, 29]]");
  EXPECT_THROWS(tensordot(a23(), b32(), 3), Error,
                "tensordot: 3 axes for [2, 3] and [3, 2]; use at most the lower rank");
  EXPECT_THROWS(tensordot(a23(), b32(), {0, 1}, {0}), Error,
                "tensordot: 2 axes of the first operand and 1 of the second");
  EXPECT_THROWS(tensordot(a23(), b32(), {0}, {0}), Error,
                "tensordot: shapes [2, 3] and [3, 2] do not fit: dimension 0 of the first is 2");
}

TEST(Products, HaveGradients) {
  const Array g = grad([](const Array& x) { return sum(dot(x, b32())); })(a23());
  EXPECT_TEXT(g, "f32[2,3] [[1, 5, 9], [1, 5, 9]]");
  EXPECT_TEXT(grad([](const Array& x) { return einsum("ii", x); })(ones({2, 2})), "f32[2,2] [[1, 0], [0, 1]]");
  EXPECT_TEXT(grad([](const Array& x) { return sum(matmul(x, b32())); })(ones({2, 1, 3})),
              "f32[2,1,3] [[[1, 5, 9]], [[1, 5, 9]]]");
}

TEST(Products, AreBatchedByVmap) {
  const Array x = reshape(arange(12, f32), {2, 2, 3});
  const Array y = vmap([](const Array& m) { return dot(m, b32()); })(x);
  EXPECT_ELEMENTS(y, matmul(x, b32()).to_vector<double>(), 1e-4);
  EXPECT_TEXT(vmap([](const Array& m) { return einsum("ii", m); })(reshape(arange(8), {2, 2, 2})), "i32[2] [3, 11]");
}

}  // namespace
}  // namespace lockstep
