// Muon (Jordan et al., 2024): the momentum of a matrix, made nearly orthogonal.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "nn/optimizers_rules.h"

namespace lockstep {

Array orthogonalize(const Operand& matrix) {
  if (matrix.type().rank() != 2)
    throw_error("orthogonalize: the array is {}; give a matrix, such as reshape(x, {{-1, x.shape(-1)}})",
                to_string(matrix.type()));
  // y = a y + b (y y^T) y + c (y y^T)^2 y maps each singular value s to a s + b s^3 + c s^5. Its steep slope at 0 lifts
  // small values fast; five iterations map 0.002 to 1 into 0.68 to 1.2.
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  constexpr int kIterations = 5;
  // The Frobenius norm bounds the largest singular value.
  Array y = matrix / (sqrt(sum(square(matrix))) + 1e-7);
  const bool tall = matrix.shape(0) > matrix.shape(1);  // then y^T y is the smaller of the two products
  for (int i = 0; i < kIterations; ++i) {
    const Array product = tall ? matmul(transpose(y), y) : matmul(y, transpose(y));
    const Array factor = kB * product + kC * matmul(product, product);
    y = kA * y + (tall ? matmul(y, factor) : matmul(factor, y));
  }
  return y;
}

namespace detail {

ParameterArrays update_muon(const Optimizer& o, const ParameterRule& rule, const StepScalars& n,
                            const ParameterArrays& old, const Array& g) {
  const Array& p = old.param;
  const auto scalar = [&](const Array& x) { return astype(x, p.dtype()); };
  ParameterArrays next;
  next.first = o.muon_momentum * old.first + g;
  const Array direction = o.muon_momentum * next.first + g;
  // Weights are [in, out], filters [height, width, in, out].
  const int64_t outputs = p.shape(-1), inputs = outputs == 0 ? 0 : p.size() / outputs;
  const Array orthogonal = reshape(orthogonalize(reshape(direction, {inputs, outputs})), p.shape());
  const double scale =
      std::sqrt(std::max(1.0, static_cast<double>(outputs) / static_cast<double>(std::max<int64_t>(inputs, 1))));
  Array move = scalar(n.rate * scale) * orthogonal;
  if (rule.weight_decay > 0) move = move + scalar(n.decay) * p;
  next.param = p - move;
  return next;
}

}  // namespace detail
}  // namespace lockstep
