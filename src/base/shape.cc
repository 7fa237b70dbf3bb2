#include "lockstep/shape.h"

#include <fmt/ranges.h>

#include "base/check.h"

namespace lockstep {

int64_t count(const Shape& shape) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t d : shape) {
    if (d < 0) throw_error("shape: extent {} in {} is negative; extents are zero or more", d, to_string(shape));
    empty |= d == 0;
  }
  if (empty) return 0;
  for (int64_t d : shape) {
    if (__builtin_mul_overflow(n, d, &n) || n > (int64_t{1} << 58))
      throw_error("shape: {} has more than 2^58 elements; no machine holds that many", to_string(shape));
  }
  return n;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string to_string(const Type& type) {
  std::string text = fmt::format("{}[{}]", name(type.dtype), fmt::join(type.shape, ","));
  if (!type.varying.empty()) text += fmt::format("{{{}}}", fmt::join(type.varying, ","));
  return text;
}

}  // namespace lockstep
