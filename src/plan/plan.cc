#include "plan/plan.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/check.h"
#include "comm/in_flight.h"
#include "passes/passes.h"
#include "plan/cuda_plan.h"
#include "plan/memory.h"
#include "plan/whole_kernel.h"

namespace lockstep {
namespace {

// Values made from constants alone are computed once, at compile time, up to this size.
constexpr int64_t kMaxConstantBytes = int64_t{1} << 20;
// What a GPU's work space may be without a thought.
constexpr int64_t kPlentyBytes = int64_t{64} << 20;

// Is the result the operand's memory under another shape?
bool identity_layout(const Op& op, const Type& in, const Type& out, const Attrs& attrs) {
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

struct Place {
  enum Kind { none, input, output, arena, constant } kind = none;
  size_t index = 0;  // of the input, output, block or constant
};

}  // namespace

// Decides where every value lives, then prepares the kernels. `base` of a value is the value whose memory it is.
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
    place_inputs_and_outputs();
    place_constants();
    share_donated();
    place_the_rest();
    prepare();
  }

 private:
  ValueId base(ValueId id) const { return base_[id]; }
  int64_t bytes(ValueId id) const { return p_.types[id].bytes(); }

  void find_bases() {
    base_.resize(p_.types.size());
    for (ValueId id : p_.inputs) base_[id] = id;
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      for (ValueId id : eqn.out) base_[id] = id;
      if (eqn.in.size() == 1 && eqn.out.size() == 1 &&
          identity_layout(*eqn.op, p_.types[eqn.in[0]], p_.types[eqn.out[0]], eqn.attrs)) {
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

  void place_inputs_and_outputs() {
    place_.resize(p_.types.size());
    for (size_t i = 0; i < p_.inputs.size(); ++i) place_[p_.inputs[i]] = {Place::input, i};
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      Place& place = place_[base(p_.outputs[j])];
      if (place.kind == Place::none) place = {Place::output, j};
    }
  }

  void place_constants() {
    for (const Eqn* eqn : steps_) {
      bool all = true;
      all &= !eqn->op->is_collective;  // lanes do not meet while they are planned
      for (ValueId id : eqn->in) all &= place_[base(id)].kind == Place::constant;
      for (ValueId id : eqn->out) all &= place_[id].kind == Place::none && bytes(id) <= kMaxConstantBytes;
      if (!all) continue;
      for (ValueId id : eqn->out) {
        place_[id] = {Place::constant, plan_.constants_.size()};
        plan_.constants_.push_back(allocate(bytes(id)));
        plan_.arena_bytes_ += bytes(id);
      }
    }
  }

  // May `result` of step t be written over `operand`, wherever the step reads it?
  bool may_share(int t, size_t result, ValueId operand) const {
    const Eqn& eqn = *steps_[t];
    if (!eqn.op->alias || bytes(eqn.out[result]) != bytes(operand)) return false;
    std::vector<Type> in, out;
    for (ValueId id : eqn.in) in.push_back(p_.types[id]);
    for (ValueId id : eqn.out) out.push_back(p_.types[id]);
    int times = 0;  // a kernel is told of one operand that shares its result's memory
    for (size_t k = 0; k < eqn.in.size(); ++k) {
      if (base(eqn.in[k]) != operand) continue;
      if (++times > 1 || !eqn.op->alias(in, out, eqn.attrs, k, result)) return false;
    }
    return true;
  }

  void share_donated() {
    plan_.donated_input_.assign(p_.outputs.size(), -1);
    std::vector<bool> taken(p_.inputs.size(), false);
    auto give = [&](size_t output, size_t input) {
      plan_.donated_input_[output] = static_cast<int>(input);
      taken[input] = true;
    };
    const auto may_give = [&](size_t output, size_t input) {
      return donated_[input] && !taken[input] && (!in_place_ || input == output);
    };
    // An output that is a donated input itself keeps its memory.
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      const Place& place = place_[base(p_.outputs[j])];
      if (place.kind == Place::input && may_give(j, place.index)) give(j, place.index);
    }
    for (const bool in_place : {true, false}) {
      for (size_t j = 0; j < p_.outputs.size(); ++j) {
        const ValueId v = base(p_.outputs[j]);
        if (place_[v].kind != Place::output || place_[v].index != j || plan_.donated_input_[j] >= 0) continue;
        const int t = first_[v];
        const auto& results = steps_[t]->out;
        const auto result = static_cast<size_t>(std::find(results.begin(), results.end(), v) - results.begin());
        for (size_t i = 0; i < p_.inputs.size() && plan_.donated_input_[j] < 0; ++i) {
          const ValueId from = p_.inputs[i];
          if (!may_give(j, i) || bytes(from) != bytes(v)) continue;
          if (in_place ? last_[from] == t && may_share(t, result, from) : last_[from] < t) give(j, i);
        }
      }
    }
  }

