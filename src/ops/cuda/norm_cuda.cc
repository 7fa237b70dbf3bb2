// Normalization on the GPU. A warp computes a row, or a thread block if the row is long. The kernel of a gradient writes
// dx and, for each thread block, the sums over its rows for dscale and dbias. A second kernel adds up these sums in
// order.
//
// In a residual network, the gradient of a residual is added to dx, and the columns of the sum are the gradient of the
// bias of the layer before: the same kernels do that (`norm_grad_and_sums`).
#include <algorithm>
#include <memory>
#include <optional>

#include "lane/cuda/code.h"
#include "ops/cuda/combined.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/norm.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

constexpr int kNormThreads = 256, kNormGradThreads = 384;
// Thread blocks of a gradient: those of a large GPU that run at the same time.
constexpr int64_t kNormGradBlocks = 132, kLongNormGradBlocks = 264;
constexpr int64_t kNormRowBytes = 256;  // of a row in the registers of a thread; a gradient keeps four such arrays
constexpr int64_t kNormGradRowBytes = 128;

bool is_norm_grad(NormPass pass) { return pass == NormPass::layer_grad || pass == NormPass::rms_grad; }
bool is_layer_norm(NormPass pass) { return pass == NormPass::layer || pass == NormPass::layer_grad; }

// Where a norm or its gradient finds its operands and results.
struct NormPlaces {
  size_t x = 0, scale = 1, bias = 2, mean = 2, rstd = 3, dy = 4;
  std::optional<size_t> residual = {};  // to be added to dx
  size_t y = 0, dx = 0;
  std::optional<size_t> dscale = 1, dbias = 2, sums = {};  // `sums` of the columns of dx
};

// An equation: its types, and where these are.
struct NormSpec {
  NormPass pass;
  Types in, out;
  int64_t batch_dims;
  double epsilon;
  NormPlaces at = {};

  NormSpec(NormPass of, const KernelSpec& spec)
      : pass(of),
        in(spec.in),
        out(spec.out),
        batch_dims(spec.attrs.integer("batch_dims")),
        epsilon(spec.attrs.get_or("epsilon", 0.0)) {
    if (pass == NormPass::rms_grad) at.rstd = 2, at.dy = 3, at.dbias.reset();
  }
  // The equations of `norm_grad_and_sums`.
  explicit NormSpec(const KernelSpec& spec);

  DType x() const { return in[at.x].dtype; }
  DType scale() const { return in[at.scale].dtype; }
};

// How rows are divided over threads.
struct NormLayout {
  NormSizes s;
  bool wide;  // f64
  int64_t vector = 1, team = 32, packs = 0, threads = kNormThreads;
  bool kept = true;
  int64_t own = 0, blocks = 0;  // of a gradient: rows per thread block, thread blocks per batch element

  explicit NormLayout(const NormSpec& n) : s(n.in[n.at.x].shape, n.batch_dims), wide(n.x() == DType::f64) {
    while (vector * 2 * size_of(n.x()) <= 16 && s.d % (vector * 2) == 0) vector *= 2;
    const int64_t most = is_norm_grad(n.pass) ? kNormGradRowBytes : kNormRowBytes;
    const auto fits = [&] {
      packs = std::max<int64_t>((s.d / vector + team - 1) / team, 1);
      return packs * vector * (wide ? 8 : 4) <= most;
    };
    if (!fits()) {
      team = kNormThreads;
      kept = fits();
    }
    if (!is_norm_grad(n.pass)) return;
    if (team == 32) threads = kNormGradThreads;
    const int64_t most_blocks = team == 32 ? kNormGradBlocks : kLongNormGradBlocks;
    own = std::max({teams(), (s.groups * s.rows + most_blocks - 1) / most_blocks, int64_t{1}});
    blocks = (s.rows + own - 1) / own;
  }
  int64_t teams() const { return threads / team; }
  int64_t forward_blocks() const { return (s.groups * s.rows + teams() - 1) / teams(); }
  int64_t column_blocks() const { return s.groups * ((s.d + 31) / 32); }
  // Bytes of the sums of all thread blocks, for dscale or dbias.
  int64_t sum_bytes() const { return s.groups * blocks * s.d * (wide ? 8 : 4); }
};

