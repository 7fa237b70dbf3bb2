// Which results of one kernel are not written, but computed by those who read them.
#include <algorithm>

#include "plan/cuda/whole_kernel.h"

namespace lockstep::detail {
namespace {

constexpr int kMostEquations = 8;
constexpr int64_t kLittle = 4096;  // bytes: as much as a block may compute again

// Every reader of a tile computes it again: that must be less work than to read it, or nothing but another place, or of
// nearly nothing. What is only rounded, products weigh themselves.
bool is_worth_it(const CudaSource& source, const MemoryRange& result) {
  if (source.rounded) return true;
  if (result.end - result.begin > kLittle && source.equations > 0 && source.bytes * 2 > source.result_bytes)
    return false;
  return source.equations <= kMostEquations;
}

class Sources {
 public:
  explicit Sources(std::span<const KernelPart> parts)
      : parts_(parts),
        sources_(parts.size()),
        inlined_(parts.size()),
        takes_(parts.size()),
        written_(parts.size()),
        writer_(parts.size()),
        made_(parts.size()) {
    for (size_t p = parts.size(); p-- > 0;) {
      inlined_[p] = parts[p].kernel->is_source() && may_be_computed(p);
      takes_[p].assign(parts[p].in.size(), true);
    }
    while (!settled()) {
    }
  }

  std::vector<KernelPart> result(std::deque<SteppedKernel>& made) {
    std::vector<KernelPart> out;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (!written_[p]) continue;
      out.push_back(inlined_[p] ? parts_[p] : with_operands(p));
      if (made_[p]) out.back().kernel = &made.emplace_back(*std::move(made_[p]));
    }
    return out;
  }

 private:
  // Whether readers can compute the part's result themselves: it has one result, every reader reads all of it and runs
  // after it, and nothing writes its operands until the last reader is done.
  bool may_be_computed(size_t p) const {
    const KernelPart& own = parts_[p];
    if (own.out.size() != 1) return false;
    const MemoryRange& result = own.out[0];
    for (size_t q = 0; q < parts_.size(); ++q) {
      for (const MemoryRange& written : parts_[q].out)
        if (q != p && written.overlaps(result)) return false;
      for (const MemoryRange& in : parts_[q].in)
        if (in.overlaps(result) && (q <= p || in != result)) return false;
    }
    const size_t last = last_reader(p);
    for (size_t q = p; q <= last; ++q)
      for (const MemoryRange& written : parts_[q].out)
        if (std::any_of(own.in.begin(), own.in.end(), [&](const MemoryRange& in) { return in.overlaps(written); }))
          return false;
    return last > p;
  }

  // The last part that reads its result, or that may compute it. Of those behind it that is known.
  size_t last_reader(size_t p) const {
    size_t last = p;
    for (size_t q = p + 1; q < parts_.size(); ++q)
      if (reads(q, p)) last = std::max(last, inlined_[q] ? last_reader(q) : q);
    return last;
  }

  bool reads(size_t q, size_t p) const {
    return std::any_of(parts_[q].in.begin(), parts_[q].in.end(),
                       [&](const MemoryRange& in) { return in == parts_[p].out[0]; });
  }

  // The operands that part q computes itself, as (operand, part that computed it before).
  std::vector<std::pair<size_t, size_t>> computed_for(size_t q) const {
    std::vector<std::pair<size_t, size_t>> out;
    for (size_t i = 0; i < parts_[q].in.size(); ++i)
      for (size_t p = 0; p < q; ++p)
        if (takes_[q][i] && inlined_[p] && parts_[q].in[i] == parts_[p].out[0]) out.emplace_back(i, p);
    return out;
  }

  // Its operands, then those of what is computed for it.
  KernelPart with_operands(size_t q) const {
    KernelPart out = parts_[q];
    for (const auto& [operand, p] : computed_for(q)) {
      out.in[operand] = {};
      const KernelPart more = with_operands(p);
      out.in.insert(out.in.end(), more.in.begin(), more.in.end());
      out.operands.insert(out.operands.end(), more.operands.begin(), more.operands.end());
      if (writer_[p] != q) continue;
      out.out.push_back(parts_[p].out[0]);
      out.results.push_back(parts_[p].results[0]);
    }
    return out;
  }

  std::vector<CudaSourced> sourced(size_t q) const {
    std::vector<CudaSourced> out;
    size_t first = parts_[q].in.size();
    for (const auto& [operand, p] : computed_for(q)) {
      out.push_back({operand, &*sources_[p], first, writer_[p] == q, is_alone(q)});
      first += with_operands(p).in.size();
    }
    return out;
  }