  // On a GPU that has plenty of it, memory that is used again would make instructions wait that could share a phase
  // (whole_kernel.h).
  bool memory_is_plenty() const {
    if (!cuda_) return false;
    int64_t all = 0;
    for (const Eqn* eqn : steps_)
      for (ValueId id : eqn->out) all += place_[id].kind == Place::none ? bytes(id) : 0;
    return all <= kPlentyBytes;
  }

  void place_the_rest() {
    std::vector<Block> blocks;
    const bool plenty = memory_is_plenty();
    for (size_t t = 0; t < steps_.size(); ++t) {
      std::vector<ValueId> gone;  // operands whose block a result of this step has taken over
      for (size_t k = 0; k < steps_[t]->out.size(); ++k) {
        const ValueId v = steps_[t]->out[k];
        if (place_[v].kind != Place::none) continue;
        for (ValueId operand : steps_[t]->in) {
          const ValueId from = base(operand);
          if (place_[from].kind != Place::arena || last_[from] != static_cast<int>(t) ||
              std::find(gone.begin(), gone.end(), from) != gone.end() || !may_share(static_cast<int>(t), k, from))
            continue;
          place_[v] = place_[from];
          blocks[place_[v].index].last = plenty ? INT_MAX : last_[v];
          gone.push_back(from);
          break;
        }
        if (place_[v].kind != Place::none) continue;
        place_[v] = {Place::arena, blocks.size()};
        blocks.push_back({bytes(v), first_[v], plenty ? INT_MAX : last_[v], 0});
      }
    }
    plan_.work_bytes_ = place_blocks(blocks);
    plan_.arena_bytes_ += plan_.work_bytes_;
    for (const Block& block : blocks) offsets_.push_back(block.offset);
  }

  // Fills a pointer of an instruction, or notes that each run has to.
  template <class P>
  void point_to(size_t instruction, std::vector<P>& list, ValueId id, bool is_result, bool on_gpu) {
    const Place& place = place_[base(id)];
    switch (place.kind) {
      case Place::constant:
        list.push_back((on_gpu ? gpu_constant(place.index) : plan_.constants_[place.index])->data());
        return;
      case Place::arena:
        plan_.arena_patches_.push_back({{instruction, list.size(), is_result}, offsets_[place.index]});
        list.push_back(nullptr);
        return;
      case Place::input:
      case Place::output:
        plan_.patches_.push_back({{instruction, list.size(), is_result}, place.kind == Place::input, place.index});
        list.push_back(nullptr);
        return;
      case Place::none:
        break;
    }
    LOCKSTEP_CHECK(false, "a value has no place");
  }

  // A constant's copy in the GPU's memory, made when it is first needed: by then it has been computed.
  const BufferPtr& gpu_constant(size_t index) {
    plan_.gpu_constants_.resize(plan_.constants_.size());
    BufferPtr& copy = plan_.gpu_constants_[index];
    if (!copy) copy = detail::on_gpu(*cuda_, *plan_.constants_[index]);
    return copy;
  }

