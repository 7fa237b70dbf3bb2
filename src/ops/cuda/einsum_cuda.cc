// Contractions on the GPU: a matrix product by cuBLASLt or by a step (gemm_text.h), with copies before and after if
// axes must be permuted. An elementwise program of the result is fused into the product, or runs in a second kernel.
#include <algorithm>
#include <memory>
#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/contraction.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/gemm_epilogue.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/share_text.h"
#include "ops/cuda/text.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// A copy that permutes the axes of an array.
struct CudaReorder {
  Kernel kernel;
  BufferPtr buffer;

  CudaReorder(const KernelSpec& spec, const Type& type, const std::vector<int64_t>& order) {
    Builder b;
    const Program copy = b.take(Values{transpose(b.input(type), order)});
    kernel = elementwise_program_cuda(copy, spec);
    buffer = spec.cuda->allocate(type.bytes());
  }
};

Contraction contraction_of(const KernelSpec& spec) {
  return contraction(spec.attrs.get<std::string>("spec"), spec.in[0], spec.in[1]);
}

class CudaProduct {
 public:
  // `by`: the matrix product to use, if already prepared.
  CudaProduct(const KernelSpec& spec, const Type& result, std::optional<CudaGemm> by = {})
      : plan_(contraction_of(spec)), lane_(spec.cuda), gemm_(std::move(by)) {
    const Type& a = spec.in[plan_.swapped ? 1 : 0];
    const Type& b = spec.in[plan_.swapped ? 0 : 1];
    bytes_ = result.bytes();
    const GemmSpec& g = plan_.gemm;
    if (!gemm_ && bytes_ > 0 && g.k > 0) gemm_.emplace(*spec.cuda, g, cuda_math());
    if (plan_.copy_a) a_.emplace(spec, a, *plan_.copy_a);
    if (plan_.copy_b) b_.emplace(spec, b, *plan_.copy_b);
    if (plan_.copy_c) c_.emplace(spec, Type{result.dtype, plan_.product}, *plan_.copy_c);
  }

  void run(const void* const* in, void* out, const void* bias = nullptr) const {
    if (!gemm_) return lane_->clear(out, bytes_);
    const void* a = in[plan_.swapped ? 1 : 0];
    const void* b = in[plan_.swapped ? 0 : 1];
    const auto reordered = [](const std::optional<CudaReorder>& how, const void* from) {
      if (!how) return from;
      void* to = how->buffer->data();
      how->kernel(&from, &to);
      return static_cast<const void*>(to);
    };
    gemm_->run(reordered(a_, a), reordered(b_, b), c_ ? static_cast<void*>(c_->buffer->data()) : out, bias);
    if (!c_) return;
    const void* from = c_->buffer->data();
    c_->kernel(&from, &out);
  }

 private:
  Contraction plan_;
  CudaStream* lane_;
  int64_t bytes_ = 0;
  std::optional<CudaGemm> gemm_;
  std::optional<CudaReorder> a_, b_, c_;
};

// A product and its elementwise epilogue, computed by a step.
struct StepSpec {
  CudaStream* lane;
  GemmSpec gemm;
  bool swapped;
  DType dtype;
  Program body;
  // An operand of the row that is computed by a source, and the number of the source's first operand.
  struct ComputedOperand {
    size_t operand;
    CudaSource source;
    size_t first;
    bool written = false;  // also written, as the last result
  };
  std::vector<ComputedOperand> sources = {};
  bool first = false;                // see GemmSources
  int64_t exchanged = 0;             // see choose_tiles()
  std::optional<size_t> added = {};  // the result whose elements are summed instead of written
  std::optional<CudaColumns> columns = {};

