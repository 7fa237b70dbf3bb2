#include "ops/cuda/conv_image_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/digest.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/text.h"

namespace lockstep {

namespace {

int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

// What the windows of one image's rows are, whatever is done with them.
struct Windows {
  DType dtype;
  int64_t images, h, w, depth;  // of the image that is read
  int64_t oh, ow, columns;      // of what has a window for each pixel, and how many channels
  ConvSpec::Pair kernel, dilation, pad;
  int64_t band = 0, step = 0;  // rows of a block; elements from a pixel to the next
  bool thin = false;           // elements are gathered one by one

  int64_t size() const { return size_of(dtype); }
  int64_t once() const { return size() == 4 ? 8 : 16; }
  int64_t high() const { return band + (kernel[0] - 1) * dilation[0]; }
  int64_t broad() const { return ow + (kernel[1] - 1) * dilation[1]; }
  int64_t patch_bytes() const { return up(high() * broad() * step * size(), 16); }
  int64_t sum() const { return kernel[0] * kernel[1] * depth; }
  int64_t bands() const { return (oh + band - 1) / band; }
  // Bands of at most `most` rows, as even as possible.
  void set_band(int64_t most) {
    most = std::clamp<int64_t>(most, 1, oh);
    const int64_t count = (oh + most - 1) / most;
    band = (oh + count - 1) / count;
  }
  std::string members() const {
    return fmt::format(
        "  using T = {};\n  static constexpr int kThreads = {}, kImages = {}, kH = {}, kW = {}, kD = {}, kOH = {}, kOW "
        "= "
        "{}, kN = {};\n"
        "  static constexpr int kKH = {}, kKW = {}, kDH = {}, kDW = {}, kPadH = {}, kPadW = {};\n"
        "  static constexpr int kBand = {}, kPatchStep = {}, kPatchBytes = {};\n  static constexpr bool kThin = {};\n",
        memory_type(dtype), kStepThreads, images, h, w, depth, oh, ow, columns, kernel[0], kernel[1], dilation[0],
        dilation[1], pad[0], pad[1], band, step, patch_bytes(), thin);
  }
};

// Nothing where windows do not lie side by side, or are too large.
std::optional<Windows> windows_of(ConvPass pass, const ConvSpec& s) {
  const bool real = s.dtype == DType::f32 || s.dtype == DType::bf16 || s.dtype == DType::f16;
  const auto ones = [](const ConvSpec::Pair& pair) { return pair[0] == 1 && pair[1] == 1; };
  if (!real || s.groups != 1 || !ones(s.stride) || !ones(s.in_dilation)) return {};
  ConvSpec::Pair out{};
  for (size_t d = 0; d < 2; ++d)
    out[d] = s.in[d] + s.pad_lo[d] + s.pad_hi[d] - (s.kernel[d] - 1) * s.kernel_dilation[d];
  Windows x{s.dtype, s.batch,        s.in[0],  s.in[1],           s.in_channels, out[0],
            out[1],  s.out_channels, s.kernel, s.kernel_dilation, s.pad_lo};
  if (pass == ConvPass::input_grad) {
    std::swap(x.h, x.oh);
    std::swap(x.w, x.ow);
    std::swap(x.depth, x.columns);
    for (size_t d = 0; d < 2; ++d) x.pad[d] = (s.kernel[d] - 1) * s.kernel_dilation[d] - s.pad_lo[d];
  }
  if (x.pad[0] < 0 || x.pad[1] < 0 || x.ow > cost_model::kConvBandPixels || x.oh < 1 || x.ow < 1) return {};
  if (x.images * std::max(x.h * x.w, x.oh * x.ow) * std::max(x.depth, x.columns) >= INT32_MAX) return {};
  if (x.sum() * x.columns >= INT32_MAX) return {};
  x.thin = x.depth % (pass == ConvPass::filter_grad ? 16 : x.once()) != 0;
  if (x.thin && x.sum() > cost_model::kConvGatheredWindow) return {};
  return x;
}

std::string named(const char* header, const char* what, const std::string& members, std::string& prelude) {
  const std::string type =
      fmt::format("{}_{}", what, md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  prelude = fmt::format("#include \"{}\"\nusing namespace lockstep;\nstruct {} {{\n{}}};\n", header, type, members);
  return type;
}

}  // namespace

std::optional<GemmStep> conv_image_step(ConvPass pass, const ConvSpec& spec, int64_t shared_bytes) {
  std::optional<Windows> made = windows_of(pass, spec);
  if (!made) return {};
  Windows& x = *made;
  const int64_t each = 16 / x.size(), once = x.once();
  const bool transposed = pass == ConvPass::input_grad;
  x.step = x.thin ? x.depth : x.depth + each;  // rows of eight pixels are in different banks
  x.set_band(cost_model::kConvBandPixels / x.ow);
  const int64_t wide = x.columns > 32 ? 64 : x.columns > 16 ? 32 : x.columns > 8 ? 16 : 8;
  // What a step along the sum is: all of it; a part of one position of the window; or several positions, as many as
  // there is room for three times: a step costs the block a meeting.
  const auto slot_of = [&](int64_t deep) { return (transposed ? wide * (deep + each) : deep * (wide + 8)) * x.size(); };
  int64_t deep = up(x.sum(), 2 * once);
  if (!x.thin) {
    for (deep = std::min(x.depth, cost_model::kConvStageChannels); x.depth % deep != 0 || deep % once != 0;) --deep;
    const int64_t taps = x.kernel[0] * x.kernel[1];
    for (int64_t some = taps; some > 1 && deep == x.depth; --some)
      if (taps % some == 0 && slot_of(some * deep) <= cost_model::kConvStageBytes &&
          x.patch_bytes() + 3 * slot_of(some * deep) <= shared_bytes)
        deep *= some;
  }
  const int64_t parts = deep / once % 2 == 0 ? 2 : 1, warps = kStepThreads / 32 / parts;
  const int64_t tall = (x.band * x.ow + warps * 16 - 1) / (warps * 16);
  const int64_t steps = (x.sum() + deep - 1) / deep, slot = slot_of(deep);
  const int64_t sums = parts * warps * tall * 16 * (wide + 8) * 4;
  const int64_t stages =
      std::clamp<int64_t>((shared_bytes - x.patch_bytes()) / slot, 2, std::min(steps + 1, cost_model::kConvMostStages));
  GemmStep out;
  out.shared_bytes = std::max(x.patch_bytes() + stages * slot, sums);
  if (out.shared_bytes > shared_bytes || tall * wide > 128) return {};
  const bool vector = transposed ? !x.thin : x.columns % each == 0;
  const std::string members =
      x.members() + fmt::format(
                        "  static constexpr bool kTransposeB = {}, kVectorB = {};\n  static constexpr int kWide = "
                        "{}, kDeep = {}, kStages = {}, kTall = {}, kWarps = {}, kParts = {};\n",
                        transposed, vector, wide, deep, stages, tall, warps, parts);
  out.call = fmt::format("ConvImage<{}>::run<Read>", named("conv_image.cuh", "Conv", members, out.prelude));
  out.blocks = x.images * x.bands() * ((x.columns + wide - 1) / wide);
  return out;
}

std::optional<ConvFilterStep> conv_filter_step(const ConvSpec& spec, int processors, int64_t shared_bytes) {
  std::optional<Windows> made = windows_of(ConvPass::filter_grad, spec);
  if (!made) return {};
  Windows& x = *made;
  if (x.columns % 8 != 0) return {};
  const int64_t wide = x.columns % 64 == 0 ? 64 : x.columns % 32 == 0 ? 32 : x.columns % 16 == 0 ? 16 : 8;
  const int64_t unit = std::min<int64_t>(wide, 32), columns = wide / unit, each = 16 / x.size();
  x.step = x.thin ? x.depth : x.depth + (x.size() == 4 ? 8 : each);
  const int64_t tiles = (x.sum() + 15) / 16;
  const int64_t warps = std::clamp<int64_t>(
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(tiles * columns / 2, 1)))), columns,
      kStepThreads / 32);
  const int64_t parts = kStepThreads / 32 / warps, side_by_side = warps / columns;
  const int64_t groups =
      (tiles + side_by_side * cost_model::kConvUnitsPerWarp - 1) / (side_by_side * cost_model::kConvUnitsPerWarp);
  const int64_t tiles_each = (tiles + groups - 1) / groups;
  const auto slot_bytes = [&] { return x.patch_bytes() + up(x.band * x.ow, x.once() * parts) * (wide + 8) * x.size(); };
  int64_t slots = 2;
  for (int64_t most = x.oh; most > 0; most = x.band - 1) {
    x.set_band(most);
    if (slots * slot_bytes() <= shared_bytes || x.band == 1) break;
  }
  if (slots * slot_bytes() > shared_bytes) return {};
  ConvFilterStep out;
  const int64_t sums = parts > 1 || x.thin ? parts * tiles_each * 16 * (wide + 8) * 4 : 0;
  out.shared_bytes = std::max(slots * slot_bytes(), sums);
  if (out.shared_bytes > shared_bytes) return {};
  const int64_t across = x.columns / wide;
  out.splits = std::clamp<int64_t>(processors / (groups * across), 1, x.images * x.bands());
  const std::string members =
      x.members() + fmt::format(
                        "  static constexpr int kWide = {}, kWarps = {}, kParts = {}, kGroups = {}, kTilesEach = "
                        "{}, kSplits = {}, kSlots = {}, kSlotBytes = {};\n",
                        wide, warps, parts, groups, tiles_each, out.splits, slots, slot_bytes());
  out.call = fmt::format("ConvFilter<{}>::run", named("conv_filter.cuh", "Filter", members, out.prelude));
  out.blocks = across * groups * out.splits;
  return out;
}

}  // namespace lockstep
