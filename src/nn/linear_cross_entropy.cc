// The loss of a last layer without all of its logits in memory: a loop over chunks of the examples, with a gradient of
// its own that computes the logits of each chunk again.
#include <fmt/format.h>

#include <algorithm>

#include "array/apply.h"
#include "base/check.h"
#include "lockstep/control.h"
#include "lockstep/create.h"
#include "lockstep/linalg.h"
#include "lockstep/losses.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "ops/cross_entropy.h"

namespace lockstep {
namespace {

// Some of the examples, [size, ...] each.
struct LossChunk {
  Array x, labels, lse, dloss;
};

// The sizes of the loop, and its body.
struct LinearLoss {
  int64_t n, chunks, size;
  double smoothing;
  bool class_rows;

  // Example i is in chunk i % chunks, so that a division of the examples over devices divides every chunk.
  Array split(const Array& y) const {
    std::vector<std::pair<int64_t, int64_t>> widths(static_cast<size_t>(y.rank()), {0, 0});
    widths[0].second = chunks * size - n;
    Shape shape{size, chunks};
    shape.insert(shape.end(), y.shape().begin() + 1, y.shape().end());
    return swapaxes(reshape(widths[0].second == 0 ? y : pad(y, widths), shape), 0, 1);
  }
  Array joined(const Array& y) const {
    Shape shape{size * chunks}, starts(static_cast<size_t>(y.rank()) - 1, 0);
    shape.insert(shape.end(), y.shape().begin() + 2, y.shape().end());
    const Array all = reshape(swapaxes(y, 0, 1), shape);
    shape[0] = n;
    return slice(all, starts, shape);
  }

  Array logits(const Array& x, const Array& w) const { return einsum(class_rows ? "nd,vd->nv" : "nd,dv->nv", x, w); }

  // The loss and lse of every chunk [chunks, size].
  std::pair<Array, Array> forward(const Array& x, const Array& w, const Array& labels) const {
    const auto losses_of = [&](const Nothing&, const std::pair<Array, Array>& chunk) {
      const Array in[] = {logits(chunk.first, w), chunk.second};
      const detail::Arrays out = detail::apply("linear_cross_entropy", in, {}, [&](Builder&, const Values& v) {
        return cross_entropy(v[0], v[1], smoothing);
      });
      return std::pair{Nothing{}, std::pair{out[0], out[1]}};
    };
    return scan(losses_of, Nothing{}, std::pair{split(x), split(labels)}).second;
  }

  // The gradients of x and w.
  std::pair<Array, Array> backward(const Array& x, const Array& w, const Array& labels, const Array& lse,
                                   const Array& dloss) const {
    const DType sum = w.dtype() == f64 ? f64 : f32;
    const auto gradients_of = [&](const Array& dw, const LossChunk& chunk) {
      const Array in[] = {logits(chunk.x, w), chunk.labels, chunk.lse, chunk.dloss};
      const Array g = detail::apply("linear_cross_entropy", in, {}, [&](Builder&, const Values& v) {
        return Values{cross_entropy_grad(v[0], v[1], v[2], v[3], smoothing)};
      })[0];
      const Array dx = einsum(class_rows ? "nv,vd->nd" : "nv,dv->nd", g, w);
      const Array more = class_rows ? einsum("nv,nd->vd", g, chunk.x) : einsum("nd,nv->dv", chunk.x, g);
      return std::pair{dw + astype(more, sum), astype(dx, x.dtype())};
    };
    const auto [dw, dx] =
        scan(gradients_of, zeros(w.shape(), sum), LossChunk{split(x), split(labels), lse, split(dloss)});
    return {joined(dx), astype(dw, w.dtype())};
  }
};

void check_linear_loss(const Array& x, const Array& w, const Array& labels, const LinearCrossEntropyOptions& options) {
  constexpr const char* kWhat = "linear_cross_entropy";
  if (x.rank() == 0 || !is_floating(x.dtype()) || w.rank() != 2 || !is_floating(w.dtype()))
    throw_error("{}: x is {} and w {}; they must be floating, [..., d] and two-dimensional", kWhat, to_string(x.type()),
                to_string(w.type()));
  const int64_t d = x.shape(-1), in = w.shape(options.class_rows ? 1 : 0);
  if (in != d)
    throw_error("{}: x is {} and w {}; w must be {}{}", kWhat, to_string(x.shape()), to_string(w.shape()),
                options.class_rows ? fmt::format("[classes, {}]", d) : fmt::format("[{}, classes]", d),
                w.shape(options.class_rows ? 0 : 1) == d
                    ? fmt::format("; for the other order set class_rows = {}", !options.class_rows)
                    : "");
  if (w.shape(options.class_rows ? 0 : 1) == 0) throw_error("{}: w {} has no classes", kWhat, to_string(w.shape()));
  const Shape examples(x.shape().begin(), x.shape().end() - 1);
  if (!is_integer(labels.dtype()) || labels.shape() != examples)
    throw_error("{}: labels {} for x {}; the labels must be integers {}", kWhat, to_string(labels.type()),
                to_string(x.type()), to_string(examples));
  if (options.chunk < 1) throw_error("{}: the chunk is {}; it must be at least 1", kWhat, options.chunk);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    throw_error("{}: the label smoothing is {}; it must be at least 0 and less than 1", kWhat, options.label_smoothing);
}

}  // namespace

Array linear_cross_entropy(const Operand& x, const Operand& w, const Operand& labels,
                           const LinearCrossEntropyOptions& options) {
  check_linear_loss(x, w, labels, options);
  const int64_t n = count(labels.shape()), chunks = std::max<int64_t>((n + options.chunk - 1) / options.chunk, 1);
  const LinearLoss loss{n, chunks, (n + chunks - 1) / chunks, options.label_smoothing, options.class_rows};
  const Array targets = reshape(labels, {n});
  const auto losses = custom_vjp([&](Array a, Array b) { return loss.joined(loss.forward(a, b, targets).first); },
                                 [&](Array a, Array b) {
                                   const auto [value, lse] = loss.forward(a, b, targets);
                                   return std::pair{loss.joined(value), std::tuple{a, b, lse}};
                                 },
                                 [&](std::tuple<Array, Array, Array> saved, Array dloss) {
                                   const auto& [a, b, lse] = saved;
                                   const auto [dx, dw] = loss.backward(a, b, targets, lse, dloss);
                                   return std::tuple{dx, dw};
                                 });
  return reshape(losses(reshape(x, {n, x.shape(-1)}), w), labels.shape());
}

}  // namespace lockstep
