#include "rows/rows.h"

#include <limits>

#include "ops/pool.h"

namespace lockstep {
namespace {

Attrs in_f64(const Attrs& attrs);

DType in_f64(DType t) { return is_floating(t) ? f64 : is_complex(t) ? c128 : t; }

Type in_f64(Type t) {
  t.dtype = in_f64(t.dtype);
  return t;
}

ProgramPtr in_f64(Program p) {
  for (Type& t : p.types) t = in_f64(t);
  for (Eqn& eqn : p.eqns) eqn.attrs = in_f64(eqn.attrs);
  return std::make_shared<const Program>(std::move(p));
}

Attrs in_f64(const Attrs& attrs) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs) {
    if (const auto* t = std::get_if<DType>(&value)) out.set(name, in_f64(*t));
    if (const auto* p = std::get_if<ProgramPtr>(&value)) out.set(name, in_f64(**p));
  }
  return out;
}

// The type of the array that holds the values of all devices along kAxis.
Type stored(Type t, int64_t devices) {
  if (std::erase(t.varying, kAxis) > 0) t.shape = prepend(devices, t.shape);
  return t;
}

std::vector<double> special_values(DType t) {
  const double inf = std::numeric_limits<double>::infinity();
  if (is_inexact(t)) return {0.0, -0.0, 1, -1, 0.5, -2, 3, inf, -inf, std::nan(""), 1e-3, 100, -100, 2, -3};
  switch (t) {
    case boolean:
      return {0, 1};
    case u8:
      return {0, 1, 2, 7, 8, 127, 128, 255};
    case u16:
      return {0, 1, 2, 15, 16, 255, 32768, 65535};
    case u32:
      return {0, 1, 2, 31, 32, 2147483648.0, 4294967295.0};
    case u64:
      return {0, 1, 2, 63, 64, 9223372036854775808.0, 18446744073709549568.0};
    case i8:
      return {0, 1, -1, 2, -7, 7, 8, 127, -128};
    case i16:
      return {0, 1, -1, 2, -7, 15, 16, 32767, -32768};
    case i32:
      return {0, 1, -1, 2, -7, 31, 32, 2147483647.0, -2147483648.0};
    default:
      return {0, 1, -1, 2, -7, 63, 64, -9223372036854775808.0, 4611686018427387904.0};
  }
}

// Of the integers that are narrower than the domains of samples.
double largest_number(DType t) {
  switch (t) {
    case boolean:
      return 1;
    case u8:
      return 255;
    case u16:
      return 65535;
    case i8:
      return 127;
    case i16:
      return 32767;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

HostArray make_input(const SampleOperand& operand, Type type, std::mt19937& random) {
  HostArray x(std::move(type));
  const DType t = operand.type.dtype;
  const Domain& d = operand.domain;
  const int64_t n = x.size();
  const double most = largest_number(t), lo = std::max(d.lo, is_signed(t) ? -most - 1 : 0.0);
  const double hi = std::min(d.hi, most);
  std::vector<int64_t> order = counting(0, n);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<double> specials = special_values(t);
  std::uniform_int_distribution<size_t> which(0, specials.size() - 1);
  for (int64_t i = 0; i < n; ++i) {
    const auto place = static_cast<double>(order[static_cast<size_t>(i)]);
    switch (d.kind) {
      case Domain::matrix: {
        const int64_t columns = operand.type.shape.back(), rows = operand.type.shape[operand.type.shape.size() - 2];
        const int64_t column = i % columns, row = i / columns % rows;
        const double off = std::uniform_real_distribution<double>(lo, hi)(random);
        x.set(i, row == column ? off + 3 + 2 * static_cast<double>(row) : off);
        break;
      }
      case Domain::real:
        if (is_inexact(t))
          x.set(i, std::uniform_real_distribution<double>(lo, hi)(random));
        else
          x.set(i,
                static_cast<double>(std::uniform_int_distribution<int64_t>(std::lround(lo), std::lround(hi))(random)));
        break;
      case Domain::distinct:
        x.set(i, is_inexact(t)  ? (place - static_cast<double>(n / 2)) / 4
                 : is_signed(t) ? place - static_cast<double>(n / 2)
                                : place);
        break;
      case Domain::ties:
        x.set(i, static_cast<double>(random() % (t == boolean ? 2 : 3)));
        break;
      case Domain::special:
        x.set(i, specials[which(random)]);
        break;
      case Domain::pooled:
        break;
    }
  }
  return x;
}

}  // namespace

std::vector<Type> Sample::types() const {
  std::vector<Type> out;
  for (const SampleOperand& operand : in) out.push_back(operand.type);
  return out;
}

std::string Sample::text(const Op& op) const { return print(program_of(op, *this)); }

const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> out;
    add_elementwise_rows(out);
    add_complex_rows(out);
    add_shape_rows(out);
    add_index_rows(out);
    add_reduce_rows(out);
    add_window_rows(out);
    add_norm_rows(out);
    add_loss_rows(out);
    add_linalg_rows(out);
    add_attention_rows(out);
    add_float8_rows(out);
    add_program_rows(out);
    add_collective_rows(out);
    return out;
  }();
  return all;
}

const Row& row_of(const Op& op) {
  for (const Row& row : rows())
    if (row.op == &op) return row;
  throw_error("rows: {} has no reference and no samples; add a Row for it", op.name);
}

