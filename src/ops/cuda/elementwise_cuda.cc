// Elementwise programs on the GPU: a thread computes a few elements, from loads to stores, in registers.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/check.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/element_writer.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// The entry for an operand that is computed, or null.
const ComputedOperand* find_operand(const std::vector<ComputedOperand>& computed, size_t operand) {
  const auto at = std::find_if(computed.begin(), computed.end(),
                               [&](const ComputedOperand& each) { return each.operand == operand; });
  return at == computed.end() ? nullptr : &*at;
}

// The parameter name of an operand of the source that computes input `i`.
std::string name_of(size_t i, size_t operand) { return fmt::format("in{}_{}", i, operand); }

// Adds parameters for the inputs from `first` on and the outputs.
void add_parameters(CudaStep& step, const Program& body, size_t first, size_t operand,
                    const std::vector<ComputedOperand>& computed = {}) {
  const auto add = [&](const std::string& text, CudaStep::Argument argument) {
    step.parameters += (step.parameters.empty() ? "" : ", ") + text;
    step.arguments.push_back(argument);
  };
  for (size_t i = first; i < body.inputs.size(); ++i) {
    if (const ComputedOperand* own = find_operand(computed, operand + i - first)) {
      for (size_t k = 0; k < own->source.operands.size(); ++k)
        add(fmt::format("{} {}", own->source.types[k], name_of(i, own->source.operands[k])),
            {CudaStep::Argument::operand, own->first + own->source.operands[k]});
      continue;
    }
    add(fmt::format("const {}* in{}", memory_type(body.types[body.inputs[i]].dtype), i),
        {CudaStep::Argument::operand, operand + i - first});
  }
  for (size_t o = 0; o < body.outputs.size(); ++o)
    add(fmt::format("{}* out{}", memory_type(body.types[body.outputs[o]].dtype), o), {CudaStep::Argument::result, o});
}

// The maximum number of elements that a thread has in flight.
int64_t most_together(const Program& body) {
  const auto each = static_cast<int64_t>(body.eqns.size() + body.inputs.size() + 1);
  return std::clamp<int64_t>(cost_model::kEquationsPerThread / each, 1, cost_model::kProgramElementsPerThread);
}

// The program of one equation.
Program one_equation(const Op& op, Types in, const Attrs& attrs, Types out) {
  Builder builder;
  Values operands;
  for (const Type& type : in) operands.push_back(builder.input(type));
  return builder.take(builder.emit_typed(op, operands, attrs, out));
}

// A program as a step, for any division of its elements over threads.
struct WrittenProgram {
  CudaStep step;
  std::string reads, finish;
  std::vector<size_t> own;

