#include "ops/cuda/share_text.h"

#include <fmt/format.h>

#include "ops/cuda/text.h"

namespace lockstep {

namespace {

constexpr int64_t kMostFew = 32;  // columns: one lane of a warp each

GemmStep shared_step(const std::string& call) {
  GemmStep out;
  out.prelude = "#include \"spread.cuh\"\nusing namespace lockstep;\n";
  out.call = call;
  out.blocks = 1;
  return out;
}

// The types of the operands' elements in memory.
std::string types_of(const GemmSpec& g, bool rounded) {
  return fmt::format("{}, {}", memory_type(g.dtype), rounded ? "float" : memory_type(g.dtype));
}

std::string sums_of(const GemmSpec& g, int64_t cols, bool rounded) {
  return fmt::format("SharedSums<{}, {}, {}, {}>{{messages, now, place}}", types_of(g, rounded), cols, g.k / cols, g.n);
}

}  // namespace

TaskTraits::Spread::Kind spread_kind(const GemmSpec& g) {
  using Spread = TaskTraits::Spread;
  const bool dense = g.ldb == GemmSpec::kDense || g.ldb == (g.transpose_b ? g.k : g.n);
  if (!dense) return Spread::none;
  if (!g.transpose_b) return g.n <= kMostFew ? Spread::sums : Spread::none;
  return g.k <= kMostFew ? Spread::columns : Spread::none;
}

GemmStep shared_sums_step(const GemmSpec& g, int64_t cols, bool rounded) {
  return shared_step(sums_of(g, cols, rounded) + ".take<Read>");
}

GemmStep shared_columns_step(const GemmSpec& g, int64_t cols, bool rounded) {
  return shared_step(
      fmt::format("SharedColumns<{}, {}, {}, {}>{{col}}.run<Read>", types_of(g, rounded), cols, g.n, g.k));
}

std::string shared_sums_publish(const GemmSpec& g, int64_t cols, bool rounded) {
  return sums_of(g, cols, rounded) + ".give";
}

}  // namespace lockstep
