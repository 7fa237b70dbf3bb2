// Lion, adafactor and muon: compared with plain loops in double, and on problems with known solutions.
#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/optimizers.h"

namespace lockstep {
namespace {

// A matrix in double. Arrays of higher rank are stacks of matrices of their last two dimensions.
struct PlainMatrix {
  size_t rows, columns;
  std::vector<double> data = std::vector<double>(rows * columns);

  double& operator()(size_t r, size_t c) { return data[r * columns + c]; }
  double operator()(size_t r, size_t c) const { return data[r * columns + c]; }
};

PlainMatrix product(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix out{a.rows, b.columns};
  for (size_t r = 0; r < a.rows; ++r)
    for (size_t c = 0; c < b.columns; ++c)
      for (size_t k = 0; k < a.columns; ++k) out(r, c) += a(r, k) * b(k, c);
  return out;
}

PlainMatrix transposed(const PlainMatrix& a) {
  PlainMatrix out{a.columns, a.rows};
  for (size_t r = 0; r < a.rows; ++r)
    for (size_t c = 0; c < a.columns; ++c) out(c, r) = a(r, c);
  return out;
}

// Five iterations as published: X = 3.4445 X - 4.7750 A X + 2.0315 A A X with A = X X^T, for wide X.
PlainMatrix plain_orthogonal(PlainMatrix x) {
  const bool tall = x.rows > x.columns;
  if (tall) x = transposed(x);
  double squares = 0;
  for (const double value : x.data) squares += value * value;
  for (double& value : x.data) value /= std::sqrt(squares) + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const PlainMatrix a = product(x, transposed(x)), ax = product(a, x), aax = product(a, ax);
    for (size_t k = 0; k < x.data.size(); ++k)
      x.data[k] = 3.4445 * x.data[k] - 4.7750 * ax.data[k] + 2.0315 * aax.data[k];
  }
  return tall ? transposed(x) : x;
}

// The squares of the singular values: the eigenvalues of x^T x, by Jacobi's rotations.
std::vector<double> squared_singular_values(const PlainMatrix& x) {
  PlainMatrix a = product(transposed(x), x);
  const size_t n = a.rows;
  for (int sweep = 0; sweep < 30; ++sweep)
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        const double angle = 0.5 * std::atan2(2 * a(p, q), a(q, q) - a(p, p)), c = std::cos(angle), s = std::sin(angle);
        for (size_t k = 0; k < n; ++k) {
          const double kp = a(k, p), kq = a(k, q);
          a(k, p) = c * kp - s * kq, a(k, q) = s * kp + c * kq;
        }
        for (size_t k = 0; k < n; ++k) {
          const double pk = a(p, k), qk = a(q, k);
          a(p, k) = c * pk - s * qk, a(q, k) = s * pk + c * qk;
        }
      }
  std::vector<double> out;
  for (size_t i = 0; i < n; ++i) out.push_back(a(i, i));
  return out;
}

using Numbers = std::vector<double>;

// Pseudo-random numbers, the same on every machine.
Numbers plain_numbers(int64_t count, int64_t seed) {
  Numbers out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(std::sin(static_cast<double>(i * 37 + 11) * (1.3 + 0.7 * static_cast<double>(seed))));
  return out;
}

// A matrix, a filter, an embedding and a vector.
const std::vector<std::string> kPaths = {"dense/w", "conv/w", "embedding", "dense/b"};
const std::vector<Shape> kShapes = {{6, 4}, {2, 2, 3, 16}, {5, 4}, {4}};

std::vector<Numbers> numbers_of_shapes(int64_t seed, double scale) {
  std::vector<Numbers> out;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    out.push_back(plain_numbers(count(kShapes[i]), seed * 10 + static_cast<int64_t>(i)));
    for (double& x : out.back()) x *= scale;
  }
  return out;
}

std::vector<Array> arrays_of_numbers(const std::vector<Numbers>& numbers, DType dtype) {
  std::vector<Array> out;
  for (size_t i = 0; i < numbers.size(); ++i) out.push_back(astype(Array::from(numbers[i], kShapes[i]), dtype));
  return out;
}

// Adafactor for one array of doubles.
struct PlainAdafactor {
  Shape shape;
  Numbers param;
  Numbers rows = {}, columns = {}, second = {};

  void update(const Numbers& g, double rate, double decay, int64_t t) {
    const double beta = 1 - std::pow(static_cast<double>(t), -0.8);
    Numbers change(g.size());
    if (shape.size() < 2) {
      second.resize(g.size());
      for (size_t i = 0; i < g.size(); ++i) {
        second[i] = beta * second[i] + (1 - beta) * (g[i] * g[i] + 1e-30);
        change[i] = g[i] / std::sqrt(second[i]);
      }
    } else {
      factored(g, beta, change);
    }
    double squares = 0;
    for (const double u : change) squares += u * u;
    const double rms = std::sqrt(squares / static_cast<double>(change.size()));
    for (size_t i = 0; i < g.size(); ++i) param[i] -= rate * (change[i] / std::max(1.0, rms) + decay * param[i]);
  }

