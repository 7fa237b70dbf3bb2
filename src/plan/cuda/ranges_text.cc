// The text of tasks that every thread block runs one after another on its range (TaskForm::ranges).
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cost_model.h"
#include "plan/cuda/lower.h"

namespace lockstep::detail {
namespace {

using namespace cost_model;

class RangesWriter {
 public:
  // REQUIRES: the members are lowered with `count` ranges.
  RangesWriter(const std::vector<GpuTask>& members, int64_t count, const GpuTarget& target) : count_(count) {
    for (const GpuTask& member : members)
      members_.push_back({*member.step, operands(member), results(member), traits_of(member, target).ranges});
    choose_local_values();
    if (members_.size() >= kMembersToPrefetch) choose_prefetches();
  }

  CudaStep step() const {
    CudaStep out;
    out.blocks = count_;
    out.shared_bytes = shared_bytes_;
    write_prefetches(out);
    size_t first_operand = 0, first_result = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      write_member(out, m, first_operand, first_result);
      first_operand += members_[m].operands.size();
      first_result += members_[m].results.size();
    }
    return out;
  }

 private:
  struct Member {
    const CudaStep& step;
    std::vector<TaskValue> operands, results;
    TaskTraits::Ranges ranges;
  };
  // A value that a member writes and a later one reads. Each thread block has its range in shared memory. A value that
  // is written in its place has the same shared memory.
  struct LocalValue {
    TaskValue value;
    int64_t offset = 0, bytes = 0;  // of a range
    size_t first_write = 0, last_write = 0;
  };
  // An operand that no member before its readers writes: all of it, or the thread block's own range, is copied to shared
  // memory before the first member. Then thread blocks wait for operands only once. It is parameter p{number}.
  struct Prefetch {
    TaskValue value;
    bool own_range = false;
    int64_t offset = 0, bytes = 0;
    size_t number = 0, operand = 0;
  };

  // The number of members that can read the operand as it was before the first member.
  size_t unchanged_members(const TaskValue& operand) const {
    for (size_t m = 0; m < members_.size(); ++m)
      if (contains_memory(members_[m].results, operand)) return m + 1;
    return members_.size();
  }

  const LocalValue* local_value(const TaskValue& value) const {
    const auto found = std::find_if(local_values_.begin(), local_values_.end(),
                                    [&](const LocalValue& each) { return same_memory(each.value, value); });
    return found == local_values_.end() ? nullptr : &*found;
  }

  const Prefetch* prefetched(const TaskValue& value, bool own_range) const {
    const auto found = std::find_if(prefetches_.begin(), prefetches_.end(), [&](const Prefetch& each) {
      return same_memory(each.value, value) && each.own_range == own_range;
    });
    return found == prefetches_.end() ? nullptr : &*found;
  }
  const Prefetch* prefetch_of(size_t m, size_t operand) const {
    const TaskValue& value = members_[m].operands[operand];
    return m < unchanged_members(value) ? prefetched(value, members_[m].ranges.owns(operand)) : nullptr;
  }

  bool has_room(int64_t bytes) const { return local_bytes_ + up_to_16(bytes) <= kMostBytesOfRanges; }
  // Reserves shared memory and returns its offset.
  int64_t reserve(int64_t bytes) {
    local_bytes_ += up_to_16(bytes);
    shared_bytes_ += up_to_16(bytes);
    return shared_bytes_ - up_to_16(bytes);
  }

  void choose_local_values() {
    for (const Member& member : members_) shared_bytes_ = std::max(shared_bytes_, member.step.shared_bytes);
    shared_bytes_ = up_to_16(shared_bytes_);
    for (size_t m = 0; m < members_.size(); ++m)
      for (const TaskValue& value : members_[m].results) {
        const int64_t bytes = value.bytes() / count_;
        if (local_value(value) || value.bytes() % count_ != 0 || bytes > kMostRangeBytes || !has_room(bytes)) continue;
        LocalValue local{value, 0, bytes, m, m};
        bool is_read = false;
        for (size_t k = m + 1; k < members_.size(); ++k) {
          is_read |= contains_memory(members_[k].operands, value);
          if (contains_memory(members_[k].results, value)) local.last_write = k;
        }
        if (!is_read) continue;
        local.offset = reserve(bytes);
        local_values_.push_back(local);
      }
  }

  // The smallest operands first, as far as there is room.
  void choose_prefetches() {
    std::vector<Prefetch> all = possible_prefetches();
    std::stable_sort(all.begin(), all.end(), [](const Prefetch& a, const Prefetch& b) { return a.bytes < b.bytes; });
    for (Prefetch& each : all) {
      if (prefetched(each.value, each.own_range)) continue;
      if (!has_room(each.bytes) || prefetches_.size() == kMostPrefetches) break;
      each.offset = reserve(each.bytes);
      prefetches_.push_back(each);
    }
  }

  std::vector<Prefetch> possible_prefetches() const {
    std::vector<Prefetch> all;
    size_t next_number = 0, first = 0;
    for (size_t m = 0; m < members_.size(); first += members_[m++].operands.size())
      for (const CudaStep::Argument& argument : members_[m].step.arguments) {
        const size_t number = next_number++;
        if (argument.kind != CudaStep::Argument::operand) continue;
        const TaskValue& value = members_[m].operands[argument.index];
        const bool own_range = members_[m].ranges.owns(argument.index);
        const int64_t bytes = value.bytes();
        if (m >= unchanged_members(value) || bytes < 16 || (own_range && bytes % count_ != 0)) continue;
        // Of large operands, only products read everything.
        if (!own_range && bytes > kMostRangeBytes && members_[m].step.operations == 0) continue;
        all.push_back({value, own_range, 0, own_range ? bytes / count_ : bytes, number, first + argument.index});
      }
    return all;
  }

