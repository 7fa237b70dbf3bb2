// Random programs of all rows under jit, vmap, grad and jvp: what the passes make of them computes the same. The
// programs under shard_map are in random_devices_test.cc.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "passes/random_property.h"
#include "rows/random_rows.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

constexpr size_t kExamples = 3;

// `./dev test --long` checks more of them.
uint32_t transformed_programs() { return long_tests() && !kSanitized ? 1000 : 250; }
uint32_t few_programs() { return transformed_programs() / 3; }  // for properties of many passes

// Rows that no program has that is to be differentiated, and why.
const std::map<std::string_view, const char*> kNotDifferentiated = {
    {"bitcast", "it is not differentiable"},
    {"while_loop", "it has no reverse mode; rows_test.cc has its forward mode"},
    {"debug_callback", "it has no results"},
    {"pure_callback", "a function of the host has no derivative"},
};

const RandomRows& rows_for(bool smooth) {
  static const RandomRows any({.examples = kExamples}), smooth_only({.smooth = true, .examples = kExamples});
  return smooth ? smooth_only : any;
}

RandomProgram random_program(uint32_t seed, bool smooth) {
  const RandomOptions options{
      .smooth = smooth, .more = std::cref(rows_for(smooth)), .more_every = 2, .examples = kExamples};
  return RandomPrograms(seed, options).make();
}

void expect_of_all_rows(const Property& property, uint32_t programs, bool smooth = false) {
  expect_always(property, programs, [&](uint32_t seed) { return random_program(seed, smooth); });
}

void expect_generated(bool smooth, const std::map<std::string_view, const char*>& excluded) {
  std::map<std::string_view, int> seen;
  for (uint32_t seed = 0; seed < transformed_programs(); ++seed)
    for (const Eqn& eqn : random_program(seed, smooth).program.eqns) ++seen[eqn.op->name];
  std::set<std::string_view> names;
  for (const Op* op : all_ops()) {
    names.insert(op->name);
    if (op->is_collective() || is_device_collective(*op) || kNotGenerated.contains(op->name)) continue;
    if (excluded.contains(op->name))
      EXPECT_EQ(seen[op->name], 0) << op->name << " is excluded";
    else
      EXPECT_GE(seen[op->name], 3) << op->name;
  }
  for (const auto* list : {&kNotGenerated, &excluded})
    for (const auto& [name, reason] : *list) EXPECT_TRUE(names.contains(name)) << name << ": " << reason;
}

TEST(RandomTransforms, EveryRowIsGenerated) { expect_generated(false, {}); }

TEST(RandomTransforms, EveryRowIsDifferentiatedOrExcluded) { expect_generated(true, kNotDifferentiated); }

TEST(RandomTransforms, SimplifyDoesNotChangeResults) { expect_of_all_rows(simplified_differs, transformed_programs()); }

TEST(RandomTransforms, PlanEqualsEquationByEquation) { expect_of_all_rows(plan_differs, transformed_programs()); }

TEST(RandomTransforms, RecognizeDoesNotChangeResults) {
  expect_of_all_rows(
      [](const RandomProgram& r, uint32_t) {
        return difference(planned(recognize(r.program), r.inputs), eager(r.program, r.inputs), r.error);
      },
      transformed_programs());
}

TEST(RandomTransforms, DonationDoesNotChangeResults) { expect_of_all_rows(donation_differs, transformed_programs()); }

TEST(RandomTransforms, EveryPassReturnsValidProgramsThatRoundTrip) {
  expect_of_all_rows(pass_is_invalid, few_programs());
}

// Some inputs are batched; one that is computed from another is if that one is.
std::vector<bool> some_inputs(const RandomProgram& r, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<bool> out;
  for (size_t i = 0; i < r.inputs.size(); ++i)
    out.push_back(r.source[i] == i ? random() % 3 != 0 : static_cast<bool>(out[r.source[i]]));
  return out;
}

std::string batch_differs(const RandomProgram& r, uint32_t seed) {
  const std::vector<bool> batched = some_inputs(r, seed);
  HostArrays inputs;
  for (size_t i = 0; i < batched.size(); ++i) inputs.push_back(batched[i] ? stack(r.examples, i) : r.inputs[i]);
  const BatchedProgram all = batch(r.program, batched, kExamples, {});
  check(all.program);
  const HostArrays got = planned(all.program, inputs);
  for (size_t b = 0; b < kExamples; ++b) {
    HostArrays one = r.inputs, mine;
    for (size_t i = 0; i < one.size(); ++i)
      if (batched[i]) one[i] = r.examples[b][i];
    for (size_t k = 0; k < got.size(); ++k)
      mine.push_back(all.batched[k] ? got[k].row(static_cast<int64_t>(b)) : got[k]);
    if (std::string wrong = difference(mine, eager(r.program, one), r.error); !wrong.empty())
      return fmt::format("example {}: {}\n{}", b, wrong, print(all.program));
  }
  const Program empty = batch(r.program, batched, 0, {}).program;
  check(empty);
  for (size_t i = 0; i < batched.size(); ++i)
    if (batched[i]) inputs[i] = HostArray(empty.types[empty.inputs[i]]);
  planned(empty, inputs);
  return "";
}

