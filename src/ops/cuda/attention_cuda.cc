// Attention on the GPU: chooses the tiles of the kernels in kernels/attention_*.cuh, writes their texts and launches them.
// Letters as in AttentionSizes. Equations in f64 or with more than 256 features per head are computed on the host.
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "lane/cuda/code.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/attention.h"
#include "ops/cuda/attention_cuda.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"

namespace lockstep {
namespace {

constexpr int64_t kMostFeatures = 256, kMostPosition = int64_t{1} << 30;
constexpr int64_t kRowSumThreads = 256;
constexpr int64_t kWarpgroupRows = 64;   // of a product
constexpr int64_t kLongSequence = 4096;  // tokens from which on larger tiles are faster

// The thread blocks of a kernel. A block has `own()` rows, queries or keys, and walks along the others in tiles of `walk`.
struct AttentionBlocks {
  int64_t warps = 4, tall = 1, walk = 32, stages = 2;
  bool hold = false;        // the rows of a warp stay in registers
  bool warpgroups = false;  // multiplies with the instructions of Hopper's warpgroups
  int64_t each = 1;         // thread blocks per multiprocessor, at least
  int64_t shared_bytes = 0;

  int64_t own() const { return warps * tall * 16; }
};

// A kernel: its text, and its launch.
struct AttentionKernel {
  std::string text;
  int64_t blocks = 0, threads = 0, shared_bytes = 0;
};

// The kernels of an equation.
class AttentionKernels {
 public:
  // `major`: of the GPU's compute capability.
  AttentionKernels(const KernelSpec& spec, bool gradient, const AttentionLeads& leads, int major)
      : a_(attention_attrs(spec.attrs, gradient)),
        n_(spec.in),
        leads_(leads),
        dtype_(spec.in[0].dtype),
        full_(cuda_math() == CudaMath::full),
        warpgroups_(major == 9 && half() && is_chunked(n_.e) && is_chunked(n_.f)) {}

  AttentionKernel forward() const;
  AttentionKernel row_sums() const;
  AttentionKernel keys_grad(bool dk, bool dv) const;
  AttentionKernel queries_grad() const;
  // Whether one kernel has enough registers for the sums of both dk and dv.
  bool grads_together() const { return padded(n_.e) + padded(n_.f) <= 256; }

  const AttentionAttrs& attrs() const { return a_; }
  const AttentionSizes& sizes() const { return n_; }

 private:
  static int64_t padded(int64_t features) { return (features + 15) / 16 * 16; }
  // Bytes of a row of a tile in shared memory (AttentionTile).
  int64_t row_bytes(int64_t features) const { return padded(features) * size_of(dtype_) + 16; }
  int64_t features() const { return std::max(padded(n_.e), padded(n_.f)); }
  bool half() const { return is_16_bit(dtype_); }
  // Whether warpgroups can multiply tiles with this number of features.
  static bool is_chunked(int64_t features) { return features == 64 || features == 128; }
  // How many of `heads` heads have adjacent thread blocks, if blocks of a head read `rows` rows of both kinds.
  int64_t together(int64_t heads, int64_t rows) const {
    const int64_t bytes = std::max<int64_t>(rows * (n_.e + n_.f) * size_of(dtype_), 1);
    return std::clamp<int64_t>(cost_model::kAttentionCacheBytes / bytes, 1, std::max<int64_t>(heads, 1));
  }
  // A third stage if two thread blocks still fit a multiprocessor.
  int64_t stages(int64_t own_bytes, int64_t stage_bytes) const {
    return half() && own_bytes + 3 * stage_bytes <= cost_model::kAttentionSharedBytes ? 3 : 2;
  }

  // Whether thread blocks of 128 rows would leave multiprocessors idle.
  bool is_few(int64_t heads, int64_t rows) const {
    return n_.b * heads * ((rows + 127) / 128) < cost_model::kElementProcessors;
  }

  // With `rows` rows to divide among warpgroups.
  bool use_warpgroups(int64_t rows) const { return warpgroups_ && rows >= kWarpgroupRows; }

  AttentionBlocks forward_blocks() const;
  AttentionBlocks keys_blocks(bool dk, bool dv) const;
  AttentionBlocks queries_blocks() const;
  AttentionBlocks warpgroup_forward_blocks() const;
  AttentionBlocks warpgroup_keys_blocks() const;
  AttentionBlocks warpgroup_queries_blocks() const;
  std::string description() const;
  AttentionKernel kernel(const char* name, const char* header, const std::string& parameters, const std::string& call,
                         const AttentionBlocks& blocks, const std::string& more, int64_t tiles) const;

