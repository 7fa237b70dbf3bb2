#include "ops/fused.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/ops.h"
#include "ops/tiled_program.h"

namespace lockstep {
namespace {

// Additions per task: enough to hide the cost of dispatching it to a thread.
constexpr int64_t kGrainCost = 64 * 1024;
constexpr int64_t kGrainElements = 8 * 1024;
constexpr int kScratchSlot = 1;

std::vector<Type> fused_type(Types in, const Attrs& attrs) {
  const Program& body = attrs.program("body");
  const std::vector<Type> wanted = body.input_types();
  if (!std::equal(in.begin(), in.end(), wanted.begin(), wanted.end()))
    throw_error("fused: the {} operands do not have the types of the body's {} inputs", in.size(), wanted.size());
  return body.output_types();
}

bool fused_alias(Types in_types, Types out_types, const Attrs& attrs, size_t in, size_t out) {
  return size_of(in_types[in].dtype) == size_of(out_types[out].dtype) && in_types[in].shape == out_types[out].shape &&
         reads_same_index(attrs.program("body"), in);
}

Kernel fused_cpu(const KernelSpec& spec) { return fused_kernel(spec.attrs.program("body"), spec); }

}  // namespace

Kernel fused_kernel(const Program& body, const KernelSpec& spec) {
  auto tiled = std::make_shared<const TiledProgram>(TiledProgram::compile(body, spec.alias));
  const int64_t tile = tiled->tile();
  const int64_t grain = std::max(kGrainElements, kGrainCost / std::max<int64_t>(tiled->cost(), 1)) / tile * tile;
  return [tiled, grain = std::max(grain, tile), &pool = spec.pool](const void* const* in, void* const* out) {
    pool.parallel_range(tiled->size(), grain, [&](int64_t begin, int64_t end, int thread) {
      tiled->run(in, out, begin, end, pool.scratch(thread, kScratchSlot, tiled->scratch_bytes()));
    });
  };
}

const Op& row_of_group(const Op* head) { return head ? *head->with_epilogue : fused_op; }

Kernel elementwise_kernel(const Op& op, const KernelSpec& spec) {
  Builder builder;
  Values in;
  for (const Type& t : spec.in) in.push_back(builder.input(t));
  const Values out = builder.emit_typed(op, in, spec.attrs, spec.out);
  return fused_kernel(builder.take(out), spec);
}

std::vector<Type> with_body_type(const Type& computed, size_t own, Types in, const Attrs& attrs) {
  const Program& body = attrs.program("body");
  LOCKSTEP_CHECK(in.size() == body.inputs.size() + own - 1);
  LOCKSTEP_CHECK(computed == body.types[body.inputs[0]]);
  for (size_t i = 1; i < body.inputs.size(); ++i) LOCKSTEP_CHECK(in[i + own - 1] == body.types[body.inputs[i]]);
  return body.output_types();
}

bool with_body_alias(size_t own, Types in, Types out, const Attrs& attrs, size_t operand, size_t result) {
  return operand >= own && fused_alias(in.subspan(own - 1), out, attrs, operand - own + 1, result);
}

constinit const Op fused_op = {
    .name = "fused",
    .type = fused_type,
    .alias = fused_alias,
    .takes_float8 = true,
    .cpu = fused_cpu,
    .cuda = LOCKSTEP_CUDA(fused_cuda),
    .cuda_task = LOCKSTEP_CUDA(&elementwise_task),
};

}  // namespace lockstep
