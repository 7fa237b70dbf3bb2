#include "plan/cuda/whole_members.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::detail {

OwnParts::OwnParts(std::span<const KernelPart> all) : parts(all.begin(), all.end()) {
  for (KernelPart& part : parts) part.kernel = &kernels.emplace_back(*part.kernel);
}

bool owns(const KernelPart& part, size_t operand) {
  const std::vector<size_t>& own = part.kernel->ranges().own;
  return std::find(own.begin(), own.end(), operand) != own.end();
}

KernelPart side_by_side(std::span<const KernelPart* const> parts) {
  KernelPart out;
  for (const KernelPart* part : parts) {
    out.needed |= part->needed;
    out.in.insert(out.in.end(), part->in.begin(), part->in.end());
    out.out.insert(out.out.end(), part->out.begin(), part->out.end());
    out.operands.insert(out.operands.end(), part->operands.begin(), part->operands.end());
    out.results.insert(out.results.end(), part->results.begin(), part->results.end());
  }
  return out;
}

std::string untyped_parameters(const CudaStep& step) {
  std::string out;
  for (size_t a = 0; a < step.arguments.size(); ++a)
    out += fmt::format(", {}char* q{}", step.arguments[a].kind == CudaStep::Argument::operand ? "const " : "", a);
  return out;
}

std::string copy_to_shared_text(int64_t bytes, const std::string& to, const std::string& from) {
  const int64_t size = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 1;
  const std::string at = fmt::format("{} + i * {}u", to, size), of = fmt::format("{} + i * {}u", from, size);
  return fmt::format(
      "  for (uint32_t i = threadIdx.x; i < {}u; i += {}u) {}\n", bytes / size, kStepThreads,
      size == 1 ? fmt::format("*({}) = *({});", at, of) : fmt::format("copy_async<{}>({}, {}, true);", size, at, of));
}

}  // namespace lockstep::detail
