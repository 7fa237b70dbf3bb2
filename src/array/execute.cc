// Running programs: the compiled function behind jit, and the plans that eager operations keep.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "array/apply.h"
#include "array/executable.h"
#include "array/gpu_memory.h"
#include "base/check.h"
#include "lane/lane.h"
#include "passes/passes.h"
#include "plan/plan.h"

namespace lockstep::detail {

Executable::Executable(ProgramPtr program, std::vector<bool> donated, Arrays captures, Shardings out_shardings)
    : program_(std::move(program)),
      donated_(std::move(donated)),
      captures_(std::move(captures)),
      out_shardings_(std::move(out_shardings)) {
  out_shardings_.resize(program_->outputs.size());
  donated_.resize(program_->inputs.size(), false);
  // Handles of our own on the same memory, so that captured arrays stay when their owner donates them.
  for (Array& a : captures_)
    if (!a.is_traced()) a = relabelled(a, a.node()->sharding);
  for (ValueId id : program_->inputs) in_types_.push_back(intern(program_->types[id]));
  for (ValueId id : program_->outputs) out_types_.push_back(intern(program_->types[id]));
}

void Executable::mark_donated(const Array* const* args) const {
  for (size_t i = 0; i < in_types_.size() - captures_.size(); ++i) {
    if (!donated_[i]) continue;
    Node& node = *args[i]->node();
    if (node.kind != Node::Kind::concrete) continue;
    node.kind = Node::Kind::donated;
    node.buffer.reset();
    node.gpu.reset();
    node.pieces.reset();
    node.copied.reset();
  }
}

namespace {

// On all cores of the process, or on its GPU.
class OneLane final : public Executable {
 public:
  OneLane(ProgramPtr program, const std::vector<bool>& donated, Arrays captures, Shardings out_shardings)
      : Executable(std::move(program), donated, std::move(captures), std::move(out_shardings)) {
    lowered_ = lower(*program_);
    plan_ = std::make_unique<Plan>(lowered_, CpuLane::local().pool(),
                                   PlanOptions{donated_, &CpuLane::local().arena(), {}, gpu_});
    for (const Type* type : out_types_) out_bytes_.push_back(type->bytes());
    in_.resize(in_types_.size());
    out_.resize(out_types_.size());
    held_.resize(in_types_.size());
    made_.resize(out_types_.size());
  }

  void run(const Array* const* args, Array* results) override {
    const std::lock_guard lock(CpuLane::local().run_mutex());
    const LetGo let_go{held_, made_};
    for (size_t i = 0; i < in_types_.size(); ++i) held_[i] = take(argument(args, i), i);
    for (size_t i = 0; i < in_types_.size() - captures_.size(); ++i) own_donated(i);
    for (size_t i = 0; i < in_.size(); ++i) in_[i] = held_[i]->data();
    // Results are made before anything is written, so that running out of memory leaves the arguments as they were.
    for (size_t j = 0; j < out_types_.size(); ++j) {
      const int from = plan_->donated_input(j);
      made_[j] = from >= 0 ? held_[static_cast<size_t>(from)]
                 : gpu_    ? allocate_on_gpu(out_bytes_[j])
                           : allocate(out_bytes_[j]);
      out_[j] = made_[j]->data();
    }
    plan_->run(in_.data(), out_.data());
    mark_donated(args);
    for (size_t j = 0; j < made_.size(); ++j)
      results[j] = gpu_ ? concrete_on_gpu(out_types_[j], std::move(made_[j]), out_shardings_[j])
                        : concrete(out_types_[j], std::move(made_[j]), out_shardings_[j]);
  }

  std::string lowered_text() const override { return print(lowered_); }
  std::string plan_text() const override { return plan_->describe(); }
  std::vector<int64_t> work_bytes() const override { return {plan_->arena_bytes()}; }
  size_t instructions() const override { return plan_->instructions(); }
  void begin() const override { plan_->begin(); }
  std::string explain() const override { return "one lane: nothing is cut, and nothing moves\n"; }

 private:
  // Drops the buffers of a call at its end, also when that is an exception.
  struct LetGo {
    std::vector<BufferPtr>&held, &made;
    ~LetGo() {
      for (BufferPtr& b : held) b.reset();
      for (BufferPtr& b : made) b.reset();
    }
  };

  BufferPtr take(const Array& array, size_t i) const {
    if (gpu_) return gpu_buffer_of(array, *in_types_[i], "call");
    const Node& node = *array.node();
    if (node.kind == Node::Kind::literal) return literal_buffer(node, in_types_[i]->dtype);
    return buffer_of(array, "call");
  }

  // Memory that anyone else still reads, this call's other arguments included, is not given away: the plan works on a
  // copy.
  void own_donated(size_t i) {
    if (!donated_[i] || held_[i]->references() <= 2)
      return;  // the array's own reference, which a number has none of, and ours
    if (gpu_) {
      held_[i] = copied_on_gpu(*held_[i], 0, held_[i]->size());
      return;
    }
    BufferPtr copy = allocate(held_[i]->size());
    std::copy_n(held_[i]->data(), held_[i]->size(), copy->data());
    held_[i] = std::move(copy);
  }