  // Is all that it reads and does not compute there before the first part?
  bool is_alone(size_t q) const {
    const auto taken = computed_for(q);
    for (size_t i = 0; i < parts_[q].in.size(); ++i) {
      if (std::any_of(taken.begin(), taken.end(), [&](const auto& each) { return each.first == i; })) continue;
      for (size_t p = 0; p < q; ++p)
        for (const MemoryRange& result : parts_[p].out)
          if (result.overlaps(parts_[q].in[i])) return false;
    }
    return true;
  }

  // Makes all sources and their readers, from the first to the last: what one is made of has been decided before it.
  void make() {
    for (size_t q = 0; q < parts_.size(); ++q) {
      const SteppedKernel& kernel = *parts_[q].kernel;
      const auto is_source = [&] {
        sources_[q] = kernel.source(sourced(q));
        return sources_[q] && is_worth_it(*sources_[q], parts_[q].out[0]);
      };
      if (inlined_[q] && !is_source()) {
        // With all that it reads from memory, or not at all.
        const bool tried = computed_for(q).empty();
        take(q, false);
        inlined_[q] = !tried && is_source();
        if (!inlined_[q]) take(q, true);
      }
      made_[q].reset();
      if (!inlined_[q]) make_reader(q);
    }
  }

  // With all that can be computed for it, or with what it takes of that: first what is only rounded, of which a block
  // has no more at a time than of what is read.
  void make_reader(size_t q) {
    std::vector<std::pair<size_t, size_t>> all = computed_for(q);
    if (all.empty()) return;
    made_[q] = parts_[q].kernel->sourced(sourced(q));
    if (made_[q]) return;
    take(q, false);
    std::stable_sort(all.begin(), all.end(), [&](const auto& x, const auto& y) {
      return sources_[x.second]->rounded > sources_[y.second]->rounded;
    });
    for (const auto& [operand, p] : all) {
      takes_[q][operand] = true;
      if (std::optional<SteppedKernel> more = parts_[q].kernel->sourced(sourced(q)))
        made_[q] = std::move(more);
      else
        takes_[q][operand] = false;
    }
  }

  void take(size_t q, bool all) { takes_[q].assign(takes_[q].size(), all); }

  // False where something was given up, so that its readers are to be made again.
  bool settled() {
    make();
    bool out = true;
    for (size_t p = parts_.size(); p-- > 0;) {
      written_[p] = !inlined_[p] || parts_[p].needed;
      for (size_t q = p + 1; inlined_[p] && q < parts_.size(); ++q)
        for (size_t i = 0; i < parts_[q].in.size(); ++i)
          if (parts_[q].in[i] == parts_[p].out[0])
            written_[p] = written_[p] || !takes_[q][i] || (inlined_[q] && written_[q]);
      // What is written in any case is written by the first that computes it, or else read, unless it is nearly
      // nothing.
      if (!inlined_[p] || !written_[p] || parts_[p].out[0].end - parts_[p].out[0].begin <= kLittle) continue;
      written_[p] = !is_written_by_reader(p);
      if (!written_[p]) continue;
      inlined_[p] = out = false;
    }
    return out;
  }

  // By the first of them, which waits for nothing else: whoever reads it comes later. Not what the program returns, to
  // the last bit.
  bool is_written_by_reader(size_t p) {
    size_t q = p + 1;
    while (!reads(q, p)) ++q;
    const auto computed = computed_for(q);
    const auto takes = [&](const auto& each) { return each.second == p; };
    writer_[p].reset();
    if (parts_[p].needed || sources_[p]->rounded || inlined_[q] ||
        std::count_if(computed.begin(), computed.end(), takes) != 1 || !is_alone(q))
      return false;
    writer_[p] = q;
    if (std::optional<SteppedKernel> made = parts_[q].kernel->sourced(sourced(q))) {
      made_[q] = std::move(made);
      return true;
    }
    writer_[p].reset();
    return false;
  }

  std::span<const KernelPart> parts_;
  std::vector<std::optional<CudaSource>> sources_;  // by part
  std::vector<bool> inlined_;                       // by part: it is computed by those readers that can,
  std::vector<std::vector<bool>> takes_;            // by part and operand: it takes that, where it is computed
  std::vector<bool> written_;                       // by part: its result is
  std::vector<std::optional<size_t>> writer_;       // by part: the part that writes its result instead
  std::vector<std::optional<SteppedKernel>> made_;  // by part: it with what it computes itself
};

}  // namespace

std::vector<KernelPart> inline_sources(std::span<const KernelPart> parts, std::deque<SteppedKernel>& made) {
  return Sources(parts).result(made);
}

}  // namespace lockstep::detail
