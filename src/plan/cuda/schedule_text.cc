// Prints and parses schedules; the grammar is in schedule.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "ops/cuda/combined.h"
#include "plan/cuda/lower.h"
#include "plan/cuda/schedule.h"
#include "program/text_parser.h"

namespace lockstep::detail {
namespace {

constexpr const char* kFormNames[] = {"row", "chain", "elements", "ranges", "exchange"};

class ScheduleWriter {
 public:
  explicit ScheduleWriter(bool layout) : layout_(layout) {}

  std::string write(const KernelSchedule& kernel, const std::string& indent) {
    std::string out = indent;
    out += kernel.on_host ? "host " : kernel.library ? "library " : kernel.repeated ? "repeated " : "";
    out += "kernel(";
    bool first = true;
    for (const TaskValue& value : kernel.inputs()) {
      out += (first ? "" : ", ") + defined(value);
      first = false;
    }
    out += ") {\n";
    if (kernel.phases.empty())
      for (const GpuTask& task : kernel.tasks) out += write(task, indent + "  ");
    for (const std::vector<size_t>& phase : kernel.phases) {
      out += indent + "  phase {\n";
      for (const size_t t : phase) out += write(kernel.tasks[t], indent + "    ");
      out += indent + "  }\n";
    }
    for (const std::vector<KernelSchedule>& body : kernel.bodies) {
      out += indent + "  body {\n";
      for (const KernelSchedule& each : body) out += ScheduleWriter(layout_).write(each, indent + "    ");
      out += indent + "  }\n";
    }
    out += indent + "  return";
    for (const ValueId id : kernel.needed) out += fmt::format(" %{}", id);
    return out + "\n" + indent + "}\n";
  }

 private:
  // "%3:f32[8,6]", with the value that it overwrites.
  std::string defined(const TaskValue& value) {
    types_[value.id] = value.type;
    std::string out = fmt::format("%{}:{}", value.id, to_string(value.type));
    if (value.memory != value.id) out += fmt::format(" over %{}", value.memory);
    return out;
  }

  std::string write(const GpuTask& task, const std::string& indent) {
    if (task.form == TaskForm::row) return write_row(task, indent, false);
    std::string out = indent + kFormNames[static_cast<size_t>(task.form)];
    if (task.form == TaskForm::ranges) out += fmt::format(" {}", task.count);
    std::vector<std::string> choices;
    add_layout(task, choices);
    out += choices.empty() ? " {\n" : fmt::format(" ({}) {{\n", fmt::join(choices, ", "));
    for (const GpuTask& member : task.members) out += write(member, indent + "  ");
    return out + indent + "}\n";
  }

  std::string write_row(const GpuTask& task, const std::string& indent, bool written) {
    // What a task computes itself is defined before the task reads it.
    const std::string computed = write_rows(task, indent);
    std::string out = indent;
    for (size_t k = 0; k < task.out.size(); ++k) out += (k > 0 ? ", " : "") + defined(task.out[k]);
    if (!task.out.empty()) out += " = ";
    out += print_op(*task.op, task.attrs, indent);
    for (const TaskValue& value : task.in) {
      out += fmt::format(" %{}", value.id);
      if (const auto found = types_.find(value.id); found == types_.end() || found->second != value.type)
        out += ":" + to_string(value.type);
    }
    const std::vector<std::string> choices = choices_of(task, written);
    if (!choices.empty()) out += fmt::format(" ({})", fmt::join(choices, ", "));
    return out + "\n" + computed + write_column_sums(task, indent);
  }

  // A row that another task computes has no thread blocks of its own.
  static GpuTask without_layout(GpuTask row) {
    row.step.reset();
    return row;
  }

  std::string write_rows(const GpuTask& task, const std::string& indent) {
    if (task.producers.empty()) return {};
    std::string out = indent + "  computes {\n";
    for (const GpuTask::Producer& producer : task.producers)
      out += write_row(without_layout(producer.task), indent + "    ", producer.written);
    return out + indent + "  }\n";
  }

  std::string write_column_sums(const GpuTask& task, const std::string& indent) {
    if (task.column_sums.empty()) return {};
    std::string out = indent + "  sums columns {\n";
    for (const GpuTask& each : task.column_sums) out += write_row(without_layout(each), indent + "    ", false);
    return out + indent + "  }\n";
  }

