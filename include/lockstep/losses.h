// Losses, one number per example in f32: mean() of it is the loss of a batch. Computed in f32 whatever the logits are
// (f64 stays f64). Safe from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep {

struct CrossEntropyOptions {
  // This much of each label's weight is spread evenly over all classes; 0 <= label_smoothing < 1.
  double label_smoothing = 0;
};

// -log softmax(logits)[label]. logits [..., classes]; labels: integers [...], or weights of the classes [..., classes]
// in a floating type, such as one-hot; a loss of weights that do not sum to 1 is as many times as large. NaN for an
// integer outside [0, classes).
Array softmax_cross_entropy(const Array& logits, const Array& labels, const CrossEntropyOptions& options = {});

// The mean of (prediction - target)^2 over all dimensions but the first. The shapes must be equal.
Array mean_squared_error(const Array& prediction, const Array& target);

// bool [...]: is the greatest logit (the first of several) the label's? Labels as above.
Array is_correct(const Array& logits, const Array& labels);

}  // namespace lockstep
