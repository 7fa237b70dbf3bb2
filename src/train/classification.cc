#include "train/classification.h"

#include "lockstep/indexing.h"
#include "lockstep/losses.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep::detail {

TaskResult classification_result(const Array& logits, const Array& labels, double label_smoothing,
                                 const nn::Mode& mode) {
  TaskResult out;
  out.loss = softmax_cross_entropy(logits, labels, {.label_smoothing = mode.training ? label_smoothing : 0});
  const Array correct = is_correct(logits, labels);
  out.metrics = {{"accuracy", correct}};
  if (mode.training) return out;
  const int64_t classes = logits.shape(-1);
  const Array predictions = astype(one_hot(argmax(logits, -1), classes), boolean);
  out.counts = {{"hits", logical_and(predictions, expand_dims(correct, 1))},
                {"labels", astype(one_hot(labels, classes), boolean)},
                {"predictions", predictions}};
  return out;
}

}  // namespace lockstep::detail
