#include "export/programs.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "export/export_row.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/rotary.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// A builder with one value for each operand.
struct Writer {
  Builder builder;
  Values in;

  explicit Writer(Types types) {
    for (const Type& type : types) in.push_back(builder.input(type));
  }
  Program take(const Values& results) { return builder.take(results); }
};

DType statistics_dtype(const Type& type) { return type.dtype == f64 ? f64 : f32; }

std::vector<int64_t> leading_dims(int64_t count) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < count; ++d) out.push_back(d);
  return out;
}

// A value per row as an array of shape [rows..., d].
Value along_rows(Value row, const Shape& shape) { return broadcast(row, shape, leading_dims(row.rank())); }

// A parameter [B..., d] as an array of shape [B..., rows..., d].
Value along_features(Value parameter, const Shape& shape, int64_t batch_dims, DType dtype) {
  std::vector<int64_t> dims = leading_dims(batch_dims);
  dims.push_back(std::ssize(shape) - 1);
  return broadcast(cast(parameter, dtype), shape, dims);
}

Value mean_of_rows(Value x) { return reduce_sum(x, {x.rank() - 1}) / static_cast<double>(x.shape().back()); }

}  // namespace

Program attention_as_program(Types in, const Attrs& attrs) {
  return attention_program(in, attention_attrs(attrs, false));
}

Program layer_norm_as_program(Types in, const Attrs& attrs) {
  Writer w(in);
  const DType wide = statistics_dtype(in[0]);
  const int64_t batch_dims = attrs.integer("batch_dims");
  const Value x = cast(w.in[0], wide), mean = mean_of_rows(x), centered = x - along_rows(mean, x.shape());
  const Value rstd = rsqrt(mean_of_rows(centered * centered) + attrs.get<double>("epsilon"));
  const Value y = centered * along_rows(rstd, x.shape()) * along_features(w.in[1], x.shape(), batch_dims, wide) +
                  along_features(w.in[2], x.shape(), batch_dims, wide);
  return w.take({cast(y, in[0].dtype), mean, rstd});
}

Program rms_norm_as_program(Types in, const Attrs& attrs) {
  Writer w(in);
  const DType wide = statistics_dtype(in[0]);
  const Value x = cast(w.in[0], wide);
  const Value rstd = rsqrt(mean_of_rows(x * x) + attrs.get<double>("epsilon"));
  const Value y =
      x * along_rows(rstd, x.shape()) * along_features(w.in[1], x.shape(), attrs.integer("batch_dims"), wide);
  return w.take({cast(y, in[0].dtype), rstd});
}

Program rotary_as_program(Types in, const Attrs& attrs) {
  Writer w(in);
  const DType wide = statistics_dtype(in[0]);
  const Shape& shape = in[0].shape;  // [b, t, h, e]
  const int64_t half = shape[3] / 2;
  const Shape halves{shape[0], shape[1], shape[2], half};
  // base^(-2i/e) = exp(-i * log(base) * 2 / e)
  const double step = -std::log(attrs.get<double>("base")) * 2 / static_cast<double>(shape[3]);
  const Value frequencies = exp(cast(iota(w.builder, {i32, {half}}, 0), wide) * step);
  const Value angles = broadcast(cast(w.in[1], wide), halves, {1}) * broadcast(frequencies, halves, {3});
  const Value cosine = cos(angles);
  const Value sine = attrs.get<bool>("inverse") ? -sin(angles) : sin(angles);
  const Value x = cast(w.in[0], wide);
  const Value low = slice(x, {0, 0, 0, 0}, halves, {1, 1, 1, 1});
  const Value high = slice(x, {0, 0, 0, half}, shape, {1, 1, 1, 1});
  const Value y = concatenate({low * cosine - high * sine, high * cosine + low * sine}, 3);
  return w.take({cast(y, in[0].dtype)});
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
Program gelu_as_program(Types in, const Attrs&) {
  Writer w(in);
  const Value x = w.in[0];
  const double factor = std::sqrt(2 / std::numbers::pi);
  return w.take({0.5 * x * (1.0 + tanh((x + 0.044715 * (x * x * x)) * factor))});
}

Program gelu_exact_as_program(Types in, const Attrs&) {
  Writer w(in);
  const Value x = w.in[0];
  return w.take({0.5 * x * (1.0 + erf(x * std::sqrt(0.5)))});
}

Program silu_as_program(Types in, const Attrs&) {
  Writer w(in);
  return w.take({w.in[0] * logistic(w.in[0])});
}

Program log1p_as_program(Types in, const Attrs&) {
  Writer w(in);
  return w.take({log(w.in[0] + 1.0)});
}

Program expm1_as_program(Types in, const Attrs&) {
  Writer w(in);
  return w.take({exp(w.in[0]) - 1.0});
}

Program logaddexp_as_program(Types in, const Attrs&) {
  Writer w(in);
  return w.take({maximum(w.in[0], w.in[1]) + log(exp(-abs(w.in[0] - w.in[1])) + 1.0)});
}

Program expand_programs(const Program& program, const std::function<bool(const Op&)>& is_written) {
  Builder b;
  Values map(program.types.size());
  for (const ValueId id : program.inputs) map[id] = b.input(program.types[id]);
  for (const Eqn& eqn : program.eqns) {
    const ExportRow& row = export_row(*eqn.op);
    if (!row.program || is_written(*eqn.op)) {
      b.copy(program, eqn, map);
      continue;
    }
    std::vector<Type> types;
    Values in;
    for (const ValueId id : eqn.in) {
      types.push_back(program.types[id]);
      in.push_back(map[id]);
    }
    const Program body = expand_programs(row.program(types, eqn.attrs), is_written);
    const Values out = b.inline_program(body, in);
    for (size_t k = 0; k < eqn.out.size(); ++k) map[eqn.out[k]] = out[k];
  }
  Values outputs;
  for (const ValueId id : program.outputs) outputs.push_back(map[id]);
  return b.take(outputs);
}

}  // namespace lockstep