  explicit WrittenProgram(const Program& body, bool approximate = false) {
    ElementWriter writer(body, {.approximate = approximate});
    finish = writer.body();
    reads = writer.reads();
    own = writer.own();
    step.name = "elementwise";
    step.prelude = "#include \"elementwise.cuh\"\nusing namespace lockstep;\n";
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

// Four elements at a time. REQUIRES: all arrays are aligned to four elements.
CudaStep wide_step(const Program& body, bool approximate) {
  ElementWriter writer(body, {.approximate = approximate, .vector_width = 4});
  const int64_t n = count(body.types[body.outputs[0]].shape);
  const std::string finish = writer.body();
  const auto of_four = [&](const std::string& text) {
    return fmt::format("  [&](const {0} i) {{\n{1}  }}({0}(i) * 4u);\n", index_type(n), text);
  };
  const auto elements =
      CudaElements::flat(n / 4, std::clamp<int64_t>(most_together(body) / 2, 1, cost_model::kVectorsPerThread));
  CudaStep step;
  step.name = "elementwise";
  step.prelude = "#include \"elementwise.cuh\"\nusing namespace lockstep;\n";
  step.body = fmt::format("  struct Read {{\n{}  }};\n", writer.fields()) +
              elements.text("Read", of_four(writer.reads()), of_four(finish));
  step.blocks = elements.blocks();
  add_parameters(step, body, 0, 0);
  return step;
}

// A program as a kernel of its own: four elements at a time if there are many and all arrays are aligned.
Kernel elementwise_alone(const Program& body, CudaStream& stream, bool approximate) {
  const int64_t n = count(body.types[body.outputs[0]].shape);
  if (n % 4 != 0 || n < cost_model::kFewestForVectors)
    return LaunchedSteps(stream, {elementwise_step(body, approximate)});
  struct State {
    Program body;
    CudaStream& stream;
    bool approximate;
    LaunchedSteps four;
    std::optional<LaunchedSteps> one;  // made by the first call with other arrays
  };
  auto state = std::make_shared<State>(
      State{body, stream, approximate, LaunchedSteps(stream, {wide_step(body, approximate)}), {}});
  return [state](const void* const* in, void* const* out) {
    State& s = *state;
    const auto is_aligned = [&](const void* at, ValueId id) {
      return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(4 * size_of(s.body.types[id].dtype)) == 0;
    };
    bool all = true;
    for (size_t i = 0; i < s.body.inputs.size(); ++i) all &= is_aligned(in[i], s.body.inputs[i]);
    for (size_t o = 0; o < s.body.outputs.size(); ++o) all &= is_aligned(out[o], s.body.outputs[o]);
    if (all) return s.four(in, out);
    if (!s.one) s.one.emplace(s.stream, std::vector{elementwise_step(s.body, s.approximate)});
    (*s.one)(in, out);
  };
}

}  // namespace

CudaStep elementwise_step(const Program& body, bool approximate) {
  const auto elements = CudaElements::flat(count(body.types[body.outputs[0]].shape), most_together(body));
  CudaStep step = WrittenProgram(body, approximate).done(elements);
  step.elements = elements.n;
  step.each = elements.of_thread;
  return step;
}

TaskTraits::Ranges element_ranges(const Shape& shape) {
  if (shape.empty()) return {};
  return {.most = shape[0], .least = CudaElements::least_ranges(count(shape)), .own = {}, .by_warp = true};
}

std::optional<CudaElements> task_elements(const GpuTask& task, const Shape& shape, int64_t most) {
  const int64_t n = count(shape);
  if (n == 0 || !is_plain_row(task) || task.stage != TaskStage::whole) return {};
  if (task.division == TaskDivision::tiles) return CudaElements::flat(n, most);
  if (!element_ranges(shape).supports(task.division, task.count)) return {};
  return CudaElements::in_ranges(n, most, task.count, task.division == TaskDivision::warps);
}

std::vector<size_t> own_inputs(const Program& body) { return WrittenProgram(body).own; }
std::vector<size_t> in_place_inputs(const Program& body) { return WrittenProgram(body).step.in_place; }

namespace {

// Whether the program only rounds an f32 to 16 bits. No other equation has these types.
bool is_only_rounded(const Program& body) {
  return body.inputs.size() == 1 && body.eqns.size() == 1 && body.eqns[0].in.size() == 1 &&
         body.eqns[0].in[0] == body.inputs[0] && body.outputs[0] == body.eqns[0].out[0] &&
         body.types[body.inputs[0]].dtype == DType::f32 && is_16_bit(body.types[body.outputs[0]].dtype);
}

}  // namespace

std::optional<CudaSource> elementwise_source(const Program& body, const std::vector<ComputedOperand>& computed) {
  const Type& type = body.types[body.outputs[0]];
  const int64_t n = count(type.shape);
  if (body.outputs.size() != 1 || body.inputs.empty() || n >= INT32_MAX) return {};
  if (n % 4 != 0 && !is_only_rounded(body)) return {};  // a rounded operand is read as f32, or element by element
  ElementWriter writer(body, {.approximate = true});
  for (const ComputedOperand& each : computed) writer.compute_input(each.operand);
  const auto [text, value] = writer.only_result();
  if (!writer.is_possible()) return {};
  CudaSource out;
  out.type = memory_type(type.dtype);
  out.result_bytes = size_of(type.dtype);
  out.bytes = writer.read_bytes();
  out.equations = static_cast<int>(body.eqns.size());
  out.rounded = computed.empty() && is_only_rounded(body);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (std::any_of(computed.begin(), computed.end(), [&](const ComputedOperand& each) { return each.operand == i; }))
      continue;
    out.operands.push_back(i);
    out.types.push_back(fmt::format("const {}*", memory_type(body.types[body.inputs[i]].dtype)));
  }
  for (const ComputedOperand& each : computed) {
    const CudaSource& source = each.source;
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
  if (computed.empty()) {  // bit for bit as the row itself computes it
    ElementWriter exact(body);
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

std::optional<ElementFinish> element_finish(const Program& body, bool approximate, int vector_width) {
  const Type& type = body.types[body.inputs[0]];
  if (type.shape != body.types[body.outputs[0]].shape) return {};
  const std::string x = vector_width > 1 ? "x[q]" : "x";
  ElementWriter writer(body,
                       {.given = is_16_bit(type.dtype) ? fmt::format("rounded<{}>({})", memory_type(type.dtype), x) : x,
                        .approximate = approximate,
                        .vector_width = vector_width});
  const std::string finish = writer.body();
  if (!writer.is_possible()) return {};
  return ElementFinish{writer.fields(), writer.reads(), finish};
}

void add_body_parameters(CudaStep& step, const Program& body, size_t operand,
                         const std::vector<ComputedOperand>& computed) {
  add_parameters(step, body, 1, operand, computed);
}

bool add_finish(CudaStep& step, const GemmStep& product, const Program& body, size_t operand,
                const std::vector<ComputedOperand>& computed) {
  const auto element = element_finish(body, true, product.vector_width);
  if (!element) return false;
  step.prelude = "#include \"elementwise.cuh\"\n" + product.prelude;
  for (size_t i = 1; i < body.inputs.size(); ++i)
    if (const ComputedOperand* own = find_operand(computed, operand + i - 1))
      step.body += fmt::format("  const auto in{} = computed<{}>({}{});\n", i, own->source.type, own->source.text(true),
                               own->source.applied([&](size_t k) { return name_of(i, k); }));
  step.body += fmt::format(
      "  struct Read {{\n{}  }};\n  {}(block, a, b, {}, shared, [&](const uint32_t i, Read& r) {{\n{}  }}, [&](const "
      "uint32_t i, "
      "const float {}, const Read& r) {{\n{}  }}{});\n",
      element->fields, product.call, product.partial_bytes > 0 ? "partial" : "nullptr", element->reads,
      product.vector_width > 1 ? fmt::format("(&x)[{}]", product.vector_width) : "x", element->finish,
      product.prefetch_a.empty() ? "" : ", prefetched, [&] { while_waiting(); }");
  if (!product.prefetch_a.empty() && step.prefetches.empty())
    step.prefetches = {{{step.arguments[0].index}, fmt::format("  {}(block, a, shared);\n", product.prefetch_a)},
                       {{step.arguments[1].index}, fmt::format("  {}(block, b, shared);\n", product.prefetch_b)}};
  step.blocks = product.blocks;
  step.register_bound = product.register_bound;
  step.share = product.share;
  step.shared_bytes = product.shared_bytes;
  if (product.partial_bytes > 0) {
    step.cooperative = true;
    step.parameters += ", float* partial";
    step.arguments.push_back({CudaStep::Argument::workspace, 0});
    step.workspaces = {product.partial_bytes};
  }
  add_body_parameters(step, body, operand, computed);
  return true;
}

namespace {

// A result in whose memory the first input of the body can be computed: one that shares memory with no operand, and is
// the input itself or, if the body reads the input only at the same element, has its size.
std::optional<size_t> result_for_input(const Program& body, const KernelSpec& spec) {
  const auto is_own = [&](size_t result) { return result >= spec.alias.size() || spec.alias[result] < 0; };
  for (size_t k = 0; k < body.outputs.size(); ++k)
    if (body.outputs[k] == body.inputs[0] && is_own(k)) return k;
  const std::vector<size_t> in_place = in_place_inputs(body);
  if (std::find(in_place.begin(), in_place.end(), size_t{0}) == in_place.end()) return {};
  const Type& input = body.types[body.inputs[0]];
  for (size_t k = 0; k < body.outputs.size(); ++k) {
    const Type& type = body.types[body.outputs[k]];
    if (type.shape == input.shape && size_of(type.dtype) == size_of(input.dtype) && is_own(k)) return k;
  }
  return {};
}

// The body without a result that has been computed in place, if it is its first input; and the places of the others.
std::pair<Program, std::vector<size_t>> without_result(const Program& body, std::optional<size_t> computed) {
  Program rest = body;
  rest.outputs.clear();
  std::vector<size_t> places;
  for (size_t k = 0; k < body.outputs.size(); ++k) {
    if (computed == k && body.outputs[k] == body.inputs[0]) continue;
    rest.outputs.push_back(body.outputs[k]);
    places.push_back(k);
  }
  return {std::move(rest), std::move(places)};
}

}  // namespace

Kernel then_body(std::function<void(const void* const* in, void* out)> compute, size_t own, const Program& body,
                 const KernelSpec& spec) {
  struct State {
    std::function<void(const void* const* in, void* out)> compute;
    std::optional<size_t> result;  // in whose memory the value is computed
    BufferPtr whole;               // otherwise
    std::vector<size_t> places;    // of the results of `rest`
    Kernel rest;
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  auto state = std::make_shared<State>();
  state->compute = std::move(compute);
  state->result = result_for_input(body, spec);
  if (!state->result) state->whole = spec.cuda->allocate(body.types[body.inputs[0]].bytes());
  auto [rest, places] = without_result(body, state->result);
  state->places = std::move(places);
  state->rest = elementwise_alone(rest, *spec.cuda, true);
  state->in.resize(body.inputs.size());
  state->out.resize(state->places.size());
  return [state, own](const void* const* in, void* const* out) {
    State& s = *state;
    void* const value = s.result ? out[*s.result] : s.whole->data();
    s.compute(in, value);
    s.in[0] = value;
    for (size_t i = 1; i < s.in.size(); ++i) s.in[i] = in[i + own - 1];
    for (size_t k = 0; k < s.out.size(); ++k) s.out[k] = out[s.places[k]];
    s.rest(s.in.data(), s.out.data());
  };
}

Kernel elementwise_program_cuda(const Program& body, const KernelSpec& spec) {
  if (count(body.types[body.outputs[0]].shape) == 0) return [](const void* const*, void* const*) {};
  return elementwise_alone(body, *spec.cuda, false);
}

Kernel fused_cuda(const KernelSpec& spec) { return elementwise_program_cuda(spec.attrs.program("body"), spec); }

Kernel elementwise_cuda(const Op& op, const KernelSpec& spec) {
  return elementwise_program_cuda(one_equation(op, spec.in, spec.attrs, spec.out), spec);
}

namespace {

// The program of an elementwise task.
class TaskProgram {
 public:
  explicit TaskProgram(const GpuTask& task) {
    if (const Attr* body = task.attrs.find("body")) {
      program_ = std::get<ProgramPtr>(*body);
      return;
    }
    std::vector<Type> in, out;
    for (const TaskValue& value : task.in) in.push_back(value.type);
    for (const TaskValue& value : task.out) out.push_back(value.type);
    program_ = std::make_shared<const Program>(one_equation(*task.op, in, task.attrs, out));
  }
  const Program& operator*() const { return *program_; }

  const Shape& shape() const { return program_->types[program_->outputs[0]].shape; }

 private:
  ProgramPtr program_;
};

std::optional<CudaStep> elementwise_task_step(const GpuTask& task, const GpuTarget&) {
  const TaskProgram body(task);
  const std::optional<CudaElements> elements = task_elements(task, body.shape(), most_together(*body));
  if (!elements) return {};
  if (task.division == TaskDivision::tiles) return elementwise_step(*body);
  return WrittenProgram(*body).done(*elements);
}

TaskTraits elementwise_traits(const GpuTask& task, const GpuTarget&) {
  const TaskProgram body(task);
  TaskTraits traits;
  traits.can_be_inlined = true;
  traits.ranges = element_ranges(body.shape());
  if (traits.ranges.most > 0) traits.ranges.own = own_inputs(*body);
  return traits;
}

std::optional<CudaSource> elementwise_task_source(const GpuTask& task, const GpuTarget& target) {
  const std::optional<std::vector<ComputedOperand>> computed = computed_operands(task, target);
  return computed ? elementwise_source(*TaskProgram(task), *computed) : std::nullopt;
}

}  // namespace

constinit const CudaTaskKind elementwise_task = {
    .step = elementwise_task_step, .traits = elementwise_traits, .source = elementwise_task_source};

}  // namespace lockstep
