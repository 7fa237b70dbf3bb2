#include "plan/whole_ahead.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr int64_t kAlignment = 256;  // of memory, as it is allocated
constexpr int64_t kFewBlocks = 16;
constexpr int64_t kMostMoved = 8 << 20;  // bytes of a part's result: of much more, a launch costs nothing beside it

bool contains(const std::vector<size_t>& all, size_t one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool overlaps_any(const std::vector<Stretch>& all, const Stretch& one) {
  return std::any_of(all.begin(), all.end(), [&](const Stretch& each) { return each.overlaps(one); });
}

// Whose result an operand is: nobody's of the kernel, or a part's. Not clear where it is only some of that, or more.
struct Origin {
  std::optional<size_t> part;
  bool clear = true;
};

Origin origin_of(std::span<const WholePart> parts, size_t reader, size_t operand) {
  const Stretch& in = parts[reader].in[operand];
  for (size_t p = reader + (contains(parts[reader].inner, operand) ? 1 : 0); p-- > 0;)
    if (overlaps_any(parts[p].out, in))
      return {p, std::all_of(parts[p].out.begin(), parts[p].out.end(),
                             [&](const Stretch& written) { return written == in || !written.overlaps(in); })};
  return {};
}

// Parts that have nothing but their operands and results, all of it in the first phase.
std::vector<bool> candidates(std::span<const WholePart> parts, std::span<const Phase> phases) {
  std::vector<bool> out(parts.size());
  for (const Task& task : phases[0])
    for (const WholeStep& each : task) {
      const WholePart& part = parts[each.part];
      const std::vector<CudaStep>& steps = part.kernel->steps();
      const auto is_little = [](const Stretch& at) { return at.end - at.begin <= kMostMoved; };
      out[each.part] = !part.needed && !part.out.empty() && std::all_of(part.out.begin(), part.out.end(), is_little) &&
                       std::none_of(steps.begin(), steps.end(), [](const CudaStep& step) {
                         return step.meets || std::any_of(step.arguments.begin(), step.arguments.end(),
                                                          [](const CudaStep::Argument& argument) {
                                                            return argument.kind == CudaStep::Argument::own;
                                                          });
                       });
    }
  for (const Phase& phase : phases.subspan(1))
    for (const Task& task : phase)
      for (const WholeStep& each : task) out[each.part] = false;
  return out;
}

// Does a part write over what it reads?
bool in_place(const WholePart& part, size_t operand) {
  return !contains(part.inner, operand) && overlaps_any(part.out, part.in[operand]);
}

class Going {
 public:
  Going(std::span<const WholePart> parts, std::vector<bool> may) : parts_(parts), may_(std::move(may)) {
    bool settled = false;
    while (!settled) {
      settled = true;
      for (size_t p = 0; p < parts_.size(); ++p)
        if (may_[p] && !(reads_nothing_new(p) && is_told_apart(p))) may_[p] = settled = false;
    }
  }
  std::vector<bool> result() && { return std::move(may_); }

 private:
  // What others that go ahead leave to it, or what no part writes.
  bool reads_nothing_new(size_t p) const {
    const WholePart& part = parts_[p];
    for (size_t i = 0; i < part.in.size(); ++i) {
      const Origin origin = origin_of(parts_, p, i);
      if (!origin.clear || (origin.part && !may_[*origin.part])) return false;
      if (!origin.part && std::any_of(parts_.begin(), parts_.end(),
                                      [&](const WholePart& any) { return overlaps_any(any.out, part.in[i]); }))
        return false;
      // It is in the same place where the two are the same.
      if (in_place(part, i) && std::any_of(part.out.begin(), part.out.end(), [&](const Stretch& written) {
            return written.overlaps(part.in[i]) && written != part.in[i];
          }))
        return false;
    }
    return true;
  }

  // Who reads its results reads nothing else there. (Who writes to the same place reads it elsewhere then.)
  bool is_told_apart(size_t p) const {
    for (size_t q = p; q < parts_.size(); ++q)
      for (size_t i = 0; i < parts_[q].in.size(); ++i) {
        if (overlaps_any(parts_[p].out, parts_[q].in[i]) && !origin_of(parts_, q, i).clear) return false;
      }
    return true;
  }

  std::span<const WholePart> parts_;
  std::vector<bool> may_;
};

}  // namespace

