// Losses. Each returns one f32 value per example; its mean() is the loss of a batch. Computed in f32 for any type of
// logits (f64 stays f64). Safe from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep {

struct CrossEntropyOptions {
  // This much of each label's weight is spread evenly over all classes; 0 <= label_smoothing < 1.
  double label_smoothing = 0;
};

// -log softmax(logits)[label]. logits: [..., classes]. labels: integers [...], or floating-point class weights
// [..., classes] such as one-hot vectors. The loss is proportional to the sum of the weights. NaN for an integer
// outside [0, classes).
Array softmax_cross_entropy(const Array& logits, const Array& labels, const CrossEntropyOptions& options = {});

// The mean of (prediction - target)^2 over all dimensions but the first. The shapes must be equal.
Array mean_squared_error(const Array& prediction, const Array& target);

// bool [...]: whether the label has the largest logit; the first of equal ones counts. Labels as above.
Array is_correct(const Array& logits, const Array& labels);

}  // namespace lockstep
