#include "train/classification_report.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep {
namespace {

double share(int64_t part, int64_t all) { return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all); }

// Orders mistakes so that the worst comes first.
bool is_worse(const ClassificationReport::Mistake& a, const ClassificationReport::Mistake& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.example < b.example;
}

}  // namespace

double ClassificationReport::Class::precision() const { return share(correct, predicted); }
double ClassificationReport::Class::recall() const { return share(correct, examples); }
double ClassificationReport::Class::f1() const {
  const double sum = precision() + recall();
  return sum == 0 ? 0 : 2 * precision() * recall() / sum;
}

void ClassificationReport::add(const BatchPredictions& batch) {
  if (batch.labels.empty()) return;
  const size_t classes = batch.probabilities.size() / batch.labels.size();
  classes_.resize(std::max(classes_.size(), classes));
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const int32_t label = batch.labels[i];
    if (label < 0 || static_cast<size_t>(label) >= classes) continue;
    const std::span<const float> row(batch.probabilities.data() + i * classes, classes);
    const auto predicted = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    const float confidence = row[static_cast<size_t>(predicted)], own = row[static_cast<size_t>(label)];
    const bool correct = predicted == label;
    ++examples_;
    Class& of_label = classes_[static_cast<size_t>(label)];
    ++of_label.examples;
    of_label.correct += correct;
    ++classes_[static_cast<size_t>(predicted)].predicted;
    ++confusions_[{label, predicted}];
    size_t rank = 0;
    for (size_t k = 0; k < classes; ++k) rank += row[k] > own || (row[k] == own && k < static_cast<size_t>(label));
    if (rank < kMostRanks) ++ranks_[rank];
    const double scaled = std::ceil(static_cast<double>(confidence) * static_cast<double>(kBins)) - 1;
    Bin& bin = bins_[static_cast<size_t>(std::clamp(scaled, 0.0, static_cast<double>(kBins - 1)))];
    ++bin.examples;
    bin.correct += correct;
    bin.confidence += static_cast<double>(confidence);
    if (correct || worst_ == 0) continue;
    mistakes_.push_back({batch.first + static_cast<int64_t>(i), label, predicted, confidence});
    std::push_heap(mistakes_.begin(), mistakes_.end(), is_worse);
    if (mistakes_.size() <= worst_) continue;
    std::pop_heap(mistakes_.begin(), mistakes_.end(), is_worse);
    mistakes_.pop_back();
  }
}

int64_t ClassificationReport::confusion(int64_t label, int64_t predicted) const {
  const auto found = confusions_.find({static_cast<int32_t>(label), static_cast<int32_t>(predicted)});
  return found == confusions_.end() ? 0 : found->second;
}

std::vector<ClassificationReport::Confusion> ClassificationReport::top_confusions(size_t most) const {
  std::vector<Confusion> out;
  for (const auto& [pair, examples] : confusions_)
    if (pair.first != pair.second) out.push_back({pair.first, pair.second, examples});
  std::ranges::stable_sort(out, std::greater<>(), &Confusion::examples);
  out.resize(std::min(most, out.size()));
  return out;
}

ClassificationReport::Averages ClassificationReport::macro() const {
  Averages out;
  double n = 0;
  for (const Class& each : classes_) {
    if (each.examples + each.predicted == 0) continue;
    out.precision += each.precision(), out.recall += each.recall(), out.f1 += each.f1();
    ++n;
  }
  if (n == 0) return out;
  return {out.precision / n, out.recall / n, out.f1 / n};
}

ClassificationReport::Averages ClassificationReport::weighted() const {
  Averages out;
  for (const Class& each : classes_) {
    const double weight = share(each.examples, examples_);
    out.precision += weight * each.precision(), out.recall += weight * each.recall(), out.f1 += weight * each.f1();
  }
  return out;
}

double ClassificationReport::top_k(size_t k) const {
  int64_t found = 0;
  for (size_t i = 0; i < k; ++i) found += ranks_[i];
  return share(found, examples_);
}

double ClassificationReport::calibration_error() const {
  double sum = 0;
  for (const Bin& bin : bins_) sum += std::abs(bin.confidence - static_cast<double>(bin.correct));
  return examples_ == 0 ? 0 : sum / static_cast<double>(examples_);
}

std::vector<ClassificationReport::Mistake> ClassificationReport::worst() const {
  std::vector<Mistake> out = mistakes_;
  std::ranges::sort(out, is_worse);
  return out;
}

}  // namespace lockstep
