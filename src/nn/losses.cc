#include "lockstep/losses.h"

#include <limits>

#include "array/apply.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "ops/cross_entropy.h"

namespace lockstep {
namespace {

// Classes from which on the loss of integer labels is the row cross_entropy. Elementwise loops are faster for a few
// classes: they are fused with what comes before and after them, and the persistent kernel of a GPU computes such a
// loss in the thread blocks of the last layer.
constexpr int64_t kFewestRowClasses = 64;

// Converts to f32, except f64.
Array at_least_f32(const Array& x) { return x.dtype() == f64 ? x : astype(x, f32); }

// Throws Error unless the labels are integers [...] or floats [..., classes] for logits [..., classes].
void check_labels(const char* what, const Array& logits, const Array& labels) {
  if (logits.rank() == 0 || !is_floating(logits.dtype()))
    throw_error("{}: the logits are {}; they must be floating, [..., classes]", what, to_string(logits.type()));
  if (logits.shape(-1) == 0) throw_error("{}: logits {} have no classes", what, to_string(logits.shape()));
  if (labels.dtype() == boolean)
    throw_error("{}: the labels are {}; give integers, or astype(labels, f32) for weights of the classes", what,
                to_string(labels.type()));
  const Shape examples(logits.shape().begin(), logits.shape().end() - 1);
  const bool weights = is_floating(labels.dtype());
  if (labels.shape() == (weights ? logits.shape() : examples)) return;
  const char* remedy = "";
  if (weights && labels.shape() == examples) remedy = "; class numbers are integers, use astype(labels, i32)";
  if (!weights && labels.shape() == logits.shape()) remedy = "; one-hot labels are floating, use astype(labels, f32)";
  throw_error("{}: labels {} for logits {}; {} must be {}{}", what, to_string(labels.type()), to_string(logits.type()),
              weights ? "weights of the classes" : "integer labels", to_string(weights ? logits.shape() : examples),
              remedy);
}

// bool [..., classes]: whether the class is the label.
Array is_label(const Array& labels, int64_t classes) {
  return expand_dims(labels, -1) == astype(arange(classes), labels.dtype());
}

void check_smoothing(const char* what, double smoothing) {
  if (!(smoothing >= 0 && smoothing < 1))
    throw_error("{}: the label smoothing is {}; it must be at least 0 and less than 1", what, smoothing);
}

}  // namespace

Array softmax_cross_entropy(const Operand& logits, const Operand& labels, const CrossEntropyOptions& options) {
  check_labels("softmax_cross_entropy", logits, labels);
  const double smoothing = options.label_smoothing;
  check_smoothing("softmax_cross_entropy", smoothing);
  if (!is_floating(labels.dtype()) && logits.shape(-1) >= kFewestRowClasses)
    return detail::apply1("softmax_cross_entropy", {logits, labels},
                          [&](Builder&, const Values& v) { return cross_entropy(v[0], v[1], smoothing)[0]; });
  const Array z = at_least_f32(logits);
  // Shift the logits so that the largest is 0: exp cannot overflow, and small differences of large logits stay exact.
  // The loss does not depend on the shift, so the maximum needs no gradient.
  const Array shifted = z - stop_gradient(max(z, -1, {.keepdims = true}));
  const Array total = log(sum(exp(shifted), -1));
  if (is_floating(labels.dtype())) {
    const Array weights = astype(labels, z.dtype()), weight = sum(weights, -1);
    const Array own = sum(weights * shifted, -1);
    if (smoothing == 0) return weight * total - own;
    return weight * (total - smoothing * mean(shifted, -1)) - (1 - smoothing) * own;
  }
  // u8 labels cannot be compared with more than 255 classes.
  const Array label = size_of(labels.dtype()) < 4 ? astype(labels, i32) : Array(labels);
  const int64_t classes = z.shape(-1);
  // where() instead of a product with 0 and 1, because a logit may be -inf (an excluded class).
  const Array own = sum(where(is_label(label, classes), shifted, 0.0), -1);
  const Array loss = smoothing == 0 ? total - own : total - smoothing * mean(shifted, -1) - (1 - smoothing) * own;
  const Array known = logical_and(label >= 0, label < classes);
  return where(known, loss, std::numeric_limits<double>::quiet_NaN());
}

Array mean_squared_error(const Operand& prediction, const Operand& target) {
  if (prediction.shape() != target.shape())
    throw_error("mean_squared_error: prediction {} and target {}; the shapes must be equal",
                to_string(prediction.shape()), to_string(target.shape()));
  const Array squares = square(at_least_f32(prediction) - at_least_f32(target));
  std::vector<int64_t> axes;
  for (int64_t axis = 1; axis < squares.rank(); ++axis) axes.push_back(axis);
  return axes.empty() ? squares : mean(squares, axes);
}

Array is_correct(const Operand& logits, const Operand& labels) {
  check_labels("is_correct", logits, labels);
  const Array found = argmax(logits, -1);
  return found == (is_floating(labels.dtype()) ? argmax(labels, -1) : Array(labels));
}

}  // namespace lockstep
