// The result of a task that classifies. Pure functions, safe from any thread.
#pragma once

#include "lockstep/task.h"

namespace lockstep::detail {

// The cross-entropy of logits [n, classes] and labels, integers [n]; metric "accuracy". An evaluation counts examples by
// class: "labels", "predictions" and "hits".
TaskResult classification_result(const Array& logits, const Array& labels, double label_smoothing,
                                 const nn::Mode& mode);

}  // namespace lockstep::detail