  std::vector<std::string> choices_of(const GpuTask& task, bool written) const {
    std::vector<std::string> out;
    if (written) out.emplace_back("written");
    if (task.ready) out.emplace_back("ready");
    if (task.summed) out.push_back(fmt::format("summed={}", *task.summed));
    if (task.stage != TaskStage::whole)
      out.emplace_back(task.stage == TaskStage::partial ? "stage=partial" : "stage=combine");
    if (task.processors > 0) out.push_back(fmt::format("processors={}", task.processors));
    if (task.exchanged > 0) out.push_back(fmt::format("exchanged={}", task.exchanged));
    add_layout(task, out);
    return out;
  }

  void add_layout(const GpuTask& task, std::vector<std::string>& out) const {
    if (!task.step) return;
    const CudaStep& step = *task.step;
    const std::optional<CudaTile>& tile = layout_ ? step.tile : task.tile;
    if (tile && task.form == TaskForm::row) {
      out.push_back(fmt::format("tile={}x{}x{}", tile->tall, tile->wide, tile->deep));
      out.push_back(fmt::format("warps={}x{}x{}", tile->warp_rows, tile->warp_cols, tile->warp_parts));
      if (tile->splits > 1) out.push_back(fmt::format("split_k={}", tile->splits));
      out.push_back(fmt::format("stages={}", tile->stages));
    }
    if (task.prefetched != 0) {
      const std::vector<TaskValue> all = operands(task);
      std::vector<std::string> names;
      for (size_t k = 0; k < step.prefetches.size(); ++k)
        if (task.prefetched & 1u << k)
          for (const size_t i : step.prefetches[k].operands) names.push_back(fmt::format("%{}", all[i].id));
      out.push_back(fmt::format("prefetch=[{}]", fmt::join(names, ",")));
    }
    if (!layout_) return;
    out.push_back(fmt::format("blocks={}", step.blocks));
    if (step.shared_bytes > 0) out.push_back(fmt::format("shared={}", step.shared_bytes));
    if (step.cooperative) out.emplace_back("resident");
  }

  const bool layout_;
  std::map<ValueId, Type> types_;  // of the values defined so far
};

class ScheduleParser {
 public:
  ScheduleParser(std::string_view text, const GpuTarget& target) : in_(text, gpu_ops()), target_(target) {}

  KernelSchedule kernel() {
    KernelSchedule out;
    values_.clear();
    out.on_host = in_.accept_word("host");
    out.library = out.on_host || in_.accept_word("library");
    out.repeated = !out.library && in_.accept_word("repeated");
    in_.word("kernel");
    in_.expect('(');
    if (!in_.accept(')')) {
      do define(value());
      while (in_.accept(','));
      in_.expect(')');
    }
    in_.expect('{');
    while (!in_.accept_word("return")) {
      if (in_.accept_word("body")) {
        out.bodies.push_back(body());
        continue;
      }
      if (!in_.accept_word("phase")) {
        out.tasks.push_back(lowered(task(), out.library));
        continue;
      }
      std::vector<size_t>& phase = out.phases.emplace_back();
      in_.expect('{');
      while (!in_.accept('}')) {
        phase.push_back(out.tasks.size());
        out.tasks.push_back(lowered(task(), out.library));
      }
    }
    for (in_.skip(); in_.peek() == '%'; in_.skip()) out.needed.insert(static_cast<ValueId>(in_.reference()));
    in_.expect('}');
    for (const auto& [id, each] : values_) out.next_value = std::max({out.next_value, id + 1, each.memory + 1});
    check(out);
    return out;
  }

  std::vector<KernelSchedule> body() {
    std::vector<KernelSchedule> out;
    const std::map<ValueId, TaskValue> outside = std::exchange(values_, {});
    in_.expect('{');
    while (!in_.accept('}')) out.push_back(kernel());
    values_ = outside;
    return out;
  }