  const AttentionAttrs a_;
  const AttentionSizes n_;
  const AttentionLeads leads_;
  const DType dtype_;
  const bool full_;
  const bool warpgroups_;
};

// The sizes of tiles. Registers limit them: a thread has at most 255. Tiles of 32 rows per warp (`tall` 2) read half as
// much shared memory per product. With more features, or if there are few thread blocks, warps have 16 rows.
AttentionBlocks AttentionKernels::forward_blocks() const {
  if (use_warpgroups(n_.t)) return warpgroup_forward_blocks();
  AttentionBlocks out;
  // These together take the registers of the second 16 rows.
  const bool much = a_.dropout > 0 && a_.softcap > 0 && a_.query_segments >= 0;
  if (!half())
    out = {.warps = 4, .tall = 1, .walk = 32, .hold = features() <= 64};
  else if (features() > 128)
    out = {.warps = 8, .tall = 1, .walk = 64};
  else if (much || is_few(n_.h, n_.t))
    out = {.warps = 4, .tall = 1, .walk = 64, .hold = true};
  else
    out = {.warps = 4, .tall = 2, .walk = 64, .hold = features() <= 64};
  const int64_t own = out.own() * row_bytes(n_.e), stage = out.walk * (row_bytes(n_.e) + row_bytes(n_.f));
  out.stages = stages(own, stage);
  out.shared_bytes = own + out.stages * stage;
  return out;
}

AttentionBlocks AttentionKernels::keys_blocks(bool dk, bool dv) const {
  if (use_warpgroups(n_.s)) return warpgroup_keys_blocks();
  AttentionBlocks out;
  if (!half())
    out = {.warps = 4, .tall = 1, .walk = dk && !dv ? 16 : 32};
  else if (features() > 128)
    out = {.warps = 8, .tall = 1, .walk = dk && !dv ? 32 : 64};
  else if (is_few(n_.g, n_.s))
    out = {.warps = 4, .tall = 1, .walk = 64};
  else if (features() > 64)
    out = {.warps = 8, .tall = 1, .walk = 64};
  else
    out = {.warps = 4, .tall = 2, .walk = 32};
  const int64_t own = out.own() * (row_bytes(n_.e) + (dk ? row_bytes(n_.f) : 0));
  const int64_t stage = out.walk * (row_bytes(n_.e) + row_bytes(n_.f) + 8);
  out.stages = stages(own, stage);
  out.shared_bytes = own + out.stages * stage;
  return out;
}

AttentionBlocks AttentionKernels::queries_blocks() const {
  if (use_warpgroups(n_.t)) return warpgroup_queries_blocks();
  AttentionBlocks out;
  if (!half())
    out = {.warps = 4, .tall = 1, .walk = features() <= 128 ? 32 : 16};
  else if (features() > 128)
    out = {.warps = 8, .tall = 1, .walk = 32};
  else if (is_few(n_.h, n_.t))
    out = {.warps = 4, .tall = 1, .walk = 64, .hold = features() <= 64};
  else
    out = {.warps = 4, .tall = 2, .walk = 32, .hold = features() <= 64};
  const int64_t both = row_bytes(n_.e) + row_bytes(n_.f);
  out.stages = stages(out.own() * both, out.walk * both);
  out.shared_bytes = (out.own() + out.stages * out.walk) * both;
  return out;
}

// The sizes for warpgroups, as measured on an H200. `each`: the thread blocks of a multiprocessor. Some compute weights
// while others multiply. Long sequences have enough tiles for large ones.
AttentionBlocks AttentionKernels::warpgroup_forward_blocks() const {
  AttentionBlocks out{.warps = 4, .walk = 64, .stages = 3, .warpgroups = true, .each = features() > 64 ? 2 : 4};
  if (features() > 64 && n_.s > kLongSequence) out = {.warps = 8, .walk = 128, .stages = 2, .warpgroups = true};
  out.shared_bytes = (out.own() * n_.e + out.stages * out.walk * (n_.e + n_.f)) * size_of(dtype_);
  return out;
}

AttentionBlocks AttentionKernels::warpgroup_keys_blocks() const {
  AttentionBlocks out{.warps = 4, .walk = 64, .stages = 2, .warpgroups = true, .each = features() > 64 ? 2 : 3};
  if (features() <= 64 && n_.t > kLongSequence) out.walk = 128, out.each = 1;
  out.shared_bytes = (out.own() + out.stages * out.walk) * (n_.e + n_.f) * size_of(dtype_) + out.stages * out.walk * 8;
  return out;
}

AttentionBlocks AttentionKernels::warpgroup_queries_blocks() const {
  AttentionBlocks out{.warps = 4, .walk = 64, .stages = 2, .warpgroups = true, .each = features() > 64 ? 2 : 4};
  out.shared_bytes = (out.own() + out.stages * out.walk) * (n_.e + n_.f) * size_of(dtype_);
  return out;
}

// The type A of attention.cuh.
std::string AttentionKernels::description() const {
  const auto lead = [](int64_t given, int64_t heads, int64_t features) { return given > 0 ? given : heads * features; };
  return fmt::format(
      R"(struct Attention {{
  using T = {memory};
  static constexpr bool kFull = {full}, kCausal = {causal}, kSegments = {segments};
  static constexpr int kB = {b}, kT = {t}, kH = {h}, kE = {e}, kS = {s}, kG = {g}, kF = {f};
  static constexpr int kLeadQ = {lead_q}, kLeadK = {lead_k}, kLeadV = {lead_v};
  static constexpr int kLeadDq = {lead_dq}, kLeadDk = {lead_dk}, kLeadDv = {lead_dv};
  static constexpr int64_t kWindow = {window}, kFirstQuery = {query};
  static constexpr uint32_t kFirstExample = {example}u, kFirstHead = {head}u, kDropout = {dropout}u;
  static constexpr float kScale = float({scale:.9g}), kSoftcap = float({softcap:.9g}), kKeep = float({keep:.9g});
}};
)",
      fmt::arg("memory", memory_type(dtype_)), fmt::arg("full", full_), fmt::arg("causal", a_.causal),
      fmt::arg("segments", a_.query_segments >= 0), fmt::arg("b", n_.b), fmt::arg("t", n_.t), fmt::arg("h", n_.h),
      fmt::arg("e", n_.e), fmt::arg("s", n_.s), fmt::arg("g", n_.g), fmt::arg("f", n_.f),
      fmt::arg("lead_q", lead(leads_.q, n_.h, n_.e)), fmt::arg("lead_k", lead(leads_.k, n_.g, n_.e)),
      fmt::arg("lead_v", lead(leads_.v, n_.g, n_.f)), fmt::arg("lead_dq", lead(leads_.dq, n_.h, n_.e)),
      fmt::arg("lead_dk", lead(leads_.dk, n_.g, n_.e)), fmt::arg("lead_dv", lead(leads_.dv, n_.g, n_.f)),
      fmt::arg("window", std::min(a_.window, kMostPosition)), fmt::arg("query", a_.first[2]),
      fmt::arg("example", static_cast<uint32_t>(a_.first[0])), fmt::arg("head", static_cast<uint32_t>(a_.first[1])),
      fmt::arg("dropout", a_.dropout > 0 ? a_.dropout_threshold() : 0), fmt::arg("scale", a_.scale),
      fmt::arg("softcap", a_.softcap), fmt::arg("keep", 1 / (1 - a_.dropout)));
}

