// References and samples of normalization and rotary positions.
#include <cmath>

#include "ops/norm.h"
#include "ops/ops.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

// The elements of one row, and the position of the row in the operands of a norm.
struct RefRow {
  NormSizes s;
  int64_t row = 0;
  size_t x(int64_t i) const { return static_cast<size_t>(row * s.d + i); }
  size_t parameter(int64_t i) const { return static_cast<size_t>(row / s.rows * s.d + i); }
  size_t statistic() const { return static_cast<size_t>(row); }
};

template <class F>
void for_rows_of(const RefArray& x, const Attrs& attrs, const F& f) {
  RefRow r{NormSizes(x.shape(), attrs.integer("batch_dims"))};
  for (; r.row < r.s.groups * r.s.rows; ++r.row) f(r);
}

// `centered`: layer norm.
Reference norm_reference(bool centered) {
  return [centered](const RefArrays& in, const Attrs& attrs, RefArrays& out) {
    for_rows_of(in[0], attrs, [&](const RefRow& r) {
      Real mean = 0, square = 0;
      for (int64_t i = 0; centered && i < r.s.d; ++i) mean += in[0].data[r.x(i)];
      mean /= static_cast<Real>(centered ? r.s.d : 1);
      for (int64_t i = 0; i < r.s.d; ++i) square += (in[0].data[r.x(i)] - mean) * (in[0].data[r.x(i)] - mean);
      const Real rstd = 1 / std::sqrt(square / static_cast<Real>(r.s.d) + attrs.get<double>("epsilon"));
      for (int64_t i = 0; i < r.s.d; ++i)
        out[0].data[r.x(i)] = (in[0].data[r.x(i)] - mean) * rstd * in[1].data[r.parameter(i)] +
                              (centered ? in[2].data[r.parameter(i)] : 0);
      if (centered) out[1].data[r.statistic()] = mean;
      out[centered ? 2 : 1].data[r.statistic()] = rstd;
    });
  };
}

Reference norm_grad_reference(bool centered) {
  return [centered](const RefArrays& in, const Attrs& attrs, RefArrays& out) {
    for_rows_of(in[0], attrs, [&](const RefRow& r) {
      const Real mean = centered ? in[2].data[r.statistic()] : 0, rstd = in[centered ? 3 : 2].data[r.statistic()];
      const auto dy = [&](int64_t i) { return in[centered ? 4 : 3].data[r.x(i)]; };
      const auto g = [&](int64_t i) { return dy(i) * in[1].data[r.parameter(i)]; };
      const auto normal = [&](int64_t i) { return (in[0].data[r.x(i)] - mean) * rstd; };
      Real g_mean = 0, normal_mean = 0;
      for (int64_t i = 0; i < r.s.d; ++i) {
        if (centered) g_mean += g(i) / static_cast<Real>(r.s.d);
        normal_mean += g(i) * normal(i) / static_cast<Real>(r.s.d);
      }
      for (int64_t i = 0; i < r.s.d; ++i) {
        out[0].data[r.x(i)] = rstd * (g(i) - g_mean - normal(i) * normal_mean);
        out[1].data[r.parameter(i)] += dy(i) * normal(i);
        if (centered) out[2].data[r.parameter(i)] += dy(i);
      }
    });
  };
}

struct NormCase {
  DType x;
  Shape shape;
  DType scale;
  int64_t batch_dims = 0;
  double epsilon = 1e-5;
};

std::vector<NormCase> norm_cases() {
  return {
      {f32, {12, 4, 5}, f32},
      {f32, {12, 12, 2, 3}, f32, 1},
      {f64, {3, 7}, f64, 0, 0.1},
      {f32, {9}, f32},
      {bf16, {3, 65}, f32},
      {bf16, {5, 24}, bf16, 0, 1e-3},
      {f16, {2, 3, 6}, f16},
      {f16, {4, 6, 6}, f32, 2},
      {f32, {4, 3}, bf16},
      {f64, {3, 4}, f32},
      {f32, {0, 4}, f32},
      {f32, {3, 0, 4}, f32, 1},
      {bf16, {2, 1}, bf16},
      {f32, {1000, 7}, f32},
      {f32, {3, 5000}, f32},
      {f32, {2, 20000}, f32},
      {bf16, {300, 384}, f32},
      {f32, {3, 150, 384}, f32, 1},
      {f16, {2, 10000}, f32},
      {f32, {70, 1025}, f32},
      {f32, {4, 2, 100}, f32, 2, 0.5},
  };
}

