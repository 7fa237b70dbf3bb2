// References and samples of the rows of complex numbers, and complex samples of elementwise rows.
#include <cmath>
#include <complex>
#include <numbers>

#include "rows/rows.h"

namespace lockstep {
namespace {

using Complex = std::complex<Real>;
using ComplexUnary = Complex (*)(Complex);
using ComplexBinary = Complex (*)(Complex, Complex);

Complex element(const RefArray& x, size_t i) { return {x.data[2 * i], x.data[2 * i + 1]}; }
void set_element(RefArray& x, size_t i, Complex value) {
  x.data[2 * i] = value.real();
  x.data[2 * i + 1] = value.imag();
}

const std::vector<Shape> kComplexShapes = {{4, 6}, {5}, {}, {0, 3}, {2, 3, 12}};
constexpr Domain kNearZero{Domain::real, -2, 2};

std::vector<Sample> complex_samples(const std::vector<DType>& dtypes, size_t operands, bool smooth = true) {
  std::vector<Sample> out;
  for (const DType t : dtypes)
    for (const Shape& shape : kComplexShapes)
      out.push_back({std::vector<SampleOperand>(operands, {{t, shape}, kNearZero}), {}, smooth});
  return out;
}

// Adds complex samples to the row of an op, with their reference.
void extend(std::vector<Row>& rows, const Op& op, const Reference& of_complex, size_t operands) {
  for (Row& row : rows) {
    if (row.op != &op) continue;
    row.reference = [of_real = row.reference, of_complex](const RefArrays& in, const Attrs& attrs, RefArrays& out) {
      (is_complex(in.back().type.dtype) ? of_complex : of_real)(in, attrs, out);
    };
    row.relative = false;  // parts may cancel
    for (const Sample& sample : complex_samples({c64, c128}, operands)) row.samples.push_back(sample);
  }
}

void extend_unary(std::vector<Row>& rows, const Op& op, ComplexUnary f) {
  extend(
      rows, op,
      [f](const RefArrays& in, const Attrs&, RefArrays& out) {
        for (size_t i = 0; i < out[0].data.size() / 2; ++i) set_element(out[0], i, f(element(in[0], i)));
      },
      1);
}
void extend_binary(std::vector<Row>& rows, const Op& op, ComplexBinary f) {
  extend(
      rows, op,
      [f](const RefArrays& in, const Attrs&, RefArrays& out) {
        for (size_t i = 0; i < out[0].data.size() / 2; ++i)
          set_element(out[0], i, f(element(in[0], i), element(in[1], i)));
      },
      2);
}
template <bool kEqual>
void extend_compare(std::vector<Row>& rows, const Op& op) {
  extend(
      rows, op,
      [](const RefArrays& in, const Attrs&, RefArrays& out) {
        for (size_t i = 0; i < out[0].data.size(); ++i)
          out[0].data[i] = (element(in[0], i) == element(in[1], i)) == kEqual ? 1 : 0;
      },
      2);
  for (Row& row : rows)
    if (row.op == &op) row.samples.push_back({{{{c64, {30}}, {Domain::ties}}, {{c64, {30}}, {Domain::ties}}}, {}});
}

void extend_elementwise(std::vector<Row>& rows) {
  extend_unary(rows, neg_op, [](Complex x) { return -x; });
  extend_unary(rows, exp_op, [](Complex x) { return std::exp(x); });
  extend_unary(rows, expm1_op, [](Complex x) { return std::exp(x) - Complex(1); });
  extend_unary(rows, log_op, [](Complex x) { return std::log(x); });
  extend_unary(rows, log1p_op, [](Complex x) { return std::log(Complex(1) + x); });
  extend_unary(rows, sqrt_op, [](Complex x) { return std::sqrt(x); });
  extend_unary(rows, rsqrt_op, [](Complex x) { return Complex(1) / std::sqrt(x); });
  extend_unary(rows, sin_op, [](Complex x) { return std::sin(x); });
  extend_unary(rows, cos_op, [](Complex x) { return std::cos(x); });
  extend_unary(rows, tanh_op, [](Complex x) { return std::tanh(x); });
  extend_unary(rows, logistic_op, [](Complex x) { return Complex(1) / (Complex(1) + std::exp(-x)); });
  extend_unary(rows, sign_op, [](Complex x) { return x == Complex() ? x : x / std::abs(x); });
  extend_binary(rows, add_op, [](Complex a, Complex b) { return a + b; });
  extend_binary(rows, sub_op, [](Complex a, Complex b) { return a - b; });
  extend_binary(rows, mul_op, [](Complex a, Complex b) { return a * b; });
  extend_binary(rows, div_op, [](Complex a, Complex b) { return a / b; });
  extend_binary(rows, pow_op, [](Complex a, Complex b) { return std::exp(b * std::log(a)); });
  extend_compare<true>(rows, eq_op);
  extend_compare<false>(rows, ne_op);
  extend(
      rows, select_op,
      [](const RefArrays& in, const Attrs&, RefArrays& out) {
        for (size_t i = 0; i < in[0].data.size(); ++i)
          set_element(out[0], i, element(in[in[0].data[i] != 0 ? 1 : 2], i));
      },
      3);
  extend(
      rows, cast_op, [](const RefArrays& in, const Attrs&, RefArrays& out) { out[0].data = in[0].data; }, 1);
  for (Row& row : rows)
    for (Sample& sample : row.samples) {
      const bool complex = !sample.in.empty() && is_complex(sample.in.back().type.dtype);
      if (complex && row.op == &select_op) sample.in[0] = {{boolean, sample.in[1].type.shape}};
      if (complex && row.op == &cast_op) sample.attrs = {{"dtype", sample.in[0].type.dtype == c64 ? c128 : c64}};
      // Near a zero of the divisor, of the logarithm, or on a branch cut, rounding errors are unbounded.
      const bool away = row.op == &div_op || row.op == &pow_op || row.op == &rsqrt_op || row.op == &sqrt_op ||
                        row.op == &log_op || row.op == &log1p_op || row.op == &tanh_op || row.op == &logistic_op;
      if (complex && away)
        for (SampleOperand& operand : sample.in) operand.domain = {Domain::real, 0.25, 1.25};
    }
}

using PartOf = Real (*)(Complex);
void add_part(std::vector<Row>& out, const Op& op, PartOf f) {
  out.push_back({&op,
                 [f](const RefArrays& in, const Attrs&, RefArrays& y) {
                   for (size_t i = 0; i < y[0].data.size(); ++i) y[0].data[i] = f(element(in[0], i));
                 },
                 complex_samples({c64, c128}, 1)});
}

// The sum over all elements of the transformed dimensions, one dimension after another.
void transform_reference(RefArray& x, int64_t dim, int direction) {
  const int64_t n = x.type.shape[static_cast<size_t>(dim)];
  const int64_t inner = extent(x.type.shape, dim + 1, x.type.rank());
  const RefArray from = x;
  for_each_index(x.type.shape, [&](const Dims& index, int64_t at) {
    const int64_t k = index[static_cast<size_t>(dim)];
    Complex sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      const Real angle = direction * 2 * std::numbers::pi_v<Real> * static_cast<Real>(j * k % n) / static_cast<Real>(n);
      sum += element(from, static_cast<size_t>(at + (j - k) * inner)) * Complex(std::cos(angle), std::sin(angle));
    }
    set_element(x, static_cast<size_t>(at), sum);
  });
}

void fft_reference(const RefArrays& in, const Attrs& attrs, RefArrays& out) {
  const std::string& kind = attrs.get<std::string>("kind");
  const RefArray &x = in[0], &y = out[0];
  Type whole{c128, kind == "irfft" ? y.type.shape : x.type.shape};
  RefArray all(whole);
  const int64_t last = x.type.rank() - 1, first = x.type.rank() - attrs.integer("dims");
  const int64_t half = x.type.shape.back();
  for_each_index(whole.shape, [&](const Dims& index, int64_t at) {
    if (kind == "rfft") return set_element(all, static_cast<size_t>(at), x.data[static_cast<size_t>(at)]);
    if (kind != "irfft") return set_element(all, static_cast<size_t>(at), element(x, static_cast<size_t>(at)));
    Dims from = index;
    const bool mirrored = index.back() >= half;
    if (mirrored)  // the conjugate of the element at the negative frequencies
      for (int64_t d = first; d <= last; ++d) {
        const int64_t extent = whole.shape[static_cast<size_t>(d)];
        from[static_cast<size_t>(d)] = (extent - index[static_cast<size_t>(d)]) % extent;
      }
    const Complex value = element(x, static_cast<size_t>(position(x.type.shape, from)));
    set_element(all, static_cast<size_t>(at), mirrored ? std::conj(value) : value);
  });
  for (int64_t d = first; d <= last; ++d) transform_reference(all, d, kind == "fft" || kind == "rfft" ? -1 : 1);
  for_each_index(y.type.shape, [&](const Dims& index, int64_t at) {
    const Complex value = element(all, static_cast<size_t>(position(whole.shape, index)));
    if (kind == "irfft")
      out[0].data[static_cast<size_t>(at)] = value.real();
    else
      set_element(out[0], static_cast<size_t>(at), value);
  });
}

void add_fft(std::vector<Row>& out) {
  Row row{&fft_op, fft_reference, {}};
  const auto add = [&](DType t, const Shape& shape, const char* kind, int64_t dims, int64_t length = 0) {
    row.samples.push_back({{{{t, shape}}}, {{"kind", std::string(kind)}, {"dims", dims}, {"length", length}}});
  };
  for (const char* kind : {"fft", "ifft"}) {
    add(c64, {12, 5}, kind, 1);
    add(c128, {4, 6, 7}, kind, 1);
    add(c64, {3, 4, 6}, kind, 2);
    add(c128, {4, 2, 3, 5}, kind, 3);
    add(c64, {24, 30}, kind, 1);
    add(c64, {11}, kind, 1);
    add(c64, {0, 3}, kind, 1);
  }
  add(f32, {12, 10}, "rfft", 1);
  add(f64, {4, 6, 7}, "rfft", 2);
  add(f32, {2, 3, 2, 5}, "rfft", 3);
  add(f32, {1}, "rfft", 1);
  add(c64, {12, 6}, "irfft", 1, 10);
  add(c128, {4, 6}, "irfft", 1, 11);
  add(c64, {3}, "irfft", 1, 5);
  add(c128, {4, 4, 4}, "irfft", 2, 6);
  add(c64, {1}, "irfft", 1, 1);
  out.push_back(std::move(row));
}

}  // namespace

void add_complex_rows(std::vector<Row>& out) {
  extend_elementwise(out);
  out.push_back({&complex_op,
                 [](const RefArrays& in, const Attrs&, RefArrays& y) {
                   for (size_t i = 0; i < in[0].data.size(); ++i) set_element(y[0], i, {in[0].data[i], in[1].data[i]});
                 },
                 complex_samples({f32, f64}, 2)});
  add_part(out, real_op, [](Complex x) { return x.real(); });
  add_part(out, imag_op, [](Complex x) { return x.imag(); });
  add_part(out, complex_abs_op, [](Complex x) { return std::abs(x); });
  add_part(out, complex_angle_op, [](Complex x) { return std::arg(x); });
  // Away from 0, where the angle has no derivative.
  for (Sample& sample : out.back().samples) sample.in[0].domain = {Domain::real, 0.5, 2};
  add_fft(out);
}

}  // namespace lockstep
