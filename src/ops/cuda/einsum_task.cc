// Contractions as tasks: matrix products with an elementwise epilogue, in tiles (gemm_text.h), row by row
// (row_product_text.h), or by thread blocks that have some columns of each row (share_text.h).
#include <algorithm>
#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/contraction.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/share_text.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"

namespace lockstep {
namespace {

// The product of a task, and the choices that concern it. Operands 0 and 1 of the task are the matrices; the others are
// inputs of the epilogue.
struct TaskProduct {
  const GpuTask& task;
  const GpuTarget& target;
  GemmSpec gemm;
  size_t a, b;  // operands: the first and the second matrix of the product
  std::vector<ComputedOperand> computed;
  std::optional<Program> identity = {};  // the epilogue of a row without one

  const Program& body() const { return identity ? *identity : task.attrs.program("body"); }
  const Shape& result_shape() const { return body().types[body().outputs[0]].shape; }
  DType dtype() const { return task.in[0].type.dtype; }
  int processors() const { return task.processors > 0 ? task.processors : target.processors; }
  int64_t shared_bytes() const { return target.shared_bytes - kReservedSharedBytes; }

  const ComputedOperand* source_of(size_t operand) const {
    const auto found = std::find_if(computed.begin(), computed.end(),
                                    [&](const ComputedOperand& each) { return each.operand == operand; });
    return found == computed.end() ? nullptr : &*found;
  }
  GemmOperand how(size_t operand) const {
    const ComputedOperand* given = source_of(operand);
    return !given ? GemmOperand::read : given->source.rounded ? GemmOperand::rounded : GemmOperand::computed;
  }
  GemmSources sources() const { return {how(a), how(b), task.ready}; }
  bool rounds_second() const { return how(b) == GemmOperand::rounded; }
};

// Nothing if the GPU does not support the product, its matrices are not read in place, or a producer has no source.
std::optional<TaskProduct> product_of(const GpuTask& task, const GpuTarget& target) {
  const DType dtype = task.in[0].type.dtype;
  if (!CudaGemm::supports(dtype) || target.major < 8 || (dtype == DType::f32 && !target.tf32)) return {};
  const Contraction plan = contraction(task.attrs.get<std::string>("spec"), task.in[0].type, task.in[1].type);
  if (plan.copy_a || plan.copy_b || plan.copy_c) return {};
  std::optional<std::vector<ComputedOperand>> computed = computed_operands(task, target);
  if (!computed) return {};
  TaskProduct out{task, target, plan.gemm, plan.swapped ? 1u : 0u, plan.swapped ? 0u : 1u, *std::move(computed)};
  if (!task.attrs.find("body")) {
    Builder builder;
    out.identity = builder.take(Values{builder.input(task.out[0].type)});
  }
  return out;
}

// A matrix of the product: the operands it is read or computed from, and the text that defines `name`. It is a
// parameter (of f32 if rounded) or a function that computes it.
struct MatrixText {
  std::vector<size_t> operands;
  std::string text;