  const ComputedOperand* source_of(size_t operand) const {
    for (const ComputedOperand& each : sources)
      if (each.operand == operand) return &each;
    return nullptr;
  }
  GemmOperand how(size_t operand) const {
    const ComputedOperand* source = source_of(operand);
    return !source ? GemmOperand::read : source->source.rounded ? GemmOperand::rounded : GemmOperand::computed;
  }
  GemmSources operands() const { return {how(a()), how(b()), first}; }
  int64_t shared_bytes() const {
    constexpr int64_t kForColumns = kStepThreads * 8;
    return lane->info().shared - kReservedSharedBytes - (columns ? kForColumns : 0);
  }
  size_t a() const { return swapped ? 1 : 0; }
  size_t b() const { return swapped ? 0 : 1; }
};

// A matrix of the product: the operands it is read or computed from, and the text that defines `name`. It is a
// parameter (of f32 if rounded) or a function that computes it.
struct Matrix {
  std::vector<size_t> operands;
  std::string text;

  Matrix(CudaStep& step, const StepSpec& spec, const char* name, size_t operand) {
    const auto add = [&](const std::string& type, const std::string& parameter, size_t index) {
      step.parameters += fmt::format("{}{} {}", step.parameters.empty() ? "" : ", ", type, parameter);
      step.arguments.push_back({CudaStep::Argument::operand, index});
      operands.push_back(index);
    };
    const StepSpec::ComputedOperand* given = spec.source_of(operand);
    if (!given) {
      add(fmt::format("const {}*", memory_type(spec.dtype)), name, operand);
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
    step.arguments.push_back({CudaStep::Argument::result, spec.body.outputs.size()});
    text =
        fmt::format("  const auto {0} = written({1}{2}, {0}_out);\n", name, source.text(), source.applied(parameter));
  }
};

// The step of this product. Returns nullopt if the epilogue needs other elements than its own.
std::optional<CudaStep> finished(const StepSpec& spec, const GemmStep& product) {
  CudaStep step;
  step.name = "einsum";
  const Matrix a(step, spec, "a", spec.a()), b(step, spec, "b", spec.b());
  step.body = a.text + b.text;
  const GemmSpec& g = spec.gemm;
  step.operations = 2.0 * static_cast<double>(g.batch * g.m * g.n) * static_cast<double>(g.k);
  if (!product.bring_a.empty())
    step.early = {{a.operands, fmt::format("{}  {}(block, a, shared);\n", a.text, product.bring_a)},
                  {b.operands, fmt::format("{}  {}(block, b, shared);\n", b.text, product.bring_b)}};
  std::vector<CudaSourced> others;
  for (const StepSpec::ComputedOperand& each : spec.sources)
    if (each.operand >= 2) others.push_back({each.operand, &each.source, each.first});
  if (!add_finish(step, product, spec.body, 2, others)) return {};
  if (spec.added)
    step.body = fmt::format(
        "  float added = 0;\n  {{\n  const AddUp adding{{&added}};\n  {{\n  const auto& out{0} = adding;\n{1}  }}\n  "
        "}}\n"
        "  give_sum<{2}, {3}>(added, out{0}, block, {4}u, shared);\n",
        *spec.added, step.body, kStepThreads, kPartialSums, step.blocks);
  return step;
}

// Additional shared memory for the column sums and their partial sums.
int64_t columns_bytes(const GemmStep::Columns& how) { return (how.parts + how.wide) * 4; }

// The step, in which the thread blocks of the first rows also add up the columns of the second matrix and run the
// computations on the sums. Returns nullopt if that is not possible.
std::optional<CudaStep> adding_columns(CudaStep step, const StepSpec& spec, const GemmStep& product) {
  if (!product.columns) return {};
  const GemmStep::Columns& how = *product.columns;
  const CudaColumns& columns = *spec.columns;
  // The product may treat the same memory as a matrix of another shape.
  if (columns.matrix.dtype != spec.dtype || columns.matrix.shape != Shape{spec.gemm.k, spec.gemm.n}) return {};
  const int64_t count = spec.gemm.n / how.wide;
  std::string uses;
  for (size_t u = 0; u < columns.uses.size(); ++u) {
    const CudaColumns::Use& use = columns.uses[u];
    if (use.ranges.most % count != 0 || count < use.ranges.least) return {};
    const CudaStep rest = use.ranges.step(count);
    if (rest.shared_bytes > 0 || !rest.early.empty()) return {};
    const auto types = parameters_of(rest);
    std::string arguments;
    for (size_t k = 0; k < types.size(); ++k) {
      CudaStep::Argument argument = rest.arguments[k];
      if (argument.kind == CudaStep::Argument::own) return {};
      const bool operand = argument.kind == CudaStep::Argument::operand;
      const auto sums_before = std::lower_bound(use.sums.begin(), use.sums.end(), argument.index);
      if (operand && sums_before != use.sums.end() && *sums_before == argument.index) {
        arguments += fmt::format(", ({})sums - uint64_t(range) * {}u", types[k].first, how.wide);
        continue;
      }
      if (operand) argument.index -= static_cast<size_t>(sums_before - use.sums.begin());
      argument.index += operand ? use.first_operand : use.first_result;
      const std::string name = fmt::format("of_columns{}_{}", u, k);
      step.parameters += fmt::format(", {} {}", types[k].first, name);
      step.arguments.push_back(argument);
      arguments += ", " + name;
    }
    uses +=
        fmt::format("  [&](const uint32_t block, {}) {{\n{}  }}(range{});\n", rest.parameters, rest.body, arguments);
    if (step.prelude.find(rest.prelude) == std::string::npos) step.prelude += rest.prelude;
  }
  const char* type = memory_type(columns.matrix.dtype);
  step.body = fmt::format(
      R"(  static_assert({gemm}::kAdders == {parts}, "as many parts as there is room for");
  float* const parts = reinterpret_cast<float*>(shared + {bytes});
  const auto meanwhile = [&] {{
    const typename {gemm}::Place at(block);
    if (at.row != 0) return;
    {type}* const sums = reinterpret_cast<{type}*>(parts + {parts});
    if (threadIdx.x < {wide}u) sums[threadIdx.x] = Store<{type}>::of({gemm}::column_sum(parts, threadIdx.x));
    __syncthreads();
    const uint32_t range = at.col / {wide};
{uses}  }};
  const {matrix}* const second = b;
  {{
  const Summed<{matrix}> b{{second, parts}};
{body}  }}
)",
      fmt::arg("bytes", product.shared_bytes), fmt::arg("gemm", how.type), fmt::arg("type", type),
      fmt::arg("parts", how.parts), fmt::arg("wide", how.wide), fmt::arg("uses", uses),
      fmt::arg("matrix", memory_type(spec.dtype)), fmt::arg("body", step.body));
  step.name = kWithColumns;
  step.shared_bytes = product.shared_bytes + columns_bytes(how);
  return step;
}