  // Do two values share memory? Outputs written to donated inputs count; empty values have none, wherever they were
  // placed.
  bool same_memory(ValueId a, ValueId b) const {
    if (bytes(a) == 0 || bytes(b) == 0) return false;
    auto key = [&](ValueId id) {
      const Place& place = place_[base(id)];
      if (place.kind == Place::output && plan_.donated_input_[place.index] >= 0)
        return std::pair{static_cast<int>(Place::input), static_cast<int64_t>(plan_.donated_input_[place.index])};
      if (place.kind == Place::arena) return std::pair{static_cast<int>(place.kind), offsets_[place.index]};
      return std::pair{static_cast<int>(place.kind), static_cast<int64_t>(place.index)};
    };
    return key(a) == key(b);
  }

  std::string place_text(ValueId id) const {
    static constexpr const char* kNames[] = {"?", "in", "out", "arena", "const"};
    const Place& place = place_[base(id)];
    return fmt::format("{}@{}{}", to_string(p_.types[id]), kNames[place.kind],
                       place.kind == Place::arena ? offsets_[place.index] : static_cast<int64_t>(place.index));
  }

  void prepare() {
    bool waits = false;  // of the instruction that is being prepared
    const auto compile_on = [this, &waits](CudaLane* cuda) {
      return [this, &waits, cuda](const Program& sub) -> Kernel {
        PlanOptions options;
        options.cuda = cuda;
        std::shared_ptr<Plan> plan = compile(sub, pool_, options);
        waits |= plan->waits();
        plan_.arena_bytes_ += plan->arena_bytes();
#ifdef LOCKSTEP_WITH_CUDA
        if (cuda)
          return SubProgram{[plan](const void* const* in, void* const* out) { plan->run(in, out); },
                            [sub, cuda, pool = &pool_](const CudaRounds& rounds) {
                              return PlanRounds::of(sub, *pool, *cuda, rounds);
                            }};
#endif
        return [plan](const void* const* in, void* const* out) { plan->run(in, out); };
      };
    };
    for (const Eqn* eqn : steps_) {
      Plan::Instruction instruction;
      instruction.op = eqn->op;
      std::vector<Type> in, out;
      std::vector<int> alias(eqn->out.size(), -1);
      for (ValueId id : eqn->in) in.push_back(p_.types[id]);
      for (size_t k = 0; k < eqn->out.size(); ++k) {
        out.push_back(p_.types[eqn->out[k]]);
        for (size_t o = 0; o < eqn->in.size(); ++o)
          if (same_memory(eqn->out[k], eqn->in[o])) alias[k] = static_cast<int>(o);
      }
      LOCKSTEP_CHECK(eqn->op->cpu, "{} has no CPU kernel", eqn->op->name);
      bool constant = true;
      for (ValueId id : eqn->out) constant &= place_[id].kind == Place::constant;
      const bool on_gpu = cuda_ && !constant;  // constants are computed here, whatever they are for
      const KernelSpec host{in,
                            out,
                            eqn->attrs,
                            pool_,
                            on_gpu ? std::span<const int>() : alias,
                            compile_on(nullptr),
                            comm_,
                            plan_.in_flight_,
                            nullptr};
      waits = eqn->op->is_collective;
      if (on_gpu) {
        const KernelSpec there{in, out, eqn->attrs, pool_, alias, compile_on(cuda_), comm_, plan_.in_flight_, cuda_};
        instruction.kernel = detail::gpu_kernel(*eqn->op, there, host, instruction.text, waits);
      } else {
        instruction.kernel = eqn->op->cpu(host);
      }
      instruction.waits = waits;
      const size_t n = plan_.instructions_.size();
      for (ValueId id : eqn->in) {
        point_to(n, instruction.in, id, false, on_gpu);
        instruction.text += ' ' + place_text(id);
      }
      instruction.text += " ->";
      for (ValueId id : eqn->out) {
        point_to(n, instruction.out, id, true, on_gpu);
        instruction.text += ' ' + place_text(id);
      }
      if (constant) {
        instruction.kernel(instruction.in.data(), instruction.out.data());
        continue;
      }
      plan_.instructions_.push_back(std::move(instruction));
      stretches_.emplace_back(stretches(eqn->in), stretches(eqn->out));
      outlives_.emplace_back();
      for (ValueId id : eqn->out) outlives_.back().push_back(place_[base(id)].kind != Place::arena);
    }
    const size_t computed = plan_.instructions_.size();
    // Outputs that are inputs, or appear twice, are copied last.
    for (size_t j = 0; j < p_.outputs.size(); ++j) {
      const ValueId v = p_.outputs[j];
      const Place& place = place_[base(v)];
      if ((place.kind == Place::output && place.index == j) || bytes(v) == 0) continue;
      if (place.kind == Place::input && plan_.donated_input_[j] == static_cast<int>(place.index)) continue;
      Plan::Instruction instruction;
      if (cuda_)
        instruction.kernel = detail::gpu_copy(*cuda_, bytes(v));
      else
        instruction.kernel = [n = bytes(v)](const void* const* in, void* const* out) {
          std::memcpy(out[0], in[0], static_cast<size_t>(n));
        };
      const size_t at = plan_.instructions_.size();
      point_to(at, instruction.in, v, false, cuda_ != nullptr);
      plan_.patches_.push_back({{at, 0, true}, false, j});
      instruction.out.push_back(nullptr);
      instruction.text = fmt::format(" {} -> out{}", place_text(v), j);
      plan_.instructions_.push_back(std::move(instruction));
    }
    if (cuda_) join(computed);
    if (cuda_ && plan_.make_sections()) add_landings();
  }

