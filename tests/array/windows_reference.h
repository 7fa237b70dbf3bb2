// Plain loops over windows of any number of dimensions, and random geometries of them, for tests.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lockstep/create.h"
#include "lockstep/windows.h"

namespace lockstep::reference {

using Ints = std::vector<int64_t>;

// Calls f(index) for every index of an array, in row-major order.
inline void for_each_index(const Ints& shape, const std::function<void(const Ints&)>& f) {
  if (count(shape) == 0) return;
  for (Ints at(shape.size(), 0);;) {
    f(at);
    size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}
inline int64_t position(const Ints& shape, const Ints& at) {
  int64_t p = 0;
  for (size_t d = 0; d < shape.size(); ++d) p = p * shape[d] + at[d];
  return p;
}

struct Geometry {
  Ints in, window, stride, base, dilation;
  WindowPadding::Widths pad;

  int64_t span(size_t d) const { return (window[d] - 1) * dilation[d] + 1; }
  int64_t padded(size_t d) const { return (in[d] == 0 ? 0 : (in[d] - 1) * base[d] + 1) + pad[d].first + pad[d].second; }
  bool fits() const {
    for (size_t d = 0; d < in.size(); ++d)
      if (span(d) > padded(d)) return false;
    return true;
  }
  Ints out() const {
    Ints out;
    for (size_t d = 0; d < in.size(); ++d) out.push_back((padded(d) - span(d)) / stride[d] + 1);
    return out;
  }
  std::string text() const {
    std::string s = to_string(in) + " window " + to_string(window) + " stride " + to_string(stride) + " base " +
                    to_string(base) + " dilation " + to_string(dilation) + " padding";
    for (const auto& [low, high] : pad) s += " " + std::to_string(low) + ":" + std::to_string(high);
    return s;
  }
};

// Calls f(out index, window index, in index); in place of the last an empty one for padding. Windows in order, elements
// in row-major order.
inline void for_each_element(const Geometry& g, const std::function<void(const Ints&, const Ints&, const Ints&)>& f) {
  for_each_index(g.out(), [&](const Ints& o) {
    for_each_index(g.window, [&](const Ints& k) {
      Ints at;
      for (size_t d = 0; d < o.size(); ++d) {
        const int64_t p = o[d] * g.stride[d] + k[d] * g.dilation[d] - g.pad[d].first;
        if (p < 0 || p % g.base[d] != 0 || p / g.base[d] >= g.in[d]) break;
        at.push_back(p / g.base[d]);
      }
      f(o, k, at.size() == o.size() ? at : Ints());
    });
  });
}

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  // A geometry whose windows fit, with extents up to `most`.
  Geometry geometry(size_t dims, int64_t most, int64_t base = 3) {
    while (true) {
      Geometry g;
      for (size_t d = 0; d < dims; ++d) {
        g.in.push_back(pick(1, most));
        g.window.push_back(pick(1, 3));
        g.stride.push_back(pick(1, 3));
        g.base.push_back(pick(1, base));
        g.dilation.push_back(pick(1, 3));
        g.pad.emplace_back(pick(-1, 3), pick(-1, 3));
      }
      if (g.fits()) return g;
    }
  }
  // Small integers, whose sums are exact.
  Array integers(const Shape& shape) {
    std::vector<double> values(static_cast<size_t>(count(shape)));
    for (double& v : values) v = static_cast<double>(pick(-4, 4));
    return Array::from(values, shape);
  }

 private:
  std::mt19937 random_;
};

}  // namespace lockstep::reference
