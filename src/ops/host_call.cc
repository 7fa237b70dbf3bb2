#include "ops/host_call.h"

#include <cstring>

#include "base/check.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

thread_local bool calling = false;

size_t batch_dims(const Attrs& attrs) { return static_cast<size_t>(attrs.integer("batch")); }

// The leading dimensions that count examples.
Shape batch_shape(std::string_view op, Types in, const Attrs& attrs) {
  const size_t n = batch_dims(attrs);
  if (n == 0) return {};
  for (const Type& type : in)
    if (type.shape.size() < n ||
        !std::equal(type.shape.begin(), type.shape.begin() + static_cast<std::ptrdiff_t>(n), in[0].shape.begin()))
      throw_error("{}: operands {} and {} differ in their {} leading batch dimensions; they must be equal", op,
                  to_string(in[0]), to_string(type), n);
  if (in.empty()) throw_error("{}: {} batch dimensions, but no operand; an operand must have them", op, n);
  return Shape(in[0].shape.begin(), in[0].shape.begin() + static_cast<std::ptrdiff_t>(n));
}

Type example_of(const Type& type, size_t batch) {
  return {type.dtype, Shape(type.shape.begin() + static_cast<std::ptrdiff_t>(batch), type.shape.end())};
}

std::vector<Type> debug_type(Types in, const Attrs& attrs) {
  return {{DType::i32, batch_shape("debug_callback", in, attrs)}};
}

std::vector<Type> pure_type(Types in, const Attrs& attrs) {
  const Shape batch = batch_shape("pure_callback", in, attrs);
  std::vector<Type> out;
  for (Type type : attrs.program("results").input_types()) {
    type.shape.insert(type.shape.begin(), batch.begin(), batch.end());
    out.push_back(std::move(type));
  }
  return out;
}

// Batch dimensions may be sharded: examples are independent. The others may not.
Rule host_rule(std::vector<Type> (*result_types)(Types, const Attrs&), Types in, const Attrs& attrs) {
  const size_t batch = batch_dims(attrs);
  Rule rule;
  size_t next = batch;
  const auto letter = [](size_t i) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (i >= kLetters.size())
      throw_error(
          "callback: the operands and results have more than {} dimensions; pass fewer, or reshape them to vectors",
          kLetters.size());
    return kLetters[i];
  };
  const auto term = [&](const Type& type) {
    std::string out;
    for (size_t d = 0; d < type.shape.size(); ++d) {
      out += letter(d < batch ? d : next);
      if (d >= batch) rule.unsharded += letter(next++);
    }
    return out;
  };
  for (const Type& type : in) rule.in.push_back(term(type));
  for (const Type& type : result_types(in, attrs)) rule.out.push_back(term(type));
  return rule;
}
Rule debug_rule(Types in, const Attrs& attrs) { return host_rule(debug_type, in, attrs); }
Rule pure_rule(Types in, const Attrs& attrs) { return host_rule(pure_type, in, attrs); }

// Operands without the batch are repeated: the function is called for each example.
Batched host_batch(const Batch& b) {
  Values in;
  for (size_t i = 0; i < b.in.size(); ++i) in.push_back(with_batch(b, i));
  Attrs attrs = b.attrs;
  attrs.set("batch", attrs.integer("batch") + 1);
  return b.builder.emit(b.op, in, std::move(attrs));
}

// Calls the function for each example. `has_results`: else the single result is set to zero.
Kernel host_kernel(const KernelSpec& spec, bool has_results) {
  const size_t batch = batch_dims(spec.attrs);
  const Type& whole = spec.in.empty() ? spec.out[0] : spec.in[0];
  const int64_t examples = count(Shape(whole.shape.begin(), whole.shape.begin() + static_cast<std::ptrdiff_t>(batch)));
  std::vector<Type> in, out;
  for (const Type& type : spec.in) in.push_back(example_of(type, batch));
  if (has_results)
    for (const Type& type : spec.out) out.push_back(example_of(type, batch));
  const bool silent = spec.attrs.get_or("effect", int64_t{1}) == static_cast<int64_t>(Effect::none);
  const int64_t zeros = has_results ? 0 : spec.out[0].bytes();
  const auto& function = spec.attrs.get<HostFunctionPtr>("callback");
  function->call();  // throws now rather than in a run
  return [function, in, out, examples, silent, zeros](const void* const* operands, void* const* results) {
    if (zeros > 0) std::memset(results[0], 0, static_cast<size_t>(zeros));
    if (silent) return;
    const HostCallScope scope;
    const HostCall& call = function->call();
    std::vector<const void*> from(in.size());
    std::vector<void*> to(out.size());
    for (int64_t e = 0; e < examples; ++e) {
      for (size_t i = 0; i < in.size(); ++i) from[i] = static_cast<const std::byte*>(operands[i]) + e * in[i].bytes();
      for (size_t k = 0; k < out.size(); ++k) to[k] = static_cast<std::byte*>(results[k]) + e * out[k].bytes();
      call(in, from.data(), out, to.data());
    }
  };
}
Kernel debug_cpu(const KernelSpec& spec) { return host_kernel(spec, false); }
Kernel pure_cpu(const KernelSpec& spec) { return host_kernel(spec, true); }

Grads pure_vjp(const Vjp&) {
  throw_error(
      "pure_callback: a function of the host has no gradient; wrap the call in custom_vjp, or its operands in "
      "stop_gradient");
}

}  // namespace

// On a GPU both run on the host, with copies.
constinit const Op debug_callback_op = {
    .name = "debug_callback",
    .rule = debug_rule,
    .type = debug_type,
    .batch = host_batch,
    .takes_float8 = true,
    .cpu = debug_cpu,
};

constinit const Op pure_callback_op = {
    .name = "pure_callback",
    .rule = pure_rule,
    .type = pure_type,
    .vjp = pure_vjp,
    .batch = host_batch,
    .takes_float8 = true,
    .cpu = pure_cpu,
};

bool in_host_call() { return calling; }
HostCallScope::HostCallScope() : before_(calling) { calling = true; }
HostCallScope::~HostCallScope() { calling = before_; }

Value debug_callback(Builder& b, const Values& operands, HostFunctionPtr function, std::string text, Effect effect) {
  return b.emit(debug_callback_op, operands,
                {{"batch", int64_t{0}},
                 {"callback", std::move(function)},
                 {"effect", static_cast<int64_t>(effect)},
                 {"text", std::move(text)}})[0];
}

Values pure_callback(Builder& b, const Values& operands, HostFunctionPtr function, const std::vector<Type>& results) {
  Builder types;
  Values inputs;
  for (const Type& type : results) inputs.push_back(types.input({type.dtype, type.shape}));
  return b.emit(pure_callback_op, operands,
                {{"batch", int64_t{0}},
                 {"callback", std::move(function)},
                 {"results", std::make_shared<const Program>(types.take(inputs))}});
}

}  // namespace lockstep
