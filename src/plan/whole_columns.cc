// Which sums of columns are those of a matrix that a product multiplies by, and are added up by its blocks.
//
// Worked example. The gradient of a layer's weights is a product by the gradient of its result, 128 x 1024, and that of
// its bias the sum of the same matrix' columns, from which the new bias is computed. By themselves the sums are a
// second task of half of the blocks, each of which reads its columns once more. But a block of the product has them in
// its memory, and the threads that do not multiply add them up meanwhile.
#include <algorithm>
#include <array>

#include "plan/whole_members.h"

namespace lockstep::detail {
namespace {

// The only part that reads what part `sum` writes, and as which operand, where nothing else touches it and all that it
// does is done range by range.
std::optional<std::pair<size_t, size_t>> reader_of(std::span<const WholePart> parts, size_t sum) {
  const Stretch& at = parts[sum].out[0];
  if (parts[sum].wants(0)) return {};
  std::optional<std::pair<size_t, size_t>> out;
  for (size_t q = 0; q < parts.size(); ++q) {
    if (q != sum && any_overlap(parts[q].out, at)) return {};
    for (size_t i = 0; i < parts[q].in.size(); ++i) {
      if (!parts[q].in[i].overlaps(at)) continue;
      if (out || q <= sum || parts[q].in[i] != at || !owns(parts[q], i)) return {};
      out = std::pair(q, i);
    }
  }
  if (!out) return {};
  const WholePart& reader = parts[out->first];
  const bool simple =
      reader.kernel->ranges().most > 0 && reader.kernel->steps().size() == 1 && reader.kernel->steps()[0].elements > 0;
  return simple ? out : std::nullopt;
}

// Can these, in order, be done where the last of them is?
bool can_wait(std::span<const WholePart> parts, std::span<const size_t> which) {
  const size_t last = which.back();
  const auto is_one = [&](size_t q) { return std::find(which.begin(), which.end(), q) != which.end(); };
  for (const size_t each : which)
    for (size_t q = each + 1; q < last; ++q)
      if (!is_one(q) && conflict(parts[each], parts[q])) return false;
  return true;
}

// The product with what is done with the sums, of which it is the operand `sums`.
WholePart put_together(const WholePart& product, const WholePart& rest, size_t sums, const SteppedKernel& kernel) {
  WholePart out = product;
  out.kernel = &kernel;
  out.wanted.clear();
  for (size_t k = 0; k < product.out.size(); ++k) out.wanted.push_back(product.wants(k));
  for (size_t i = 0; i < rest.in.size(); ++i) {
    if (i == sums) continue;
    out.in.push_back(rest.in[i]);
    out.operands.push_back(rest.operands[i]);
  }
  for (size_t k = 0; k < rest.out.size(); ++k) {
    out.out.push_back(rest.out[k]);
    out.results.push_back(rest.results[k]);
    out.wanted.push_back(rest.wants(k));
  }
  out.needed = product.needed || rest.needed;
  return out;
}

}  // namespace

std::vector<WholePart> with_columns(std::span<const WholePart> parts, std::deque<SteppedKernel>& made) {
  std::vector<WholePart> out(parts.begin(), parts.end());
  for (size_t s = 0; s < out.size(); ++s) {
    const std::optional<Type> added = out[s].kernel->adds_columns();
    if (!added) continue;
    const auto reader = reader_of(out, s);
    if (!reader) continue;
    const auto [r, sums] = *reader;
    for (size_t p = 0; p < out.size(); ++p) {
      const std::optional<size_t> matrix = out[p].kernel->by_columns();
      if (!matrix || out[p].in[*matrix] != out[s].in[0]) continue;
      std::array<size_t, 3> which = {p, s, r};
      std::sort(which.begin(), which.end());
      if (conflict(out[p], out[r]) || !can_wait(out, which)) continue;
      std::optional<SteppedKernel> kernel =
          out[p].kernel->with_columns({out[r].kernel->ranges(), sums, out[p].in.size(), out[p].out.size(), *added});
      if (!kernel) continue;
      out[which[2]] = put_together(out[p], out[r], sums, made.emplace_back(*std::move(kernel)));
      for (const size_t each : {which[1], which[0]}) out.erase(out.begin() + static_cast<std::ptrdiff_t>(each));
      s = static_cast<size_t>(-1);  // from the first on
      break;
    }
  }
  return out;
}

}  // namespace lockstep::detail
