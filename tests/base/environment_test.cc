#include "base/os/environment.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"
#include "support/variable.h"

namespace lockstep {
namespace {

constexpr const char* kName = "LOCKSTEP_TEST_VARIABLE";

TEST(Environment, EmptyVariablesCountAsNotSet) {
  const ScopedVariable unset(kName, std::nullopt);
  EXPECT_EQ(environment_variable(kName), std::nullopt);
  EXPECT_EQ(environment_variable_even_if_empty(kName), std::nullopt);
  EXPECT_FALSE(own_environment().contains(kName));
  const ScopedVariable empty(kName, "");
  EXPECT_EQ(environment_variable(kName), std::nullopt);
  EXPECT_EQ(environment_variable_even_if_empty(kName), "");
  const ScopedVariable set(kName, "a=b");
  EXPECT_EQ(environment_variable(kName), "a=b");
  EXPECT_EQ(own_environment().at(kName), "a=b");
}

TEST(Environment, StringsAreThoseOfExec) {
  EXPECT_EQ(environment_strings({{"B", "2"}, {"A", "x=y"}}), (std::vector<std::string>{"A=x=y", "B=2"}));
}

TEST(Environment, NumbersOutOfRangeNameTheVariable) {
  EXPECT_EQ(number_in_variable("lanes", kName, "64", 1, 64), 64);
  for (const char* wrong : {"0", "65", "-1", "two", "1 ", "1.5", "", "99999999999999999999"})
    EXPECT_THROWS(number_in_variable("lanes", kName, wrong, 1, 64), Error,
                  std::string("lanes: LOCKSTEP_TEST_VARIABLE is \"") + wrong +
                      "\"; set it to a number from 1 to 64, or unset it");
}

}  // namespace
}  // namespace lockstep