// `more`: further members of S (attention_forward.cuh, attention_backward.cuh).
AttentionKernel AttentionKernels::kernel(const char* name, const char* header, const std::string& parameters,
                                         const std::string& call, const AttentionBlocks& blocks,
                                         const std::string& more, int64_t tiles) const {
  return {fmt::format(
              R"(#include "{header}"
#include "{machine_header}"
using namespace lockstep;
{description}using T = Attention::T;
struct Blocks {{
  using Machine = {machine};
  static constexpr int kWarps = {warps}, kTall = {tall}, kStages = {stages}, {more};
}};
extern "C" __global__ void __launch_bounds__({threads}{each})
    {name}({parameters}, const int32_t* offset, const int32_t* lengths, const int32_t* query_segments, const int32_t* key_segments, const uint32_t* dropout_key) {{
  extern __shared__ __align__(1024) char shared[];
  const AttentionOperands operands{{offset, lengths, query_segments, key_segments, dropout_key}};
  {call};
}}
)",
              fmt::arg("header", header), fmt::arg("description", description()),
              fmt::arg("machine_header", blocks.warpgroups ? "attention_warpgroup.cuh" : "attention.cuh"),
              fmt::arg("machine", blocks.warpgroups ? "AttentionWarpgroups<T>" : "AttentionWarps<T, Attention::kFull>"),
              fmt::arg("each", blocks.each > 1 ? fmt::format(", {}", blocks.each) : ""),
              fmt::arg("warps", blocks.warps), fmt::arg("tall", blocks.tall), fmt::arg("stages", blocks.stages),
              fmt::arg("more", more), fmt::arg("threads", blocks.warps * 32), fmt::arg("name", kernel_name(name)),
              fmt::arg("parameters", parameters), fmt::arg("call", call)),
          tiles, blocks.warps * 32, blocks.shared_bytes};
}

