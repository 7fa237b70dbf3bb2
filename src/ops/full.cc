// full and iota: arrays without operands.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kFillGrain = 32768;

template <class T>
T from_attr(const Attr& value) {
  const double* real = std::get_if<double>(&value);
  if constexpr (is_half<T> || is_float8_type<T>) {
    return T(static_cast<float>(real ? *real : static_cast<double>(std::get<int64_t>(value))));
  } else if constexpr (is_complex_type<T>) {
    return T(static_cast<typename T::value_type>(std::get<double>(value)));
  } else {
    return real ? static_cast<T>(*real) : static_cast<T>(std::get<int64_t>(value));
  }
}

bool fits(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::boolean:
      return value == 0 || value == 1;
    case DType::u8:
      return value >= 0 && value <= std::numeric_limits<uint8_t>::max();
    case DType::u16:
      return value >= 0 && value <= std::numeric_limits<uint16_t>::max();
    case DType::i8:
      return value >= std::numeric_limits<int8_t>::min() && value <= std::numeric_limits<int8_t>::max();
    case DType::i16:
      return value >= std::numeric_limits<int16_t>::min() && value <= std::numeric_limits<int16_t>::max();
    case DType::u32:
      return value >= 0 && value <= std::numeric_limits<uint32_t>::max();
    case DType::i32:
      return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
    default:
      return true;
  }
}

Type made_type(const Attrs& attrs) { return {attrs.get<DType>("dtype"), attrs.ints("shape")}; }

std::vector<Type> full_type(Types in, const Attrs& attrs) {
  expect_operands("full", in, 0);
  Type type = made_type(attrs);
  count(type.shape);
  const Attr* value = attrs.find("value");
  LOCKSTEP_CHECK(value, "full without a value");
  if (is_inexact(type.dtype) != std::holds_alternative<double>(*value))
    throw_error("full: the value of a {} must be {}", to_string(type),
                is_inexact(type.dtype) ? "written with a decimal point" : "an integer");
  if (!is_inexact(type.dtype) && !fits(type.dtype, std::get<int64_t>(*value)))
    throw_error("full: {} does not fit {}; choose a wider type", std::get<int64_t>(*value), name(type.dtype));
  return {type};
}

Rule full_rule(Types, const Attrs& attrs) {
  return {{}, {Factors().next(static_cast<int64_t>(attrs.ints("shape").size()))}, ""};
}

Kernel full_cpu(const KernelSpec& spec) {
  const int64_t n = count(spec.out[0].shape);
  return with_stored_dtype(spec.out[0].dtype, [&]<class T>() -> Kernel {
    return
        [value = from_attr<T>(*spec.attrs.find("value")), n, pool = &spec.pool](const void* const*, void* const* out) {
          T* to = static_cast<T*>(out[0]);
          pool->parallel_range(n, kFillGrain,
                               [&](int64_t begin, int64_t end, int) { std::fill(to + begin, to + end, value); });
        };
  });
}

std::vector<Type> iota_type(Types in, const Attrs& attrs) {
  expect_operands("iota", in, 0);
  Type type = made_type(attrs);
  count(type.shape);
  if (type.dtype == DType::boolean) throw_error("iota: bool is not supported; use i32 and compare");
  if (is_complex(type.dtype)) throw_error("iota: {} is not supported; count in f32 or f64 and cast", to_string(type));
  expect_axis("iota", attrs.integer("dim"), type.shape);
  return {type};
}

Rule iota_rule(Types in, const Attrs& attrs) {
  Rule rule = full_rule(in, attrs);
  rule.position_dependent = rule.out[0].substr(static_cast<size_t>(attrs.integer("dim")), 1);
  return rule;
}

// A shard counts from its `start`.
Attrs iota_local(const LocalEqnContext& v) {
  Attrs attrs = with_local_shape(v);
  if (const auto piece = v.ranges.find(v.rule.position_dependent[0]);
      piece != v.ranges.end() && piece->second.begin != 0)
    attrs.set("start", piece->second.begin + v.attrs.get_or<int64_t>("start", 0));
  return attrs;
}

Kernel iota_cpu(const KernelSpec& spec) {
  const Shape& shape = spec.out[0].shape;
  const int64_t dim = spec.attrs.integer("dim"), n = shape[static_cast<size_t>(dim)];
  const int64_t start = spec.attrs.get_or<int64_t>("start", 0);
  const int64_t inner = extent(shape, dim + 1, spec.out[0].rank()), rows = inner == 0 ? 0 : count(shape) / inner;
  return with_dtype(spec.out[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const*, void* const* out) {
      if (rows == 0) return;
      T* to = static_cast<T*>(out[0]);
      pool->parallel_range(rows, std::max<int64_t>(kFillGrain / inner, 1), [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          T value;
          if constexpr (is_half<T>)
            value = T(static_cast<float>(start + row % n));
          else
            value = static_cast<T>(start + row % n);
          std::fill(to + row * inner, to + (row + 1) * inner, value);
        }
      });
    };
  });
}

}  // namespace

constinit const Op full_op = {.name = "full",
                              .rule = full_rule,
                              .type = full_type,
                              .local = with_local_shape,
                              .takes_float8 = true,
                              .cpu = full_cpu,
                              .cuda = LOCKSTEP_CUDA(full_cuda),
                              .cuda_task = LOCKSTEP_CUDA(&elementwise_task)};
constinit const Op iota_op = {.name = "iota",
                              .rule = iota_rule,
                              .type = iota_type,
                              .local = iota_local,
                              .cpu = iota_cpu,
                              .cuda = LOCKSTEP_CUDA(iota_cuda),
                              .cuda_task = LOCKSTEP_CUDA(&iota_task)};

Value full_of(Builder& b, Type type, Attr value) {
  Value x = b.emit(full_op, {}, {{"value", std::move(value)}, {"dtype", type.dtype}, {"shape", type.shape}})[0];
  for (const std::string& axis : type.varying) x = emit(pvary_op, {x}, {{"axis", axis}});
  return x;
}

Value full(Builder& b, Type type, double value) {
  if (is_inexact(type.dtype)) return full_of(b, type, round_to(type.dtype, value));
  // Both bounds are exact as doubles.
  if (!(value >= -0x1p63 && value < 0x1p63) || value != std::trunc(value))
    throw_error("full: {} is not a value of {}; round it, or choose a floating type", value, name(type.dtype));
  return full_of(b, std::move(type), static_cast<int64_t>(value));
}

Value full(Builder& b, Type type, int64_t value) {
  if (is_inexact(type.dtype)) return full_of(b, type, round_to(type.dtype, static_cast<double>(value)));
  return full_of(b, std::move(type), value);
}

const Attr* full_value(Value x) {
  const Eqn* eqn = x.builder().definition(x);
  return eqn && eqn->op == &full_op ? eqn->attrs.find("value") : nullptr;
}

Value zeros_like(Value x) { return full(x.builder(), x.type(), int64_t{0}); }
Value ones_like(Value x) { return full(x.builder(), x.type(), int64_t{1}); }
Value full_like(Value x, double value) { return full(x.builder(), x.type(), value); }

Value iota(Builder& b, Type type, int64_t dim) {
  return b.emit(iota_op, {}, {{"dtype", type.dtype}, {"shape", type.shape}, {"dim", dim}})[0];
}

}  // namespace lockstep