CudaRanges ranges_of(const StepSpec& spec);
CudaSpread spread_of(const StepSpec& spec);

// The kernel for `processors` multiprocessors. Returns nullopt if the tensor cores do not support the product.
std::optional<SteppedKernel> stepped(const StepSpec& spec, int processors, Kernel apart = {}) {
  const std::optional<GemmStep> product =
      gemm_step(spec.gemm, processors, spec.shared_bytes(), spec.operands(), spec.exchanged);
  if (!product || (spec.added && product->blocks > kPartialSums)) return {};
  std::optional<CudaStep> step = finished(spec, *product);
  if (step && spec.columns) step = adding_columns(*std::move(step), spec, *product);
  if (!step) return {};
  std::vector<BufferPtr> own;
  if (product->partial_bytes > 0) {
    own.push_back(spec.lane->allocate(product->partial_bytes));
    spec.lane->clear(own[0]->data(), product->partial_bytes);
  }
  // Computed operands must fit in shared memory, and with fewer thread blocks each would compute more.
  SteppedWays ways{.apart = std::move(apart), .remake = [spec, processors](int n) {
                     std::optional<SteppedKernel> made = stepped(spec, n);
                     return made ? *std::move(made) : *stepped(spec, processors);
                   }};
  ways.with_exchange = [spec, processors](int64_t exchanged) {
    StepSpec with = spec;
    with.exchanged = exchanged;
    return stepped(with, processors);
  };
  ways.adding = [spec, processors](size_t result) {
    const std::vector<ValueId>& results = spec.body.outputs;
    StepSpec with = spec;
    with.added = result;
    const bool can = !spec.added && results.size() > 1 && spec.body.types[results[result]].dtype == DType::f32;
    return can ? stepped(with, processors) : std::nullopt;
  };
  if (spec.how(spec.b()) == GemmOperand::read && !spec.columns) {
    ways.by_columns = spec.b();
    ways.with_columns = [spec, processors](const CudaColumns& columns) {
      StepSpec with = spec;
      with.columns = columns;
      return stepped(with, processors);
    };
  }
  ways.ranges = ranges_of(spec);
  ways.spread = std::make_shared<const CudaSpread>(spread_of(spec));
  if (spec.sources.empty())
    ways.sourced = [spec, processors, rows = ways.ranges.most > 0,
                    own = ways.ranges.own](const std::vector<CudaSourced>& computed) {
      StepSpec with = spec;
      for (const CudaSourced& each : computed) {
        // Operands of the epilogue, and of products that can run row by row, may be rounded but not computed otherwise.
        if (with.source_of(each.operand) || ((each.operand >= 2 || rows) && !each.source->rounded) ||
            std::find(own.begin(), own.end(), each.operand) != own.end())
          return std::optional<SteppedKernel>();
        // Only of the first matrix does one thread block have all columns of its rows, and can write them.
        if (each.written && (each.operand != with.a() || each.source->rounded)) return std::optional<SteppedKernel>();
        with.sources.push_back({each.operand, *each.source, each.first, each.written});
        with.first |= each.alone;
      }
      if (!is_worth_rounding(with.gemm, processors, with.shared_bytes(), with.operands()))
        return std::optional<SteppedKernel>();
      return stepped(with, processors);
    };
  return SteppedKernel(spec.lane, {*std::move(step)}, std::move(own), std::move(ways));
}