std::string norm_text(const NormSpec& n, const NormLayout& l, const std::string& parameters, const std::string& body) {
  const DType x = n.x();
  return fmt::format(
      R"(#include "norm.cuh"
using namespace lockstep;
struct Rows {{
  using T = {memory};
  using P = {parameter};
  using R = {number};
  static constexpr uint64_t kD = {d}, kRows = {rows}, kTotal = {total}, kOwn = {own}, kBlocks = {blocks};
  static constexpr uint32_t kVector = {vector}, kPacks = {packs}, kTeam = {team}, kThreads = {threads};
  static constexpr bool kKept = {kept}, kCentered = {centered}, kResidual = {residual}, kSums = {sums};
  static constexpr double kEpsilon = {epsilon:.17g};
}};
using T = Rows::T;
using P = Rows::P;
using R = Rows::R;
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{
{body}}}
)",
      fmt::arg("name", kernel_name(is_layer_norm(n.pass) ? "layer_norm" : "rms_norm")),
      fmt::arg("memory", memory_type(x)), fmt::arg("parameter", memory_type(n.scale())),
      fmt::arg("number", register_name(x)), fmt::arg("d", l.s.d), fmt::arg("rows", l.s.rows),
      fmt::arg("total", l.s.groups * l.s.rows), fmt::arg("own", l.own), fmt::arg("blocks", l.blocks),
      fmt::arg("vector", l.vector), fmt::arg("packs", l.packs), fmt::arg("team", l.team),
      fmt::arg("threads", l.threads), fmt::arg("kept", l.kept), fmt::arg("centered", is_layer_norm(n.pass)),
      fmt::arg("residual", n.at.residual.has_value()), fmt::arg("sums", n.at.sums.has_value()),
      fmt::arg("epsilon", n.epsilon), fmt::arg("parameters", parameters), fmt::arg("body", body));
}

std::string forward_text(const NormSpec& n) {
  const bool centered = is_layer_norm(n.pass);
  return norm_text(n, NormLayout(n),
                   centered ? "const T* x, const P* scale, const P* bias, T* y, R* mean, R* rstd"
                            : "const T* x, const P* scale, T* y, R* rstd",
                   centered ? "  Norm<Rows>::forward(x, scale, bias, y, mean, rstd);\n"
                            : "  Norm<Rows>::forward(x, scale, nullptr, y, nullptr, rstd);\n");
}

// The kernel of dx and of the sums of thread blocks.
std::string rows_text(const NormSpec& n) {
  return norm_text(
      n, NormLayout(n),
      "const T* x, const P* scale, const R* mean, const R* rstd, const T* dy, const T* residual, T* dx, R* "
      "scale_sums, R* bias_sums, R* result_sums",
      "  Norm<Rows>::backward({x, scale, mean, rstd, dy, residual, dx, scale_sums, bias_sums, "
      "result_sums});\n");
}

// The kernel that adds up the sums: for dscale, dbias and the columns of the result.
std::string columns_text(const NormSpec& n) {
  const NormLayout l(n);
  std::string body = fmt::format("  const uint32_t which = blockIdx.x / {0}u, block = blockIdx.x % {0}u;\n",
                                 std::max<int64_t>(l.column_blocks(), 1));
  for (const auto& [place, name] : {std::pair(0, "scale"), std::pair(1, "bias"), std::pair(2, "result")})
    body +=
        fmt::format("  if (which == {0} && to_{1}) Norm<Rows>::add_blocks(block, {1}_sums, to_{1});\n", place, name);
  return norm_text(
      n, l, "const R* scale_sums, const R* bias_sums, const R* result_sums, P* to_scale, P* to_bias, T* to_result",
      body);
}

Kernel norm_forward_cuda(const NormSpec& n, CudaStream& stream) {
  const NormLayout l(n);
  if (l.forward_blocks() == 0) return [](const void* const*, void* const*) {};
  const size_t ins = n.in.size(), outs = n.out.size();
  return [=, &stream, blocks = l.forward_blocks(), function = kernel_of(forward_text(n), stream),
          arguments = std::vector<void*>(ins + outs)](const void* const* in, void* const* out) mutable {
    for (size_t i = 0; i < ins; ++i) arguments[i] = argument(in[i]);
    for (size_t o = 0; o < outs; ++o) arguments[ins + o] = argument(out[o]);
    function.launch(stream, blocks, kNormThreads, arguments.data());
  };
}

Kernel norm_grad_cuda(const NormSpec& n, CudaStream& stream) {
  const NormLayout l(n);
  if (l.column_blocks() == 0) return [](const void* const*, void* const*) {};
  const std::string columns_of = columns_text(n);
  begin_kernel(columns_of, stream);
  // Without rows, the sums are zero.
  const CudaFunction rows = l.blocks > 0 ? kernel_of(rows_text(n), stream) : CudaFunction();
  const CudaFunction columns = kernel_of(columns_of, stream);
  std::vector<BufferPtr> sums(3);
  sums[0] = stream.allocate(l.sum_bytes());
  if (is_layer_norm(n.pass)) sums[1] = stream.allocate(l.sum_bytes());
  if (n.at.sums) sums[2] = stream.allocate(l.sum_bytes());
  return [=, &stream, at = n.at, centered = is_layer_norm(n.pass)](const void* const* in, void* const* out) {
    const auto optional = [](const auto* list, std::optional<size_t> place) -> const void* {
      return place ? list[*place] : nullptr;
    };
    const void* of_blocks[3];
    for (size_t k = 0; k < sums.size(); ++k) of_blocks[k] = sums[k] ? sums[k]->data() : nullptr;
    const void *mean = centered ? in[at.mean] : nullptr, *residual = optional(in, at.residual);
    const void *to_scale = optional(out, at.dscale), *to_bias = optional(out, at.dbias),
               *to_sums = optional(out, at.sums);
    void* of_rows[] = {argument(in[at.x]),     argument(in[at.scale]), argument(mean),       argument(in[at.rstd]),
                       argument(in[at.dy]),    argument(residual),     argument(out[at.dx]), argument(of_blocks[0]),
                       argument(of_blocks[1]), argument(of_blocks[2])};
    if (l.blocks > 0) rows.launch(stream, l.s.groups * l.blocks, static_cast<int>(l.threads), of_rows);
    void* of_columns[] = {argument(of_blocks[0]), argument(of_blocks[1]), argument(of_blocks[2]),
                          argument(to_scale),     argument(to_bias),      argument(to_sums)};
    columns.launch(stream, l.column_blocks() * 3, static_cast<int>(l.threads), of_columns);
  };
}

