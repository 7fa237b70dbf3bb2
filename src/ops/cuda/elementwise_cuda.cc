// Elementwise programs on the GPU: a thread computes a few elements, from loads to stores, in registers.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/check.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

bool is_16_bit(DType t) { return t == DType::bf16 || t == DType::f16; }

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

// Does each of any number of equal ranges of an array of this shape, cut along its first dimension, read only the same
// of as many ranges of `size` elements?
bool is_own(const View& view, const Shape& shape, int64_t size) {
  if (shape.empty() || view.offset != 0 || view.strides[0] * shape[0] != size) return false;
  int64_t last = 0;
  for (size_t d = 1; d < shape.size(); ++d) {
    if (view.strides[d] < 0) return false;
    last += (shape[d] - 1) * view.strides[d];
  }
  return last < view.strides[0];
}

// Are elements of an array of this shape read where a dense one has them?
bool is_dense(const View& view, const Shape& shape) {
  const Dims strides = dense_strides(shape);
  if (view.offset != 0) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1 && view.strides[d] != strides[d]) return false;
  return true;
}

class Writer {
 public:
  // `given`: what stands for the first input, which is then no parameter but a value of the register type, for element
  // i. `quick`: divisions and roots may be those of quick_div_.
  explicit Writer(const Program& p, const std::string& given = "", bool quick = false)
      : p_(p),
        shape_(p.types[p.outputs[0]].shape),
        given_(given),
        quick_(quick),
        elsewhere_(p.inputs.size()),
        others_(p.inputs.size()),
        names_(p.types.size()) {
    views_.resize(p.types.size());
    for (size_t i = 0; i < p.inputs.size(); ++i) views_[p.inputs[i]] = Read{i, dense_view(p.types[p.inputs[i]].shape)};
  }

  // Input k is not read but `y{k}[e]`, of the type in memory. Before body() or only_result().
  void compute_input(size_t k) {
    if (computed_.empty()) computed_.resize(p_.inputs.size());
    computed_[k] = true;
  }

  // What is done for element `i`, with the expression of the only result.
  std::pair<std::string, std::string> only_result() {
    for (const Eqn& eqn : p_.eqns) write(eqn);
    const std::string value = operand(p_.outputs[0]);
    return {body_, value};
  }

  // What is done for element `i`.
  std::string body() {
    for (const Eqn& eqn : p_.eqns) write(eqn);
    std::string stores;
    for (size_t o = 0; o < p_.outputs.size(); ++o) {
      const DType t = p_.types[p_.outputs[o]].dtype;
      stores += fmt::format("  out{}[i] = Store<{}>::of({});\n", o, memory_type(t), operand(p_.outputs[o]));
    }
    return body_ + stores;
  }

  // What is read before, after body(): members of a structure `r`, and how they are set.
  const std::string& fields() const { return fields_; }
  const std::string& reads() const { return reads_; }

  // The inputs of which element i is read and no other, after body(); those of which a range reads its own.
  std::vector<size_t> in_place() const { return those_not(elsewhere_); }
  std::vector<size_t> own() const { return those_not(others_); }

  // False after body() when the given value, or one that is computed, was wanted elsewhere than at element i.
  bool is_possible() const { return possible_; }

  // Of what is read, after body().
  int64_t read_bytes() const { return read_bytes_; }

 private:
  struct Read {
    size_t input;
    View view;
  };