AttentionKernel AttentionKernels::forward() const {
  const AttentionBlocks blocks = forward_blocks();
  const int64_t heads = n_.b * n_.h, tiles = (n_.t + blocks.own() - 1) / blocks.own();
  return kernel("attention", blocks.warpgroups ? "attention_forward_warpgroup.cuh" : "attention_forward.cuh",
                "const T* q, const T* k, const T* v, T* y, float* lse",
                fmt::format("AttentionForward{}<Attention, Blocks>::run(q, k, v, y, lse, operands, shared)",
                            blocks.warpgroups ? "Warpgroups" : ""),
                blocks,
                fmt::format("kKeys = {}, kHold = {:d}, kTogether = {}", blocks.walk, blocks.hold,
                            together(heads, n_.s * n_.g / n_.h)),
                heads * tiles);
}

AttentionKernel AttentionKernels::keys_grad(bool dk, bool dv) const {
  const AttentionBlocks blocks = keys_blocks(dk, dv);
  const int64_t heads = n_.b * n_.g, tiles = (n_.s + blocks.own() - 1) / blocks.own();
  return kernel("attention_keys_grad", "attention_backward.cuh",
                "const T* q, const T* k, const T* v, const T* dy, const float* rows, T* dk, T* dv",
                "AttentionKeysGrad<Attention, Blocks>::run(q, k, v, dy, rows, dk, dv, operands, shared)", blocks,
                fmt::format("kQueries = {}, kDk = {:d}, kDv = {:d}, kTogether = {}", blocks.walk, dk, dv,
                            together(heads, n_.t * n_.h / n_.g)),
                heads * tiles);
}

AttentionKernel AttentionKernels::queries_grad() const {
  const AttentionBlocks blocks = queries_blocks();
  const int64_t heads = n_.b * n_.h, tiles = (n_.t + blocks.own() - 1) / blocks.own();
  return kernel("attention_queries_grad", "attention_backward.cuh",
                "const T* q, const T* k, const T* v, const T* dy, const float* rows, T* dq",
                "AttentionQueriesGrad<Attention, Blocks>::run(q, k, v, dy, rows, dq, operands, shared)", blocks,
                fmt::format("kKeys = {}, kHold = {:d}, kTogether = {}", blocks.walk, blocks.hold,
                            together(heads, n_.s * n_.g / n_.h)),
                heads * tiles);
}

AttentionKernel AttentionKernels::row_sums() const {
  // AttentionRowSums::kRowsPerBlock
  const int64_t piece = n_.f % (16 / size_of(dtype_)) == 0 ? 16 / size_of(dtype_) : 1,
                pieces = (n_.f + piece - 1) / piece;
  const auto lanes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(pieces, 32))));
  const int64_t rows = n_.b * n_.t * n_.h, each = kRowSumThreads / lanes;
  return {fmt::format(R"(#include "attention_backward.cuh"
using namespace lockstep;
{description}using T = Attention::T;
extern "C" __global__ void __launch_bounds__({threads})
    {name}(const T* y, const T* dy, const float* lse, const float* dlse, float* out) {{
  AttentionRowSums<Attention, {threads}>::run(y, dy, lse, dlse, out);
}}
)",
                      fmt::arg("description", description()), fmt::arg("threads", kRowSumThreads),
                      fmt::arg("name", kernel_name("attention_row_sums"))),
          (rows + each - 1) / each, kRowSumThreads, 0};
}

std::vector<AttentionKernel> grad_kernels(const AttentionKernels& all) {
  std::vector<AttentionKernel> out = {all.row_sums(), all.queries_grad()};
  if (all.grads_together()) {
    out.push_back(all.keys_grad(true, true));
  } else {
    out.push_back(all.keys_grad(true, false));
    out.push_back(all.keys_grad(false, true));
  }
  return out;
}

