// Alarms detect a run that does not learn: values that are not finite, a loss that does not fall, accuracy at chance.
// Each alarm is raised once. Expectations check the final metrics. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct StepFacts {
  int64_t step = 0;  // from 1: the number of steps done
  double loss = 0;
  std::vector<double> grad_norms = {};  // one per parameter; may be squared: only checked for being finite
  bool skipped = false;                 // the update was skipped: gradients overflowed under loss scaling
};

struct EvalFacts {
  int64_t step = 0;
  double accuracy = 0;
  std::vector<int64_t> predictions = {};  // examples predicted as each class
  std::string set = "test";               // the set that was evaluated
};

struct AlarmOptions {
  int64_t total_steps = 0;
  std::vector<std::string> paths = {};  // parameter paths, in forward order
};

class Alarms {
 public:
  explicit Alarms(AlarmOptions options);

  // Checks a training step. Returns the problem with values and remedy, such as "loss is nan at step 12; the first
  // parameter without a finite gradient is dense/1/w; lower --learning-rate ...". Returns nothing when there is no
  // problem or when the alarm was raised before. The alarms:
  //   - NaN or Inf in the loss or the gradients; names the first parameter
  //   - the loss does not fall: after a tenth of the run (at least 20 steps) it is not below its first values. A rank
  //     test compares two windows of losses, so noise and single exploding batches do not matter. An unclear result is
  //     tested again later, up to half as many steps more, and longer while the loss seems to fall. Skipped when the
  //     first step seen is not step 1, because a resumed run may already have converged.
  //   - twenty consecutive steps skipped under loss scaling
  std::optional<std::string> check(const StepFacts&);
  // Checks an evaluation, from a tenth of the run (at least 20 steps) on and at its end. The alarms:
  //   - all predictions are the same class
  //   - accuracy at chance: at most three standard deviations above always predicting the most frequent class.
  //     Skipped when the test set is too small for that test.
  std::optional<std::string> check(const EvalFacts&, const std::vector<int64_t>& label_counts);

  // All alarms raised, in order.
  const std::vector<std::string>& raised() const { return raised_; }

 private:
  std::optional<std::string> check_finite(const StepFacts&);
  std::optional<std::string> check_learning(const StepFacts&);
  std::string raise(std::string text);

  AlarmOptions options_;
  std::vector<std::string> raised_;
  int64_t judge_at_;       // from this step on, a run should have learned something
  int64_t began_at_ = -1;  // the first step seen
  int64_t first_window_;
  std::vector<double> first_, recent_;  // losses of the first steps; of the last ones, as a ring buffer
  int64_t losses_ = 0, skipped_in_a_row_ = 0;
  bool raised_finite_ = false, raised_one_class_ = false, raised_chance_ = false, raised_skips_ = false;
  bool judged_ = false;  // it is decided whether the loss falls
};

// A condition on a final metric, such as `test_accuracy>=0.97`.
struct Expectation {
  std::string metric, comparison;
  double value = 0;
};
// Parses a metric, one of >= > <= < ==, and a finite number. Throws Error with an example on a syntax error.
Expectation parse_expectation(const std::string& text);
// Returns whether the expectation is met; NaN never meets one. Throws Error for an unknown metric, listing the known
// ones.
bool is_met(const Expectation&, const std::vector<std::pair<std::string, double>>& metrics);
std::string to_string(const Expectation&);

}  // namespace lockstep
