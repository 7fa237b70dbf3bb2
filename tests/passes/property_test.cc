// Properties of the passes on random programs. A failure prints the seed and the smallest program found.
#include "ops/ops.h"
#include "passes/random_program.h"

namespace lockstep {
namespace {

constexpr uint32_t kPrograms = 500;

// Describes the first difference; empty if there is none.
std::string difference(const HostArrays& got, const HostArrays& wanted, const std::vector<double>& error) {
  if (got.size() != wanted.size()) return fmt::format("{} outputs, wanted {}", got.size(), wanted.size());
  for (size_t k = 0; k < got.size(); ++k) {
    if (got[k].type != wanted[k].type)
      return fmt::format("output {} is {}, wanted {}", k, to_string(got[k].type), to_string(wanted[k].type));
    if (same_bits(got[k], wanted[k])) continue;
    for (int64_t i = 0; i < got[k].size(); ++i) {
      const double a = got[k].get(i), b = wanted[k].get(i);
      const bool same = (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
      if (same || std::abs(a - b) <= 4 * error[k]) continue;
      return fmt::format("element {} of output {} is {}, wanted {}, within {}", i, k, a, b, 4 * error[k]);
    }
  }
  return "";
}

using Property = std::string (*)(const RandomProgram&, uint32_t seed);

std::string guarded(Property property, const RandomProgram& r, uint32_t seed) {
  try {
    return property(r, seed);
  } catch (const Error& e) {
    return e.what();
  }
}

// The program with one of its outputs.
RandomProgram with_output(const RandomProgram& r, size_t k) {
  RandomProgram out = r;
  out.program.outputs = {r.program.outputs[k]};
  out.program = drop_dead(out.program);
  out.error = {r.error[k]};
  return out;
}

void expect_always(Property property, bool smooth = false) {
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const RandomProgram r = RandomPrograms(seed, smooth).make();
    const std::string wrong = guarded(property, r, seed);
    if (wrong.empty()) continue;
    RandomProgram least = r;
    for (size_t k = 0; k < r.program.outputs.size(); ++k)
      if (const RandomProgram one = with_output(r, k);
          !guarded(property, one, seed).empty() && one.program.eqns.size() < least.program.eqns.size())
        least = one;
    FAIL() << "seed " << seed << ": " << wrong << "\n" << print(least.program) << guarded(property, least, seed);
  }
}

TEST(RandomPrograms, SimplifyDoesNotChangeResults) {
  expect_always([](const RandomProgram& r, uint32_t) {
    return difference(eager(simplify(r.program), r.inputs), eager(r.program, r.inputs), r.error);
  });
}

TEST(RandomPrograms, PlanEqualsEquationByEquation) {
  expect_always([](const RandomProgram& r, uint32_t) {
    return difference(planned(r.program, r.inputs), eager(r.program, r.inputs), r.error);
  });
}

TEST(RandomPrograms, DonationDoesNotChangeResults) {
  expect_always([](const RandomProgram& r, uint32_t seed) {
    const HostArrays wanted = eager(r.program, r.inputs);
    std::mt19937 random(seed);
    std::vector<bool> donated;
    HostArrays inputs;
    for (const HostArray& x : r.inputs) {
      donated.push_back(random() % 3 != 0);
      inputs.push_back(copy_of(x));
    }
    const std::string wrong = difference(planned(r.program, inputs, donated), wanted, r.error);
    if (!wrong.empty()) return wrong;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!donated[i] && !same_bits(inputs[i], r.inputs[i]))
        return fmt::format("input {} was written to and not donated", i);
    return std::string();
  });
}

std::string text_round_trip(const Program& p) {
  check(p);
  const std::string text = print(p);
  const Program again = parse(text, all_ops());
  if (print(again) != text) return "printed otherwise when parsed:\n" + text;
  return hash(again) == hash(p) ? "" : "hashed otherwise when parsed:\n" + text;
}

std::vector<bool> floating_inputs(const Program& p) {
  std::vector<bool> out;
  for (const Type& t : p.input_types()) out.push_back(is_floating(t.dtype));
  return out;
}

TEST(RandomPrograms, EveryPassReturnsValidProgramsThatRoundTrip) {
  expect_always([](const RandomProgram& r, uint32_t) {
    const Program& p = r.program;
    const Program both = joint(p, floating_inputs(p));
    const Split parts = split(both, p.inputs.size(), p.outputs.size());
    const std::vector<bool> all(p.inputs.size(), true);
    for (const Program& q : {p, simplify(p), drop_dead(p), lower(p), both, lower(both), parts.known, parts.rest,
                             jvp(p, floating_inputs(p)), batch(p, all, 3, {}).program,
                             lower(batch(both, std::vector<bool>(both.inputs.size(), true), 2, {}).program)})
      if (std::string wrong = text_round_trip(q); !wrong.empty()) return wrong;
    return std::string();
  });
}

TEST(RandomPrograms, SimplifyIsAFixedPoint) {
  expect_always([](const RandomProgram& r, uint32_t) {
    const Program once = simplify(r.program);
    return print(simplify(once)) == print(once) ? "" : "simplifies further:\n" + print(once);
  });
}

// Equal within rounding of f64, relative to the largest element.
std::string far_apart(const HostArrays& got, const HostArrays& wanted) {
  std::vector<double> error;
  for (const HostArray& x : wanted) {
    double scale = is_floating(x.type.dtype) ? 1 : 0;
    for (int64_t i = 0; i < x.size() && scale > 0; ++i)
      if (std::isfinite(x.get(i))) scale = std::max(scale, std::abs(x.get(i)));
    error.push_back(1e-8 * scale);
  }
  return difference(got, wanted, error);
}

TEST(RandomPrograms, GradientOfBatchIsBatchOfGradient) {
  expect_always(
      [](const RandomProgram& r, uint32_t seed) {
        constexpr int64_t kBatch = 3;
        const Program& p = r.program;
        const std::vector<bool> wanted = floating_inputs(p), force(p.outputs.size(), true);
        const Program inner = joint(p, wanted);
        const Program batch_of_gradient = batch(inner, std::vector<bool>(inner.inputs.size(), true), kBatch,
                                                std::vector<bool>(inner.outputs.size(), true))
                                              .program;
        const Program gradient_of_batch =
            joint(batch(p, std::vector<bool>(p.inputs.size(), true), kBatch, force).program, wanted);
        HostArrays inputs;
        for (const Type& t : batch_of_gradient.input_types())
          inputs.push_back(t.dtype == f64 ? normal_numbers(t, ++seed) : small_integers(t, ++seed));
        return far_apart(planned(gradient_of_batch, inputs), planned(batch_of_gradient, inputs));
      },
      true);
}

// Tangents are the gradient of gradients with respect to their cotangents.
TEST(RandomPrograms, TangentsAreTheTransposeOfGradients) {
  expect_always(
      [](const RandomProgram& r, uint32_t seed) {
        const Program& p = r.program;
        const auto without_first = [](Program q, size_t n) {
          q.outputs.erase(q.outputs.begin(), q.outputs.begin() + static_cast<std::ptrdiff_t>(n));
          return q;
        };
        const Program gradients = without_first(joint(p, floating_inputs(p)), p.outputs.size());
        std::vector<bool> cotangents(gradients.inputs.size(), false);
        std::fill(cotangents.begin() + static_cast<std::ptrdiff_t>(p.inputs.size()), cotangents.end(), true);
        const Program transposed = without_first(joint(gradients, cotangents), gradients.outputs.size());
        HostArrays inputs = r.inputs, tangents;
        for (const Type& t : gradients.output_types()) tangents.push_back(normal_numbers(t, ++seed));
        HostArrays all = inputs;
        for (size_t i = p.inputs.size(); i < gradients.inputs.size(); ++i)
          all.push_back(normal_numbers(gradients.types[gradients.inputs[i]], ++seed));
        for (HostArrays* to : {&inputs, &all}) to->insert(to->end(), tangents.begin(), tangents.end());
        return far_apart(planned(without_first(jvp(p, floating_inputs(p)), p.outputs.size()), inputs),
                         planned(transposed, all));
      },
      true);
}

// The two parts of a split program compute the same as the program.
TEST(RandomPrograms, SplitComputesTheSame) {
  expect_always(
      [](const RandomProgram& r, uint32_t seed) {
        const Program& p = r.program;
        const Program both = joint(p, floating_inputs(p));
        const Split parts = split(both, p.inputs.size(), p.outputs.size());
        HostArrays inputs = r.inputs, cotangents;
        for (size_t i = p.inputs.size(); i < both.inputs.size(); ++i)
          cotangents.push_back(normal_numbers(both.types[both.inputs[i]], ++seed));
        HostArrays got = planned(parts.known, inputs);
        const auto cut = got.begin() + static_cast<std::ptrdiff_t>(parts.outputs);
        HostArrays rest_in(cut, got.end());
        got.erase(cut, got.end());
        rest_in.insert(rest_in.end(), cotangents.begin(), cotangents.end());
        const HostArrays gradients = planned(parts.rest, rest_in);
        got.insert(got.end(), gradients.begin(), gradients.end());
        inputs.insert(inputs.end(), cotangents.begin(), cotangents.end());
        return far_apart(got, planned(both, inputs));
      },
      true);
}

}  // namespace
}  // namespace lockstep