// A kernel that is compiled in the background and loaded by the first launch.
class LoadedKernel {
 public:
  LoadedKernel(CudaStream& lane, AttentionKernel kernel) : lane_(lane), kernel_(std::move(kernel)) {
    begin_kernel(kernel_.text, lane);
  }
  template <size_t n>
  void launch(const void* const (&pointers)[n]) {
    if (!function_) function_ = kernel_of(kernel_.text, lane_);
    void* arguments[n];
    for (size_t i = 0; i < n; ++i) arguments[i] = argument(pointers[i]);
    function_->launch(lane_, kernel_.blocks, static_cast<int>(kernel_.threads), arguments, kernel_.shared_bytes);
  }

 private:
  CudaStream& lane_;
  const AttentionKernel kernel_;
  std::optional<CudaFunction> function_;
};

// Whether the kernels support the equation. They need the tensor cores of GPUs from Ampere on.
bool supports_attention(const KernelSpec& spec) {
  const AttentionSizes n(spec.in);
  const DType dtype = spec.in[0].dtype;
  if (spec.cuda->info().major < 8 || dtype == DType::f64) return false;
  if (n.e < 1 || n.f < 1 || std::max(n.e, n.f) > kMostFeatures || std::max(n.t, n.s) > kMostPosition) return false;
  // Small arrays may not be aligned to the 16 bytes that threads copy at once.
  return std::all_of(spec.in.begin(), spec.in.begin() + 3,
                     [](const Type& x) { return count(x.shape) == 0 || x.bytes() >= 16; });
}

// Whether a thread block may have that much shared memory.
bool fits_shared(const KernelSpec& spec, const AttentionKernel& kernel) {
  return kernel.shared_bytes <= spec.cuda->info().shared;
}

// An operand that may be missing.
const void* operand_or_null(const void* const* in, int number) { return number < 0 ? nullptr : in[number]; }

}  // namespace

std::vector<std::string> attention_texts(const KernelSpec& spec, bool gradient, int major) {
  const AttentionKernels all(spec, gradient, {}, major);
  std::vector<std::string> out;
  for (const AttentionKernel& kernel : gradient ? grad_kernels(all) : std::vector{all.forward()})
    out.push_back(kernel.text);
  return out;
}

Kernel attention_cuda(const KernelSpec& spec) { return attention_cuda(spec, AttentionLeads()); }
Kernel attention_grad_cuda(const KernelSpec& spec) { return attention_grad_cuda(spec, AttentionLeads()); }

Kernel attention_cuda(const KernelSpec& spec, const AttentionLeads& leads) {
  if (!supports_attention(spec)) return {};
  const AttentionKernels all(spec, false, leads, spec.cuda->info().major);
  const AttentionAttrs a = all.attrs();
  AttentionKernel forward = all.forward();
  if (!fits_shared(spec, forward)) return {};
  const auto kernel = std::make_shared<LoadedKernel>(*spec.cuda, std::move(forward));
  return [=](const void* const* in, void* const* out) {
    kernel->launch({in[0], in[1], in[2], out[0], out[1], operand_or_null(in, a.offset), operand_or_null(in, a.lengths),
                    operand_or_null(in, a.query_segments), operand_or_null(in, a.key_segments),
                    operand_or_null(in, a.dropout_key)});
  };
}

Kernel attention_grad_cuda(const KernelSpec& spec, const AttentionLeads& leads) {
  if (!supports_attention(spec)) return {};
  const AttentionKernels all(spec, true, leads, spec.cuda->info().major);
  const AttentionAttrs a = all.attrs();
  const AttentionSizes n = all.sizes();
  auto kernels = std::make_shared<std::vector<LoadedKernel>>();
  for (AttentionKernel& kernel : grad_kernels(all)) {
    if (!fits_shared(spec, kernel)) return {};
    kernels->emplace_back(*spec.cuda, std::move(kernel));
  }
  const BufferPtr rows = spec.cuda->allocate(std::max<int64_t>(2 * n.b * n.h * n.t, 1) * 4);
  return [=](const void* const* in, void* const* out) {
    const auto extra = [&](int number) { return operand_or_null(in, number); };
    const void *q = in[0], *k = in[1], *v = in[2], *dy = in[5], *sums = rows->data();
    (*kernels)[0].launch({in[3], dy, in[4], extra(a.dlse), sums});
    (*kernels)[1].launch({q, k, v, dy, sums, out[0], extra(a.offset), extra(a.lengths), extra(a.query_segments),
                          extra(a.key_segments), extra(a.dropout_key)});
    for (size_t i = 2; i < kernels->size(); ++i)
      (*kernels)[i].launch({q, k, v, dy, sums, out[1], out[2], extra(a.offset), extra(a.lengths),
                            extra(a.query_segments), extra(a.key_segments), extra(a.dropout_key)});
  };
}

}  // namespace lockstep