  static std::vector<size_t> those_not(const std::vector<bool>& flags) {
    std::vector<size_t> out;
    for (size_t i = 0; i < flags.size(); ++i)
      if (!flags[i]) out.push_back(i);
    return out;
  }

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
    if (!given_.empty() && read.input == 0) {
      possible_ &= is_dense(read.view, shape_);
      return name = given_;
    }
    if (!computed_.empty() && computed_[read.input]) {
      possible_ &= is_dense(read.view, shape_);
      return name = fmt::format("load(y{}[e])", read.input);
    }
    read_bytes_ += size_of(p_.types[v].dtype);
    if (!is_dense(read.view, shape_)) elsewhere_[read.input] = true;
    if (!is_own(read.view, shape_, count(p_.types[p_.inputs[read.input]].shape))) others_[read.input] = true;
    fields_ += fmt::format("    {} v{};\n", register_name(p_.types[v].dtype), v);
    reads_ += fmt::format("  r.v{} = load(in{}[{}]);\n", v, read.input, position_text(read.view, shape_, "i"));
    return name = fmt::format("r.v{}", v);
  }

  // After products on the tensor cores, see quick_div_.
  bool has_quick(const Op& op) const {
    return quick_ && (&op == &div_op || &op == &sqrt_op) && cuda_math() == CudaMath::tf32;
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
      what = fmt::format("{}{}_({})", has_quick(*eqn.op) ? "quick_" : "", eqn.op->name, arguments);
    if (is_16_bit(t)) what = fmt::format("rounded<{}>({})", memory_type(t), what);
    names_[v] = fmt::format("v{}", v);
    body_ += fmt::format("  const {} {} = {};\n", result, names_[v], what);
  }

  const Program& p_;
  const Shape& shape_;
  const std::string given_;
  const bool quick_;
  std::string fields_, reads_;
  bool possible_ = true;
  int64_t read_bytes_ = 0;
  std::vector<bool> computed_;  // by input; empty: none
  std::vector<bool> elsewhere_, others_;
  std::vector<std::optional<Read>> views_;  // by value: what is read, not computed
  std::vector<std::string> names_;          // by value: its expression, once written
  std::string body_;
};

// The input's operand where that is computed.
const CudaSourced* find_operand(const std::vector<CudaSourced>& computed, size_t operand) {
  const auto at =
      std::find_if(computed.begin(), computed.end(), [&](const CudaSourced& each) { return each.operand == operand; });
  return at == computed.end() ? nullptr : &*at;
}

// What an operand of a source is called that computes input `i`.
std::string name_of(size_t i, size_t operand) { return fmt::format("in{}_{}", i, operand); }

// Parameters of a step, of the inputs from `first` on and the outputs.
void add_parameters(CudaStep& step, const Program& body, size_t first, size_t operand,
                    const std::vector<CudaSourced>& computed = {}) {
  const auto add = [&](const std::string& text, CudaStep::Argument argument) {
    step.parameters += (step.parameters.empty() ? "" : ", ") + text;
    step.arguments.push_back(argument);
  };
  for (size_t i = first; i < body.inputs.size(); ++i) {
    if (const CudaSourced* own = find_operand(computed, operand + i - first)) {
      for (size_t k = 0; k < own->source->operands.size(); ++k)
        add(fmt::format("{} {}", own->source->types[k], name_of(i, own->source->operands[k])),
            {CudaStep::Argument::operand, own->first + own->source->operands[k]});
      continue;
    }
    add(fmt::format("const {}* in{}", memory_type(body.types[body.inputs[i]].dtype), i),
        {CudaStep::Argument::operand, operand + i - first});
  }
  for (size_t o = 0; o < body.outputs.size(); ++o)
    add(fmt::format("{}* out{}", memory_type(body.types[body.outputs[o]].dtype), o), {CudaStep::Argument::result, o});
}

}  // namespace

namespace {

// How many elements a thread has on their way together, at most.
int64_t most_together(const Program& body) {
  constexpr size_t kMost = 8, kEquations = 96;  // that a thread computes
  return static_cast<int64_t>(std::clamp<size_t>(kEquations / (body.eqns.size() + body.inputs.size() + 1), 1, kMost));
}

// A program as a step, however its elements are shared.
struct Written {
  CudaStep step;
  std::string reads, finish;
  std::vector<size_t> own;

  explicit Written(const Program& body) {
    Writer writer(body);
    finish = writer.body();
    reads = writer.reads();
    own = writer.own();
    step.name = "elementwise";
    step.prelude = "#include \"elementwise.h\"\nusing namespace lockstep;\n";
    step.body = fmt::format("  struct Read {{\n{}  }};\n", writer.fields());
    step.in_place = writer.in_place();
    add_parameters(step, body, 0, 0);
  }