  MatrixText(CudaStep& step, const TaskProduct& product, const char* name, size_t operand) {
    const auto add = [&](const std::string& type, const std::string& parameter, size_t index) {
      step.parameters += fmt::format("{}{} {}", step.parameters.empty() ? "" : ", ", type, parameter);
      step.arguments.push_back({CudaStep::Argument::operand, index});
      operands.push_back(index);
    };
    const ComputedOperand* given = product.source_of(operand);
    if (!given) {
      add(fmt::format("const {}*", memory_type(product.dtype())), name, operand);
      return;
    }
    const CudaSource& source = given->source;
    if (source.rounded) {
      add("const float*", name, given->first + source.operands[0]);
      return;
    }
    const auto parameter = [&](size_t k) { return fmt::format("{}_in{}", name, k); };
    for (size_t k = 0; k < source.operands.size(); ++k)
      add(source.types[k], parameter(source.operands[k]), given->first + source.operands[k]);
    text = fmt::format("  const auto {} = {}{};\n", name, source.text(), source.applied(parameter));
    if (!given->written) return;
    step.parameters += fmt::format(", {}* {}_out", source.type, name);
    step.arguments.push_back({CudaStep::Argument::result, product.task.out.size()});
    text =
        fmt::format("  const auto {0} = written({1}{2}, {0}_out);\n", name, source.text(), source.applied(parameter));
  }
};

// The step of a product, however it is divided. Returns nullopt if the epilogue needs other elements than its own.
std::optional<CudaStep> with_epilogue(const TaskProduct& product, const GemmStep& text) {
  CudaStep step;
  step.name = "einsum";
  const MatrixText a(step, product, "a", product.a), b(step, product, "b", product.b);
  step.body = a.text + b.text;
  const GemmSpec& g = product.gemm;
  step.operations = 2.0 * static_cast<double>(g.batch * g.m * g.n) * static_cast<double>(g.k);
  step.tile = text.tile;
  if (!text.prefetch_a.empty())
    step.prefetches = {{a.operands, fmt::format("{}  {}(block, a, shared);\n", a.text, text.prefetch_a)},
                       {b.operands, fmt::format("{}  {}(block, b, shared);\n", b.text, text.prefetch_b)}};
  std::vector<ComputedOperand> others;
  for (const ComputedOperand& each : product.computed)
    if (each.operand >= 2) others.push_back(each);
  if (!add_finish(step, text, product.body(), 2, others)) return {};
  return step;
}

// Makes a step add up the elements of a result instead of writing them.
void add_up_result(CudaStep& step, size_t result) {
  step.body = fmt::format(
      "  float added = 0;\n  {{\n  const SumOutput adding{{&added}};\n  {{\n  const auto& out{0} = adding;\n{1}  }}\n  "
      "}}\n"
      "  write_block_sum<{2}, {3}>(added, out{0}, block, {4}u, shared);\n",
      result, step.body, kStepThreads, kPartialSums, step.blocks);
}

// The calls of tasks on column sums, by the thread blocks that have `wide` of the sums, for their range of columns.
// Adds the parameters of these tasks to the step. Returns nullopt if one of them is not possible.
std::optional<std::string> calls_on_sums(CudaStep& step, const TaskProduct& product, int64_t wide) {
  const GpuTask& task = product.task;
  const ValueId sums = task.column_sums[0].out[0].id;
  size_t first_operand = task.in.size(), first_result = task.out.size();
  for (const GpuTask::Producer& producer : task.producers) {
    first_operand += operands(producer.task).size();
    first_result += producer.written ? 1 : 0;
  }
  std::string calls;
  for (size_t u = 1; u < task.column_sums.size(); ++u) {
    GpuTask use = task.column_sums[u];
    use.division = TaskDivision::ranges;
    use.count = product.gemm.n / wide;
    if (!lower_row(use, product.target)) return {};
    const CudaStep& rest = *use.step;
    if (rest.shared_bytes > 0 || !rest.prefetches.empty() || !rest.workspaces.empty()) return {};
    const std::vector<TaskValue> in = operands(use);
    const auto is_sum = [&](const TaskValue& value) { return value.id == sums; };
    const auto types = parameters_of(rest);
    std::string arguments;
    for (size_t k = 0; k < types.size(); ++k) {
      CudaStep::Argument argument = rest.arguments[k];
      if (argument.kind == CudaStep::Argument::operand) {
        const auto own = in.begin() + static_cast<std::ptrdiff_t>(argument.index);
        if (is_sum(*own)) {
          arguments += fmt::format(", ({})sums - uint64_t(range) * {}u", types[k].first, wide);
          continue;
        }
        argument.index += first_operand - static_cast<size_t>(std::count_if(in.begin(), own, is_sum));
      } else {
        argument.index += first_result;
      }
      const std::string name = fmt::format("of_columns{}_{}", u - 1, k);
      step.parameters += fmt::format(", {} {}", types[k].first, name);
      step.arguments.push_back(argument);
      arguments += ", " + name;
    }
    calls +=
        fmt::format("  [&](const uint32_t block, {}) {{\n{}  }}(range{});\n", rest.parameters, rest.body, arguments);
    if (step.prelude.find(rest.prelude) == std::string::npos) step.prelude += rest.prelude;
    first_operand += in.size() - static_cast<size_t>(std::count_if(in.begin(), in.end(), is_sum));
    first_result += results(use).size();
  }
  return calls;
}

// The step, in which the thread blocks of the first rows also add up the columns of the second matrix and run the
// tasks on the sums. Returns nullopt if that is not possible.
std::optional<CudaStep> with_column_sums(CudaStep step, const TaskProduct& product, const GemmStep& text) {
  if (!text.columns || product.how(product.b) != GemmOperand::read) return {};
  const GemmStep::Columns& how = *text.columns;
  // The product may treat the same memory as a matrix of another shape.
  const TaskValue& matrix = product.task.column_sums[0].in[0];
  if (matrix.id != product.task.in[product.b].id || matrix.type.dtype != product.dtype() ||
      matrix.type.shape != Shape{product.gemm.k, product.gemm.n})
    return {};
  const std::optional<std::string> calls = calls_on_sums(step, product, how.wide);
  if (!calls) return {};
  step.body = fmt::format(
      R"(  static_assert({gemm}::kColumnSumThreads == {parts}, "as many parts as there is room for");
  float* const parts = reinterpret_cast<float*>(shared + {bytes});
  const auto while_waiting = [&] {{
    const typename {gemm}::Place at(block);
    if (at.row != 0) return;
    {type}* const sums = reinterpret_cast<{type}*>(parts + {parts});
    if (threadIdx.x < {wide}u) sums[threadIdx.x] = Store<{type}>::of({gemm}::column_sum(parts, threadIdx.x));
    __syncthreads();
    const uint32_t range = at.col / {wide};
{calls}  }};
  const {type}* const second = b;
  {{
  const ColumnSummed<{type}> b{{second, parts}};
{body}  }}
)",
      fmt::arg("bytes", text.shared_bytes), fmt::arg("gemm", how.type), fmt::arg("type", memory_type(product.dtype())),
      fmt::arg("parts", how.parts), fmt::arg("wide", how.wide), fmt::arg("calls", *calls), fmt::arg("body", step.body));
  step.name = "einsum with column sums";
  step.shared_bytes = text.shared_bytes + (how.parts + how.wide) * static_cast<int64_t>(sizeof(float));
  return step;
}

std::optional<CudaStep> step_in_tiles(const TaskProduct& product) {
  // An upper bound of the shared memory for column sums: their parts, and the sums.
  constexpr int64_t kColumnSumBytes = kStepThreads * 8;
  const GpuTask& task = product.task;
  const Program& body = product.body();
  if (task.summed && (*task.summed >= body.outputs.size() || body.outputs.size() < 2 ||
                      body.types[body.outputs[*task.summed]].dtype != DType::f32))
    return {};
  const int64_t shared_bytes = product.shared_bytes() - (task.column_sums.empty() ? 0 : kColumnSumBytes);
  const std::optional<GemmStep> text =
      gemm_step(product.gemm, product.processors(), shared_bytes, product.sources(), task.exchanged, task.tile);
  if (!text || (task.summed && text->blocks > kPartialSums)) return {};
  std::optional<CudaStep> step = with_epilogue(product, *text);
  if (step && task.summed) add_up_result(*step, *task.summed);
  if (step && !task.column_sums.empty()) step = with_column_sums(*std::move(step), product, *text);
  return step;
}

// The ranges of a product that reads all its operands: row by row, if the second matrix is small. Does not set `own`.
TaskTraits::Ranges ranges_if_read(const TaskProduct& product) {
  const std::optional<RowProduct> rows = row_product(product.gemm);
  const Shape& shape = product.result_shape();
  if (!rows || shape.empty() || shape[0] == 0 || rows->most % shape[0] != 0 || product.task.summed) return {};
  return {.most = shape[0], .least = rows->least};
}

TaskTraits::Ranges ranges_of(const TaskProduct& product) {
  if (!product.task.column_sums.empty() || product.how(product.a) != GemmOperand::read ||
      product.how(product.b) == GemmOperand::computed)
    return {};
  return ranges_if_read(product);
}

// Inputs of the epilogue as operands of the task.
std::vector<size_t> epilogue_operands(const std::vector<size_t>& inputs) {
  std::vector<size_t> out;
  for (const size_t i : inputs)
    if (i > 0) out.push_back(i + 1);
  return out;
}

// The operands of which a range needs only the same range.
std::vector<size_t> own_operands(const TaskProduct& product) {
  std::vector<size_t> out = epilogue_operands(own_inputs(product.body()));
  out.insert(out.begin(), product.a);
  return out;
}

std::optional<CudaStep> step_in_ranges(const TaskProduct& product) {
  const int64_t count = product.task.count;
  if (!ranges_of(product).supports(count)) return {};
  return with_epilogue(product, row_product_step(product.gemm, count, product.rounds_second()));
}

TaskTraits::Spread::Kind kind_of_spread(const TaskProduct& product) {
  return ranges_of(product).most > 0 ? spread_kind(product.gemm) : TaskTraits::Spread::none;
}

std::optional<CudaStep> step_in_columns(const TaskProduct& product) {
  using Spread = TaskTraits::Spread;
  const GemmSpec& g = product.gemm;
  const Spread::Kind kind = kind_of_spread(product);
  const int64_t columns = product.task.count, width = kind == Spread::sums ? g.k : g.n;
  if (kind == Spread::none || columns < 1 || width % columns != 0) return {};
  const bool rounded = product.rounds_second();
  if (kind == Spread::columns) return with_epilogue(product, shared_columns_step(g, columns, rounded));
  std::optional<CudaStep> step = with_epilogue(product, shared_sums_step(g, columns, rounded));
  if (step) step->publish = shared_sums_publish(g, columns, rounded);
  return step;
}

// Whether the product may compute the operands that have producers. It was decided before the tasks on column sums were
// added, and for all of the GPU.
bool may_compute_operands(const TaskProduct& product) {
  if (product.computed.empty()) return true;
  TaskTraits::Ranges rows = ranges_if_read(product);
  if (rows.most > 0) rows.own = own_operands(product);
  for (const ComputedOperand& each : product.computed) {
    if (product.source_of(each.operand) != &each) return false;
    // Operands of the epilogue, and of products that can run row by row, may be rounded but not computed otherwise.
    if (((each.operand >= 2 || rows.most > 0) && !each.source.rounded) || rows.owns(each.operand)) return false;
    // Only of the first matrix does one thread block have all columns of its rows, and can write them.
    if (each.written && (each.operand != product.a || each.source.rounded)) return false;
  }
  return product.task.tile ||
         is_worth_rounding(product.gemm, product.target.processors, product.shared_bytes(), product.sources());
}

std::optional<CudaStep> einsum_step(const GpuTask& task, const GpuTarget& target) {
  const std::optional<TaskProduct> product = product_of(task, target);
  if (!product || task.stage != TaskStage::whole || !may_compute_operands(*product)) return {};
  switch (task.division) {
    case TaskDivision::tiles:
      return step_in_tiles(*product);
    case TaskDivision::ranges:
      return step_in_ranges(*product);
    case TaskDivision::columns:
      return step_in_columns(*product);
    case TaskDivision::warps:
      break;
  }
  return {};
}

TaskTraits::Spread spread_of(const TaskProduct& product) {
  using Spread = TaskTraits::Spread;
  const Spread::Kind kind = kind_of_spread(product);
  if (kind == Spread::none) return {};
  const GemmSpec& g = product.gemm;
  const bool sums = kind == Spread::sums;
  const ComputedOperand* source = product.source_of(product.b);
  return {.kind = kind,
          .rows = product.a,
          .by = source ? source->first + source->source.operands[0] : product.b,
          .few = sums ? g.n : g.k,
          .width = sums ? g.k : g.n,
          .row_type = memory_type(g.dtype),
          .by_type = product.rounds_second() ? "float" : memory_type(g.dtype),
          .in_place = epilogue_operands(in_place_inputs(product.body()))};
}

TaskTraits einsum_traits(const GpuTask& task, const GpuTarget& target) {
  const std::optional<TaskProduct> product = product_of(task, target);
  if (!product) return {};
  TaskTraits out;
  out.ranges = ranges_of(*product);
  if (out.ranges.most > 0) out.ranges.own = own_operands(*product);
  out.spread = spread_of(*product);
  if (product->how(product->b) == GemmOperand::read && task.column_sums.empty() && task.division == TaskDivision::tiles)
    out.can_sum_columns_of = product->b;
  return out;
}

}  // namespace

const CudaTaskKind einsum_task = {.step = einsum_step, .traits = einsum_traits};

}  // namespace lockstep
