// sort and top_k on the GPU. Lines of one range are sorted and written by one kernel; longer lines are sorted first
// (sort_text.h), and a kernel writes the results.
#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/sort_text.h"
#include "ops/cuda/text.h"

namespace lockstep {
namespace {

// Operands as parameters, each followed by a comma.
std::string operands(const KernelSpec& spec) {
  std::string out;
  for (size_t i = 0; i < spec.in.size(); ++i) out += fmt::format("const {}* in{}, ", memory_type(spec.in[i].dtype), i);
  return out;
}
std::string results(const KernelSpec& spec) {
  std::string out;
  for (size_t i = 0; i < spec.out.size(); ++i)
    out += fmt::format("{}{}* out{}", i ? ", " : "", memory_type(spec.out[i].dtype), i);
  return out;
}

// The function that writes position `i` of a line from its position `from`.
std::string take(const SortLines& l, const KernelSpec& spec) {
  std::string out = "[&](uint64_t line, uint64_t i, uint32_t from) {\n";
  if (l.top) {
    out +=
        "    out0[line * Lines::kKept + i] = in0[line * Lines::kN + from];\n"
        "    out1[line * Lines::kKept + i] = int32_t(from);\n";
  } else {
    out += "    const uint64_t first = Sort<Lines>::first_of(line);\n";
    for (size_t k = 0; k < spec.in.size(); ++k)
      out += fmt::format("    out{k}[first + i * Lines::kInner] = in{k}[first + uint64_t(from) * Lines::kInner];\n",
                         fmt::arg("k", k));
  }
  return out + "  }";
}

}  // namespace

std::vector<std::string> sort_texts(bool top, const KernelSpec& spec) {
  const SortLines l(top, spec);
  const DType dtype = spec.in[0].dtype;
  const std::string arrays = operands(spec) + results(spec);
  if (l.in_a_block()) return {sort_text(l, dtype, arrays, fmt::format("sort_lines(in0, {})", take(l, spec)))};
  std::vector<std::string> texts = line_sort_texts(l, dtype);
  texts.push_back(
      sort_text(l, dtype, "const Item* sorted, " + arrays, fmt::format("take_runs(sorted, {})", take(l, spec))));
  return texts;
}

Kernel sort_kernel_cuda(bool top, const KernelSpec& spec) {
  const SortLines l(top, spec);
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  CudaStream* const lane = spec.cuda;
  const std::vector<std::string> texts = sort_texts(top, spec);
  const size_t ins = spec.in.size(), outs = spec.out.size();
  if (l.in_a_block()) {
    const CudaFunction function = kernel_of(texts[0], *lane);
    const int64_t blocks = (l.lines + l.together() - 1) / l.together();
    return [=, arguments = std::vector<void*>(ins + outs)](const void* const* in, void* const* out) mutable {
      for (size_t i = 0; i < ins; ++i) arguments[i] = argument(in[i]);
      for (size_t o = 0; o < outs; ++o) arguments[ins + o] = argument(out[o]);
      function.launch(*lane, blocks, kSortThreads, arguments.data());
    };
  }
  const int64_t blocks = (l.lines * l.kept + kSortThreads - 1) / kSortThreads;
  return [=, sorted = LineSort(l, spec.in[0].dtype, *lane), function = kernel_of(texts.back(), *lane),
          arguments = std::vector<void*>(1 + ins + outs)](const void* const* in, void* const* out) mutable {
    const void* const items = sorted(in[0]);
    arguments[0] = argument(items);
    for (size_t i = 0; i < ins; ++i) arguments[1 + i] = argument(in[i]);
    for (size_t o = 0; o < outs; ++o) arguments[1 + ins + o] = argument(out[o]);
    function.launch(*lane, blocks, kSortThreads, arguments.data());
  };
}

}  // namespace lockstep
