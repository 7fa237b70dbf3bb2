#include "array/apply.h"

#include "array/host_checks.h"
#include "base/check.h"
#include "ops/shape_ops.h"

namespace lockstep::detail {

bool is_number(const Array& a) {
  return a.defined() && (a.node()->kind == Node::Kind::literal || a.node()->is_number_input);
}

DType common_dtype(std::span<const Array> args) {
  std::optional<DType> arrays, numbers;
  for (const Array& a : args) {
    auto& which = is_number(a) ? numbers : arrays;
    which = which ? promote(*which, a.dtype()) : a.dtype();
  }
  if (!arrays) return numbers.value_or(DType::f32);
  if (!numbers || *numbers == DType::boolean) return *arrays;
  if (is_complex(*numbers)) return complex_of(*arrays);
  if (is_floating(*numbers)) return is_inexact(*arrays) ? *arrays : DType::f32;
  return *arrays == DType::boolean ? *numbers : *arrays;
}

Arrays apply(const char* what, std::span<const Array> args, std::optional<DType> literal_dtype, Body body,
             const CallKey& key) {
  for (const Array& a : args)
    if (!a.defined()) throw_error("{}: an argument is an empty Array; assign it before it is used", what);
  Values values;
  Arrays out;
  if (Trace* trace = Trace::current()) {
    for (const Array& a : args) values.push_back(trace->lift(a, literal_dtype.value_or(a.dtype())));
    for (const Value& v : body(trace->builder(), values)) out.push_back(trace->wrap(v));
    return out;
  }
  const EagerCall call(key, args, literal_dtype);
  if (call.is_known()) return call.run();
  Trace trace(what);  // not opened: used for its builder and its captures
  for (const Array& a : args) values.push_back(trace.lift(a, literal_dtype.value_or(a.dtype())));
  for (const Value& v : body(trace.builder(), values)) out.push_back(trace.wrap(v));
  const Traced traced = trace.finish(out);
  std::vector<const Array*> inputs;
  for (const Array& a : traced.captures) inputs.push_back(&a);
  check_outside_host_call("call");
  const EagerProgram program = compile_now(*traced.program, traced.captures);
  out = run_now(program, inputs);
  call.keep(program, traced.captures);
  return out;
}

Array apply1(const char* what, std::initializer_list<Array> args, FunctionRef<Value(Builder&, const Values&)> f,
             std::optional<DType> literal_dtype, const CallKey& key) {
  auto body = [&](Builder& b, const Values& v) { return Values{f(b, v)}; };
  return apply(what, std::span<const Array>(args.begin(), args.size()), literal_dtype, body, key)[0];
}

}  // namespace lockstep::detail
