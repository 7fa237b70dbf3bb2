// Elementwise programs on the GPU: a thread computes a few elements, from loads to stores, in registers.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/check.h"
#include "lane/cuda/code.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/elementwise.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

constexpr int kThreads = 256;

bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }

// A constant of the register type, bit for bit.
std::string constant_text(const Attr& value, DType dtype) {
  char bytes[8] = {};
  encode_element(value, dtype, bytes);
  uint64_t u = 0;
  uint32_t v = 0;
  std::copy(bytes, bytes + 8, reinterpret_cast<char*>(&u));
  std::copy(bytes, bytes + 4, reinterpret_cast<char*>(&v));
  switch (dtype) {
    case DType::f64:
      return fmt::format("__builtin_bit_cast(double, {}ull)", u);
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      return fmt::format("__builtin_bit_cast(float, {}u)", v);
    case DType::i64:
      return fmt::format("int64_t({}ull)", u);
    case DType::i32:
      return fmt::format("int32_t({}u)", v);
    default:
      return fmt::format("{}({}u)", memory_type(dtype), v & (dtype == DType::u32 ? 0xffffffffu : 0xffu));
  }
}

class Writer {
 public:
  explicit Writer(const Program& p) : p_(p), shape_(p.types[p.outputs[0]].shape), names_(p.types.size()) {
    views_.resize(p.types.size());
    for (size_t i = 0; i < p.inputs.size(); ++i) views_[p.inputs[i]] = Read{i, dense_view(p.types[p.inputs[i]].shape)};
  }

  std::string operator()() {
    for (const Eqn& eqn : p_.eqns) write(eqn);
    std::string stores;
    for (size_t o = 0; o < p_.outputs.size(); ++o) {
      const DType t = p_.types[p_.outputs[o]].dtype;
      stores += fmt::format("  out{}[i] = Store<{}>::of({});\n", o, memory_type(t), operand(p_.outputs[o]));
    }
    std::string parameters;
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      parameters += fmt::format("{}const {}* in{}", i ? ", " : "", memory_type(p_.types[p_.inputs[i]].dtype), i);
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      parameters +=
          fmt::format("{}{}* out{}", parameters.empty() ? "" : ", ", memory_type(p_.types[p_.outputs[o]].dtype), o);
    const int64_t n = count(shape_);
    return fmt::format(
        "#include \"elementwise.h\"\nusing namespace lockstep;\n"
        "extern \"C\" __global__ void __launch_bounds__({}) f({}) {{\n"
        "  const {} i = {}(blockIdx.x) * {}u + threadIdx.x;\n"
        "  if (i >= {}u) return;\n{}{}}}\n",
        kThreads, parameters, index_type(n), index_type(n), kThreads, n, body_, stores);
  }

 private:
  struct Read {
    size_t input;
    View view;
  };

  void write(const Eqn& eqn) {
    const ValueId v = eqn.out[0];
    const Type& type = p_.types[v];
    if (const Attr* value = constant_value(&eqn)) {
      names_[v] = constant_text(*value, type.dtype);
    } else if (eqn.op->view) {
      const ValueId from = eqn.in[0];
      if (!views_[from]) {
        names_[v] = names_[from];  // of a constant
        return;
      }
      const auto view =
          compose(eqn.op->view(p_.types[from], type, eqn.attrs), type.shape, views_[from]->view, p_.types[from].shape);
      LOCKSTEP_CHECK(view, "{} in an elementwise program is not affine", eqn.op->name);
      views_[v] = Read{views_[from]->input, *view};
    } else {
      compute(eqn);
    }
  }

  // A value as it is used: loaded where it is first needed.
  const std::string& operand(ValueId v) {
    std::string& name = names_[v];
    if (!name.empty()) return name;
    const Read& read = *views_[v];
    const std::string at = position_text(read.view, shape_, "i");
    name = fmt::format("v{}", v);
    body_ += fmt::format("  const {} {} = load(in{}[{}]);\n", register_name(p_.types[v].dtype), name, read.input, at);
    return name;
  }

  void compute(const Eqn& eqn) {
    const ValueId v = eqn.out[0];
    const DType t = p_.types[v].dtype;
    std::string arguments;
    for (ValueId id : eqn.in) arguments += (arguments.empty() ? "" : ", ") + operand(id);
    const char* result = register_name(t);
    std::string what;
    if (eqn.op == &cast_op)
      what = fmt::format("math::cast<{}>({})", result, arguments);
    else if (eqn.op == &bitcast_op)
      what = fmt::format("__builtin_bit_cast({}, {})", result, arguments);
    else
      what = fmt::format("{}_({})", eqn.op->name, arguments);
    if (is_half(t)) what = fmt::format("rounded<{}>({})", memory_type(t), what);
    names_[v] = fmt::format("v{}", v);
    body_ += fmt::format("  const {} {} = {};\n", result, names_[v], what);
  }

  const Program& p_;
  const Shape& shape_;
  std::vector<std::optional<Read>> views_;  // by value: what is read, not computed
  std::vector<std::string> names_;          // by value: its expression, once written
  std::string body_;
};

}  // namespace

std::string elementwise_text(const Program& body) { return Writer(body)(); }

Kernel elementwise_program_cuda(const Program& body, const KernelSpec& spec) {
  const int64_t n = count(body.types[body.outputs[0]].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  const CudaFunction function = kernel_of(elementwise_text(body), *spec.cuda);
  return [function, lane = spec.cuda, n, ins = body.inputs.size(), outs = body.outputs.size(),
          arguments = std::vector<void*>(body.inputs.size() + body.outputs.size())](const void* const* in,
                                                                                    void* const* out) mutable {
    for (size_t i = 0; i < ins; ++i) arguments[i] = argument(in[i]);
    for (size_t o = 0; o < outs; ++o) arguments[ins + o] = argument(out[o]);
    function.launch(*lane, (n + kThreads - 1) / kThreads, kThreads, arguments.data());
  };
}

Kernel fused_cuda(const KernelSpec& spec) { return elementwise_program_cuda(spec.attrs.program("body"), spec); }

Kernel elementwise_cuda(const Op& op, const KernelSpec& spec) {
  Builder builder;
  Values in;
  for (const Type& t : spec.in) in.push_back(builder.input(t));
  const Values out = builder.emit_typed(op, in, spec.attrs, spec.out);
  return elementwise_program_cuda(builder.take(out), spec);
}

}  // namespace lockstep