std::vector<bool> may_go_ahead(std::span<const WholePart> parts, std::span<const Phase> phases) {
  if (phases.size() < 2) return std::vector<bool>(parts.size());
  return Going(parts, candidates(parts, phases)).result();
}

std::optional<Ahead> Ahead::of(std::span<const WholePart> parts, std::span<const Phase> phases) {
  if (phases.size() < 2) return {};
  // Tasks as a whole.
  std::vector<bool> may = may_go_ahead(parts, phases);
  const auto goes = [&](const Task& task) {
    return std::all_of(task.begin(), task.end(), [&](const WholeStep& each) { return may[each.part]; });
  };
  for (bool settled = false; !settled;) {
    settled = true;
    for (const Task& task : phases[0])
      for (const WholeStep& each : task)
        if (may[each.part] && !goes(task)) may[each.part] = settled = false;
    may = Going(parts, std::move(may)).result();
  }
  int64_t blocks = 0;
  for (const Task& task : phases[0])
    if (goes(task)) blocks += parts[task[0].part].kernel->steps()[task[0].step].blocks;
  // Beside others, a few blocks have time for little.
  if (blocks == 0 || (blocks < kFewBlocks && !std::all_of(phases[0].begin(), phases[0].end(), goes))) return {};
  Ahead out;
  std::vector<std::pair<Stretch, int64_t>> places;
  const auto add = [](auto& all, size_t number, const Stretch& at) {
    if (at.end > at.begin) all.emplace_back(number, at.end - at.begin);
  };
  const auto place = [&](const Stretch& at) {
    const auto found = std::find_if(places.begin(), places.end(), [&](const auto& each) { return each.first == at; });
    if (found != places.end()) return found->second;
    places.emplace_back(at, out.bytes_);
    out.bytes_ += (at.end - at.begin + kAlignment - 1) / kAlignment * kAlignment;
    return places.back().second;
  };
  out.goes_ = may;
  for (size_t p = 0; p < parts.size(); ++p) {
    const WholePart& part = parts[p];
    Moved& moved = out.moved_.emplace_back();
    for (size_t i = 0; i < part.in.size(); ++i) {
      const std::optional<size_t> origin = origin_of(parts, p, i).part;
      moved.in.push_back(origin && may[*origin] ? std::optional(place(part.in[i])) : std::nullopt);
      if (may[p] && !moved.in.back()) add(out.reads_, part.operands[i], part.in[i]);
    }
    for (size_t j = 0; j < part.out.size(); ++j) {
      moved.out.push_back(may[p] ? std::optional(place(part.out[j])) : std::nullopt);
      add(out.writes_, part.results[j], part.out[j]);
    }
  }
  return out;
}

Phase Ahead::first(const Phase& phase) const {
  Phase out;
  std::copy_if(phase.begin(), phase.end(), std::back_inserter(out),
               [&](const Task& task) { return goes_[task[0].part]; });
  return out;
}

Phase Ahead::others(const Phase& phase) const {
  Phase out;
  std::copy_if(phase.begin(), phase.end(), std::back_inserter(out),
               [&](const Task& task) { return !goes_[task[0].part]; });
  return out;
}

std::optional<int64_t> Ahead::offset(size_t part, const CudaStep::Argument& argument) const {
  if (argument.kind == CudaStep::Argument::own) return {};
  return (argument.kind == CudaStep::Argument::operand ? moved_[part].in : moved_[part].out)[argument.index];
}

void Ahead::written(void* const* out, std::vector<Bytes>& all) const {
  all.clear();
  for (const auto& [result, bytes] : writes_) {
    const auto* const at = static_cast<const std::byte*>(out[result]);
    all.push_back({at, at + bytes});
  }
}

bool Ahead::may_begin(const void* const* in, std::span<const Bytes> written) const {
  return std::all_of(reads_.begin(), reads_.end(), [&](const auto& read) {
    const auto* const at = static_cast<const std::byte*>(in[read.first]);
    return std::none_of(written.begin(), written.end(),
                        [&](const Bytes& each) { return at < each.end && each.begin < at + read.second; });
  });
}

}  // namespace lockstep::detail
