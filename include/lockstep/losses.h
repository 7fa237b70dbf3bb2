// Losses. Each returns one f32 value per example; its mean() is the loss of a batch. Computed in f32 for any type of
// logits (f64 stays f64). Safe from any thread.
#pragma once

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

struct CrossEntropyOptions {
  // This much of each label's weight is spread evenly over all classes; 0 <= label_smoothing < 1.
  double label_smoothing = 0;
};

// -log softmax(logits)[label]. logits: [..., classes]. labels: integers [...], or floating-point class weights
// [..., classes] such as one-hot vectors. The loss is proportional to the sum of the weights. NaN for an integer
// outside [0, classes).
Array softmax_cross_entropy(const Operand& logits, const Operand& labels, const CrossEntropyOptions& options = {});

struct LinearCrossEntropyOptions {
  double label_smoothing = 0;  // as in CrossEntropyOptions
  int64_t chunk = 1024;        // the most examples whose logits are in memory at a time
  bool class_rows = false;     // w is [classes, d], as the table of an embedding, instead of [d, classes]
};

// softmax_cross_entropy(x w, labels) for x [..., d], w [d, classes] and integer labels [...], without all logits in
// memory: the logits of `chunk` examples at a time are computed, and computed again for the gradient. Of n examples it
// saves the logits and their gradient but 2 * chunk * classes elements; the price is one more matrix product. The
// gradient of w is summed in f32 (f64 for f64). It can be differentiated once.
Array linear_cross_entropy(const Operand& x, const Operand& w, const Operand& labels,
                           const LinearCrossEntropyOptions& options = {});

// The mean of (prediction - target)^2 over all dimensions but the first. The shapes must be equal.
Array mean_squared_error(const Operand& prediction, const Operand& target);

// bool [...]: whether the label has the largest logit; the first of equal ones counts. Labels as above.
Array is_correct(const Operand& logits, const Operand& labels);

}  // namespace lockstep
