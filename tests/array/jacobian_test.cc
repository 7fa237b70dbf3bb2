// Jacobians and Hessians, compared with closed forms.
#include "lockstep/jacobian.h"

#include <map>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep::jacobians {
namespace {

Array doubles(const std::vector<double>& x) { return Array::from(x, {static_cast<int64_t>(x.size())}); }

// f_i = x_i^2 y_j summed over j, from [2] and [3] to [2].
Array quadratic(const Array& x, const Array& y) { return x * x * sum(y); }

TEST(Jacobian, HasTheShapeOfTheResultThenOfTheArgument) {
  const auto f = [](const Array& x) { return einsum("ij,jk->ki", x, reshape(arange(6), {3, 2}) * 1.f); };
  const Array x = ones({2, 3});
  const Array columns = jacfwd(f)(x), rows = jacrev(f)(x);
  EXPECT_EQ(to_string(columns.type()), "f32[2,2,2,3]");
  EXPECT_EQ(columns.to_vector<float>(), rows.to_vector<float>());
  EXPECT_TEXT(at(at(columns, 1), 0), "f32[2,3] [[1, 3, 5], [0, 0, 0]]");
}

TEST(Jacobian, OfScalarsIsAScalar) {
  const auto cube = [](const Array& x) { return x * x * x; };
  EXPECT_TEXT(jacfwd(cube)(2.f), "f32[] 12");
  EXPECT_TEXT(jacrev(cube)(2.f), "f32[] 12");
  EXPECT_TEXT(hessian(cube)(2.f), "f32[] 12");
}

TEST(Jacobian, WithRespectToChosenArguments) {
  const Array x = array({1.f, 2.f}), y = array({3.f, 4.f, 5.f});
  for (const bool forward : {true, false}) {
    const auto [jy, jx] = forward ? jacfwd<1, 0>(quadratic)(x, y) : jacrev<1, 0>(quadratic)(x, y);
    EXPECT_TEXT(jx, "f32[2,2] [[24, 0], [0, 48]]");
    EXPECT_TEXT(jy, "f32[2,3] [[1, 1, 1], [4, 4, 4]]");
  }
  EXPECT_TEXT(jacfwd<1>(quadratic)(x, y), "f32[2,3] [[1, 1, 1], [4, 4, 4]]");
}

TEST(Jacobian, OfTreesIsATreeOfTrees) {
  using Params = std::map<std::string, Array>;
  const auto f = [](const Params& p) {
    return std::tuple{p.at("w") * p.at("b"), std::vector<Array>{sum(p.at("w"))}, std::string("kept")};
  };
  const Params p{{"b", array({2.f})}, {"w", array({3.f, 4.f})}};
  const auto check = [](const auto& j) {
    const auto& [product, sums, text] = j;
    EXPECT_TEXT(product.at("b"), "f32[2,1] [[3], [4]]");
    EXPECT_TEXT(product.at("w"), "f32[2,2] [[2, 0], [0, 2]]");
    EXPECT_TEXT(sums[0].at("w"), "f32[2] [1, 1]");
    EXPECT_TEXT(sums[0].at("b"), "f32[1] [0]");
    EXPECT_EQ(text, "kept");
  };
  check(jacfwd(f)(p));
  check(jacrev(f)(p));
  const auto loss = [&](const Params& q) { return sum(std::get<0>(f(q)) * q.at("w")); };  // b sum(w^2)
  const auto h = hessian(loss)(p);
  EXPECT_TEXT(h.at("w").at("w"), "f32[2,2] [[4, 0], [0, 4]]");
  EXPECT_TEXT(h.at("b").at("w"), "f32[1,2] [[6, 8]]");
  EXPECT_TEXT(h.at("w").at("b"), "f32[2,1] [[6], [8]]");
  EXPECT_TEXT(h.at("b").at("b"), "f32[1,1] [[0]]");
}

struct Affine {
  Array w, b;
};

TEST(Jacobian, OfPlainStructs) {
  // A struct as the result of a function of one array keeps its type.
  const auto f = [](const Array& x) { return Affine{x * x, sum(x)}; };
  const Affine j = jacfwd(f)(array({1.f, 2.f}));
  EXPECT_TEXT(j.w, "f32[2,2] [[2, 0], [0, 4]]");
  EXPECT_TEXT(j.b, "f32[2] [1, 1]");
  // Elsewhere its arrays become a vector of trees.
  const auto g = [](const Affine& a) { return a.w * a.w * a.b; };
  const std::vector<Affine> h = hessian(g)(Affine{3.f, 5.f});
  ASSERT_EQ(h.size(), 2u);
  EXPECT_TEXT(h[0].w, "f32[] 10");
  EXPECT_TEXT(h[0].b, "f32[] 6");
  EXPECT_TEXT(h[1].w, "f32[] 6");
  EXPECT_TEXT(h[1].b, "f32[] 0");
}

TEST(Jacobian, ReturnsAux) {
  const auto f = [](const Array& x) { return std::pair{x * x, std::pair{sum(x), arange(2)}}; };
  for (const bool forward : {true, false}) {
    const auto [j, aux] = forward ? jacfwd(f, has_aux)(array({1.f, 2.f})) : jacrev(f, has_aux)(array({1.f, 2.f}));
    EXPECT_TEXT(j, "f32[2,2] [[2, 0], [0, 4]]");
    EXPECT_TEXT(aux.first, "f32[] 3");
    EXPECT_TEXT(aux.second, "i32[2] [0, 1]");
  }
  const auto g = [](const Array& x) { return std::pair{sum(x * x * x), x}; };
  const auto [h, aux] = hessian(g, has_aux)(array({1.f, 2.f}));
  EXPECT_TEXT(h, "f32[2,2] [[6, 0], [0, 12]]");
  EXPECT_TEXT(aux, "f32[2] [1, 2]");
}

TEST(Jacobian, OfSeveralArgumentsTwice) {
  const auto f = [](const Array& x, const Array& y) { return sum(quadratic(x, y)); };
  const auto h = hessian<0, 1>(f)(array({1.f, 2.f}), array({3.f, 4.f, 5.f}));
  const auto& [from_x, from_y] = h;
  EXPECT_TEXT(std::get<0>(from_x), "f32[2,2] [[24, 0], [0, 24]]");
  EXPECT_TEXT(std::get<1>(from_x), "f32[2,3] [[2, 2, 2], [4, 4, 4]]");
  EXPECT_TEXT(std::get<0>(from_y), "f32[3,2] [[2, 4], [2, 4], [2, 4]]");
  EXPECT_TEXT(std::get<1>(from_y), "f32[3,3] [[0, 0, 0], [0, 0, 0], [0, 0, 0]]");
}

TEST(Jacobian, OfEmptyArraysIsEmpty) {
  const auto f = [](const Array& x) { return concatenate({x, ones({2})}); };
  EXPECT_TEXT(jacfwd(f)(zeros({0})), "f32[2,0] [[], []]");
  EXPECT_TEXT(jacrev(f)(zeros({0})), "f32[2,0] [[], []]");
}

TEST(Jacobian, UnderJitAndVmapAndInLoops) {
  const auto f = [](const Array& x) { return sin(x) * sum(x); };
  const auto j = [&](const Array& x) { return jacfwd(f)(x); };
  const Array x = doubles({0.5, -1}), both = stack({x, 2 * x});
  EXPECT_ELEMENTS(jit(j)(x), j(x).to_vector<double>(), 1e-12);
  EXPECT_ELEMENTS(vmap(j)(both), stack({j(x), j(2 * x)}).to_vector<double>(), 1e-12);
  EXPECT_ELEMENTS(vmap([&](const Array& v) { return jacrev(f)(v); })(both), vmap(j)(both).to_vector<double>(), 1e-12);
  const auto loop = [&](const Array& v) {
    return scan(
               [&](const Array& c, const Array& each) {
                 return std::pair{f(c) + each, c};
               },
               v, stack({v, v * v}))
        .first;
  };
  EXPECT_ELEMENTS(jacfwd(loop)(x), jacrev(loop)(x).to_vector<double>(), 1e-12);
}

TEST(Jacobian, OfIntegersIsAnError) {
  const auto f = [](const Array& x) { return std::pair{x, astype(x, i32)}; };
  EXPECT_THROWS(jacfwd(f)(ones({2})), Error,
                "jacfwd: result 1 is i32[2], which has no derivative; return it as aux (has_aux), or convert it with "
                "astype()");
  EXPECT_THROWS(jacrev(f)(ones({2})), Error, "jacrev: result 1 is i32[2]");
  EXPECT_THROWS(jacfwd(f)(arange(2)), Error, "jacfwd: argument 0 is i32[2], which has no gradient");
  EXPECT_THROWS(hessian(f)(arange(2)), Error, "argument 0 is i32[2], which has no gradient");
}

TEST(Hessian, OfSoftplusAtZero) {
  EXPECT_TEXT(grad(grad([](const Array& x) { return softplus(x); }))(0.f), "f32[] 0.25");
  EXPECT_TEXT(hessian([](const Array& x) { return softplus(x); })(0.f), "f32[] 0.25");
  EXPECT_TEXT(jacfwd(jacfwd([](const Array& x) { return softplus(x); }))(0.f), "f32[] 0.25");
}

// At zero weights every probability is 1/2, so the Hessian is X^T X / (4 n) and the regularizer.
TEST(Hessian, OfLogisticRegressionAtZeroWeights) {
  const Array x = doubles({1, 2, -1, 0.5, 3, -2, 0, 1}), features = reshape(x, {4, 2});
  const Array labels = doubles({1, 0, 0, 1});
  const auto loss = [&](const Array& w) {
    const Array margin = matmul(features, w);
    return mean(softplus(margin) - labels * margin) + 0.05 * sum(w * w);
  };
  const Array wanted = matmul(transpose(features), features) / 16 + 0.1 * eye(2, f64);
  const Array w = zeros({2}, f64);
  EXPECT_ELEMENTS(hessian(loss)(w), wanted.to_vector<double>(), 1e-14);
  EXPECT_ELEMENTS(jit(hessian(loss))(w), wanted.to_vector<double>(), 1e-14);
  EXPECT_ELEMENTS(jacrev(jacrev(loss))(w), wanted.to_vector<double>(), 1e-14);
  EXPECT_ELEMENTS(jacrev(jacfwd(loss))(w), wanted.to_vector<double>(), 1e-14);
}

}  // namespace
}  // namespace lockstep::jacobians
