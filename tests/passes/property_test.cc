// Properties of the passes on random programs. A failure prints the seed and the smallest program found.
#include "passes/random_property.h"

namespace lockstep {
namespace {

void expect_always(const Property& property, bool smooth = false) {
  expect_always(property, 500, [&](uint32_t seed) {
    return RandomPrograms(seed, RandomOptions{.smooth = smooth, .examples = 3}).make();
  });
}

TEST(RandomPrograms, SimplifyDoesNotChangeResults) { expect_always(simplified_differs); }

TEST(RandomPrograms, PlanEqualsEquationByEquation) { expect_always(plan_differs); }

TEST(RandomPrograms, DonationDoesNotChangeResults) { expect_always(donation_differs); }

TEST(RandomPrograms, EveryPassReturnsValidProgramsThatRoundTrip) { expect_always(pass_is_invalid); }

TEST(RandomPrograms, SimplifyIsAFixedPoint) {
  expect_always([](const RandomProgram& r, uint32_t) {
    const Program once = simplify(r.program);
    return print(simplify(once)) == print(once) ? "" : "simplifies further:\n" + print(once);
  });
}

TEST(RandomPrograms, DerivativeOfBatchIsBatchOfDerivative) { expect_always(derivative_of_batch_differs, true); }

TEST(RandomPrograms, TangentsAreTheTransposeOfGradients) { expect_always(tangents_differ, true); }

TEST(RandomPrograms, SplitComputesTheSame) { expect_always(split_differs, true); }

}  // namespace
}  // namespace lockstep
