// Normalization along the last dimension. Statistics and arithmetic are f32 (f64 for f64), the variance is that of the
// centered values, and each result is rounded once. Results do not depend on the number of threads. A Builder belongs
// to one thread.
//
// x is [B..., rows..., d], where B are the first `batch_dims` dimensions. scale and bias are [B..., d], of any floating
// type: each batch element has its own.
#pragma once

#include <cstdint>

#include "program/builder.h"

namespace lockstep {

// y = (x - mean) * rstd * scale + bias with rstd = 1 / sqrt(variance + epsilon). Returns y, in the type of x, and mean
// and rstd [B..., rows...].
Values layer_norm(Value x, Value scale, Value bias, double epsilon, int64_t batch_dims = 0);

// The gradient: dx in the type of x; dscale and dbias in the type of scale, sums over the rows. mean and rstd are
// results of layer_norm(x, ...), dy is the cotangent of y.
Values layer_norm_grad(Value x, Value scale, Value mean, Value rstd, Value dy, int64_t batch_dims = 0);

// y = x * rstd * scale with rstd = 1 / sqrt(mean(x^2) + epsilon). Returns y, in the type of x, and rstd.
Values rms_norm(Value x, Value scale, double epsilon, int64_t batch_dims = 0);

// The gradient: dx and dscale, as those of layer_norm_grad().
Values rms_norm_grad(Value x, Value scale, Value rstd, Value dy, int64_t batch_dims = 0);

// x [B..., rows..., d] as numbers: of batch elements, rows of each, and elements of a row.
struct NormSizes {
  int64_t groups = 1, rows = 1, d = 1;

  NormSizes(const Shape& x, int64_t batch_dims);
};

}  // namespace lockstep