  GpuSchedule schedule() {
    GpuSchedule out;
    in_.word("schedule");
    in_.expect('(');
    do {
      const std::string key = in_.identifier();
      in_.expect('=');
      const int64_t number = in_.integer();
      if (key == "processors")
        target_.processors = static_cast<int>(number);
      else if (key == "shared")
        target_.shared_bytes = number;
      else if (key == "capability")
        target_.major = static_cast<int>(number);
      else if (key == "tf32")
        target_.tf32 = number != 0;
      else if (key == "dependent_launch")
        target_.dependent_launch = number != 0;
      else
        in_.fail(fmt::format("unknown setting '{}' of a schedule", key));
    } while (in_.accept(','));
    in_.expect(')');
    in_.expect('{');
    out.target = target_;
    while (!in_.accept('}')) out.kernels.push_back(kernel());
    return out;
  }

  void expect_end() { in_.expect_end(); }

 private:
  TaskValue value() {
    TaskValue out;
    out.id = out.memory = static_cast<ValueId>(in_.reference());
    in_.expect(':');
    out.type = in_.type();
    in_.skip_blanks();
    if (in_.accept_word("over")) out.memory = static_cast<ValueId>(in_.reference());
    return out;
  }

  void define(const TaskValue& one) {
    if (!values_.emplace(one.id, one).second) in_.fail(fmt::format("%{} is defined twice", one.id));
  }

  GpuTask task() {
    in_.skip();
    if (in_.peek() == '%') return row().first;
    GpuTask out;
    const std::string name = in_.identifier();
    const auto* const found = std::find(std::begin(kFormNames) + 1, std::end(kFormNames), name);
    if (found == std::end(kFormNames)) in_.fail(fmt::format("'{}' is not a task", name));
    out.form = static_cast<TaskForm>(found - std::begin(kFormNames));
    if (out.form == TaskForm::ranges) out.count = in_.integer();
    const std::vector<ValueId> prefetched = choices(out).second;
    in_.expect('{');
    while (!in_.accept('}')) out.members.push_back(task());
    prefetches_.emplace_back(prefetched);
    return out;
  }

  // A row, and whether what it computes is also written.
  std::pair<GpuTask, bool> row() {
    GpuTask out;
    do out.out.push_back(value());
    while (in_.accept(','));
    in_.expect('=');
    std::tie(out.op, out.attrs) = in_.op();
    std::vector<std::pair<ValueId, std::optional<Type>>> names;
    for (in_.skip_blanks(); in_.peek() == '%'; in_.skip_blanks()) {
      names.emplace_back(static_cast<ValueId>(in_.reference()), std::nullopt);
      if (in_.peek() == ':') {
        in_.expect(':');
        names.back().second = in_.type();
      }
    }
    const auto [written, prefetched] = choices(out);
    std::vector<GpuTask::Producer> producers;
    if (in_.accept_word("computes")) {
      in_.expect('{');
      while (!in_.accept('}')) {
        auto [producer, also_written] = row();
        producers.push_back({0, std::move(producer), also_written});
      }
    }
    for (const auto& [id, type] : names) {
      const auto found = values_.find(id);
      if (found == values_.end()) in_.fail(fmt::format("%{} is used before it is defined", id));
      out.in.push_back(found->second);
      if (type) out.in.back().type = *type;
    }
    std::vector<bool> taken(out.in.size());
    for (GpuTask::Producer& producer : producers) {
      size_t k = 0;
      while (k < out.in.size() && (taken[k] || out.in[k].id != producer.task.out[0].id)) ++k;
      if (k == out.in.size()) in_.fail(fmt::format("%{} is computed but is no operand", producer.task.out[0].id));
      taken[k] = true;
      producer.operand = k;
      out.producers.push_back(std::move(producer));
    }
    if (in_.accept_word("sums")) {
      in_.word("columns");
      in_.expect('{');
      while (!in_.accept('}')) out.column_sums.push_back(row().first);
    }
    for (const TaskValue& one : out.out) {
      if (const auto found = values_.find(one.id); found != values_.end() && found->second == one) continue;
      define(one);
    }
    prefetches_.emplace_back(prefetched);
    return {std::move(out), written};
  }

  // Reads "(ready, tile=64x64x64, ...)", if it is there. Returns whether `written` is among them, and what is
  // prefetched.
  std::pair<bool, std::vector<ValueId>> choices(GpuTask& out) {
    std::pair<bool, std::vector<ValueId>> more{false, {}};
    in_.skip_blanks();
    if (in_.peek() != '(') return more;
    in_.expect('(');
    CudaTile tile;
    do {
      const std::string key = in_.identifier();
      if (key == "written") {
        more.first = true;
      } else if (key == "ready") {
        out.ready = true;
      } else if (key == "resident") {
        continue;  // follows from the other choices, as do the numbers of blocks and bytes
      } else {
        in_.expect('=');
        choice(key, out, tile, more.second);
      }
    } while (in_.accept(','));
    in_.expect(')');
    if (tile.tall > 0) out.tile = tile;
    return more;
  }

