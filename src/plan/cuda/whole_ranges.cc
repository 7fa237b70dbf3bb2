// Which steps of one kernel are done range by range.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "plan/cuda/whole_members.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kFewest = 8;          // ranges; fewer would leave most of the GPU idle
constexpr int64_t kMostKept = 16384;    // bytes of a value's range that stay in the block's memory
constexpr int64_t kAllKept = 48 << 10;  // of all values: with what steps need, within what any GPU has
constexpr size_t kLong = 5;             // from this length on, all operands of a chain are prefetched to shared memory

// Parts that are done together, at what time.
struct Unit {
  std::vector<size_t> members;
  int64_t count = 0;  // of ranges, once there are two members
  size_t level = 0;
  std::optional<KernelPart> made = {};  // what they became already
};

bool takes(const CudaRanges& ranges, int64_t count) {
  return ranges.most > 0 && ranges.most % count == 0 && count >= ranges.least;
}

// The most ranges that are not too many; 0 where there are too few.
int64_t count_of(const CudaRanges& ranges, int processors) {
  int64_t count = std::min<int64_t>(ranges.most, processors);
  while (count >= kFewest && !takes(ranges, count)) --count;
  return count >= kFewest ? count : 0;
}

// Does no range of the one touch what another range of the other writes, or the other way round?
bool keep_to_their_ranges(const KernelPart& first, const KernelPart& second) {
  const auto read = [&](const KernelPart& writer, const KernelPart& reader) {
    for (const MemoryRange& written : writer.out)
      for (size_t i = 0; i < reader.in.size(); ++i)
        if (written.overlaps(reader.in[i]) && !(written == reader.in[i] && owns(reader, i))) return false;
    return true;
  };
  for (const MemoryRange& x : first.out)
    for (const MemoryRange& y : second.out)
      if (x.overlaps(y) && x != y) return false;
  return read(first, second) && read(second, first);
}

// A part of one step that writes over what others of its ranges read would not keep to its own, either.
bool keeps_to_its_ranges(const KernelPart& part) { return keep_to_their_ranges(part, part); }

// The steps of parts as one, of a block for each range.
class Together {
 public:
  Together(std::span<const KernelPart> members, int64_t count) : count_(count) {
    for (const KernelPart& member : members) {
      members_.push_back(&member);
      steps_.push_back(member.kernel->ranges().step(count));
    }
    choose_what_is_kept();
    if (members_.size() >= kLong) choose_what_is_brought();
  }

  KernelPart part() const { return side_by_side(members_); }

  CudaStep step() const {
    CudaStep out;
    out.blocks = count_;
    out.shared_bytes = shared_bytes_;
    for (const Brought& each : brought_) {
      out.early.push_back({{each.operand}, copy_text(each) + "  commit();\n"});
      out.body += fmt::format("  if (!(early & {}u)) {{\n{}  }}\n", 1u << (out.early.size() - 1), copy_text(each));
    }
    if (!brought_.empty()) {
      out.prelude = "#include \"machine.cuh\"\nusing namespace lockstep;\n";
      out.body += "  commit();\n  wait_for<0>();\n  __syncthreads();\n";
    }
    size_t in = 0, results = 0;
    for (size_t m = 0; m < steps_.size(); ++m) {
      const CudaStep& step = steps_[m];
      out.name += (m > 0 ? " " : "") + step.name;
      if (out.prelude.find(step.prelude) == std::string::npos) out.prelude += step.prelude;
      std::string arguments, copies;
      for (size_t a = 0; a < step.arguments.size(); ++a) {
        const CudaStep::Argument& argument = step.arguments[a];
        const bool operand = argument.kind == CudaStep::Argument::operand;
        LOCKSTEP_CHECK(operand || argument.kind == CudaStep::Argument::result, "a range has no memory of its own");
        const std::string name = fmt::format("p{}", out.arguments.size());
        out.parameters +=
            (out.parameters.empty() ? "" : ", ") + fmt::format("{} {}", operand ? "const char*" : "char*", name);
        out.arguments.push_back({argument.kind, argument.index + (operand ? in : results)});
        const MemoryRange& at = (operand ? members_[m]->in : members_[m]->out)[argument.index];
        const Kept* kept = kept_of(at);
        if (kept && operand && m <= kept->first_write) kept = nullptr;  // what was there before
        const Brought* near = operand && !kept ? brought_of(m, argument.index) : nullptr;
        arguments += ", " + (kept   ? in_shared(kept->offset, kept->bytes)
                             : near ? in_shared(near->offset, near->own ? near->bytes : 0)
                                    : name);
        if (kept && !operand && m == kept->last_write) copies += copy_text(*kept, name);
      }
      out.body += fmt::format("  [&](const uint32_t block{}) {{\n{}{}  }}(block{});\n", untyped_parameters(step),
                              typed(step), step.body, arguments);
      if (m + 1 < steps_.size() || !copies.empty()) out.body += "  __syncthreads();\n";
      out.body += copies;
      in += members_[m]->in.size();
      results += members_[m]->out.size();
    }
    return out;
  }