TEST(RandomTransforms, BatchEqualsALoopOverExamples) { expect_of_all_rows(batch_differs, transformed_programs()); }

TEST(RandomTransforms, DerivativeOfBatchIsBatchOfDerivative) {
  expect_of_all_rows(derivative_of_batch_differs, few_programs(), true);
}

TEST(RandomTransforms, TangentsAreTheTransposeOfGradients) {
  expect_of_all_rows(tangents_differ, few_programs(), true);
}

TEST(RandomTransforms, SecondDerivativesAreSymmetric) {
  expect_of_all_rows(second_derivatives_differ, few_programs(), true);
}

TEST(RandomTransforms, SplitComputesTheSame) { expect_of_all_rows(split_differs, few_programs(), true); }

// The program without stop_gradient: its derivative is 0, unlike that of its values.
Program without_stops(const Program& p) {
  Builder b;
  Values map(p.types.size());
  for (ValueId id : p.inputs) map[id] = b.input(p.types[id]);
  for (const Eqn& eqn : p.eqns) {
    if (eqn.op == &stop_gradient_op)
      map[eqn.out[0]] = map[eqn.in[0]];
    else
      b.copy(p, eqn, map);
  }
  Values out;
  for (ValueId id : p.outputs) out.push_back(map[id]);
  return b.take(out);
}

// The sum of a * b, and that of its terms' sizes.
struct Pairing {
  double sum = 0, size = 0;

  void add(const HostArray& a, const HostArray& b) {
    for (int64_t i = 0; i < a.size(); ++i) {
      if (!std::isfinite(b.get(i))) continue;
      const double term = pairing_sign(a, i) * a.get(i) * b.get(i);
      sum += term;
      size += std::abs(term);
    }
  }
};

// A program, a point, a direction from there, and weights of the results: the derivative in three ways.
struct Derivative {
  Program p;
  std::vector<bool> wanted;
  HostArrays inputs, directions, cts;  // directions of wanted inputs, cotangents of inexact outputs

  Derivative(const RandomProgram& r, uint32_t seed) : p(without_stops(r.program)), wanted(r.wanted), inputs(r.inputs) {
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i]) directions.push_back(normal_numbers(inputs[i].type, ++seed));
    for (const Type& t : p.output_types())
      if (is_inexact(t.dtype)) cts.push_back(normal_numbers(t, ++seed));
  }

  Pairing reverse() const {
    const HostArrays results = planned(joint(p, wanted), joined(inputs, cts));
    Pairing out;
    for (size_t i = 0; i < directions.size(); ++i) out.add(directions[i], results.at(p.outputs.size() + i));
    return out;
  }
  Pairing forward() const {
    const HostArrays results = planned(jvp(p, wanted), joined(inputs, directions));
    Pairing out;
    for (size_t k = 0; k < cts.size(); ++k) out.add(cts[k], results.at(p.outputs.size() + k));
    return out;
  }
  // The weighted results at a distance along the direction.
  Pairing at(double distance) const {
    HostArrays moved = inputs;
    size_t next = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      const HostArray& direction = directions[next++];
      moved[i] = copy_of(inputs[i]);
      for (int64_t k = 0; k < direction.size(); ++k) moved[i].set(k, inputs[i].get(k) + distance * direction.get(k));
    }
    Pairing out;
    next = 0;
    for (const HostArray& y : eager(p, moved))
      if (is_inexact(y.type.dtype)) out.add(cts[next++], y);
    return out;
  }
};

// Central differences have an error from rounding, about that of f64 in the weighted results divided by the step, and
// one from the third derivative: it grows with the square of the step, so it is less than the difference between two
// steps. `sharp` counts programs in which both are small.
std::string derivatives_differ(const RandomProgram& r, uint32_t seed, int& sharp) {
  constexpr double kStep = 1e-5;
  const Derivative d(r, 100 * seed);
  const Pairing along = d.reverse();
  const double scale = 1 + along.size;
  if (has_tangents(d.p))
    if (const double other = d.forward().sum; !(std::abs(along.sum - other) <= 1e-9 * scale))
      return fmt::format("reverse mode {}, forward mode {}, scale {}", along.sum, other, scale);
  const Pairing up = d.at(kStep), down = d.at(-kStep);
  const double wide = (d.at(2 * kStep).sum - d.at(-2 * kStep).sum) / (4 * kStep);
  const double narrow = (up.sum - down.sum) / (2 * kStep);
  const double noise = 1e-15 * (up.size + down.size) / kStep + std::abs(wide - narrow);
  sharp += noise < 1e-5 * scale;
  if (std::abs(along.sum - narrow) <= 2e-6 * scale + 2 * noise) return "";
  return fmt::format("reverse mode {}, central difference {} within {}", along.sum, narrow, 2e-6 * scale + 2 * noise);
}

TEST(RandomTransforms, ReverseModeEqualsForwardModeAndCentralDifferences) {
  int sharp = 0;
  expect_of_all_rows([&](const RandomProgram& r, uint32_t seed) { return derivatives_differ(r, seed, sharp); },
                     transformed_programs(), true);
  EXPECT_GE(sharp, static_cast<int>(transformed_programs() * 9 / 10));
}

}  // namespace
}  // namespace lockstep