// Row by row, if the second matrix is small.
CudaRanges ranges_of(const StepSpec& spec) {
  const std::optional<RowProduct> rows = row_product(spec.gemm);
  const Shape& shape = spec.body.types[spec.body.outputs[0]].shape;
  if (!rows || shape.empty() || shape[0] == 0 || rows->most % shape[0] != 0 || spec.added || spec.columns) return {};
  if (spec.how(spec.a()) != GemmOperand::read || spec.how(spec.b()) == GemmOperand::computed) return {};
  CudaRanges out{.most = shape[0], .least = rows->least, .own = {spec.a()}, .step = {}};
  for (size_t i : own_inputs(spec.body))
    if (i > 0) out.own.push_back(i + 1);
  out.step = [spec](int64_t count) {
    return *finished(spec, row_product_step(spec.gemm, count, spec.how(spec.b()) == GemmOperand::rounded));
  };
  return out;
}

CudaSpread spread_of(const StepSpec& spec) {
  const GemmSpec& g = spec.gemm;
  if (ranges_of(spec).most == 0) return {};
  const CudaSpread::Kind kind = spread_kind(g);
  if (kind == CudaSpread::none) return {};
  const bool sums = kind == CudaSpread::sums, rounded = spec.how(spec.b()) == GemmOperand::rounded;
  const StepSpec::ComputedOperand* source = spec.source_of(spec.b());
  std::vector<size_t> in_place;
  for (size_t i : in_place_inputs(spec.body))
    if (i > 0) in_place.push_back(i + 1);
  return {.kind = kind,
          .rows = spec.a(),
          .by = source ? source->first + source->source.operands[0] : spec.b(),
          .few = sums ? g.n : g.k,
          .width = sums ? g.k : g.n,
          .row_type = memory_type(g.dtype),
          .by_type = rounded ? "float" : memory_type(g.dtype),
          .in_place = std::move(in_place),
          .step =
              [=](int64_t cols) {
                return *finished(spec,
                                 sums ? shared_sums_step(g, cols, rounded) : shared_columns_step(g, cols, rounded));
              },
          .publish = [=](int64_t cols) { return shared_sums_publish(g, cols, rounded); }};
}