 private:
  // A value whose ranges stay in the blocks' memory.
  struct Kept {
    MemoryRange at;
    int64_t offset = 0, bytes = 0;  // of a range
    size_t first_write = 0, last_write = 0;
  };

  // What members read and no one before them writes, whole or a range of it, that is in the block's memory from the
  // start: then it is waited for once. Parameter p{number}.
  struct Brought {
    MemoryRange at;
    bool own = false;
    int64_t offset = 0, bytes = 0;
    size_t number = 0, operand = 0;
  };

  // Before which member it is still as it was; 0 where it changes in another way.
  size_t unchanged_until(const MemoryRange& at) const {
    for (size_t m = 0; m < members_.size(); ++m)
      for (const MemoryRange& written : members_[m]->out)
        if (written.overlaps(at)) return written == at ? m + 1 : 0;
    return members_.size();
  }

  const Brought* brought_of(size_t member, size_t operand) const {
    const MemoryRange& at = members_[member]->in[operand];
    const bool own = owns(*members_[member], operand);
    const auto found = std::find_if(brought_.begin(), brought_.end(),
                                    [&](const Brought& each) { return each.at == at && each.own == own; });
    return found == brought_.end() || member >= unchanged_until(at) ? nullptr : &*found;
  }

  // The smallest first, as far as there is room.
  void choose_what_is_brought() {
    std::vector<Brought> all;
    size_t number = 0, first = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      for (const CudaStep::Argument& argument : steps_[m].arguments) {
        const size_t own_number = number++;
        if (argument.kind != CudaStep::Argument::operand) continue;
        const MemoryRange& at = members_[m]->in[argument.index];
        const bool own = owns(*members_[m], argument.index);
        const int64_t size = at.end - at.begin;
        if (m >= unchanged_until(at) || size < 16 || (own && size % count_ != 0)) continue;
        if (!own && size > kMostKept && steps_[m].operations == 0) continue;  // of much, only products read all
        all.push_back({at, own, 0, own ? size / count_ : size, own_number, first + argument.index});
      }
      first += members_[m]->in.size();
    }
    std::stable_sort(all.begin(), all.end(), [](const Brought& a, const Brought& b) { return a.bytes < b.bytes; });
    for (Brought& each : all) {
      const auto is_it = [&](const Brought& other) { return each.at == other.at && each.own == other.own; };
      if (std::any_of(brought_.begin(), brought_.end(), is_it)) continue;
      if (in_memory_ + up_to_16(each.bytes) > kAllKept || brought_.size() == kMostBrought) break;
      each.offset = shared_bytes_;
      shared_bytes_ += up_to_16(each.bytes);
      in_memory_ += up_to_16(each.bytes);
      brought_.push_back(each);
    }
  }

  static std::string in_shared(int64_t offset, int64_t range_bytes) {
    return range_bytes > 0 ? fmt::format("shared + {} - uint64_t(block) * {}u", offset, range_bytes)
                           : fmt::format("shared + {}", offset);
  }

  static std::string copy_text(const Brought& each) {
    return copy_to_shared_text(
        each.bytes, fmt::format("shared + {}", each.offset),
        fmt::format("p{}{}", each.number,
                    each.own ? fmt::format(" + uint64_t(block) * {}u", each.bytes) : std::string()));
  }

  const Kept* kept_of(const MemoryRange& at) const {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.at == at; });
    return found == kept_.end() ? nullptr : &*found;
  }

  // What one member writes and a later one reads.
  void choose_what_is_kept() {
    for (const CudaStep& step : steps_) shared_bytes_ = std::max(shared_bytes_, step.shared_bytes);
    shared_bytes_ = up_to_16(shared_bytes_);
    for (size_t m = 0; m < members_.size(); ++m)
      for (const MemoryRange& at : members_[m]->out) {
        const int64_t bytes = (at.end - at.begin) / count_;
        if (kept_of(at) || (at.end - at.begin) % count_ != 0 || bytes > kMostKept ||
            in_memory_ + up_to_16(bytes) > kAllKept)
          continue;
        Kept kept{at, shared_bytes_, bytes, m, m};
        bool read = false;
        for (size_t k = m + 1; k < members_.size(); ++k) {
          const auto is_it = [&](const MemoryRange& other) { return other == at; };
          read |= std::any_of(members_[k]->in.begin(), members_[k]->in.end(), is_it);
          if (std::any_of(members_[k]->out.begin(), members_[k]->out.end(), is_it)) kept.last_write = k;
        }
        if (!read) continue;
        in_memory_ += up_to_16(bytes);
        shared_bytes_ += up_to_16(bytes);
        kept_.push_back(kept);
      }
  }

  // The lines that give parameters their types.
  static std::string typed(const CudaStep& step) {
    std::string out;
    size_t count = 0;
    for (const auto& [type, name] : parameters_of(step))
      out += fmt::format("  {0} const {1} = ({0})q{2};\n", type, name, count++);
    return out;
  }

  std::string copy_text(const Kept& kept, const std::string& to) const {
    const char* word = kept.bytes % 4 == 0 ? "uint32_t" : "uint8_t";
    const int64_t size = kept.bytes % 4 == 0 ? 4 : 1;
    return fmt::format(
        "  for (uint32_t i = threadIdx.x; i < {n}u; i += {threads}u)\n    (({word}*)({to} + uint64_t(block) * "
        "{bytes}u))[i] = (({word}*)(shared + {offset}))[i];\n",
        fmt::arg("n", kept.bytes / size), fmt::arg("threads", kStepThreads), fmt::arg("word", word), fmt::arg("to", to),
        fmt::arg("bytes", kept.bytes), fmt::arg("offset", kept.offset));
  }

  static constexpr size_t kMostBrought = 32;  // bits of `early`
  int64_t count_, shared_bytes_ = 0;
  int64_t in_memory_ = 0;  // of the block's, for what is kept and brought
  std::vector<const KernelPart*> members_;
  std::vector<CudaStep> steps_;
  std::vector<Kept> kept_;
  std::vector<Brought> brought_;
};