void add_norms(std::vector<Row>& out) {
  Row layer{&layer_norm_op, norm_reference(true), {}}, rms{&rms_norm_op, norm_reference(false), {}};
  Row layer_grad{&layer_norm_grad_op, norm_grad_reference(true), {}};
  Row rms_grad{&rms_norm_grad_op, norm_grad_reference(false), {}};
  for (const NormCase& c : norm_cases()) {
    const Attrs attrs{{"batch_dims", c.batch_dims}, {"epsilon", c.epsilon}}, grad_attrs{{"batch_dims", c.batch_dims}};
    Shape parameter(c.shape.begin(), c.shape.begin() + c.batch_dims);
    parameter.push_back(c.shape.back());
    const SampleOperand x{{c.x, c.shape}}, scale{{c.scale, parameter}};
    const Type statistic = infer_types(rms_norm_op, std::vector<Type>{x.type, scale.type}, attrs)[1];
    const SampleOperand mean{statistic, {Domain::real, -0.5, 0.5}}, rstd{statistic, {Domain::real, 0.5, 1.5}};
    layer.samples.push_back({{x, scale, scale}, attrs});
    layer_grad.samples.push_back({{x, scale, mean, rstd, x}, grad_attrs});
    rms.samples.push_back({{x, scale}, attrs});
    rms_grad.samples.push_back({{x, scale, rstd, x}, grad_attrs});
  }
  for (Row* row : {&layer, &layer_grad, &rms, &rms_grad}) out.push_back(std::move(*row));
}

void add_rotary(std::vector<Row>& out) {
  Row row{&rotary_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            const int64_t e = in[0].shape()[3];
            for_each_index(y[0].shape(), [&](const Dims& at, int64_t) {
              const int64_t i = at[3] % (e / 2);
              // The frequency and the angle are rounded to f32, as documented.
              const bool wide = in[0].type.dtype == f64;
              const double exact =
                  std::pow(attrs.get<double>("base"), -2.0 * static_cast<double>(i) / static_cast<double>(e));
              const auto position = static_cast<double>(in[1].at({at[1]}));
              const Real angle = wide ? static_cast<Real>(position * exact)
                                      : static_cast<Real>(static_cast<float>(position) * static_cast<float>(exact));
              Dims other = at;
              other[3] = at[3] < e / 2 ? at[3] + e / 2 : at[3] - e / 2;
              const Real sign = (at[3] < e / 2) == attrs.get<bool>("inverse") ? 1 : -1;
              y[0].at(at) = in[0].at(at) * std::cos(angle) + sign * in[0].at(other) * std::sin(angle);
            });
          },
          {}};
  const auto add = [&](DType dtype, Shape shape, double base, bool inverse, double most = 100) {
    const SampleOperand positions{{i32, {shape[1]}}, {Domain::real, 0, most}};
    row.samples.push_back({{{{dtype, std::move(shape)}}, positions}, {{"base", base}, {"inverse", inverse}}});
  };
  add(f32, {4, 12, 6, 4}, 10000, false);
  add(f64, {2, 3, 1, 6}, 10000, false);
  add(f64, {1, 4, 2, 2}, 100, true);
  add(bf16, {2, 5, 3, 16}, 10000, false);
  add(f16, {1, 3, 2, 10}, 500, true);
  add(f32, {1, 5, 2, 8}, 10000, false, 2e9);
  add(f32, {0, 3, 2, 4}, 10000, false);
  add(f32, {2, 3, 2, 0}, 10000, false);
  add(f32, {2, 100, 5, 64}, 10000, false);
  add(bf16, {3, 65, 9, 32}, 10000, true);
  out.push_back(std::move(row));
}

}  // namespace

void add_norm_rows(std::vector<Row>& out) {
  add_norms(out);
  add_rotary(out);
}

}  // namespace lockstep
