// Helpers for tests of rows: arrays on the host, an interpreter that runs each equation's kernel, and properties that
// hold for every row. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/pool.h"
#include "ops/dims.h"
#include "passes/passes.h"
#include "program/op.h"

namespace lockstep {

// Those with arithmetic and an order: not the 8-bit floats, not complex.
inline const std::vector<DType> kAllDTypes = {boolean, u8, u16, u32, u64, i8, i16, i32, i64, bf16, f16, f32, f64};

struct HostArray {
  Type type;
  BufferPtr buffer;

  HostArray() = default;
  explicit HostArray(Type t) : type(std::move(t)), buffer(allocate(std::max<int64_t>(type.bytes(), 1))) {}
  // Values in row-major order.
  HostArray(Type t, const std::vector<double>& values) : HostArray(std::move(t)) {
    for (size_t i = 0; i < values.size(); ++i) set(static_cast<int64_t>(i), values[i]);
  }

  DType part() const { return real_of(type.dtype); }  // of a number
  // Calls f with the type of the numbers.
  template <class F>
  decltype(auto) with_dtype_of_parts(F&& f) const {
    if (part() == f8_e4m3) return f.template operator()<Float8E4M3>();
    if (part() == f8_e5m2) return f.template operator()<Float8E5M2>();
    return with_dtype(part(), std::forward<F>(f));
  }
  // Complex elements are two numbers: the real and the imaginary part.
  int64_t size() const { return count(type.shape) * (is_complex(type.dtype) ? 2 : 1); }
  double get(int64_t i) const {
    return with_dtype_of_parts([&]<class T>() -> double {
      if constexpr (is_half<T> || is_float8_type<T>)
        return static_cast<float>(buffer->as<T>()[i]);
      else
        return static_cast<double>(buffer->as<T>()[i]);
    });
  }
  void set(int64_t i, double x) {
    with_dtype_of_parts([&]<class T>() {
      if constexpr (is_half<T> || is_float8_type<T>)
        buffer->as<T>()[i] = T(static_cast<float>(x));
      else
        buffer->as<T>()[i] = static_cast<T>(x);
    });
  }
  // The same; integers wrap.
  void set_wrapped(int64_t i, double x) {
    with_dtype_of_parts([&]<class T>() {
      if constexpr (std::is_integral_v<T>)
        buffer->as<T>()[i] = static_cast<T>(static_cast<int64_t>(x));
      else
        set(i, x);
    });
  }
  std::vector<double> values() const {
    std::vector<double> out;
    for (int64_t i = 0; i < size(); ++i) out.push_back(get(i));
    return out;
  }
  // Element i of the leading dimension.
  HostArray row(int64_t i) const {
    HostArray out({type.dtype, Shape(type.shape.begin() + 1, type.shape.end())});
    std::memcpy(out.buffer->data(), buffer->data() + i * out.type.bytes(), static_cast<size_t>(out.type.bytes()));
    return out;
  }
};
using HostArrays = std::vector<HostArray>;

// Small random integers, exact in every type.
inline HostArray small_integers(Type type, uint32_t seed = 1) {
  HostArray out(std::move(type));
  std::mt19937 random(seed);
  const int low = is_signed(out.type.dtype) ? -4 : 0, high = out.type.dtype == boolean ? 1 : 4;
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, std::uniform_int_distribution<int>(low, high)(random));
  return out;
}

// The sign with which number i of an array enters the product of a cotangent and a tangent: the real part of the product
// of complex numbers.
inline double pairing_sign(const HostArray& x, int64_t i) { return is_complex(x.type.dtype) && i % 2 == 1 ? -1 : 1; }

inline HostArray normal_numbers(Type type, uint32_t seed = 1) {
  HostArray out(std::move(type));
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, normal(random));
  return out;
}

inline Pool& test_pool() {
  static Pool pool({.threads = 3});
  return pool;
}

// Runs one equation's kernel.
inline HostArrays run_op(const Op& op, const HostArrays& in, const Attrs& attrs, Pool& pool = test_pool()) {
  std::vector<Type> types;
  std::vector<const void*> from;
  for (const HostArray& x : in) {
    types.push_back(x.type);
    from.push_back(x.buffer->data());
  }
  const std::vector<Type> out_types = infer_types(op, types, attrs);
  HostArrays out(out_types.begin(), out_types.end());
  std::vector<void*> to;
  for (const HostArray& y : out) to.push_back(y.buffer->data());
  if (op.cpu) {
    op.cpu({types, out_types, attrs, pool, {}, {}})(from.data(), to.data());
    return out;
  }
  std::vector<DType> dtypes;
  for (const Type& t : types) dtypes.push_back(t.dtype);
  const Loop loop = op.loop(dtypes, out_types[0].dtype);
  LOCKSTEP_CHECK(loop, "{} has no kernel", op.name);
  loop(to[0], from.data(), out[0].size());
  return out;
}