// ---- A gradient of a norm, and what is done with it

bool is_norm_grad(const Op* op) { return op == &layer_norm_grad_op || op == &rms_norm_grad_op; }

// Whether the equation sums the columns of its operand, a matrix of all its leading dimensions.
bool sums_columns(const Eqn& eqn, const Type& operand) {
  return eqn.op == &reduce_sum_op && operand.rank() > 1 && eqn.attrs.ints("axes") == counting(0, operand.rank() - 1);
}

CombinedEqns find_norm_grad(const ValueUses& uses, size_t first) {
  const Eqn& norm = uses.eqn(first);
  if (!is_norm_grad(norm.op) || norm.attrs.integer("batch_dims") != 0 || count(uses.type(norm.in[0]).shape) == 0)
    return {};
  CombinedEqns out{{first}};
  ValueId result = norm.out[0];
  if (const auto user = uses.only_user(result))
    if (const Eqn& sum = uses.eqn(*user); sum.op == &add_op) {
      out.eqns.push_back(*user);
      result = sum.out[0];
    }
  const std::vector<size_t>& users = uses.users(result);
  for (const size_t user : users)
    if (sums_columns(uses.eqn(user), uses.type(result))) {
      out.eqns.push_back(user);
      break;
    }
  const bool is_used = uses.is_output(result) ||
                       std::any_of(users.begin(), users.end(), [&](size_t user) { return user != out.eqns.back(); });
  return is_used ? out : CombinedEqns();
}

NormPlaces places_in(const Program& body) {
  const CombinedBody places(body);
  const Eqn& norm = body.eqns[0];
  NormPlaces at;
  at.x = places.operand(norm.in[0]);
  at.scale = places.operand(norm.in[1]);
  const bool centered = norm.op == &layer_norm_grad_op;
  if (centered) at.mean = places.operand(norm.in[2]);
  at.rstd = places.operand(norm.in[norm.in.size() - 2]);
  at.dy = places.operand(norm.in.back());
  at.dscale = places.result(norm.out[1]);
  at.dbias = centered ? places.result(norm.out[2]) : std::nullopt;
  ValueId result = norm.out[0];
  if (const Eqn* sum = places.find(add_op)) {
    at.residual = places.operand(sum->in[0] == result ? sum->in[1] : sum->in[0]);
    result = sum->out[0];
  }
  at.dx = *places.result(result);
  if (const Eqn* sums = places.find(reduce_sum_op)) at.sums = places.result(sums->out[0]);
  return at;
}

}  // namespace

NormSpec::NormSpec(const KernelSpec& spec)
    : in(spec.in), out(spec.out), batch_dims(0), epsilon(0), at(places_in(spec.attrs.program("body"))) {
  pass = spec.attrs.program("body").eqns[0].op == &layer_norm_grad_op ? NormPass::layer_grad : NormPass::rms_grad;
}

constinit const CombinedKernel combined_norm_grad = {
    .name = "norm_grad_and_sums",
    .find = find_norm_grad,
    .alias =
        [](const Program& body, size_t in, size_t out) {
          const NormPlaces at = places_in(body);
          return out == at.dx && (in == at.x || in == at.dy || in == at.residual);
        },
    .cuda = [](const KernelSpec& spec) { return norm_grad_cuda(NormSpec(spec), *spec.cuda); },
};

std::vector<std::string> norm_texts(NormPass pass, const KernelSpec& spec) {
  const NormSpec n(pass, spec);
  if (!is_norm_grad(pass)) return {forward_text(n)};
  return {rows_text(n), columns_text(n)};
}

Kernel norm_kernel_cuda(NormPass pass, const KernelSpec& spec) {
  const NormSpec n(pass, spec);
  return is_norm_grad(pass) ? norm_grad_cuda(n, *spec.cuda) : norm_forward_cuda(n, *spec.cuda);
}

}  // namespace lockstep
