// A product, an elementwise program of it, and the sums of the columns of one of its results: the gradient of an
// activation, and of the bias before it. The kernel of the program adds up the columns as it writes them.
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/contraction.h"
#include "ops/cuda/combined.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/element_writer.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/gemm_epilogue.h"
#include "ops/cuda/product_cuda.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

constexpr int kWide = 8;  // columns of a thread

// The result of the product with an epilogue. Its columns are summed.
std::optional<size_t> summed_result(const Eqn& product, const Eqn& sum) {
  const auto at = std::find(product.out.begin(), product.out.end(), sum.in[0]);
  return at == product.out.end() ? std::nullopt : std::optional(static_cast<size_t>(at - product.out.begin()));
}

// Whether cuBLASLt computes the epilogue in less time than a kernel after it.
bool is_cheap_epilogue(const Program& body, const Eqn& product, const ValueUses& uses) {
  const Contraction plan =
      contraction(product.attrs.get<std::string>("spec"), uses.type(product.in[0]), uses.type(product.in[1]));
  const std::optional<MatchedEpilogue> matched = epilogue_of(body, plan.gemm.n);
  return matched && matched->epilogue.activation != GemmEpilogue::gelu_slope;
}

// Whether the plan itself allocates the operands and results of the epilogue. The memory of its inputs and outputs may be
// less aligned than vectors are.
bool has_own_memory(const Eqn& product, const ValueUses& uses) {
  return std::none_of(product.in.begin() + 2, product.in.end(), [&](ValueId id) { return uses.definition(id) < 0; }) &&
         std::none_of(product.out.begin(), product.out.end(), [&](ValueId id) { return uses.is_output(id); });
}

bool may_sum_columns(const Eqn& product, const ValueUses& uses) {
  if (product.op != &einsum_fused_op || !has_own_memory(product, uses)) return false;
  const Program& body = product.attrs.program("body");
  const Type& type = body.types[body.inputs[0]];
  const std::vector<size_t> in_place = in_place_inputs(body);
  return CudaGemm::supports(type.dtype) && type.bytes() >= cost_model::kFewestBytesForColumnSums && type.rank() > 1 &&
         type.shape.back() % kWide == 0 && count(type.shape) < INT32_MAX &&
         std::find(in_place.begin(), in_place.end(), size_t{0}) != in_place.end() &&
         !is_cheap_epilogue(body, product, uses);
}

CombinedEqns find_column_sums(const ValueUses& uses, size_t first) {
  const Eqn& product = uses.eqn(first);
  if (!may_sum_columns(product, uses)) return {};
  for (const ValueId id : product.out) {
    const Type& type = uses.type(id);
    if (type.dtype != DType::f32 && !is_16_bit(type.dtype)) continue;
    for (const size_t user : uses.users(id))
      if (uses.users(id).size() > 1 && uses.eqn(user).op == &reduce_sum_op &&
          uses.eqn(user).attrs.ints("axes") == counting(0, type.rank() - 1))
        return {{first, user}};
  }
  return {};
}

// How a matrix is divided over thread blocks.
struct ColumnLayout {
  int64_t rows, columns, across, own, down;

  explicit ColumnLayout(const Shape& shape) : rows(count(shape) / shape.back()), columns(shape.back()) {
    const int64_t vectors = columns / kWide;
    across = std::min<int64_t>(32, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(vectors))));
    const int64_t of_columns = (vectors + across - 1) / across;
    own = std::max<int64_t>((rows * of_columns + cost_model::kColumnSumBlocks - 1) / cost_model::kColumnSumBlocks, 1);
    down = (rows + own - 1) / own;
  }
  int64_t blocks() const { return (columns / kWide + across - 1) / across * down; }
};