// Executes parts together in `count` ranges, or in fewer ranges on fewer processors.
SteppedKernel of_ranges(std::span<const KernelPart> members, int64_t count) {
  const auto own = std::make_shared<const OwnParts>(members);
  const auto fewer = [own, count](int processors) {
    const auto take = [&](int64_t n) {
      return std::all_of(own->parts.begin(), own->parts.end(),
                         [&](const KernelPart& m) { return takes(m.kernel->ranges(), n); });
    };
    int64_t n = std::min<int64_t>(count, processors);
    while (n >= kFewest && !take(n)) --n;
    return of_ranges(own->parts, n >= kFewest ? n : count);
  };
  return SteppedKernel(nullptr, {Together(own->parts, count).step()}, {}, {.remake = fewer});
}

// Chains that become one with the product before them: they need nothing else that is not done by then.
void spread_out(std::span<const KernelPart> parts, std::vector<size_t>& unit_of, std::vector<Unit>& units,
                int processors, std::deque<SteppedKernel>& made) {
  for (size_t u = 0; u < units.size(); ++u) {
    const std::vector<size_t> chain = units[u].members;
    std::optional<size_t> product;
    for (size_t m : chain) {
      const CudaSpread& how = parts[m].kernel->spread();
      if (how.kind != CudaSpread::sums) continue;
      for (size_t p = 0; p < m; ++p)
        if (std::find(parts[p].out.begin(), parts[p].out.end(), parts[m].in[how.rows]) != parts[p].out.end())
          product = p;
    }
    if (!product || unit_of[*product] == u || units[unit_of[*product]].members.size() != 1) continue;
    Unit& before = units[unit_of[*product]];
    const auto is_done = [&](size_t m) {
      for (size_t p = 0; p < m; ++p)
        if (p != *product && unit_of[p] != u && units[unit_of[p]].level >= before.level && conflict(parts[p], parts[m]))
          return false;
      return true;
    };
    if (!std::all_of(chain.begin(), chain.end(), is_done)) continue;
    std::vector<KernelPart> members;
    for (size_t m : chain) members.push_back(parts[m]);
    before.made = spread_rows(parts[*product], members, processors, made);
    if (!before.made) continue;
    for (size_t m : chain) {
      unit_of[m] = unit_of[*product];
      before.members.push_back(m);
    }
    units[u].members.clear();
  }
}

}  // namespace

