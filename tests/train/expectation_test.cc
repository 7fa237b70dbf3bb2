#include <limits>

#include "base/throws.h"
#include "lockstep/alarms.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Metrics = std::vector<std::pair<std::string, double>>;

TEST(Expectation, AllComparisonsWork) {
  const Metrics metrics = {{"loss", 0.5}, {"test_accuracy", 0.97}};
  for (const auto& [text, met] : std::vector<std::pair<std::string, bool>>{{"test_accuracy>=0.97", true},
                                                                           {"test_accuracy>=0.98", false},
                                                                           {"test_accuracy>0.97", false},
                                                                           {"test_accuracy>0.96", true},
                                                                           {"loss<=0.5", true},
                                                                           {"loss<=0.4", false},
                                                                           {"loss<0.5", false},
                                                                           {"loss<6e-1", true},
                                                                           {"loss==0.5", true},
                                                                           {"loss==0.25", false},
                                                                           {" loss >= -1 ", true}})
    EXPECT_EQ(is_met(parse_expectation(text), metrics), met) << text;
}

TEST(Expectation, RoundTripsThroughText) {
  for (const char* text : {"test_accuracy>=0.97", "loss<1e-05", "steps==3"})
    EXPECT_EQ(to_string(parse_expectation(text)), text);
}

TEST(Expectation, SyntaxErrorsAreReportedWithAnExample) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "has no comparison (>=, >, <=, <, ==)"},
           {"test_accuracy", "has no comparison"},
           {"loss=0.5", "uses =, which is not a comparison; for equality use =="},
           {"loss=<0.5", "uses ="},
           {">=0.97", "has no metric"},
           {"  >0.97", "has no metric"},
           {"loss<", "does not end in a finite number"},
           {"loss<small", "does not end in a finite number"},
           {"test_accuracy>=97%", "does not end in a finite number"},
           {"loss<0.5 0.6", "does not end in a finite number"},
           {"loss<>1", "does not end in a finite number"},
           {"loss<nan", "does not end in a finite number"},
           {"loss<inf", "does not end in a finite number"}}) {
    EXPECT_THROWS(parse_expectation(text), Error, "expect: \"" + text + "\" " + why);
    EXPECT_THROWS(parse_expectation(text), Error, "such as 'test_accuracy>=0.97'");
  }
}

TEST(Expectation, NanMeetsNoExpectation) {
  const Metrics metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}};
  for (const char* comparison : {">=", ">", "<=", "<", "=="})
    EXPECT_FALSE(is_met(parse_expectation(std::string("loss") + comparison + "1"), metrics)) << comparison;
}

TEST(Expectation, UnknownMetricIsReportedWithTheKnownOnes) {
  EXPECT_THROWS(is_met(parse_expectation("test_acuracy>1"), {{"loss", 1}, {"test_accuracy", 1}}), Error,
                "expect: unknown metric \"test_acuracy\"; the metrics are loss, test_accuracy; did you mean "
                "\"test_accuracy\"?");
  EXPECT_THROWS(is_met(parse_expectation("loss>1"), {}), Error,
                "expect: unknown metric \"loss\"; the run has no metrics");
}

}  // namespace
}  // namespace lockstep