  CudaStep done(const CudaElements& elements) const {
    CudaStep out = step;
    out.body += elements.text("Read", reads, finish);
    out.blocks = elements.blocks();
    return out;
  }
};

}  // namespace

CudaStep elementwise_step(const Program& body) {
  const auto elements = CudaElements::flat(count(body.types[body.outputs[0]].shape), most_together(body));
  CudaStep step = Written(body).done(elements);
  step.elements = elements.n;
  step.each = elements.of_thread;
  return step;
}

std::vector<size_t> own_inputs(const Program& body) { return Written(body).own; }
std::vector<size_t> in_place_inputs(const Program& body) { return Written(body).step.in_place; }

CudaRanges elementwise_ranges(const Program& body) {
  const Shape& shape = body.types[body.outputs[0]].shape;
  if (shape.empty()) return {};
  const Written written(body);
  const int64_t n = count(shape), most = most_together(body);
  return {.most = shape[0],
          .least = CudaElements::least_ranges(n),
          .own = written.own,
          .step = [written, n, most](int64_t ranges) { return written.done(CudaElements::in_ranges(n, most, ranges)); },
          .by_warp = [written, n,
                      most](int64_t ranges) { return written.done(CudaElements::in_ranges(n, most, ranges, true)); }};
}

namespace {

// Is it a float in fewer bits, and nothing else?
bool is_only_rounded(const Program& body) {
  return body.inputs.size() == 1 && body.eqns.size() == 1 && body.eqns[0].op == &cast_op &&
         body.eqns[0].in[0] == body.inputs[0] && body.outputs[0] == body.eqns[0].out[0] &&
         body.types[body.inputs[0]].dtype == DType::f32 && is_16_bit(body.types[body.outputs[0]].dtype);
}

}  // namespace

std::optional<CudaSource> elementwise_source(const Program& body, const std::vector<CudaSourced>& computed) {
  const Type& type = body.types[body.outputs[0]];
  const int64_t n = count(type.shape);
  if (body.outputs.size() != 1 || body.inputs.empty() || n >= INT32_MAX) return {};
  if (n % 4 != 0 && !is_only_rounded(body)) return {};  // whose floats are read, or one by one
  Writer writer(body, "", true);
  for (const CudaSourced& each : computed) writer.compute_input(each.operand);
  const auto [text, value] = writer.only_result();
  if (!writer.is_possible()) return {};
  CudaSource out;
  out.type = memory_type(type.dtype);
  out.result_bytes = size_of(type.dtype);
  out.bytes = writer.read_bytes();
  out.equations = static_cast<int>(body.eqns.size());
  out.rounded = computed.empty() && is_only_rounded(body);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (std::any_of(computed.begin(), computed.end(), [&](const CudaSourced& each) { return each.operand == i; }))
      continue;
    out.operands.push_back(i);
    out.types.push_back(fmt::format("const {}*", memory_type(body.types[body.inputs[i]].dtype)));
  }
  for (const CudaSourced& each : computed) {
    const CudaSource& source = *each.source;
    for (size_t k = 0; k < source.operands.size(); ++k) {
      out.operands.push_back(each.first + source.operands[k]);
      out.types.push_back(source.types[k]);
    }
    out.bytes += source.bytes;
    out.equations += source.equations;
    out.body +=
        fmt::format("  {} y{}[4];\n  {}{}(i, y{});\n", source.type, each.operand, source.text(),
                    source.applied([&](size_t k) { return fmt::format("in{}", each.first + k); }), each.operand);
  }
  if (computed.empty()) {  // to the last bit, as whoever else computes it
    Writer exact(body, "", false);
    const auto [one, only] = exact.only_result();
    out.one = fmt::format("  struct Read {{\n{}  }};\n  Read r;\n{}{}  x = Store<{}>::of({});\n", exact.fields(),
                          exact.reads(), one, out.type, only);
  }
  out.body += fmt::format(
      "  struct Read {{\n{}  }};\n#pragma unroll\n  for (int e = 0; e < 4; ++e) [&](const uint32_t i) {{\n  Read r;\n"
      "{}{}  x[e] = Store<{}>::of({});\n  }}(i + e);\n",
      writer.fields(), writer.reads(), text, out.type, value);
  return out;
}