std::vector<KernelPart> merge_ranges(std::span<const KernelPart> parts, int processors,
                                     std::deque<SteppedKernel>& made) {
  std::vector<Unit> units;
  std::vector<size_t> unit_of(parts.size());
  const auto small = [&](size_t p) {
    const std::vector<CudaStep>& steps = parts[p].kernel->steps();
    return std::all_of(steps.begin(), steps.end(), [](const CudaStep& step) { return is_small(step); });
  };
  for (size_t p = 0; p < parts.size(); ++p) {
    Unit own{{p}, 0, 0, {}};
    size_t latest = 0;
    std::vector<size_t> before;  // units
    for (size_t q = 0; q < p; ++q)
      if (conflict(parts[q], parts[p])) {
        const Unit& unit = units[unit_of[q]];
        own.level = std::max(own.level, unit.level + (unit.members.size() == 1 && small(q) && small(p) ? 0 : 1));
        latest = std::max(latest, unit.level);
        before.push_back(unit_of[q]);
      }
    // To the last of what it needs, where that is one: the others have been done by then.
    const auto is_latest = [&](size_t u) { return units[u].level == latest; };
    const auto last = std::find_if(before.begin(), before.end(), is_latest);
    const auto joins = [&](const Unit& unit) {
      // One block does them as well, and no other waits for it.
      if (small(p) && std::all_of(unit.members.begin(), unit.members.end(), small)) return false;
      if (std::any_of(before.begin(), before.end(), [&](size_t u) { return is_latest(u) && u != *last; })) return false;
      const CudaRanges& ranges = parts[unit.members[0]].kernel->ranges();
      const int64_t count = unit.count > 0 ? unit.count : count_of(ranges, processors);
      return count > 0 && takes(parts[p].kernel->ranges(), count) && keeps_to_its_ranges(parts[p]) &&
             std::all_of(unit.members.begin(), unit.members.end(), [&](size_t m) {
               return keeps_to_its_ranges(parts[m]) && keep_to_their_ranges(parts[m], parts[p]);
             });
    };
    if (last != before.end() && joins(units[*last])) {
      Unit& unit = units[*last];
      if (unit.count == 0) unit.count = count_of(parts[unit.members[0]].kernel->ranges(), processors);
      unit.members.push_back(p);
      unit_of[p] = *last;
    } else {
      unit_of[p] = units.size();
      units.push_back(std::move(own));
    }
  }
  spread_out(parts, unit_of, units, processors, made);
  // What needs something is of a later level, or was behind it before.
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.level < b.level; });
  std::vector<KernelPart> out;
  for (const Unit& unit : units) {
    if (unit.members.empty()) continue;
    if (unit.made) {
      out.push_back(*unit.made);
      continue;
    }
    if (unit.members.size() == 1) {
      out.push_back(parts[unit.members[0]]);
      continue;
    }
    std::vector<KernelPart> members;
    for (size_t m : unit.members) members.push_back(parts[m]);
    out.push_back(Together(members, unit.count).part());
    out.back().kernel = &made.emplace_back(of_ranges(members, unit.count));
  }
  return out;
}

}  // namespace lockstep::detail