  void choice(const std::string& key, GpuTask& out, CudaTile& tile, std::vector<ValueId>& prefetched) {
    const auto number = [&] { return in_.integer(); };
    const auto times = [&](auto& a, auto& b, auto& c) {  // "64x32x16"
      a = static_cast<std::decay_t<decltype(a)>>(number());
      in_.expect('x');
      b = static_cast<std::decay_t<decltype(b)>>(number());
      in_.expect('x');
      c = static_cast<std::decay_t<decltype(c)>>(number());
    };
    if (key == "summed") {
      out.summed = static_cast<size_t>(number());
    } else if (key == "stage") {
      const std::string name = in_.identifier();
      if (name != "partial" && name != "combine") in_.fail(fmt::format("'{}' is no stage of a task", name));
      out.stage = name == "partial" ? TaskStage::partial : TaskStage::combine;
    } else if (key == "processors") {
      out.processors = static_cast<int>(number());
    } else if (key == "exchanged") {
      out.exchanged = number();
    } else if (key == "tile") {
      times(tile.tall, tile.wide, tile.deep);
    } else if (key == "warps") {
      times(tile.warp_rows, tile.warp_cols, tile.warp_parts);
    } else if (key == "split_k") {
      tile.splits = number();
    } else if (key == "stages") {
      tile.stages = number();
    } else if (key == "prefetch") {
      in_.expect('[');
      do prefetched.push_back(static_cast<ValueId>(in_.reference()));
      while (in_.accept(','));
      in_.expect(']');
    } else if (key == "blocks" || key == "shared") {
      number();
    } else {
      in_.fail(fmt::format("unknown choice '{}' of a task", key));
    }
  }

  // The task with its step. `prefetches_.back()` is what it prefetches.
  GpuTask lowered(GpuTask task, bool library) {
    const std::vector<ValueId> wanted = prefetches_.back();
    prefetches_.clear();
    if (library) return task;
    if (!lower(task, target_))
      in_.fail(fmt::format("the choices of task {} are not possible on this GPU",
                           task.op ? std::string(task.op->name) : kFormNames[static_cast<size_t>(task.form)]));
    if (!wanted.empty()) {
      const std::vector<TaskValue> all = operands(task);
      for (size_t k = 0; k < task.step->prefetches.size(); ++k) {
        const std::vector<size_t>& own = task.step->prefetches[k].operands;
        const auto is_wanted = [&](size_t i) {
          return std::find(wanted.begin(), wanted.end(), all[i].id) != wanted.end();
        };
        if (std::all_of(own.begin(), own.end(), is_wanted)) task.prefetched |= 1u << k;
      }
    }
    return task;
  }

  TextParser in_;
  GpuTarget target_;
  std::map<ValueId, TaskValue> values_;
  std::vector<std::vector<ValueId>> prefetches_;  // of the tasks parsed since the last one that was lowered
};

}  // namespace

std::string print(const KernelSchedule& kernel, bool layout) { return ScheduleWriter(layout).write(kernel, ""); }

std::string print(const GpuSchedule& schedule) {
  const GpuTarget& target = schedule.target;
  std::string out =
      fmt::format("schedule(processors={}, shared={}, capability={}, tf32={:d}, dependent_launch={:d}) {{\n",
                  target.processors, target.shared_bytes, target.major, target.tf32, target.dependent_launch);
  for (const KernelSchedule& kernel : schedule.kernels) out += ScheduleWriter(true).write(kernel, "  ");
  return out + "}\n";
}

KernelSchedule parse_kernel(std::string_view text, const GpuTarget& target) {
  ScheduleParser parser(text, target);
  KernelSchedule out = parser.kernel();
  parser.expect_end();
  return out;
}

GpuSchedule parse_schedule(std::string_view text) {
  ScheduleParser parser(text, {});
  GpuSchedule out = parser.schedule();
  parser.expect_end();
  return out;
}

}  // namespace lockstep::detail