// The product and its epilogue by cuBLASLt, if supported. The mask of relu takes a second kernel.
Kernel by_epilogue(const KernelSpec& spec, const Program& body) {
  const Contraction plan = contraction_of(spec);
  const GemmSpec& g = plan.gemm;
  const Type& type = body.types[body.inputs[0]];
  if (plan.copy_c || type.bytes() == 0 || g.k == 0) return {};
  const std::optional<MatchedEpilogue> matched = epilogue_of(body, g.n);
  if (!matched) return {};
  std::optional<CudaGemm> gemm = CudaGemm::with_epilogue(*spec.cuda, g, cuda_math(), matched->epilogue);
  if (!gemm) return {};
  struct State {
    CudaProduct product;
    CudaStream& lane;
    size_t result;
    BufferPtr bias;  // an aligned copy of a small bias, which may be less aligned
    std::optional<size_t> relu_mask;
    Kernel mask_kernel;
  };
  auto state = std::make_shared<State>(
      State{CudaProduct(spec, type, std::move(gemm)), *spec.cuda, matched->result, {}, matched->relu_mask, {}});
  if (matched->epilogue.bias) state->bias = spec.cuda->allocate(spec.in[2].bytes());
  if (matched->relu_mask) {
    Builder b;
    const Value x = b.input(type);
    state->mask_kernel = elementwise_program_cuda(b.take(Values{relu_mask(x)}), spec);
  }
  return [state](const void* const* in, void* const* out) {
    const State& s = *state;
    const void* bias = s.bias ? in[2] : nullptr;
    if (reinterpret_cast<uintptr_t>(bias) % CudaGemm::kBiasAlignment != 0) {
      s.lane.copy(s.bias->data(), bias, s.bias->size());
      bias = s.bias->data();
    }
    s.product.run(in, out[s.result], bias);
    const void* const made = out[s.result];
    if (s.relu_mask) s.mask_kernel(&made, &out[*s.relu_mask]);
  };
}

// Adds a step, if both matrices are read in place.
Kernel with_step(const KernelSpec& spec, const Program& body, Kernel apart) {
  const Contraction plan = contraction_of(spec);
  if (plan.copy_a || plan.copy_b || plan.copy_c) return apart;
  if (plan.gemm.dtype == DType::f32 && cuda_math() != CudaMath::tf32) return apart;
  if (spec.cuda->info().major < 8) return apart;
  std::optional<SteppedKernel> kernel =
      stepped({spec.cuda, plan.gemm, plan.swapped, spec.in[0].dtype, body}, spec.cuda->info().processors, apart);
  return kernel ? Kernel(*std::move(kernel)) : apart;
}

}  // namespace

Kernel einsum_cuda(const KernelSpec& spec) {
  if (!CudaGemm::supports(spec.in[0].dtype)) return {};
  auto product = std::make_shared<const CudaProduct>(spec, spec.out[0]);
  Builder b;
  const Program as_it_is = b.take(Values{b.input(spec.out[0])});
  return with_step(spec, as_it_is, [product](const void* const* in, void* const* out) { product->run(in, out[0]); });
}

Kernel einsum_fused_cuda(const KernelSpec& spec) {
  if (!CudaGemm::supports(spec.in[0].dtype)) return {};
  const Program& body = spec.attrs.program("body");
  if (Kernel alone = by_epilogue(spec, body)) return with_step(spec, body, std::move(alone));
  auto product = std::make_shared<const CudaProduct>(spec, body.types[body.inputs[0]]);
  return with_step(spec, body,
                   then_body([product](const void* const* in, void* out) { product->run(in, out); }, 2, body, spec));
}

}  // namespace lockstep
