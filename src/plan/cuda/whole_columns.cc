// Which sums of columns are those of a matrix that a product multiplies by, and are added up by its blocks.
//
// Worked example. The gradient of a layer's weights is a product by the gradient of its result, 128 x 1024, and that of
// its bias the sum of the same matrix' columns, from which the new bias is computed. By themselves the sums are a
// second task of half of the blocks, each of which reads its columns once more. But a block of the product has them in
// its memory, and the threads that do not multiply add them up meanwhile.
#include <algorithm>
#include <vector>

#include "plan/cuda/whole_members.h"

namespace lockstep::detail {
namespace {

// A part that reads the sums, and as which operands.
struct Reader {
  size_t part;
  std::vector<size_t> sums;
};

bool is_in(const std::vector<size_t>& some, size_t one) {
  return std::find(some.begin(), some.end(), one) != some.end();
}

// Those that read what part `sum` writes, where nothing else touches it, and all that they do is done range by range.
// The last may write its own there, from which on it is no sum.
std::vector<Reader> readers_of(std::span<const KernelPart> parts, size_t sum) {
  const MemoryRange& at = parts[sum].out[0];
  if (parts[sum].wants(0)) return {};
  std::vector<Reader> out;
  for (size_t q = 0; q < parts.size(); ++q) {
    if (q == sum) continue;
    const KernelPart& part = parts[q];
    Reader reader{q, {}};
    for (size_t i = 0; i < part.in.size(); ++i) {
      if (!part.in[i].overlaps(at)) continue;
      if (part.in[i] != at || !owns(part, i)) return {};
      reader.sums.push_back(i);
    }
    const bool writes = any_overlap(part.out, at);
    if (reader.sums.empty() && !writes) continue;
    const std::vector<CudaStep>& steps = part.kernel->steps();
    const bool simple = part.kernel->ranges().most > 0 && steps.size() == 1 && steps[0].elements > 0;
    if (q < sum || reader.sums.empty() || !simple) return {};
    out.push_back(std::move(reader));
    if (!writes) continue;
    if (std::find(part.out.begin(), part.out.end(), at) == part.out.end()) return {};
    break;
  }
  return out;
}

// What has to come after these, in order, when they are done where the last of them is. Nothing where that cannot be.
std::optional<std::vector<size_t>> those_after(std::span<const KernelPart> parts, const std::vector<size_t>& which) {
  std::vector<size_t> out;
  for (size_t q = which.front() + 1; q < which.back(); ++q) {
    if (is_in(which, q)) continue;
    const auto meets = [&](size_t each) { return conflict(parts[each], parts[q]); };
    const auto before = std::lower_bound(which.begin(), which.end(), q);
    if (!std::any_of(which.begin(), before, meets) && !std::any_of(out.begin(), out.end(), meets)) continue;
    if (std::any_of(before, which.end(), meets)) return {};
    out.push_back(q);
  }
  return out;
}

// Whether the readers and the product are independent: none reads or writes what another writes, except for the sums,
// which are in shared memory. Threads execute them one after the other without a barrier in between.
bool are_apart(std::span<const KernelPart> parts, size_t product, std::span<const Reader> readers) {
  std::vector<KernelPart> before = {parts[product]};
  for (const auto& [reader, sums] : readers) {
    KernelPart part = parts[reader];
    std::erase(part.in, parts[reader].in[sums[0]]);
    if (std::any_of(before.begin(), before.end(), [&](const KernelPart& each) { return conflict(each, part); }))
      return false;
    before.push_back(std::move(part));
  }
  return true;
}

// The product, which does what the readers of the sums do.
KernelPart put_together(std::span<const KernelPart> parts, const KernelPart& product, std::span<const Reader> readers,
                        const SteppedKernel& kernel) {
  KernelPart out = product;
  out.kernel = &kernel;
  out.wanted.clear();
  for (size_t k = 0; k < product.out.size(); ++k) out.wanted.push_back(product.wants(k));
  for (const auto& [reader, sums] : readers) {
    const KernelPart& rest = parts[reader];
    for (size_t i = 0; i < rest.in.size(); ++i) {
      if (is_in(sums, i)) continue;
      out.in.push_back(rest.in[i]);
      out.operands.push_back(rest.operands[i]);
    }
    for (size_t k = 0; k < rest.out.size(); ++k) {
      out.out.push_back(rest.out[k]);
      out.results.push_back(rest.results[k]);
      out.wanted.push_back(rest.wants(k));
    }
    out.needed |= rest.needed;
  }
  return out;
}

// What is done with the sums, in the words of a product.
CudaColumns columns_of(std::span<const KernelPart> parts, const KernelPart& product, std::span<const Reader> readers,
                       const Type& matrix) {
  CudaColumns out{{}, matrix};
  size_t operands = product.in.size(), results = product.out.size();
  for (const auto& [reader, sums] : readers) {
    out.uses.push_back({parts[reader].kernel->ranges(), sums, operands, results});
    operands += parts[reader].in.size() - sums.size();
    results += parts[reader].out.size();
  }
  return out;
}

}  // namespace

std::vector<KernelPart> fuse_column_sums(std::span<const KernelPart> parts, std::deque<SteppedKernel>& made) {
  std::vector<KernelPart> out(parts.begin(), parts.end());
  for (size_t s = 0; s < out.size(); ++s) {
    const std::optional<Type> added = out[s].kernel->adds_columns();
    if (!added) continue;
    const std::vector<Reader> readers = readers_of(out, s);
    if (readers.empty()) continue;
    for (size_t p = 0; p < out.size(); ++p) {
      const std::optional<size_t> matrix = out[p].kernel->by_columns();
      if (!matrix || out[p].in[*matrix] != out[s].in[0]) continue;
      std::vector<size_t> which = {p, s};
      for (const Reader& reader : readers) which.push_back(reader.part);
      std::sort(which.begin(), which.end());
      const std::optional<std::vector<size_t>> after = those_after(out, which);
      if (!after || !are_apart(out, p, readers)) continue;
      std::optional<SteppedKernel> kernel = out[p].kernel->with_columns(columns_of(out, out[p], readers, *added));
      if (!kernel) continue;
      std::vector<KernelPart> all;
      for (size_t q = 0; q < out.size(); ++q) {
        if (!is_in(which, q) && !is_in(*after, q)) all.push_back(out[q]);
        if (q != which.back()) continue;
        all.push_back(put_together(out, out[p], readers, made.emplace_back(*std::move(kernel))));
        for (const size_t each : *after) all.push_back(out[each]);
      }
      out = std::move(all);
      s = static_cast<size_t>(-1);  // from the first on
      break;
    }
  }
  return out;
}

}  // namespace lockstep::detail
