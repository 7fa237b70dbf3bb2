// Two ways to run a program in tests: equation by equation with each row's kernel (the reference), and as an execution
// plan. One thread.
#pragma once

#include <cstring>

#include "ops/ops.h"
#include "ops/evaluate.h"
#include "plan/plan.h"

namespace lockstep {

inline HostArray copy_of(const HostArray& x) {
  HostArray out(x.type);
  std::memcpy(out.buffer->data(), x.buffer->data(), static_cast<size_t>(x.type.bytes()));
  return out;
}

// Exact for every element type.
inline void copy_element(const HostArray& from, int64_t i, HostArray& to, int64_t j) {
  const int64_t bytes = size_of(from.type.dtype);
  std::memcpy(to.buffer->data() + j * bytes, from.buffer->data() + i * bytes, static_cast<size_t>(bytes));
}

// Arrays of one type along a new leading dimension.
inline HostArray stack(const HostArrays& examples) {
  const Type& one = examples[0].type;
  HostArray out({one.dtype, prepend(static_cast<int64_t>(examples.size()), one.shape)});
  for (size_t b = 0; b < examples.size(); ++b)
    std::memcpy(out.buffer->data() + static_cast<int64_t>(b) * one.bytes(), examples[b].buffer->data(),
                static_cast<size_t>(one.bytes()));
  return out;
}
// Array i of each example, stacked.
inline HostArray stack(const std::vector<HostArrays>& examples, size_t i) {
  HostArrays each;
  for (const HostArrays& example : examples) each.push_back(example[i]);
  return stack(each);
}

inline std::vector<Type> types_of(const HostArrays& arrays) {
  std::vector<Type> out;
  for (const HostArray& x : arrays) out.push_back(x.type);
  return out;
}

inline HostArrays eager(const Program& p, const HostArrays& inputs);

// Runs one equation with its op's kernel; an op without a kernel runs its body.
inline HostArrays eager_op(const Op& op, const Attrs& attrs, const HostArrays& in) {
  if (!op.cpu) return eager(attrs.program("body"), in);
  const std::vector<Type> in_types = types_of(in), out_types = infer_types(op, in_types, attrs);
  HostArrays out(out_types.begin(), out_types.end());
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const HostArray& x : in) from.push_back(x.buffer->data());
  for (const HostArray& y : out) to.push_back(y.buffer->data());
  auto compile_sub = [](const Program& sub) -> Kernel {
    return [sub](const void* const* sub_in, void* const* sub_out) {
      HostArrays arguments;
      for (size_t i = 0; i < sub.inputs.size(); ++i) {
        arguments.emplace_back(sub.types[sub.inputs[i]]);
        std::memcpy(arguments.back().buffer->data(), sub_in[i], static_cast<size_t>(arguments.back().type.bytes()));
      }
      const HostArrays results = eager(sub, arguments);
      for (size_t i = 0; i < results.size(); ++i)
        std::memcpy(sub_out[i], results[i].buffer->data(), static_cast<size_t>(results[i].type.bytes()));
    };
  };
  op.cpu({in_types, out_types, attrs, test_pool(), {}, compile_sub})(from.data(), to.data());
  return out;
}

inline HostArrays eager(const Program& p, const HostArrays& inputs) {
  HostArrays values(p.types.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[p.inputs[i]] = inputs[i];
  for (const Eqn& eqn : p.eqns) {
    HostArrays in;
    for (ValueId id : eqn.in) in.push_back(values[id]);
    const HostArrays out = eager_op(*eqn.op, eqn.attrs, in);
    for (size_t k = 0; k < out.size(); ++k) values[eqn.out[k]] = out[k];
  }
  HostArrays outputs;
  for (ValueId id : p.outputs) outputs.push_back(values[id]);
  return outputs;
}

// Compiles and runs the program as an execution plan. Donated inputs lose their contents.
inline HostArrays planned(const Program& p, const HostArrays& inputs, const std::vector<bool>& donated = {}) {
  const std::shared_ptr<Plan> plan = compile(p, test_pool(), {.donated = donated});
  std::vector<const void*> in;
  std::vector<void*> out;
  HostArrays results;
  for (const HostArray& x : inputs) in.push_back(x.buffer->data());
  const std::vector<Type> types = p.output_types();
  for (size_t k = 0; k < types.size(); ++k) {
    HostArray result(types[k]);
    if (const int donor = plan->donated_input(k); donor >= 0) result.buffer = inputs[static_cast<size_t>(donor)].buffer;
    results.push_back(result);
    out.push_back(result.buffer->data());
  }
  plan->run(in.data(), out.data());
  return results;
}

inline bool same_bits(const HostArray& a, const HostArray& b) {
  return a.type == b.type && std::memcmp(a.buffer->data(), b.buffer->data(), static_cast<size_t>(a.type.bytes())) == 0;
}

// Whether a program has a forward-mode derivative.
inline bool has_tangents(const Program& p) {
  return std::none_of(p.eqns.begin(), p.eqns.end(), [](const Eqn& eqn) { return eqn.op == &custom_vjp_op; });
}

}  // namespace lockstep