  CudaLane* const gpu_ = gpu_in_use();
  Program lowered_;
  std::unique_ptr<Plan> plan_;
  std::vector<int64_t> out_bytes_;
  // Used by run() only, under the lane's lock; members so that a call allocates nothing.
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<BufferPtr> held_, made_;
};

}  // namespace

std::shared_ptr<Executable> compile(const Traced& traced, const std::vector<bool>& donated, const Shardings& in,
                                    const Shardings& out) {
  // What was said of an output comes first, then what follows from the inputs.
  Shardings shardings = propagate(*traced.program, in), said(shardings.size());
  for (size_t i = 0; i < shardings.size(); ++i) {
    if (i < traced.shardings.size() && traced.shardings[i].defined()) said[i] = traced.shardings[i];
    if (i < out.size() && out[i].defined()) said[i] = out[i];
    if (said[i].defined()) shardings[i] = said[i];
    if (shardings[i].defined())
      shardings[i].index_box(traced.program->types[traced.program->outputs[i]].shape, 0);  // fits
  }
  Shardings all_in = in;
  all_in.resize(traced.program->inputs.size() - traced.captures.size());
  for (const Array& a : traced.captures) all_in.push_back(known_sharding(a));
  if (auto on_lanes = compile_on_lanes(traced.program, donated, traced.captures, all_in, said, shardings))
    return on_lanes;
  return std::make_shared<OneLane>(traced.program, donated, traced.captures, std::move(shardings));
}

void execute(Executable& executable, const Array* const* args, Array* results) { executable.run(args, results); }
size_t result_count(const Executable& executable) { return executable.results(); }
std::string program_text(const Executable& executable) { return print(executable.program()); }
std::string lowered_text(const Executable& executable) { return executable.lowered_text(); }
std::string plan_text(const Executable& executable) { return executable.plan_text(); }
std::string explain_text(const Executable& executable) { return executable.explain(); }
std::vector<int64_t> work_bytes(const Executable& executable) { return executable.work_bytes(); }
size_t instruction_count(const Executable& executable) { return executable.instructions(); }
void compile_kernels_in_background(const Executable& executable) { executable.begin(); }
std::string print_program(const ProgramPtr& program) { return print(*program); }
const void* sharding_address(const Array& array) {
  return array.defined() ? array.node()->sharding.address() : nullptr;
}
const void* type_address(const Array& array) {
  if (!array.defined()) return nullptr;
  return reinterpret_cast<const char*>(array.node()->type) + (is_number(array) ? 1 : 0);
}

namespace {

// Executables of programs without captures, by content and, where arguments are spread over processes, by how these
// lie. Emptied when it grows past a limit, which costs a recompile.
class ExecutableCache {
 public:
  std::shared_ptr<Executable> get(const Program& program, const Shardings& spread) {
    const uint64_t key = hash(program);
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_[key])
      if (entry.spread == spread && entry.executable->program() == program) return entry.executable;
    if (++count_ > kLimit) {
      entries_.clear();
      count_ = 1;
    }
    auto shared = std::make_shared<const Program>(program);
    std::shared_ptr<Executable> made;
    // Also a program that says itself where its values lie, such as that of a shard_map, is computed there.
    made = compile_on_lanes(shared, {}, {}, spread, {}, propagate(program, spread));
    if (!made) made = std::make_shared<OneLane>(shared, std::vector<bool>{}, Arrays{}, Shardings{});
    entries_[key].push_back({spread, made});
    return made;
  }

 private:
  struct Entry {
    Shardings spread;
    std::shared_ptr<Executable> executable;
  };
  static constexpr size_t kLimit = 2048;
  std::mutex mutex_;
  size_t count_ = 0;
  std::unordered_map<uint64_t, std::vector<Entry>> entries_;
};

Shardings shardings_of(std::span<const Array> args) {
  Shardings out;
  for (const Array& a : args) out.push_back(a.node()->sharding);
  return out;
}

bool is_spread(const Array& a) { return a.node()->pieces && a.node()->pieces->spread; }

}  // namespace

Arrays run_now(const Program& program, std::span<const Array> args) {
  static auto* cache = new ExecutableCache;
  // What lies on several processes is computed where it lies, by all of them.
  const bool spread = std::any_of(args.begin(), args.end(), is_spread);
  const std::shared_ptr<Executable> executable = cache->get(program, spread ? shardings_of(args) : Shardings{});
  std::vector<const Array*> pointers;
  for (const Array& a : args) pointers.push_back(&a);
  Arrays results(executable->results());
  executable->run(pointers.data(), results.data());
  bool sharded = false;
  for (const Array& a : args) sharded |= a.node()->sharding.defined();
  if (sharded && !spread) {  // what was spread says so itself
    const Shardings out = propagate(program, shardings_of(args));
    for (size_t i = 0; i < results.size(); ++i) results[i].node()->sharding = out[i];
  }
  return results;
}

}  // namespace lockstep::detail