std::string elementwise_text(const Program& body) { return text_of(elementwise_step(body)); }

std::optional<ElementFinish> element_finish(const Program& body, bool quick) {
  const Type& type = body.types[body.inputs[0]];
  if (type.shape != body.types[body.outputs[0]].shape) return {};
  Writer writer(body, is_16_bit(type.dtype) ? fmt::format("rounded<{}>(x)", memory_type(type.dtype)) : "x", quick);
  const std::string finish = writer.body();
  if (!writer.is_possible()) return {};
  return ElementFinish{writer.fields(), writer.reads(), finish};
}

void add_body_parameters(CudaStep& step, const Program& body, size_t operand,
                         const std::vector<CudaSourced>& computed) {
  add_parameters(step, body, 1, operand, computed);
}

bool add_finish(CudaStep& step, const GemmStep& product, const Program& body, size_t operand,
                const std::vector<CudaSourced>& computed) {
  const auto element = element_finish(body, true);
  if (!element) return false;
  step.prelude = "#include \"elementwise.h\"\n" + product.prelude;
  for (size_t i = 1; i < body.inputs.size(); ++i)
    if (const CudaSourced* own = find_operand(computed, operand + i - 1))
      step.body += fmt::format("  const auto in{} = computed<{}>({}{});\n", i, own->source->type,
                               own->source->text(true), own->source->applied([&](size_t k) { return name_of(i, k); }));
  step.body += fmt::format(
      "  struct Read {{\n{}  }};\n  {}(block, a, b, {}, shared, [&](const uint32_t i, Read& r) {{\n{}  }}, [&](const "
      "uint32_t i, "
      "const float x, const Read& r) {{\n{}  }}{});\n",
      element->fields, product.call, product.partial_bytes > 0 ? "partial" : "nullptr", element->reads, element->finish,
      product.bring_a.empty() ? "" : ", early, [&] { meanwhile(); }");
  if (!product.bring_a.empty() && step.early.empty())
    step.early = {{{step.arguments[0].index}, fmt::format("  {}(block, a, shared);\n", product.bring_a)},
                  {{step.arguments[1].index}, fmt::format("  {}(block, b, shared);\n", product.bring_b)}};
  step.blocks = product.blocks;
  step.share = product.share;
  step.crowded = product.crowded;
  step.shared_bytes = product.shared_bytes;
  if (product.partial_bytes > 0) {
    step.meets = true;
    step.parameters += ", float* partial";
    step.arguments.push_back({CudaStep::Argument::own, 0});
  }
  add_body_parameters(step, body, operand, computed);
  return true;
}

Kernel then_body(std::function<void(const void* const* in, void* out)> compute, size_t own, const Program& body,
                 const KernelSpec& spec) {
  struct State {
    std::function<void(const void* const* in, void* out)> compute;
    Kernel rest;
    BufferPtr whole;
    std::vector<const void*> in;
  };
  auto state = std::make_shared<State>(State{std::move(compute), elementwise_program_cuda(body, spec),
                                             spec.cuda->allocate(body.types[body.inputs[0]].bytes()),
                                             std::vector<const void*>(body.inputs.size())});
  return [state, own](const void* const* in, void* const* out) {
    state->compute(in, state->whole->data());
    state->in[0] = state->whole->data();
    for (size_t i = 1; i < state->in.size(); ++i) state->in[i] = in[i + own - 1];
    state->rest(state->in.data(), out);
  };
}

Kernel elementwise_program_cuda(const Program& body, const KernelSpec& spec) {
  const int64_t n = count(body.types[body.outputs[0]].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  return SteppedKernel(spec.cuda, {elementwise_step(body)}, {},
                       {.ranges = elementwise_ranges(body), .source = [body](const std::vector<CudaSourced>& computed) {
                          return elementwise_source(body, computed);
                        }});
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