  void factored(const Numbers& g, double beta, Numbers& change) {
    const auto r = static_cast<size_t>(shape[shape.size() - 2]), c = static_cast<size_t>(shape.back());
    const size_t matrices = g.size() / (r * c);
    rows.resize(matrices * r), columns.resize(matrices * c);
    for (size_t m = 0; m < matrices; ++m) {
      Numbers row_means(r), column_means(c);
      for (size_t i = 0; i < r; ++i)
        for (size_t j = 0; j < c; ++j) {
          const double x = g[(m * r + i) * c + j], square = x * x + 1e-30;
          row_means[i] += square / static_cast<double>(c), column_means[j] += square / static_cast<double>(r);
        }
      double mean_of_rows = 0;
      for (size_t i = 0; i < r; ++i) {
        rows[m * r + i] = beta * rows[m * r + i] + (1 - beta) * row_means[i];
        mean_of_rows += rows[m * r + i] / static_cast<double>(r);
      }
      for (size_t j = 0; j < c; ++j) columns[m * c + j] = beta * columns[m * c + j] + (1 - beta) * column_means[j];
      for (size_t i = 0; i < r; ++i)
        for (size_t j = 0; j < c; ++j) {
          const double estimate = rows[m * r + i] * columns[m * c + j] / mean_of_rows;
          change[(m * r + i) * c + j] = g[(m * r + i) * c + j] / std::sqrt(estimate);
        }
    }
  }
};

TEST(Adafactor, MatchesItsEquations) {
  const Optimizer o{.kind = Optimizer::Kind::adafactor,
                    .schedule = {.kind = Schedule::Kind::linear, .peak = 0.05, .warmup_steps = 2, .total_steps = 10},
                    .weight_decay = 0.1};
  for (const DType dtype : {f64, f32}) {
    const double tolerance = dtype == f64 ? 1e-13 : 2e-6;
    std::vector<PlainAdafactor> plain;
    for (size_t i = 0; i < kShapes.size(); ++i) plain.push_back({kShapes[i], numbers_of_shapes(0, 1)[i]});
    std::vector<Array> params = arrays_of_numbers(numbers_of_shapes(0, 1), dtype);
    OptimizerState state = create_state(o, kPaths, params);
    const auto step = jit(
        [&](const std::vector<Array>& p, const OptimizerState& s, const std::vector<Array>& g) {
          const Update next = update(o, kPaths, p, g, s);
          return std::pair{next.params, next.state};
        },
        {.donate = {0, 1}});
    for (int64_t i = 1; i <= 8; ++i) {
      const std::vector<Numbers> grads = numbers_of_shapes(i, i % 3 == 0 ? 0.01 : 3);
      for (size_t k = 0; k < plain.size(); ++k)
        plain[k].update(grads[k], o.schedule.at(i - 1), k == 3 ? 0 : o.weight_decay, i);
      std::tie(params, state) = step(params, state, arrays_of_numbers(grads, dtype));
    }
    for (size_t k = 0; k < plain.size(); ++k) EXPECT_ELEMENTS(params[k], plain[k].param, tolerance);
    ASSERT_EQ(state.second_rows.size(), 3u);
    ASSERT_EQ(state.second.size(), 1u);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_ELEMENTS(state.second_rows[k], plain[k].rows, 5 * tolerance);
      EXPECT_ELEMENTS(state.second_columns[k], plain[k].columns, 5 * tolerance);
    }
    EXPECT_ELEMENTS(state.second[0], plain[3].second, 5 * tolerance);
    EXPECT_EQ(state.step.item<int>(), 8);
  }
}

TEST(Adafactor, UpdateOfZeroGradientsIsZero) {
  const Optimizer o{.kind = Optimizer::Kind::adafactor};
  const std::vector<Array> params{ones({3, 2}), ones({2})}, zero{zeros({3, 2}), zeros({2})};
  const Update next = update(o, {"w", "v"}, params, zero, create_state(o, {"w", "v"}, params));
  EXPECT_ELEMENTS(next.params[0], {1, 1, 1, 1, 1, 1}, 0);
  EXPECT_ELEMENTS(next.params[1], {1, 1}, 0);
}