// The kernel of `body`. Its first input is the product, and the columns of result `summed` are added up.
CudaStep program_step(const Program& body, size_t summed, const ColumnLayout& l) {
  using Argument = CudaStep::Argument;
  ElementWriter writer(body, {.approximate = true, .vector_width = kWide});
  const std::string finish = writer.body();
  CudaStep step;
  step.name = "elementwise_and_sums";
  step.prelude = fmt::format(
      R"(#include "elementwise.cuh"
#include "column_sums.cuh"
using namespace lockstep;
struct Columns {{
  using Index = uint32_t;
  static constexpr uint32_t kRows = {}, kColumns = {}, kOwn = {}, kAcross = {}, kThreads = {}, kWide = {}, kTogether = 2;
}};
)",
      l.rows, l.columns, l.own, l.across, kStepThreads, kWide);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    step.parameters += fmt::format("const {}* in{}, ", memory_type(body.types[body.inputs[i]].dtype), i);
    step.arguments.push_back({Argument::operand, i});
  }
  for (size_t o = 0; o < body.outputs.size(); ++o) {
    step.parameters +=
        fmt::format("{}* {}{}, ", memory_type(body.types[body.outputs[o]].dtype), o == summed ? "to" : "out", o);
    step.arguments.push_back({Argument::result, o});
  }
  step.parameters += "float* partial";
  step.arguments.push_back({Argument::workspace, 0});
  step.body = fmt::format(
      R"(  struct Read {{
{fields}  }};
  ColumnSums<Columns>::run<Read>(block, partial, [&](const uint32_t i, Read& r) {{
{reads}  }}, [&](const uint32_t i, const Read& r, float (&sums)[{wide}]) {{
  const SummedColumns<{type}, {wide}> out{summed}{{to{summed}, sums}};
{finish}  }});
)",
      fmt::arg("fields", writer.fields()), fmt::arg("reads", writer.reads()), fmt::arg("wide", kWide),
      fmt::arg("type", memory_type(body.types[body.outputs[summed]].dtype)), fmt::arg("summed", summed),
      fmt::arg("finish", finish));
  step.blocks = l.blocks();
  return step;
}

// The kernel that adds up the sums of thread blocks.
CudaStep sums_step(DType dtype, size_t result, const ColumnLayout& l) {
  CudaStep step;
  step.name = "column_sums";
  step.prelude = "#include \"column_sums.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("const float* partial, {}* to", memory_type(dtype));
  step.arguments = {{CudaStep::Argument::workspace, 0}, {CudaStep::Argument::result, result}};
  step.body = fmt::format("  add_column_sums<{}, {}>(block * {}u + threadIdx.x, partial, to);\n", l.down, l.columns,
                          kStepThreads);
  step.blocks = (l.columns + kStepThreads - 1) / kStepThreads;
  return step;
}

// A result that can hold the product until the program has read it.
std::optional<size_t> result_for_product(const Program& body) {
  const Type& product = body.types[body.inputs[0]];
  for (size_t k = 0; k < body.outputs.size(); ++k)
    if (body.types[body.outputs[k]] == product) return k;
  return {};
}

Kernel column_sums_cuda(const KernelSpec& spec) {
  const Program& all = spec.attrs.program("body");
  const CombinedBody places(all);
  const Eqn &product = all.eqns[0], &sum = all.eqns[1];
  const Program& body = product.attrs.program("body");
  const Type& type = body.types[body.inputs[0]];
  struct State {
    std::function<void(const void* const* in, void* out)> product;
    std::optional<size_t> result;  // in whose memory it is computed
    BufferPtr whole;               // otherwise
    LaunchedSteps rest;
    std::vector<size_t> operands, results;  // of the product's row; the last result is that of the sums
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  std::vector<Type> in_types;
  for (const ValueId id : product.in) in_types.push_back(all.types[id]);
  const KernelSpec of_product{
      .in = in_types, .out = spec.out, .attrs = product.attrs, .pool = spec.pool, .alias = {}, .cuda = spec.cuda};
  const ColumnLayout layout(type.shape);
  const size_t summed = *summed_result(product, sum);
  auto state = std::make_shared<State>(
      State{product_cuda(of_product, type),
            result_for_product(body),
            {},
            LaunchedSteps(*spec.cuda,
                          {program_step(body, summed, layout),
                           sums_step(body.types[body.outputs[summed]].dtype, body.outputs.size(), layout)},
                          {spec.cuda->allocate(layout.down * layout.columns * 4)}),
            {},
            {},
            {},
            {}});
  if (!state->result) state->whole = spec.cuda->allocate(type.bytes());
  for (const ValueId id : product.in) state->operands.push_back(places.operand(id));
  for (const ValueId id : product.out) state->results.push_back(*places.result(id));
  state->results.push_back(*places.result(sum.out[0]));
  state->in.resize(product.in.size());
  state->out.resize(state->results.size());
  return [state](const void* const* in, void* const* out) {
    State& s = *state;
    for (size_t i = 0; i < s.in.size(); ++i) s.in[i] = in[s.operands[i]];
    for (size_t o = 0; o < s.out.size(); ++o) s.out[o] = out[s.results[o]];
    void* const value = s.result ? s.out[*s.result] : s.whole->data();
    s.product(s.in.data(), value);
    s.in[1] = value;  // the inputs of the program: the product, and the operands after the matrices
    s.rest(s.in.data() + 1, s.out.data());
  };
}

}  // namespace

constinit const CombinedKernel combined_column_sums = {
    .name = "product_and_column_sums",
    .find = find_column_sums,
    .alias = [](const Program&, size_t, size_t) { return false; },
    .cuda = column_sums_cuda,
};

}  // namespace lockstep