  // Small inputs and outputs, which may lie elsewhere in every run, have a place of their own on a GPU, so that a
  // recording is good for all of them.
  void add_landings() {
    constexpr int64_t kSmall = 64 << 10;
    const auto add = [&](bool is_input, size_t index, int64_t size) {
      if (size > 0 && size <= kSmall)
        plan_.landings_.push_back({is_input, index, detail::gpu_memory(*cuda_, size), detail::gpu_copy(*cuda_, size)});
    };
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      if (!donated_[i]) add(true, i, bytes(p_.inputs[i]));
    for (size_t j = 0; j < p_.outputs.size(); ++j)
      if (plan_.donated_input_[j] < 0) add(false, j, bytes(p_.outputs[j]));
  }

  // Where values are, for what may happen at the same time: inputs and what is written to them have a space each, and
  // so have outputs, constants, and the work space.
  std::vector<detail::Stretch> stretches(const std::vector<ValueId>& ids) const {
    std::vector<detail::Stretch> out;
    for (ValueId id : ids) {
      const Place& place = place_[base(id)];
      size_t kind = place.kind, index = place.index;
      if (place.kind == Place::output && plan_.donated_input_[index] >= 0) {
        kind = Place::input;
        index = static_cast<size_t>(plan_.donated_input_[index]);
      }
      const int64_t begin = place.kind == Place::arena ? offsets_[index] : 0;
      if (place.kind == Place::arena) index = 0;
      out.push_back({static_cast<int64_t>(index * 8 + kind), begin, begin + bytes(id)});
    }
    return out;
  }

