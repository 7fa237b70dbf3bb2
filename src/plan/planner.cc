// The Planner: assigns memory to the values of a program and prepares the kernels of a Plan.
#include <algorithm>
#include <climits>
#include <cstring>

#include "base/check.h"
#include "comm/in_flight.h"
#include "passes/passes.h"
#include "plan/cuda_plan.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "plan/whole_kernel.h"

namespace lockstep {
namespace {

// Values that depend only on constants are computed at compile time, up to this size.
constexpr int64_t kMaxConstantBytes = int64_t{1} << 20;
// Up to this size the arena of a GPU does not reuse memory.
constexpr int64_t kNoReuseBytes = int64_t{64} << 20;

// Whether the result is the operand's memory with another shape.
bool is_reshape_of(const Op& op, const Type& in, const Type& out, const Attrs& attrs) {
  if (!op.view || in.dtype != out.dtype || count(in.shape) != count(out.shape)) return false;
  const View view = op.view(in, out, attrs);
  if (view.offset != 0) return false;
  int64_t stride = 1;
  for (size_t d = out.shape.size(); d-- > 0;) {
    if (out.shape[d] != 1 && view.strides[d] != stride) return false;
    stride *= out.shape[d];
  }
  return true;
}

// The memory of a value.
struct MemorySlot {
  enum Kind { none, input, output, arena, constant } kind = none;
  size_t index = 0;  // of the input, output, arena block or constant
};

}  // namespace

// Assigns memory to every value, then prepares the kernels. The `base` of a value is the value whose memory it shares.
class Planner {
 public:
  Planner(const Program& p, Pool& pool, const PlanOptions& options, Plan& plan)
      : p_(p),
        pool_(pool),
        donated_(options.donated),
        in_place_(options.in_place),
        comm_(options.comm),
        cuda_(options.cuda),
        plan_(plan) {
    donated_.resize(p.inputs.size(), false);
  }

  void run() {
    find_bases();
    find_lifetimes();
    assign_inputs_and_outputs();
    assign_constants();
    assign_donated();
    assign_arena();
    prepare();
  }

 private:
  ValueId base(ValueId id) const { return base_[id]; }
  int64_t bytes(ValueId id) const { return p_.types[id].bytes(); }

  void find_bases() {
    base_.resize(p_.types.size());
    for (ValueId id : p_.inputs) base_[id] = id;
    for (const Eqn& eqn : p_.eqns) {
      for (ValueId id : eqn.out) base_[id] = id;
      if (eqn.in.size() == 1 && eqn.out.size() == 1 &&
          is_reshape_of(*eqn.op, p_.types[eqn.in[0]], p_.types[eqn.out[0]], eqn.attrs)) {
        base_[eqn.out[0]] = base_[eqn.in[0]];
      } else {
        steps_.push_back(&eqn);
      }
    }
  }

  void find_lifetimes() {
    first_.assign(p_.types.size(), -1);
    last_.assign(p_.types.size(), -1);
    for (size_t t = 0; t < steps_.size(); ++t) {
      for (ValueId id : steps_[t]->in) last_[base(id)] = static_cast<int>(t);
      for (ValueId id : steps_[t]->out) first_[id] = last_[id] = static_cast<int>(t);
    }
    for (ValueId id : p_.outputs) last_[base(id)] = INT_MAX;
  }

  void assign_inputs_and_outputs() {
    slot_.resize(p_.types.size());
    for (size_t i = 0; i < p_.inputs.size(); ++i) slot_[p_.inputs[i]] = {MemorySlot::input, i};
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      MemorySlot& slot = slot_[base(p_.outputs[j])];
      if (slot.kind == MemorySlot::none) slot = {MemorySlot::output, j};
    }
  }

  void assign_constants() {
    for (const Eqn* eqn : steps_) {
      bool all = true;
      all &= !eqn->op->is_collective();  // collectives cannot run at compile time
      for (ValueId id : eqn->in) all &= slot_[base(id)].kind == MemorySlot::constant;
      for (ValueId id : eqn->out) all &= slot_[id].kind == MemorySlot::none && bytes(id) <= kMaxConstantBytes;
      if (!all) continue;
      for (ValueId id : eqn->out) {
        slot_[id] = {MemorySlot::constant, plan_.constants_.size()};
        plan_.constants_.push_back(allocate(bytes(id)));
        plan_.arena_bytes_ += bytes(id);
      }
    }
  }