TEST(Muon, MatchesItsEquations) {
  const Optimizer o{.kind = Optimizer::Kind::muon,
                    .schedule = {.kind = Schedule::Kind::exponential, .peak = 0.05, .decay = 0.9},
                    .weight_decay = 0.1,
                    .muon_momentum = 0.9,
                    .adam_rate = 0.5};
  for (const DType dtype : {f64, f32}) {
    const double tolerance = dtype == f64 ? 1e-13 : 3e-6;
    std::vector<Numbers> plain = numbers_of_shapes(0, 1), first, second;
    for (const Numbers& each : plain) first.emplace_back(each.size()), second.emplace_back(each.size());
    std::vector<Array> params = arrays_of_numbers(plain, dtype);
    OptimizerState state = create_state(o, kPaths, params);
    const auto step = jit(
        [&](const std::vector<Array>& p, const OptimizerState& s, const std::vector<Array>& g) {
          const Update next = update(o, kPaths, p, g, s);
          return std::pair{next.params, next.state};
        },
        {.donate = {0, 1}});
    for (int64_t t = 1; t <= 6; ++t) {
      const std::vector<Numbers> grads = numbers_of_shapes(t, 1);
      std::tie(params, state) = step(params, state, arrays_of_numbers(grads, dtype));
      const double rate = o.schedule.at(t - 1);
      for (size_t k = 0; k < 2; ++k) {  // muon
        const auto columns = static_cast<size_t>(kShapes[k].back());
        PlainMatrix direction{plain[k].size() / columns, columns};
        for (size_t i = 0; i < plain[k].size(); ++i) {
          first[k][i] = 0.9 * first[k][i] + grads[k][i];
          direction.data[i] = grads[k][i] + 0.9 * first[k][i];
        }
        const PlainMatrix orthogonal = plain_orthogonal(direction);
        const double scale =
            std::sqrt(std::max(1.0, static_cast<double>(columns) / static_cast<double>(direction.rows)));
        for (size_t i = 0; i < plain[k].size(); ++i)
          plain[k][i] -= rate * (scale * orthogonal.data[i] + 0.1 * plain[k][i]);
      }
      for (size_t k = 2; k < 4; ++k)  // adamw
        for (size_t i = 0; i < plain[k].size(); ++i) {
          double &m = first[k][i], &v = second[k][i];
          m = 0.9 * m + 0.1 * grads[k][i];
          v = 0.999 * v + 0.001 * grads[k][i] * grads[k][i];
          const double corrected = m / (1 - std::pow(0.9, static_cast<double>(t)));
          const double root = std::sqrt(v / (1 - std::pow(0.999, static_cast<double>(t))));
          plain[k][i] -= 0.5 * rate * (corrected / (root + 1e-8) + (k == 3 ? 0 : 0.1) * plain[k][i]);
        }
    }
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_ELEMENTS(params[k], plain[k], tolerance);
      EXPECT_ELEMENTS(state.first[k], first[k], 10 * tolerance);
    }
    ASSERT_EQ(state.second.size(), 2u);
    for (size_t k = 0; k < 2; ++k) EXPECT_ELEMENTS(state.second[k], second[k + 2], tolerance);
  }
}

TEST(Muon, UpdateIsNearlyOrthogonal) {
  for (const Shape& shape : {Shape{32, 16}, Shape{16, 32}, Shape{16, 16}})
    for (const uint64_t seed : {0, 1, 2, 3}) {
      SCOPED_TRACE(to_string(shape) + " seed " + std::to_string(seed));
      Array x = random::normal(random::key(seed), shape);
      // A square random matrix has singular values near 0, which stay below 1.
      if (shape[0] == shape[1]) x = x + 8 * eye(shape[0]);
      const Array y = jit([](Array a) { return orthogonalize(a); })(x * 1e-3);
      PlainMatrix matrix{static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1])};
      matrix.data = y.to_vector<double>();
      if (shape[0] < shape[1]) matrix = transposed(matrix);
      for (const double square : squared_singular_values(matrix)) {
        EXPECT_GE(std::sqrt(square), 0.6);
        EXPECT_LE(std::sqrt(square), 1.4);
      }
    }
  EXPECT_THROWS(static_cast<void>(orthogonalize(zeros({2, 2, 2}))), Error,
                "orthogonalize: the array is f32[2,2,2]; give a matrix");
  EXPECT_ELEMENTS(orthogonalize(zeros({2, 2})), {0, 0, 0, 0}, 0);
}

class NewKind : public testing::TestWithParam<Optimizer::Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, NewKind,
                         testing::Values(Optimizer::Kind::lion, Optimizer::Kind::adafactor, Optimizer::Kind::muon));

