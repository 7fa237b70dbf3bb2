#include "train/peak.h"

namespace lockstep::detail {
namespace {

// In 10^12 operations per second, without sparsity, as NVIDIA's data sheets state them. 0: not supported.
struct GpuPeak {
  std::string_view name;  // words of the GPU's name; the first row that fits applies
  double eight, half, tf32, f32;
};
constexpr GpuPeak kPeaks[] = {
    {"B200", 4500, 2250, 1125, 75},
    {"GH200", 1978.9, 989.4, 494.7, 67},
    {"H200 NVL", 1671, 835.5, 417.5, 60},
    {"H200", 1978.9, 989.4, 494.7, 67},
    {"H100 NVL", 1671, 835.5, 417.5, 60},
    {"H100 PCIe", 1513, 756.5, 378, 51},
    {"H100", 1978.9, 989.4, 494.7, 67},
    {"H20", 296, 148, 74, 44},
    {"A100", 0, 312, 156, 19.5},
    {"A800", 0, 312, 156, 19.5},
    {"A30", 0, 165, 82, 10.3},
    {"A10", 0, 125, 62.5, 31.2},
    {"L40S", 733, 362, 183, 91.6},
    {"L40", 362, 181, 90.5, 90.5},
    {"L4", 242.5, 121, 60, 30.3},
    {"T4", 0, 65, 0, 8.1},
    {"V100", 0, 125, 0, 15.7},
};

// Whether these are complete words of the name, which ' ' and '-' separate.
bool has_words(std::string_view name, std::string_view words) {
  const auto separates = [&](size_t at) { return at >= name.size() || name[at] == ' ' || name[at] == '-'; };
  for (size_t at = name.find(words); at != name.npos; at = name.find(words, at + 1))
    if ((at == 0 || separates(at - 1)) && separates(at + words.size())) return true;
  return false;
}

}  // namespace

double peak_of_gpu(std::string_view name, DType compute, bool tf32) {
  for (const GpuPeak& each : kPeaks) {
    if (!has_words(name, each.name)) continue;
    if (is_float8(compute)) return 1e12 * each.eight;
    if (compute == DType::bf16 || compute == DType::f16) return 1e12 * each.half;
    if (compute != DType::f32) return 0;
    return 1e12 * (tf32 && each.tf32 > 0 ? each.tf32 : each.f32);
  }
  return 0;
}

}  // namespace lockstep::detail