  // The first `count` instructions, some of which become one on a GPU.
  void join([[maybe_unused]] size_t count) {
#ifdef LOCKSTEP_WITH_CUDA
    std::vector<detail::GpuInstruction> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back({&plan_.instructions_[i].kernel, stretches_[i].first, stretches_[i].second, outlives_[i]});
    std::vector<Plan::Instruction> after;
    std::vector<Plan::Slot> moved(plan_.instructions_.size());  // by instruction: where its pointers begin, by list
    std::vector<size_t> results(plan_.instructions_.size());
    const auto keep = [&](size_t i) {
      moved[i] = {after.size(), 0, false};
      after.push_back(std::move(plan_.instructions_[i]));
    };
    size_t next = 0;
    for (detail::Joined& one : detail::joined(*cuda_, all)) {
      for (; next < one.first; ++next) keep(next);
      Plan::Instruction instruction;
      instruction.kernel = std::move(one.kernel);
      instruction.label = "whole";
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
    const auto move_slot = [&](Plan::Slot& slot) {
      const size_t from = slot.instruction;
      slot.instruction = moved[from].instruction;
      slot.index += slot.is_result ? results[from] : moved[from].index;
    };
    for (Plan::Patch& patch : plan_.patches_) move_slot(patch.slot);
    for (Plan::ArenaPatch& patch : plan_.arena_patches_) move_slot(patch.slot);
#endif
  }

  const Program& p_;
  Pool& pool_;
  std::vector<bool> donated_;
  bool in_place_;  // an input is written over by the output of its number or none
  std::function<Comm*(const std::string&)> comm_;
  CudaLane* cuda_;
  Plan& plan_;
  std::vector<ValueId> base_;
  std::vector<const Eqn*> steps_;
  std::vector<int> first_, last_;  // by base value: steps
  std::vector<Place> place_;       // by base value
  std::vector<int64_t> offsets_;   // by block
  // By instruction: where its operands and results are.
  std::vector<std::pair<std::vector<detail::Stretch>, std::vector<detail::Stretch>>> stretches_;
  std::vector<std::vector<bool>> outlives_;  // by instruction and result: it outlives the plan's run
};

Plan::Plan(const Program& program, Pool& pool, const PlanOptions& options)
    : in_flight_(std::make_shared<InFlight>()),
      arena_(options.arena ? options.arena : &own_arena_),
      cuda_(options.cuda),
      inputs_(program.inputs.size()) {
  if (cuda_) detail::enter_gpu(*cuda_);
  Planner(program, pool, options, *this).run();
}

void Plan::set(const Slot& slot, void* pointer) {
  Instruction& instruction = instructions_[slot.instruction];
  if (slot.is_result)
    instruction.out[slot.index] = pointer;
  else
    instruction.in[slot.index] = pointer;
}

void Plan::move_arena(std::byte* base) {
  for (const ArenaPatch& patch : arena_patches_) set(patch.slot, base + patch.offset);
  arena_base_ = base;
}

void Plan::run(const void* const* in, void* const* out) {
  if (work_bytes_ > 0) {
    std::byte* const base =
        cuda_ ? detail::gpu_work_space(*cuda_, own_gpu_, work_bytes_) : arena_->reserve(work_bytes_);
    if (base != arena_base_) move_arena(base);
  }
  try {
    if (cuda_) return run_on_gpu(in, out);
    point(in, out);
    for (const Instruction& instruction : instructions_)
      instruction.kernel(instruction.in.data(), instruction.out.data());
  } catch (...) {
    in_flight_->abandon();  // the memory that others would write to is the caller's again
    throw;
  }
}

void Plan::point(const void* const* in, void* const* out) {
  for (const Patch& patch : patches_)
    set(patch.slot, patch.from_input ? const_cast<void*>(in[patch.index]) : out[patch.index]);
}

std::string Plan::describe() const {
  std::string out;
  for (const Instruction& i : instructions_) out += fmt::format("{}{}\n", i.op ? i.op->name : i.label, i.text);
  return out + fmt::format("work space and constants: {} bytes\n", arena_bytes_);
}

std::shared_ptr<Plan> compile(const Program& program, Pool& pool, const PlanOptions& options) {
  return std::make_shared<Plan>(lower(program), pool, options);
}

}  // namespace lockstep