TEST_P(NewKind, SolvesARegression) {
  const Array x = random::normal(random::key(1), {64, 12});
  const Array y = matmul(x, random::normal(random::key(2), {12, 6})) + 0.5;
  struct Line {
    Array w, b;
  };
  const Optimizer o{.kind = GetParam(), .schedule = {.kind = Schedule::Kind::linear, .peak = 0.1, .total_steps = 300}};
  const auto step = jit(
      [&](Line line, OptimizerState state) {
        const auto loss = [&](Line l) { return mean(square(matmul(x, l.w) + l.b - y)); };
        auto [value, grads] = value_and_grad(loss)(line);
        auto [next, next_state] = update(o, line, grads, state);
        return std::tuple{next, next_state, value};
      },
      {.donate = {0, 1}});
  Line line{zeros({12, 6}), zeros({6})};
  OptimizerState state = create_state(o, line);
  Array loss;
  for (int i = 0; i < 300; ++i) std::tie(line, state, loss) = step(line, state);
  EXPECT_LT(loss.item<float>(), 1e-2);  // 11.6 at first
}

// Six steps on 8 devices of a runtime; `sharded`: every parameter and its state along the axis of the mesh.
std::vector<Numbers> trained_on_devices(const Optimizer& o, int lanes, bool sharded) {
  Runtime runtime({.cpu_lanes = lanes});
  const RuntimeScope scope(runtime);
  set_platform(Platform::cpu);
  set_cpu_devices(8);
  const Mesh mesh = make_mesh({{"data", 8}});
  const std::vector<std::string> paths{"dense/w", "conv/w", "embedding", "dense/b"};
  const std::vector<Shape> shapes{{16, 24}, {2, 2, 8, 16}, {16, 8}, {24}};
  const std::vector<PartitionSpec> specs{P({}, "data"), PartitionSpec{{{}, {}, "data"}}, P("data"), P("data")};
  std::vector<Array> params;
  std::vector<Type> types;
  for (size_t i = 0; i < shapes.size(); ++i) {
    params.push_back(random::normal(random::key(i), shapes[i]));
    types.push_back(params.back().type());
  }
  const std::vector<StateArray> list = state_arrays(o, paths, types);
  const auto place = [&](const std::vector<Array>& p, const OptimizerState& s) {
    if (!sharded) return std::pair{p, s};
    std::vector<Array> placed, arrays;
    for (size_t i = 0; i < p.size(); ++i) placed.push_back(device_put(p[i], NamedSharding(mesh, specs[i])));
    const std::vector<Array> leaves = tree_leaves(s);
    for (size_t i = 0; i < list.size(); ++i)
      arrays.push_back(device_put(leaves[i + 1], NamedSharding(mesh, state_spec(list[i], specs[list[i].parameter]))));
    return std::pair{placed, make_state(list, device_put(s.step, NamedSharding(mesh, P())), arrays)};
  };
  const auto step = jit(
      [&](const std::vector<Array>& p, const OptimizerState& s) {
        std::vector<Array> grads;
        for (const Array& each : p) grads.push_back(each * 0.1 + cos(3 * each));
        const Update next = update(o, paths, p, grads, s);
        return place(next.params, next.state);
      },
      {.donate = {0, 1}});
  auto [p, s] = place(params, create_state(o, paths, params));
  for (int i = 0; i < 6; ++i) std::tie(p, s) = step(p, s);
  std::vector<Numbers> out;
  for (const Array& each : p) out.push_back(each.to_vector<double>());
  for (const Array& each : tree_leaves(s)) out.push_back(each.to_vector<double>());
  return out;
}

TEST_P(NewKind, ShardedUpdateEqualsTheWholeOne) {
  const Optimizer o{.kind = GetParam(), .schedule = {.peak = 0.02}, .weight_decay = 0.1, .clip_norm = 5};
  const std::vector<Numbers> wanted = trained_on_devices(o, 1, false);
  for (const int lanes : {1, 4}) {
    const std::vector<Numbers> got = trained_on_devices(o, lanes, true);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t l = 0; l < got.size(); ++l)
      for (size_t i = 0; i < got[l].size(); ++i)
        EXPECT_NEAR(got[l][i], wanted[l][i], 1e-5 * std::max(1.0, std::abs(wanted[l][i]))) << l << " " << i;
  }
}

TEST_P(NewKind, EagerAndCompiledAgree) {
  const Optimizer o{.kind = GetParam(), .schedule = {.peak = 0.01}, .weight_decay = 0.1, .clip_norm = 1};
  const std::vector<Array> params = arrays_of_numbers(numbers_of_shapes(0, 1), f32);
  const std::vector<Array> grads = arrays_of_numbers(numbers_of_shapes(1, 1), f32);
  const OptimizerState state = create_state(o, kPaths, params);
  const auto step = [&](const std::vector<Array>& p, const std::vector<Array>& g, const OptimizerState& s) {
    return update(o, kPaths, p, g, s).params;
  };
  const std::vector<Array> eager = step(params, grads, state), compiled = jit(step)(params, grads, state);
  for (size_t i = 0; i < params.size(); ++i) EXPECT_ELEMENTS(compiled[i], eager[i].to_vector<double>(), 1e-6);
}

}  // namespace
}  // namespace lockstep
