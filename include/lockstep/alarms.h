// Alarms: what says that a run does not learn. Each tells its finding once. Used by one thread.
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
  std::vector<double> grad_norms = {};  // one per parameter, squared or not: only whether they are finite matters
  bool skipped = false;  // the update was skipped because of an overflow under loss scaling; not an alarm by itself
};

struct EvalFacts {
  int64_t step = 0;
  double accuracy = 0;
  std::vector<int64_t> predictions = {};  // how many examples were called each class
};

struct AlarmOptions {
  int64_t total_steps = 0;
  int64_t classes = 0;
  std::vector<std::string> paths = {};  // of the parameters, in forward order
};

class Alarms {
 public:
  explicit Alarms(AlarmOptions options);

  // What is wrong, in words with values and remedy: "loss is nan at step 12; the first parameter without a finite
  // gradient is dense/1/w; lower --learning-rate ...". Nothing: all is well, or it was said before.
  //   - NaN or Inf in the loss or the gradients, naming the first layer
  //   - after a tenth of the run (at least 20 steps) the loss is not below what it was in the first steps. Two windows
  //   of
  //     losses are compared by rank, so that neither noise nor batches that explode matter; in doubt the answer waits
  //     for half as many steps again, and longer while the loss seems to fall. Not asked when the first step seen is
  //     not step 1: a resumed run may have learned all there is.
  //   - twenty steps in a row skipped under loss scaling
  std::optional<std::string> check(const StepFacts&);
  // From a tenth of the run (at least 20 steps) on, and at its end:
  //   - all predictions are one class
  //   - accuracy at chance: not more than three standard deviations above that of the most frequent class, where the
  //     test set is large enough to tell
  std::optional<std::string> check(const EvalFacts&, const std::vector<int64_t>& label_counts);

  // All that was said, for the run's end.
  const std::vector<std::string>& said() const { return said_; }

 private:
  std::optional<std::string> check_finite(const StepFacts&);
  std::optional<std::string> check_learning(const StepFacts&);
  std::string say(std::string text);

  AlarmOptions options_;
  std::vector<std::string> said_;
  int64_t judge_at_;       // the step from which on a run should have learned something
  int64_t began_at_ = -1;  // the first step seen
  int64_t first_window_;
  std::vector<double> first_, recent_;  // losses: of the first steps; of the last ones, in a ring
  int64_t losses_ = 0, skipped_in_a_row_ = 0;
  bool told_finite_ = false, told_one_class_ = false, told_chance_ = false, told_skips_ = false;
  bool judged_ = false;  // whether the loss falls
};

// `test_accuracy>=0.97`: a metric, one of >= > <= < ==, a finite number. Throws Error with an example when it is not of
// that form.
struct Expectation {
  std::string metric, comparison;
  double value = 0;
};
Expectation parse_expectation(const std::string& text);
// Is it met? A metric that is not a number meets nothing. Throws Error with the list of metrics when there is none of
// that name.
bool is_met(const Expectation&, const std::vector<std::pair<std::string, double>>& metrics);
std::string to_string(const Expectation&);

}  // namespace lockstep