  void write_prefetches(CudaStep& out) const {
    if (prefetches_.empty()) return;
    for (const Prefetch& each : prefetches_) {
      const std::string copy = copy_text(each);
      out.prefetches.push_back({{each.operand}, copy + "  commit();\n"});
      out.body += fmt::format("  if (!(prefetched & {}u)) {{\n{}  }}\n", 1u << (out.prefetches.size() - 1), copy);
    }
    out.prelude = "#include \"machine.cuh\"\nusing namespace lockstep;\n";
    out.body += "  commit();\n  wait_for<0>();\n  __syncthreads();\n";
  }

  // The member's text as a function of one range, and its call.
  void write_member(CudaStep& out, size_t m, size_t first_operand, size_t first_result) const {
    const CudaStep& step = members_[m].step;
    out.name += (m > 0 ? " " : "") + step.name;
    if (out.prelude.find(step.prelude) == std::string::npos) out.prelude += step.prelude;
    std::string arguments, copies;
    for (const CudaStep::Argument& argument : step.arguments) {
      const bool is_operand = argument.kind == CudaStep::Argument::operand;
      LOCKSTEP_CHECK(is_operand || argument.kind == CudaStep::Argument::result, "a range has no workspace");
      const std::string name = fmt::format("p{}", out.arguments.size());
      out.parameters +=
          (out.parameters.empty() ? "" : ", ") + fmt::format("{} {}", is_operand ? "const char*" : "char*", name);
      out.arguments.push_back({argument.kind, argument.index + (is_operand ? first_operand : first_result)});
      if (is_operand) {
        arguments += ", " + operand_text(m, argument.index, name);
        continue;
      }
      const LocalValue* local = local_value(members_[m].results[argument.index]);
      arguments += ", " + (local ? shared_text(local->offset, local->bytes) : name);
      if (local && m == local->last_write) copies += copy_text(*local, name);
    }
    out.body += fmt::format("  [&](const uint32_t block{}) {{\n{}{}  }}(block{});\n", untyped_parameters(step),
                            typed_text(step), step.body, arguments);
    if (m + 1 < members_.size() || !copies.empty()) out.body += "  __syncthreads();\n";
    out.body += copies;
  }

  // Where a member reads an operand; `name`: the parameter with the operand in global memory.
  std::string operand_text(size_t m, size_t operand, const std::string& name) const {
    const LocalValue* local = local_value(members_[m].operands[operand]);
    if (local && m > local->first_write) return shared_text(local->offset, local->bytes);
    const Prefetch* prefetch = prefetch_of(m, operand);
    return prefetch ? shared_text(prefetch->offset, prefetch->own_range ? prefetch->bytes : 0) : name;
  }

  // The pointer to a value of which the thread block's range is at this offset; with 0 bytes, all of it is.
  static std::string shared_text(int64_t offset, int64_t range_bytes) {
    return range_bytes > 0 ? fmt::format("shared + {} - uint64_t(block) * {}u", offset, range_bytes)
                           : fmt::format("shared + {}", offset);
  }

  static std::string copy_text(const Prefetch& each) {
    const std::string begin = each.own_range ? fmt::format(" + uint64_t(block) * {}u", each.bytes) : std::string();
    return copy_to_shared_text(each.bytes, fmt::format("shared + {}", each.offset),
                               fmt::format("p{}{}", each.number, begin));
  }

  static std::string copy_text(const LocalValue& local, const std::string& to) {
    const char* word = local.bytes % 4 == 0 ? "uint32_t" : "uint8_t";
    const int64_t size = local.bytes % 4 == 0 ? 4 : 1;
    return fmt::format(
        "  for (uint32_t i = threadIdx.x; i < {n}u; i += {threads}u)\n    (({word}*)({to} + uint64_t(block) * "
        "{bytes}u))[i] = (({word}*)(shared + {offset}))[i];\n",
        fmt::arg("n", local.bytes / size), fmt::arg("threads", kStepThreads), fmt::arg("word", word),
        fmt::arg("to", to), fmt::arg("bytes", local.bytes), fmt::arg("offset", local.offset));
  }

  // Definitions of the parameters with their types.
  static std::string typed_text(const CudaStep& step) {
    std::string out;
    size_t number = 0;
    for (const auto& [type, name] : parameters_of(step))
      out += fmt::format("  {0} const {1} = ({0})q{2};\n", type, name, number++);
    return out;
  }

  int64_t count_;
  int64_t shared_bytes_ = 0;
  int64_t local_bytes_ = 0;  // of these, for local values and prefetches
  std::vector<Member> members_;
  std::vector<LocalValue> local_values_;
  std::vector<Prefetch> prefetches_;
};

}  // namespace

int64_t range_count(const std::vector<GpuTask>& members, int64_t most, const GpuTarget& target) {
  std::vector<TaskTraits::Ranges> all;
  for (const GpuTask& member : members) all.push_back(traits_of(member, target).ranges);
  for (int64_t count = most; count >= kFewestRanges; --count)
    if (std::all_of(all.begin(), all.end(), [&](const TaskTraits::Ranges& each) { return each.supports(count); }))
      return count;
  return 0;
}

bool lower_ranges(GpuTask& task, const GpuTarget& target) {
  std::vector<GpuTask> members;
  for (const GpuTask& member : task.members) {
    if (member.form != TaskForm::row || !traits_of(member, target).ranges.supports(task.count)) return false;
    members.push_back(divided(member, TaskDivision::ranges, task.count));
    if (!lower_row(members.back(), target)) return false;
  }
  task.step = std::make_shared<const CudaStep>(RangesWriter(members, task.count, target).step());
  task.members = std::move(members);
  return true;
}

}  // namespace lockstep::detail