RefArrays reference_of(const Op& op, const Attrs& attrs, const RefArrays& in) {
  std::vector<Type> types;
  for (const RefArray& x : in) types.push_back(x.type);
  RefArrays out;
  for (const Type& t : infer_types(op, types, attrs)) out.emplace_back(t);
  row_of(op).reference(in, attrs, out);
  return out;
}

RefArrays reference_of(const Op& op, const Sample& sample, const RefArrays& in) {
  if (sample.devices == 0) return reference_of(op, sample.attrs, in);
  RefArrays out;
  for (const Type& t : infer_types(op, sample.types(), sample.attrs)) out.emplace_back(stored(t, sample.devices));
  row_of(op).reference(in, sample.attrs, out);
  return out;
}

RefArrays reference_of(const Program& p, const RefArrays& in) {
  RefArrays values(p.types.size(), RefArray({f32, {0}}));
  for (size_t i = 0; i < in.size(); ++i) values[p.inputs[i]] = in[i];
  for (const Eqn& eqn : p.eqns) {
    RefArrays operands;
    for (ValueId id : eqn.in) operands.push_back(values[id]);
    const RefArrays results = reference_of(*eqn.op, eqn.attrs, operands);
    for (size_t k = 0; k < results.size(); ++k) values[eqn.out[k]] = results[k];
  }
  RefArrays out;
  for (ValueId id : p.outputs) out.push_back(values[id]);
  return out;
}

Program program_of(const Op& op, const Sample& sample) {
  Builder b;
  Values in;
  for (const SampleOperand& operand : sample.in) in.push_back(b.input(operand.type));
  return b.take(b.emit(op, in, sample.attrs));
}

Program for_all_devices(const Program& p, int64_t devices) {
  if (devices == 0) return p;
  auto vary = [](const std::vector<Type>& types) {
    std::vector<bool> out;
    for (const Type& t : types) out.push_back(std::find(t.varying.begin(), t.varying.end(), kAxis) != t.varying.end());
    return out;
  };
  const std::vector<bool> out = vary(p.output_types());
  BatchedProgram all = batch(p, vary(p.input_types()), devices, out, kAxis);
  EXPECT_EQ(all.batched, out) << print(p);
  EXPECT_NO_THROW(check(all.program)) << print(all.program);
  return std::move(all.program);
}

Sample in_f64(const Sample& sample) {
  Sample out = sample;
  for (SampleOperand& operand : out.in) operand.type = in_f64(operand.type);
  out.attrs = in_f64(sample.attrs);
  return out;
}

HostArrays make_inputs(const Sample& sample, uint32_t seed) {
  std::mt19937 random(seed);
  HostArrays out;
  for (const SampleOperand& operand : sample.in)
    out.push_back(make_input(operand, stored(operand.type, sample.devices), random));
  for (size_t i = 0; i < out.size(); ++i)
    if (sample.in[i].domain.kind == Domain::pooled)
      out[i] = from_reference(reference_of(max_pool_op, sample.attrs, {to_reference(out[0])})[0]);
  return out;
}

RefArray to_reference(const HostArray& x) {
  RefArray out(x.type);
  x.with_dtype_of_parts([&]<class T>() {
    for (size_t i = 0; i < out.data.size(); ++i) {
      if constexpr (is_half<T> || is_float8_type<T>)
        out.data[i] = static_cast<float>(x.buffer->as<T>()[i]);
      else
        out.data[i] = static_cast<Real>(x.buffer->as<T>()[i]);
    }
  });
  return out;
}

HostArray from_reference(const RefArray& x) {
  HostArray out(x.type);
  out.with_dtype_of_parts([&]<class T>() {
    for (size_t i = 0; i < x.data.size(); ++i) {
      if constexpr (is_half<T> || is_float8_type<T>)
        out.buffer->as<T>()[i] = T(static_cast<float>(x.data[i]));
      else
        out.buffer->as<T>()[i] = static_cast<T>(x.data[i]);
    }
  });
  return out;
}

double tolerance(DType t) {
  switch (t) {
    case f8_e4m3:
      return 0x1p-3;
    case f8_e5m2:
      return 0x1p-2;
    case bf16:
      return 0x1p-7;
    case f16:
      return 0x1p-10;
    case f32:
    case c64:
      return 1e-5;
    case f64:
    case c128:
      return 1e-12;
    default:
      return 0;
  }
}

void expect_close(const HostArray& got, const HostArray& wanted, bool relative) {
  ASSERT_EQ(to_string(got.type), to_string(wanted.type));
  if (!is_inexact(got.type.dtype)) {
    const bool same = same_bits(got, wanted);
    ASSERT_TRUE(same) << "got " << testing::PrintToString(got.values()) << "\nwanted "
                      << testing::PrintToString(wanted.values());
    return;
  }
  double scale = 0;
  for (int64_t i = 0; i < wanted.size() && !relative; ++i)
    if (std::isfinite(wanted.get(i))) scale = std::max({scale, 1.0, std::abs(wanted.get(i))});
  // The rounding error of subnormal results.
  const double least = got.type.dtype == f16 ? 0x1p-24 : got.part() == f64 ? 0x1p-1060 : 0x1p-133;
  const double allowed = tolerance(got.type.dtype);
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = got.get(i), b = wanted.get(i);
    if (std::isnan(b) ? std::isnan(a) : a == b) continue;
    if (std::abs(a - b) <= allowed * std::max(scale, std::abs(b)) + least && std::isfinite(a) && std::isfinite(b))
      continue;
    FAIL() << "element " << i << " of " << to_string(got.type) << " is " << a << ", wanted " << b;
  }
}

}  // namespace lockstep
