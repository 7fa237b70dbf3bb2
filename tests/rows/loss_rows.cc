// References and samples of the rows of losses.
#include "rows/rows.h"

namespace lockstep {
namespace {

// The sum of exp(logits) of a row: exp(max) * exp(log_total).
struct ExpSum {
  Real max, log_total;

  ExpSum(const RefArray& logits, size_t row) : max(-std::numeric_limits<Real>::infinity()) {
    const auto classes = static_cast<size_t>(logits.shape().back());
    const auto z = logits.data.begin() + static_cast<std::ptrdiff_t>(row * classes);
    for (size_t k = 0; k < classes; ++k) max = std::max(max, z[static_cast<std::ptrdiff_t>(k)]);
    const Real shift = std::isinf(max) && max < 0 ? 0 : max;
    Real total = 0;
    for (size_t k = 0; k < classes; ++k) total += std::exp(z[static_cast<std::ptrdiff_t>(k)] - shift);
    log_total = std::log(total);
  }
};

void add_loss(std::vector<Row>& out) {
  Row loss{&cross_entropy_op,
           [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
             const Real smoothing = attrs.get<double>("smoothing");
             const auto classes = static_cast<size_t>(in[0].shape().back());
             for (size_t row = 0; row < in[1].data.size(); ++row) {
               const ExpSum sum(in[0], row);
               y[1].data[row] = sum.max + sum.log_total;
               Real& result = y[0].data[row] = std::numeric_limits<Real>::quiet_NaN();
               const Real label = in[1].data[row];
               if (label < 0 || label >= static_cast<Real>(classes)) continue;
               result = 0;
               for (size_t k = 0; k < classes; ++k) {
                 const Real target =
                     smoothing / static_cast<Real>(classes) + (label == static_cast<Real>(k) ? 1 - smoothing : Real{0});
                 const Real log_p = in[0].data[row * classes + k] - sum.max - sum.log_total;
                 if (target != 0) result -= target * log_p;
               }
             }
           },
           {}};
  Row grad{&cross_entropy_grad_op,
           [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
             const Real smoothing = attrs.get<double>("smoothing");
             const auto classes = static_cast<size_t>(in[0].shape().back());
             for (size_t i = 0; i < y[0].data.size(); ++i) {
               const size_t row = i / classes;
               const Real label = in[1].data[row], dloss = in[3].data[row];
               if (dloss == 0 || label < 0 || label >= static_cast<Real>(classes)) continue;
               const Real target = smoothing / static_cast<Real>(classes) +
                                   (label == static_cast<Real>(i % classes) ? 1 - smoothing : Real{0});
               y[0].data[i] = (std::exp(in[0].data[i] - in[2].data[row]) - target) * dloss;
             }
           },
           {}};
  auto add = [&](DType t, const Shape& logits, DType label, double smoothing, Domain domain = {}) {
    const Shape rows(logits.begin(), logits.end() - 1);
    const DType wide = t == f64 ? f64 : f32;
    const bool smooth = domain.kind != Domain::special;
    const SampleOperand z{{t, logits}, domain};
    const SampleOperand labels{{label, rows}, {Domain::real, -1, static_cast<double>(logits.back())}};
    loss.samples.push_back({{z, labels}, {{"smoothing", smoothing}}, smooth});
    grad.samples.push_back({{z, labels, {{wide, rows}, {Domain::real, 0, 8}}, {{wide, rows}, {Domain::ties}}},
                            {{"smoothing", smoothing}},
                            smooth});
  };
  for (const DType t : {f32, f64, bf16, f16}) {
    add(t, {5, 1}, i32, 0);
    add(t, {7, 2}, i32, 0.25);
    add(t, {3, 65}, i64, t == bf16 ? 0.1 : 0);
    add(t, {7, 1000}, u32, t == f16 ? 0.1 : 0);
    add(t, {3, 2051}, i32, t == f64 ? 0.1 : 0);
  }
  add(f32, {4}, i32, 0);
  add(f32, {12, 4, 6}, i32, 0.5);
  add(bf16, {2, 3, 4, 8}, u8, 0);
  add(f32, {0, 5}, i32, 0);
  add(f32, {2, 300}, u8, 0);
  add(f32, {300, 7}, i32, 0.1);
  add(f32, {40, 9}, i32, 0, {Domain::special});
  add(bf16, {40, 3}, i32, 0.1, {Domain::special});
  add(f32, {6, 80}, i32, 0, {Domain::real, -500, 500});
  add(f32, {2, 50257}, i32, 0.1);
  add(bf16, {2, 50257}, i32, 0);
  out.push_back(std::move(loss));
  out.push_back(std::move(grad));
}

}  // namespace

void add_loss_rows(std::vector<Row>& out) { add_loss(out); }

}  // namespace lockstep
