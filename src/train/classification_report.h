// ClassificationReport: how well a classifier does on a set, from its probabilities. Not thread-safe.
//
// Of a class: precision is the share of its predictions that are correct, recall the share of its examples that are
// found, and F1 their harmonic mean. Each is 0 if it is not defined. Calibration compares confidences, the probabilities
// of predicted classes, with the share of correct predictions, in kBins bins of equal width.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/engine.h"

namespace lockstep {

class ClassificationReport {
 public:
  static constexpr size_t kBins = 15;

  struct Class {
    int64_t examples = 0, predicted = 0, correct = 0;
    double precision() const;
    double recall() const;
    double f1() const;
  };
  struct Averages {
    double precision = 0, recall = 0, f1 = 0;
  };
  struct Bin {
    int64_t examples = 0, correct = 0;
    double confidence = 0;  // sum
  };
  struct Mistake {
    int64_t example = 0;
    int32_t label = 0, predicted = 0;
    float probability = 0;  // of the predicted class
  };
  struct Confusion {
    int32_t label = 0, predicted = 0;
    int64_t examples = 0;
  };

  // Keeps the `worst` mistakes of the highest probability.
  explicit ClassificationReport(size_t worst = 0) : worst_(worst) {}

  // Labels that are not among the classes are ignored.
  void add(const BatchPredictions& batch);

  bool empty() const { return examples_ == 0; }
  int64_t examples() const { return examples_; }
  const std::vector<Class>& classes() const { return classes_; }
  // Examples of class `label` that were predicted as `predicted`.
  int64_t confusion(int64_t label, int64_t predicted) const;
  // The most frequent mistakes, at most `most`.
  std::vector<Confusion> top_confusions(size_t most) const;
  // Means over classes with examples or predictions: all alike, or weighted by their examples.
  Averages macro() const;
  Averages weighted() const;
  // The share of examples whose label is among the k most probable classes. REQUIRES: 1 <= k <= kMostRanks.
  double top_k(size_t k) const;
  static constexpr size_t kMostRanks = 10;

  // Expected calibration error: the mean over examples of the difference between confidence and accuracy of their bin.
  double calibration_error() const;
  // Bin i has the confidences above i / kBins, up to (i + 1) / kBins.
  const std::array<Bin, kBins>& bins() const { return bins_; }

  // The mistakes with the highest probabilities, the worst first.
  std::vector<Mistake> worst() const;

 private:
  size_t worst_;
  int64_t examples_ = 0;
  std::vector<Class> classes_;
  std::map<std::pair<int32_t, int32_t>, int64_t> confusions_;
  std::array<int64_t, kMostRanks> ranks_ = {};  // examples whose label is at this position of the sorted probabilities
  std::array<Bin, kBins> bins_ = {};
  std::vector<Mistake> mistakes_;  // a heap, the least bad first
};

}  // namespace lockstep