inline HostArrays evaluate(const Program& p, const HostArrays& inputs, Pool& pool = test_pool()) {
  HostArrays values(p.types.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[p.inputs[i]] = inputs[i];
  for (const Eqn& eqn : p.eqns) {
    HostArrays in;
    for (ValueId id : eqn.in) in.push_back(values[id]);
    const HostArrays out = run_op(*eqn.op, in, eqn.attrs, pool);
    for (size_t k = 0; k < out.size(); ++k) values[eqn.out[k]] = out[k];
  }
  HostArrays outputs;
  for (ValueId id : p.outputs) outputs.push_back(values[id]);
  return outputs;
}

// The program of a function of Values.
using ValueFunction = std::function<Values(const Values&)>;
inline Program trace(const std::vector<Type>& types, const ValueFunction& f) {
  Builder b;
  Values in;
  for (const Type& t : types) in.push_back(b.input(t));
  return b.take(f(in));
}

inline HostArrays evaluate(const HostArrays& inputs, const ValueFunction& f) {
  std::vector<Type> types;
  for (const HostArray& x : inputs) types.push_back(x.type);
  return evaluate(trace(types, f), inputs);
}

// Calls f(index, position) for every index of `shape` in row-major order.
inline void for_each_index(const Shape& shape, const std::function<void(const Dims&, int64_t)>& f) {
  const int64_t n = count(shape);
  Dims index(shape.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    f(index, i);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

inline int64_t position(const Shape& shape, const Dims& index) {
  int64_t at = 0;
  for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

// Element of `x` at an index.
inline double at(const HostArray& x, const Dims& index) { return x.get(position(x.type.shape, index)); }

inline void expect_equal(const HostArray& got, const HostArray& wanted, double tolerance = 0) {
  ASSERT_EQ(to_string(got.type), to_string(wanted.type));
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = got.get(i), b = wanted.get(i);
    if (std::isnan(b) ? std::isnan(a) : a == b || std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b))) continue;
    FAIL() << "element " << i << " of " << to_string(got.type) << " is " << a << ", wanted " << b;
  }
}

// Expects that every element is f(index).
inline void expect_elements(const HostArray& got, const std::function<double(const Dims&)>& f) {
  HostArray wanted(got.type);
  for_each_index(got.type.shape, [&](const Dims& index, int64_t i) { wanted.set(i, f(index)); });
  expect_equal(got, wanted);
}

// Expects that batching f over the operands marked in `batched` equals a loop. The leading dimension of those
// arrays is the batch.
inline void expect_batch_is_loop(const HostArrays& inputs, const std::vector<bool>& batched, const ValueFunction& f) {
  int64_t size = -1;
  std::vector<Type> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type t = inputs[i].type;
    if (batched[i]) {
      size = t.shape[0];
      t.shape.erase(t.shape.begin());
    }
    types.push_back(t);
  }
  const Program one = trace(types, f);
  const BatchedProgram all = batch(one, batched, size, std::vector<bool>(one.outputs.size(), true));
  check(all.program);
  const HostArrays got = evaluate(all.program, inputs);
  for (int64_t b = 0; b < size; ++b) {
    HostArrays in;
    for (size_t i = 0; i < inputs.size(); ++i) in.push_back(batched[i] ? inputs[i].row(b) : inputs[i]);
    const HostArrays wanted = evaluate(one, in);
    for (size_t k = 0; k < wanted.size(); ++k) expect_equal(got[k].row(b), wanted[k], 1e-12);
  }
}

// All combinations of batched operands (at least one) of extent 3.
inline void expect_batch_is_loop(const std::vector<HostArray>& inputs, const ValueFunction& f,
                                 const std::function<HostArray(Type, uint32_t)>& make) {
  for (uint32_t bits = 1; bits < 1u << inputs.size(); ++bits) {
    HostArrays in = inputs;
    std::vector<bool> batched;
    for (size_t i = 0; i < inputs.size(); ++i) {
      batched.push_back((bits >> i & 1) != 0);
      if (batched[i])
        in[i] = make({inputs[i].type.dtype, prepend(3, inputs[i].type.shape)}, static_cast<uint32_t>(i) + 7);
    }
    SCOPED_TRACE(bits);
    expect_batch_is_loop(in, batched, f);
  }
}

// Expects that the gradient of f at f64 inputs along a random direction agrees with central differences. Operands of
// other types are constants.
inline void expect_gradient(const HostArrays& inputs, const ValueFunction& f, double tolerance = 1e-6) {
  std::vector<Type> types;
  std::vector<bool> wanted;
  for (const HostArray& x : inputs) {
    types.push_back(x.type);
    wanted.push_back(x.type.dtype == f64);
  }
  const Program p = trace(types, f);
  const Program both = joint(p, wanted);
  check(both);
  HostArrays with_cts = inputs, cts;
  uint32_t seed = 100;
  for (const Type& t : p.output_types()) {
    cts.push_back(normal_numbers(t, ++seed));
    if (is_floating(t.dtype)) with_cts.push_back(cts.back());
  }
  const HostArrays results = evaluate(both, with_cts);
  constexpr double kStep = 1e-6;
  double along = 0;
  HostArrays up, down;
  size_t next = p.outputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    up.push_back(inputs[i]);
    down.push_back(inputs[i]);
    if (!wanted[i]) continue;
    const HostArray direction = normal_numbers(types[i], 1000 + static_cast<uint32_t>(i));
    const HostArray& gradient = results.at(next++);
    up[i] = HostArray(types[i]);
    down[i] = HostArray(types[i]);
    for (int64_t k = 0; k < direction.size(); ++k) {
      along += gradient.get(k) * direction.get(k);
      up[i].set(k, inputs[i].get(k) + kStep * direction.get(k));
      down[i].set(k, inputs[i].get(k) - kStep * direction.get(k));
    }
  }
  const HostArrays above = evaluate(p, up), below = evaluate(p, down);
  double difference = 0;
  for (size_t k = 0; k < cts.size(); ++k) {
    if (!is_floating(cts[k].type.dtype)) continue;
    for (int64_t i = 0; i < cts[k].size(); ++i)
      difference += cts[k].get(i) * (above[k].get(i) - below[k].get(i)) / (2 * kStep);
  }
  EXPECT_NEAR(along, difference, tolerance * std::max(1.0, std::abs(difference)));
}

// The message of the Error that f throws.
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// The simplified program as text.
inline std::string simplified(const std::vector<Type>& types, const ValueFunction& f) {
  return print(simplify(trace(types, f)));
}

}  // namespace lockstep