  // Whether `result` of step t may overwrite `operand`, in every position where the step reads it.
  bool may_overwrite(int t, size_t result, ValueId operand) const {
    const Eqn& eqn = *steps_[t];
    if (!eqn.op->alias || bytes(eqn.out[result]) != bytes(operand)) return false;
    std::vector<Type> in, out;
    for (ValueId id : eqn.in) in.push_back(p_.types[id]);
    for (ValueId id : eqn.out) out.push_back(p_.types[id]);
    int times = 0;  // KernelSpec::alias names only one operand per result
    for (size_t k = 0; k < eqn.in.size(); ++k) {
      if (base(eqn.in[k]) != operand) continue;
      if (++times > 1 || !eqn.op->alias(in, out, eqn.attrs, k, result)) return false;
    }
    return true;
  }

  void assign_donated() {
    plan_.donated_input_.assign(p_.outputs.size(), -1);
    std::vector<bool> taken(p_.inputs.size(), false);
    auto donate = [&](size_t output, size_t input) {
      plan_.donated_input_[output] = static_cast<int>(input);
      taken[input] = true;
    };
    const auto may_donate = [&](size_t output, size_t input) {
      return donated_[input] && !taken[input] && (!in_place_ || input == output);
    };
    // An output that is itself a donated input keeps its memory.
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      const MemorySlot& slot = slot_[base(p_.outputs[j])];
      if (slot.kind == MemorySlot::input && may_donate(j, slot.index)) donate(j, slot.index);
    }
    for (const bool in_place : {true, false}) {
      for (size_t j = 0; j < p_.outputs.size(); ++j) {
        const ValueId v = base(p_.outputs[j]);
        if (slot_[v].kind != MemorySlot::output || slot_[v].index != j || plan_.donated_input_[j] >= 0) continue;
        const int t = first_[v];
        const auto& results = steps_[t]->out;
        const auto result = static_cast<size_t>(std::find(results.begin(), results.end(), v) - results.begin());
        for (size_t i = 0; i < p_.inputs.size() && plan_.donated_input_[j] < 0; ++i) {
          const ValueId from = p_.inputs[i];
          if (!may_donate(j, i) || bytes(from) != bytes(v)) continue;
          if (in_place ? last_[from] == t && may_overwrite(t, result, from) : last_[from] < t) donate(j, i);
        }
      }
    }
  }

  // Whether the arena is small enough on a GPU to give every value its own memory. Reused memory would create
  // dependencies between instructions that could otherwise share a phase (whole_kernel.h).
  bool avoids_reuse() const {
    if (!cuda_) return false;
    int64_t all = 0;
    for (const Eqn* eqn : steps_)
      for (ValueId id : eqn->out) all += slot_[id].kind == MemorySlot::none ? bytes(id) : 0;
    return all <= kNoReuseBytes;
  }

  void assign_arena() {
    std::vector<ArenaBlock> blocks;
    const bool no_reuse = avoids_reuse();
    for (size_t t = 0; t < steps_.size(); ++t) {
      std::vector<ValueId> reused;  // operands whose block a result of this step has taken
      for (size_t k = 0; k < steps_[t]->out.size(); ++k) {
        const ValueId v = steps_[t]->out[k];
        if (slot_[v].kind != MemorySlot::none) continue;
        for (ValueId operand : steps_[t]->in) {
          const ValueId from = base(operand);
          if (slot_[from].kind != MemorySlot::arena || last_[from] != static_cast<int>(t) ||
              std::find(reused.begin(), reused.end(), from) != reused.end() ||
              !may_overwrite(static_cast<int>(t), k, from))
            continue;
          slot_[v] = slot_[from];
          blocks[slot_[v].index].last = no_reuse ? INT_MAX : last_[v];
          reused.push_back(from);
          break;
        }
        if (slot_[v].kind != MemorySlot::none) continue;
        slot_[v] = {MemorySlot::arena, blocks.size()};
        blocks.push_back({bytes(v), first_[v], no_reuse ? INT_MAX : last_[v], 0});
      }
    }
    plan_.work_bytes_ = assign_offsets(blocks);
    plan_.arena_bytes_ += plan_.work_bytes_;
    for (const ArenaBlock& block : blocks) offsets_.push_back(block.offset);
  }

  // Appends a pointer to an instruction's list, or a patch that sets it in each run.
  template <class P>
  void add_pointer(size_t instruction, std::vector<P>& list, ValueId id, bool is_result, bool on_gpu) {
    const MemorySlot& slot = slot_[base(id)];
    switch (slot.kind) {
      case MemorySlot::constant:
        list.push_back((on_gpu ? gpu_constant(slot.index) : plan_.constants_[slot.index])->data());
        return;
      case MemorySlot::arena:
        plan_.arena_patches_.push_back({{instruction, list.size(), is_result}, offsets_[slot.index]});
        list.push_back(nullptr);
        return;
      case MemorySlot::input:
      case MemorySlot::output:
        plan_.patches_.push_back({{instruction, list.size(), is_result}, slot.kind == MemorySlot::input, slot.index});
        list.push_back(nullptr);
        return;
      case MemorySlot::none:
        break;
    }
    LOCKSTEP_CHECK(false, "a value has no memory");
  }

  // The device copy of a constant, made on first use, when the constant has been computed.
  const BufferPtr& gpu_constant(size_t index) {
    plan_.gpu_constants_.resize(plan_.constants_.size());
    BufferPtr& copy = plan_.gpu_constants_[index];
    if (!copy) copy = detail::copy_to_gpu(*cuda_, *plan_.constants_[index]);
    return copy;
  }

  // Whether two values share memory, also through a donated input. Empty values have no memory.
  bool same_memory(ValueId a, ValueId b) const {
    if (bytes(a) == 0 || bytes(b) == 0) return false;
    auto key = [&](ValueId id) {
      const MemorySlot& slot = slot_[base(id)];
      if (slot.kind == MemorySlot::output && plan_.donated_input_[slot.index] >= 0)
        return std::pair{static_cast<int>(MemorySlot::input), static_cast<int64_t>(plan_.donated_input_[slot.index])};
      if (slot.kind == MemorySlot::arena) return std::pair{static_cast<int>(slot.kind), offsets_[slot.index]};
      return std::pair{static_cast<int>(slot.kind), static_cast<int64_t>(slot.index)};
    };
    return key(a) == key(b);
  }

  std::string memory_text(ValueId id) const {
    static constexpr const char* kNames[] = {"?", "in", "out", "arena", "const"};
    const MemorySlot& slot = slot_[base(id)];
    return fmt::format("{}@{}{}", to_string(p_.types[id]), kNames[slot.kind],
                       slot.kind == MemorySlot::arena ? offsets_[slot.index] : static_cast<int64_t>(slot.index));
  }

  void prepare() {
    for (const Eqn* eqn : steps_) add_instruction(*eqn);
    const size_t computed = plan_.instructions_.size();
    copy_outputs();
    if (cuda_) join(computed);
    if (cuda_ && plan_.make_sections()) add_stable_buffers();
  }

  // The kernel of a sub-program on a GPU; null: on the host. Sets `waits` if it waits for the GPU or for other lanes.
  Kernel compile_sub_program(const Program& sub, CudaLane* cuda, bool& waits) {
    PlanOptions options;
    options.cuda = cuda;
    std::shared_ptr<Plan> plan = compile(sub, pool_, options);
    waits |= plan->waits();
    plan_.arena_bytes_ += plan->arena_bytes();
#ifdef LOCKSTEP_WITH_CUDA
    if (cuda)
      return SubProgram{
          [plan](const void* const* in, void* const* out) { plan->run(in, out); },
          [sub, cuda, pool = &pool_](const CudaRounds& rounds) { return PlanRounds::of(sub, *pool, *cuda, rounds); }};
#endif
    return [plan](const void* const* in, void* const* out) { plan->run(in, out); };
  }

  // For each result: the operand whose memory it shares, or -1.
  std::vector<int> aliases_of(const Eqn& eqn) const {
    std::vector<int> alias(eqn.out.size(), -1);
    for (size_t k = 0; k < eqn.out.size(); ++k)
      for (size_t o = 0; o < eqn.in.size(); ++o)
        if (same_memory(eqn.out[k], eqn.in[o])) alias[k] = static_cast<int>(o);
    return alias;
  }

  // Prepares the kernel of an equation and adds its instruction. Constants are computed now, on the host.
  void add_instruction(const Eqn& eqn) {
    LOCKSTEP_CHECK(eqn.op->cpu, "{} has no CPU kernel", eqn.op->name);
    std::vector<Type> in, out;
    for (ValueId id : eqn.in) in.push_back(p_.types[id]);
    for (ValueId id : eqn.out) out.push_back(p_.types[id]);
    const std::vector<int> alias = aliases_of(eqn);
    bool constant = true;
    for (ValueId id : eqn.out) constant &= slot_[id].kind == MemorySlot::constant;
    const bool on_gpu = cuda_ && !constant;

    Plan::Instruction instruction;
    instruction.op = eqn.op;
    instruction.waits = eqn.op->is_collective();
    const auto compile_on = [this, &waits = instruction.waits](CudaLane* cuda) {
      return [this, &waits, cuda](const Program& sub) { return compile_sub_program(sub, cuda, waits); };
    };
    const KernelSpec host{in,
                          out,
                          eqn.attrs,
                          pool_,
                          on_gpu ? std::span<const int>() : alias,
                          compile_on(nullptr),
                          comm_,
                          plan_.in_flight_,
                          nullptr};
    if (on_gpu) {
      const KernelSpec device{in, out, eqn.attrs, pool_, alias, compile_on(cuda_), comm_, plan_.in_flight_, cuda_};
      instruction.kernel = detail::gpu_kernel(*eqn.op, device, host, instruction.text, instruction.waits);
    } else {
      instruction.kernel = eqn.op->cpu(host);
    }

    const size_t n = plan_.instructions_.size();
    for (ValueId id : eqn.in) {
      add_pointer(n, instruction.in, id, false, on_gpu);
      instruction.text += ' ' + memory_text(id);
    }
    instruction.text += " ->";
    for (ValueId id : eqn.out) {
      add_pointer(n, instruction.out, id, true, on_gpu);
      instruction.text += ' ' + memory_text(id);
    }
    if (constant) return instruction.kernel(instruction.in.data(), instruction.out.data());
    plan_.instructions_.push_back(std::move(instruction));
    ranges_.emplace_back(memory_ranges(eqn.in), memory_ranges(eqn.out));
    escapes_.emplace_back();
    for (ValueId id : eqn.out) escapes_.back().push_back(slot_[base(id)].kind != MemorySlot::arena);
  }

  // Adds copies to the outputs that are inputs or are returned twice.
  void copy_outputs() {
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      const ValueId v = p_.outputs[j];
      const MemorySlot& slot = slot_[base(v)];
      if ((slot.kind == MemorySlot::output && slot.index == j) || bytes(v) == 0) continue;
      if (slot.kind == MemorySlot::input && plan_.donated_input_[j] == static_cast<int>(slot.index)) continue;
      Plan::Instruction instruction;
      if (cuda_)
        instruction.kernel = detail::gpu_copy(*cuda_, bytes(v));
      else
        instruction.kernel = [n = bytes(v)](const void* const* in, void* const* out) {
          std::memcpy(out[0], in[0], static_cast<size_t>(n));
        };
      const size_t at = plan_.instructions_.size();
      add_pointer(at, instruction.in, v, false, cuda_ != nullptr);
      plan_.patches_.push_back({{at, 0, true}, false, j});
      instruction.out.push_back(nullptr);
      instruction.text = fmt::format(" {} -> out{}", memory_text(v), j);
      plan_.instructions_.push_back(std::move(instruction));
    }
  }

  // Gives small inputs and outputs device memory of the plan (Plan::StableBuffer).
  void add_stable_buffers() {
    constexpr int64_t kSmall = 64 << 10;
    const auto add = [&](bool is_input, size_t index, int64_t size) {
      if (size > 0 && size <= kSmall)
        plan_.stable_buffers_.push_back(
            {is_input, index, detail::gpu_memory(*cuda_, size), detail::gpu_copy(*cuda_, size)});
    };
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      if (!donated_[i]) add(true, i, bytes(p_.inputs[i]));
    for (size_t j = 0; j < p_.outputs.size(); ++j)
      if (plan_.donated_input_[j] < 0) add(false, j, bytes(p_.outputs[j]));
  }

  // The memory ranges of values, to find dependencies. Each input (with the outputs written to it), output and constant
  // is a separate space; the arena is one.
  std::vector<detail::MemoryRange> memory_ranges(const std::vector<ValueId>& ids) const {
    std::vector<detail::MemoryRange> out;
    for (ValueId id : ids) {
      const MemorySlot& slot = slot_[base(id)];
      size_t kind = slot.kind, index = slot.index;
      if (slot.kind == MemorySlot::output && plan_.donated_input_[index] >= 0) {
        kind = MemorySlot::input;
        index = static_cast<size_t>(plan_.donated_input_[index]);
      }
      const int64_t begin = slot.kind == MemorySlot::arena ? offsets_[index] : 0;
      if (slot.kind == MemorySlot::arena) index = 0;
      out.push_back({static_cast<int64_t>(index * 8 + kind), begin, begin + bytes(id)});
    }
    return out;
  }

  // Combines some of the first `count` instructions into persistent kernels.
  void join([[maybe_unused]] size_t count) {
#ifdef LOCKSTEP_WITH_CUDA
    std::vector<detail::GpuInstruction> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back({&plan_.instructions_[i].kernel, ranges_[i].first, ranges_[i].second, escapes_[i]});
    std::vector<Plan::Instruction> after;
    std::vector<Plan::PointerRef> moved(plan_.instructions_.size());  // by instruction: where its operands begin
    std::vector<size_t> results(plan_.instructions_.size());
    const auto keep = [&](size_t i) {
      moved[i] = {after.size(), 0, false};
      after.push_back(std::move(plan_.instructions_[i]));
    };
    size_t next = 0;
    for (detail::JoinedInstructions& one : detail::join_instructions(*cuda_, all)) {
      for (; next < one.first; ++next) keep(next);
      Plan::Instruction instruction;
      instruction.kernel = std::move(one.kernel);
      instruction.label = "persistent kernel";
      instruction.text = " " + one.text;
      for (; next < one.first + one.count; ++next) {
        Plan::Instruction& part = plan_.instructions_[next];
        moved[next] = {after.size(), instruction.in.size(), false};
        results[next] = instruction.out.size();
        instruction.in.insert(instruction.in.end(), part.in.begin(), part.in.end());
        instruction.out.insert(instruction.out.end(), part.out.begin(), part.out.end());
        instruction.text += fmt::format("\n  {}{}", part.op->name, part.text);
      }
      after.push_back(std::move(instruction));
    }
    for (; next < plan_.instructions_.size(); ++next) keep(next);
    plan_.instructions_ = std::move(after);
    const auto move_pointer = [&](Plan::PointerRef& ref) {
      const size_t from = ref.instruction;
      ref.instruction = moved[from].instruction;
      ref.index += ref.is_result ? results[from] : moved[from].index;
    };
    for (Plan::Patch& patch : plan_.patches_) move_pointer(patch.pointer);
    for (Plan::ArenaPatch& patch : plan_.arena_patches_) move_pointer(patch.pointer);
#endif
  }

  const Program& p_;
  Pool& pool_;
  std::vector<bool> donated_;
  bool in_place_;  // see PlanOptions
  std::function<Comm*(const std::string&)> comm_;
  CudaLane* cuda_;
  Plan& plan_;
  std::vector<ValueId> base_;
  std::vector<const Eqn*> steps_;
  std::vector<int> first_, last_;  // by base value: steps
  std::vector<MemorySlot> slot_;   // by base value
  std::vector<int64_t> offsets_;   // by block
  // By instruction: the memory of its operands and results.
  std::vector<std::pair<std::vector<detail::MemoryRange>, std::vector<detail::MemoryRange>>> ranges_;
  // By instruction and result: whether it is not in the arena, so that callers see it.
  std::vector<std::vector<bool>> escapes_;
};

Plan::Plan(const Program& program, Pool& pool, const PlanOptions& options)
    : in_flight_(std::make_shared<InFlight>()),
      arena_(options.arena ? options.arena : &own_arena_),
      cuda_(options.cuda),
      inputs_(program.inputs.size()) {
  if (cuda_) detail::enter_gpu(*cuda_);
  Planner(program, pool, options, *this).run();
}

std::shared_ptr<Plan> compile(const Program& program, Pool& pool, const PlanOptions& options) {
  return std::make_shared<Plan>(lower(program), pool, options);
}

}  // namespace lockstep
