#include "lockstep/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr int64_t kMinSteps = 20, kSkips = 20;
constexpr int64_t kFirst = 256, kRecent = 512;           // maximum numbers of losses in the two windows
constexpr double kSure = 3, kFalls = 2.5, kInDoubt = 1;  // standard deviations

// The mean without the lowest and the highest tenth, so that single exploding batches do not dominate it.
double trimmed_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 10);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) / static_cast<double>(values.size() - 2 * cut);
}

// The z-score of the Mann-Whitney rank test that losses of the first window are higher than those of the second. It
// does not depend on the size of noise or outliers.
double fall_z_score(const std::vector<double>& first, const std::vector<double>& recent) {
  double wins = 0;
  for (const double a : first)
    for (const double b : recent) wins += a > b ? 1 : a == b ? 0.5 : 0;
  const auto m = static_cast<double>(first.size()), n = static_cast<double>(recent.size());
  return (wins - m * n / 2) / std::sqrt(m * n * (m + n + 1) / 12);
}

}  // namespace

Alarms::Alarms(AlarmOptions options) : options_(std::move(options)) {
  judge_at_ = std::max(kMinSteps, options_.total_steps / 10);
  first_window_ = std::min(kFirst, judge_at_ / 4);
  recent_.resize(static_cast<size_t>(std::min(kRecent, judge_at_ - judge_at_ / 4)));
}

std::string Alarms::raise(std::string text) {
  raised_.push_back(text);
  return text;
}

std::optional<std::string> Alarms::check(const StepFacts& facts) {
  if (began_at_ < 0) began_at_ = facts.step;
  skipped_in_a_row_ = facts.skipped ? skipped_in_a_row_ + 1 : 0;
  if (facts.skipped) {
    if (skipped_in_a_row_ < kSkips || raised_skips_) return {};
    raised_skips_ = true;
    return raise(fmt::format(
        "{} consecutive steps were skipped up to step {} (loss {:.4g}): the gradients overflow at every loss scale; "
        "lower --learning-rate, check the inputs, or choose --precision bf16 or f32",
        skipped_in_a_row_, facts.step, facts.loss));
  }
  if (auto text = check_finite(facts)) return text;
  return check_learning(facts);
}

std::optional<std::string> Alarms::check_finite(const StepFacts& facts) {
  if (raised_finite_) return {};
  const auto bad =
      std::find_if(facts.grad_norms.begin(), facts.grad_norms.end(), [](double norm) { return !std::isfinite(norm); });
  const bool loss = std::isfinite(facts.loss), gradients = bad == facts.grad_norms.end();
  if (loss && gradients) return {};
  raised_finite_ = true;
  const auto index = static_cast<size_t>(bad - facts.grad_norms.begin());
  const std::string path = index < options_.paths.size() ? options_.paths[index] : fmt::format("number {}", index);
  constexpr const char* kRemedy = "lower --learning-rate, set --clip-norm, and check the inputs for NaN and Inf";
  if (loss)
    return raise(
        fmt::format("the gradients are not finite at step {} (loss {:.4g}); the first affected parameter is {}; {}",
                    facts.step, facts.loss, path, kRemedy));
  if (!gradients)
    return raise(fmt::format("loss is {} at step {}; the first parameter without a finite gradient is {}; {}",
                             facts.loss, facts.step, path, kRemedy));
  return raise(fmt::format("loss is {} at step {}{}; {}", facts.loss, facts.step,
                           facts.grad_norms.empty() ? "" : ", but all gradients are finite", kRemedy));
}

std::optional<std::string> Alarms::check_learning(const StepFacts& facts) {
  if (judged_ || began_at_ > 1 || !std::isfinite(facts.loss)) return {};
  const auto window = static_cast<int64_t>(recent_.size());
  if (losses_ < first_window_) first_.push_back(facts.loss);
  recent_[static_cast<size_t>(losses_++ % window)] = facts.loss;

  // Skipped steps add no losses, so check that both windows are full and do not overlap.
  const int64_t quarter = judge_at_ / 4;
  const bool over = options_.total_steps > 0 && facts.step >= options_.total_steps;
  const bool due = facts.step >= judge_at_ && ((facts.step - judge_at_) % quarter == 0 || over);
  if (!due || losses_ < first_window_ + window) return {};

  const double z_score = fall_z_score(first_, recent_);
  const bool constant = first_ == std::vector<double>(first_.size(), recent_[0]) &&
                        recent_ == std::vector<double>(recent_.size(), recent_[0]);
  const bool waited = over || facts.step >= judge_at_ + 2 * quarter;
  const bool falls = z_score > kFalls;
  const bool fails = z_score < -kFalls || constant || (waited && z_score < kInDoubt);
  judged_ = falls || fails;
  if (!fails) return {};
  return raise(fmt::format(
      "the loss does not fall: its mean is {1:.4g} over the first {0} steps and {4:.4g} over the {2} steps up to step "
      "{3}; try --learning-rate ten times lower, then ten times higher, and check that the targets match the inputs "
      "and that inputs are scaled to about 0 to 1",
      first_window_, trimmed_mean(first_), window, facts.step, trimmed_mean(recent_)));
}

std::optional<std::string> Alarms::check(const EvalFacts& facts, const std::vector<int64_t>& label_counts) {
  const int64_t judge_at = options_.total_steps > 0 ? std::min(judge_at_, options_.total_steps) : judge_at_;
  const int64_t examples = std::accumulate(label_counts.begin(), label_counts.end(), int64_t{0});
  const auto kinds = std::count_if(label_counts.begin(), label_counts.end(), [](int64_t n) { return n > 0; });
  if (facts.step < judge_at || kinds < 2) return {};
  const auto common = std::max_element(label_counts.begin(), label_counts.end());
  const auto n = static_cast<double>(examples);
  const double chance = static_cast<double>(*common) / n;

  const auto predicted =
      std::count_if(facts.predictions.begin(), facts.predictions.end(), [](int64_t k) { return k > 0; });
  if (predicted == 1) {
    if (raised_one_class_) return {};
    raised_one_class_ = true;
    const auto at = std::max_element(facts.predictions.begin(), facts.predictions.end());
    return raise(
        fmt::format("the model predicts class {} for all {} {} examples at step {} (accuracy {:.4f}): it ignores its "
                    "input; lower "
                    "--learning-rate, and check the initial parameters and that inputs are scaled to about 0 to 1",
                    at - facts.predictions.begin(), *at, facts.set, facts.step, facts.accuracy));
  }
  const double limit = chance + kSure * std::sqrt(chance * (1 - chance) / n);
  // With few examples, or when nearly all have one label, even perfect predictions could be chance.
  constexpr int64_t kMinExamples = 50;
  if (raised_chance_ || examples < kMinExamples || limit >= 1 || facts.accuracy > limit) return {};
  raised_chance_ = true;
  return raise(fmt::format(
      "{} accuracy {:.4f} at step {} is no better than chance: always predicting class {} gives {:.4f}, and with {} "
      "examples only more than {:.4f} is significant; try another --learning-rate, train longer, and check that the "
      "labels match the inputs",
      facts.set, facts.accuracy, facts.step, common - label_counts.begin(), chance, examples, limit));
}

}  // namespace lockstep
