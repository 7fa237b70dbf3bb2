#include "ops/affine.h"

#include <cstdlib>

namespace lockstep {

View dense_view(const Shape& shape) {
  View view{0, std::vector<int64_t>(shape.size())};
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) view.strides[d] = stride;
  return view;
}

std::vector<AffineDim> collapse(const View& view, const Shape& shape) {
  std::vector<AffineDim> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const AffineDim next{shape[d], view.strides[d]};
    if (!dims.empty() && dims.back().stride == next.stride * next.extent)
      dims.back() = {dims.back().extent * next.extent, next.stride};
    else
      dims.push_back(next);
  }
  return dims;
}

bool is_contiguous(const View& view, const Shape& shape) {
  const std::vector<AffineDim> dims = collapse(view, shape);
  return dims.empty() || (dims.size() == 1 && dims[0].stride == 1);
}

bool is_uniform(const View& view, const Shape& shape) {
  for (const AffineDim& d : collapse(view, shape))
    if (d.stride != 0) return false;
  return true;
}

std::optional<View> compose(const View& outer, const Shape& shape, const View& inner, const Shape& middle) {
  if (count(shape) == 0 || count(middle) == 0) return View{0, std::vector<int64_t>(shape.size())};
  // Coordinates of the middle array, as few as possible: inside one of them a flat position may run freely.
  const std::vector<AffineDim> dims = collapse(inner, middle);
  std::vector<int64_t> weight(dims.size()), least(dims.size()), most(dims.size());
  int64_t product = 1;
  for (size_t k = dims.size(); k-- > 0; product *= dims[k].extent) weight[k] = product;

  View result{inner.offset, std::vector<int64_t>(shape.size())};
  int64_t rest = outer.offset;
  for (size_t k = 0; k < dims.size(); rest %= weight[k], ++k) {
    least[k] = most[k] = rest / weight[k];
    result.offset += least[k] * dims[k].stride;
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const int64_t sign = outer.strides[d] < 0 ? -1 : 1;
    int64_t step = std::abs(outer.strides[d]);
    for (size_t k = 0; k < dims.size(); step %= weight[k], ++k) {
      const int64_t digit = sign * (step / weight[k]);
      result.strides[d] += digit * dims[k].stride;
      (digit < 0 ? least : most)[k] += digit * (shape[d] - 1);
    }
  }
  // A coordinate that leaves its range would carry into the next one, which no stride can express.
  for (size_t k = 0; k < dims.size(); ++k)
    if (least[k] < 0 || most[k] >= dims[k].extent) return std::nullopt;
  return result;
}

}  // namespace lockstep
