#include "lockstep/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr int64_t kLeastSteps = 20, kSkips = 20;
constexpr int64_t kFirst = 256, kRecent = 512;           // at most so many losses in the windows
constexpr double kSure = 3, kFalls = 2.5, kInDoubt = 1;  // standard deviations

// The mean without the lowest and the highest tenth: one batch that explodes says nothing of the others.
double trimmed_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 10);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) / static_cast<double>(values.size() - 2 * cut);
}

// How sure it is that the losses of the first window are higher than those of the second, in standard deviations of
// what chance gives: the rank test of Mann and Whitney, to which neither the size of the noise nor of outliers matters.
double certainty_of_fall(const std::vector<double>& first, const std::vector<double>& recent) {
  double wins = 0;
  for (const double a : first)
    for (const double b : recent) wins += a > b ? 1 : a == b ? 0.5 : 0;
  const auto m = static_cast<double>(first.size()), n = static_cast<double>(recent.size());
  return (wins - m * n / 2) / std::sqrt(m * n * (m + n + 1) / 12);
}

}  // namespace

Alarms::Alarms(AlarmOptions options) : options_(std::move(options)) {
  judge_at_ = std::max(kLeastSteps, options_.total_steps / 10);
  first_window_ = std::min(kFirst, judge_at_ / 4);
  recent_.resize(static_cast<size_t>(std::min(kRecent, judge_at_ - judge_at_ / 4)));
}

std::string Alarms::say(std::string text) {
  said_.push_back(text);
  return text;
}

std::optional<std::string> Alarms::check(const StepFacts& facts) {
  if (began_at_ < 0) began_at_ = facts.step;
  skipped_in_a_row_ = facts.skipped ? skipped_in_a_row_ + 1 : 0;
  if (facts.skipped) {
    if (skipped_in_a_row_ < kSkips || told_skips_) return {};
    told_skips_ = true;
    return say(fmt::format(
        "{} steps in a row were skipped at step {} (loss {:.4g}): the gradients overflow at every loss scale tried; "
        "lower --learning-rate, check the inputs, or choose --precision bf16 or f32",
        skipped_in_a_row_, facts.step, facts.loss));
  }
  if (auto text = check_finite(facts)) return text;
  return check_learning(facts);
}

std::optional<std::string> Alarms::check_finite(const StepFacts& facts) {
  if (told_finite_) return {};
  const auto bad =
      std::find_if(facts.grad_norms.begin(), facts.grad_norms.end(), [](double norm) { return !std::isfinite(norm); });
  const bool loss = std::isfinite(facts.loss), gradients = bad == facts.grad_norms.end();
  if (loss && gradients) return {};
  told_finite_ = true;
  const auto index = static_cast<size_t>(bad - facts.grad_norms.begin());
  const std::string path = index < options_.paths.size() ? options_.paths[index] : fmt::format("number {}", index);
  constexpr const char* kRemedy =
      "lower --learning-rate, set --clip-norm, and check the inputs for values that are no numbers";
  if (loss)
    return say(fmt::format("the gradients are not finite at step {} (loss {:.4g}); the first such parameter is {}; {}",
                           facts.step, facts.loss, path, kRemedy));
  if (!gradients)
    return say(fmt::format("loss is {} at step {}; the first parameter without a finite gradient is {}; {}", facts.loss,
                           facts.step, path, kRemedy));
  return say(fmt::format("loss is {} at step {}{}; {}", facts.loss, facts.step,
                         facts.grad_norms.empty() ? "" : ", while all gradients are finite", kRemedy));
}

std::optional<std::string> Alarms::check_learning(const StepFacts& facts) {
  if (judged_ || began_at_ > 1 || !std::isfinite(facts.loss)) return {};
  const auto window = static_cast<int64_t>(recent_.size());
  if (losses_ < first_window_) first_.push_back(facts.loss);
  recent_[static_cast<size_t>(losses_++ % window)] = facts.loss;

  // Losses of skipped steps are missing: the windows must be full and apart.
  const int64_t quarter = judge_at_ / 4;
  const bool over = options_.total_steps > 0 && facts.step >= options_.total_steps;
  const bool due = facts.step >= judge_at_ && ((facts.step - judge_at_) % quarter == 0 || over);
  if (!due || losses_ < first_window_ + window) return {};

  const double certainty = certainty_of_fall(first_, recent_);
  const bool constant = first_ == std::vector<double>(first_.size(), recent_[0]) &&
                        recent_ == std::vector<double>(recent_.size(), recent_[0]);
  const bool waited = over || facts.step >= judge_at_ + 2 * quarter;
  const bool falls = certainty > kFalls;
  const bool fails = certainty < -kFalls || constant || (waited && certainty < kInDoubt);
  judged_ = falls || fails;
  if (!fails) return {};
  return say(fmt::format(
      "the loss does not fall: its mean over the first {} steps is {:.4g} and over the last {} up to step {} it is "
      "{:.4g}; try --learning-rate ten times lower, then ten times higher, and check that images and labels belong "
      "together and that pixels are scaled to about 0 to 1",
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

  const auto called =
      std::count_if(facts.predictions.begin(), facts.predictions.end(), [](int64_t k) { return k > 0; });
  if (called == 1) {
    if (told_one_class_) return {};
    told_one_class_ = true;
    const auto at = std::max_element(facts.predictions.begin(), facts.predictions.end());
    return say(fmt::format(
        "all {} test examples are called class {} at step {} (accuracy {:.4f}): the model does not look at its input; "
        "lower --learning-rate, and check the initial values and that pixels are scaled to about 0 to 1",
        *at, at - facts.predictions.begin(), facts.step, facts.accuracy));
  }
  const double limit = chance + kSure * std::sqrt(chance * (1 - chance) / n);
  // Of few examples, or when nearly all are of one class, even perfect answers could be luck.
  constexpr int64_t kLeastExamples = 50;
  if (told_chance_ || examples < kLeastExamples || limit >= 1 || facts.accuracy > limit) return {};
  told_chance_ = true;
  return say(fmt::format(
      "test accuracy {:.4f} at step {} is no better than chance: always answering class {} gives {:.4f}, and of {} "
      "examples only more than {:.4f} would say something; try another --learning-rate, train longer, and check that "
      "images and labels belong together",
      facts.accuracy, facts.step, common - label_counts.begin(), chance, examples, limit));
}

}  // namespace lockstep
