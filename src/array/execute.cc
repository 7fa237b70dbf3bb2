// Compiling and running programs on one lane, for jit and for eager operations.
#include <algorithm>
#include <mutex>
#include <string_view>

#include "array/apply.h"
#include "array/executable.h"
#include "array/host_checks.h"
#include "array/lane_memory.h"
#include "array/local_program.h"
#include "array/pending_version.h"
#include "array/recently_used.h"
#include "base/check.h"
#include "base/runtime_parts.h"
#include "passes/passes.h"
#include "plan/lanes.h"

namespace lockstep::detail {

Executable::Executable(ProgramPtr program, std::vector<bool> donated, Arrays captures, Shardings out_shardings)
    : program_(std::move(program)),
      donated_(std::move(donated)),
      captures_(std::move(captures)),
      out_shardings_(std::move(out_shardings)) {
  out_shardings_.resize(program_->outputs.size());
  donated_.resize(program_->inputs.size(), false);
  // Separate handles on the same memory, so that captured arrays survive a donation by their owner.
  for (Array& a : captures_)
    if (!a.is_traced()) a = with_new_sharding(a, a.node()->sharding);
  for (ValueId id : program_->inputs) in_types_.push_back(intern(program_->types[id]));
  for (ValueId id : program_->outputs) out_types_.push_back(intern(program_->types[id]));
}

void Executable::mark_donated(const Array* const* args) const {
  for (size_t i = 0; i < in_types_.size() - captures_.size(); ++i) {
    if (!donated_[i]) continue;
    Node& node = *args[i]->node();
    if (node.kind != Node::Kind::concrete) continue;
    node.kind = Node::Kind::donated;
    release_memory(node);
  }
}

namespace {

// Runs on the main lane.
class OneLaneExecutable final : public Executable {
 public:
  OneLaneExecutable(ProgramPtr program, const std::vector<bool>& donated, Arrays captures, Shardings out_shardings)
      : Executable(std::move(program), donated, std::move(captures), std::move(out_shardings)),
        local_(lanes_.main(), lower(*program_), {.donated = donated_}) {}

  void run(const Array* const* args, Array* results) override {
    const std::lock_guard lock(lanes_.run_mutex());
    const BufferRelease release{local_};
    for (size_t i = 0; i < in_types_.size(); ++i)
      local_.set_input(i, main_lane_buffer(local_.lane(), argument(args, i), *in_types_[i], "call"));
    for (size_t i = 0; i < in_types_.size() - captures_.size(); ++i)
      if (donated_[i]) copy_if_shared(i);
    local_.run();
    mark_donated(args);
    for (size_t j = 0; j < out_types_.size(); ++j)
      results[j] = concrete(out_types_[j], local_.take_result(j), out_shardings_[j]);
  }

  std::string lowered_text() const override { return print(local_.lowered()); }
  std::string plan_text() const override { return local_.plan().describe(); }
  std::string schedule_text() const override { return local_.plan().schedule(); }
  std::vector<int64_t> work_bytes() const override { return {local_.plan().arena_bytes()}; }
  size_t instructions() const override { return local_.plan().instructions(); }
  double multiply_adds() const override { return count_multiply_adds(local_.lowered()); }
  void compile_kernels_in_background() const override { local_.plan().compile_in_background(); }
  std::string explain() const override { return "one lane: nothing is sharded, no communication\n"; }

 private:
  // Drops a call's buffers when the call ends, also by an exception.
  struct BufferRelease {
    LocalProgram& local;
    ~BufferRelease() { local.release_buffers(); }
  };

  // Copies a donated argument whose memory is still in use elsewhere, for example by another argument of this
  // call.
  void copy_if_shared(size_t i) {
    const Buffer& buffer = *local_.input(i);
    if (buffer.references() <= 2) return;  // the array's reference (a number has none) and that of local_
    local_.set_input(i, local_.lane().copy_of(buffer, 0, buffer.size()));
  }

  Lanes& lanes_ = Lanes::current();
  LocalProgram local_;
};

}  // namespace

std::shared_ptr<Executable> compile(const Traced& traced, const std::vector<bool>& donated, const Shardings& in,
                                    const Shardings& out) {
  // A sharding given for an output takes precedence over the one derived from the inputs.
  Shardings shardings = propagate(*traced.program, in), given(shardings.size());
  for (size_t i = 0; i < shardings.size(); ++i) {
    if (i < traced.shardings.size() && traced.shardings[i].defined()) given[i] = traced.shardings[i];
    if (i < out.size() && out[i].defined()) given[i] = out[i];
    if (given[i].defined()) shardings[i] = given[i];
    if (shardings[i].defined())
      shardings[i].index_box(traced.program->types[traced.program->outputs[i]].shape, 0);  // throws if it does not fit
  }
  Shardings all_in = in;
  all_in.resize(traced.program->inputs.size() - traced.captures.size());
  for (const Array& a : traced.captures) all_in.push_back(known_sharding(a));
  // The search for a NaN needs the arguments after the call.
  const std::vector<bool> reused = checks_nans() ? std::vector<bool>(donated.size(), false) : donated;
  if (auto on_lanes = compile_on_lanes(traced.program, reused, traced.captures, all_in, given, shardings))
    return on_lanes;
  return std::make_shared<OneLaneExecutable>(traced.program, reused, traced.captures, std::move(shardings));
}

void execute(Executable& executable, const Array* const* args, Array* results) {
  check_outside_host_call("call");
  executable.run(args, results);
  throw_failed_checks();
  if (checks_nans()) check_nans(executable.program(), executable.arguments(args), {results, executable.results()});
}
size_t result_count(const Executable& executable) { return executable.results(); }
std::string program_text(const Executable& executable) { return print(executable.program()); }
std::string lowered_text(const Executable& executable) { return executable.lowered_text(); }
std::string plan_text(const Executable& executable) { return executable.plan_text(); }
std::string schedule_text(const Executable& executable) { return executable.schedule_text(); }
std::string explain_text(const Executable& executable) { return executable.explain(); }
std::vector<int64_t> work_bytes(const Executable& executable) { return executable.work_bytes(); }
size_t instruction_count(const Executable& executable) { return executable.instructions(); }
double multiply_adds(const Executable& executable) { return executable.multiply_adds(); }
void compile_kernels_in_background(const Executable& executable) { executable.compile_kernels_in_background(); }
std::string print_program(const ProgramPtr& program) { return print(*program); }
const void* sharding_address(const Array& array) {
  return array.defined() ? array.node()->sharding.address() : nullptr;
}
const void* type_address(const Array& array) {
  if (!array.defined()) return nullptr;
  return reinterpret_cast<const char*>(array.node()->type) + (is_number(array) ? 1 : 0);
}

namespace {

// The recently used executables of programs without captures. The key is the program's content and, if arguments are
// distributed over processes, the arguments' shardings.
class ExecutableCache {
 public:
  std::shared_ptr<Executable> get(const Program& program, const Shardings& shardings) {
    const uint64_t hashed = hash(program);
    std::shared_ptr<Executable> found = find(hashed, program, shardings);
    if (found) return found;
    // Equal programs are compiled once, also by several threads: over several processes, all must compile them equally often.
    const std::string_view bytes(reinterpret_cast<const char*>(&hashed), sizeof hashed);
    const auto pending = PendingVersion::begin({.tag = this, .bytes = bytes}, {},
                                               [&] { return (found = find(hashed, program, shardings)) != nullptr; });
    if (!pending) return found;
    auto shared = std::make_shared<const Program>(program);
    // A program with sharding constraints of its own, such as that of a shard_map, also runs on several
    // lanes.
    std::shared_ptr<Executable> made = compile_on_lanes(shared, {}, {}, shardings, {}, propagate(program, shardings));
    if (!made) made = std::make_shared<OneLaneExecutable>(shared, std::vector<bool>{}, Arrays{}, Shardings{});
    RecentlyUsed<Entry>::Entries replaced;
    const std::lock_guard lock(mutex_);
    replaced = entries_.insert(hashed, {shardings, made}, made->is_across_processes());
    return made;
  }

 private:
  struct Entry {
    Shardings shardings;
    std::shared_ptr<Executable> executable;
  };

  std::shared_ptr<Executable> find(uint64_t hashed, const Program& program, const Shardings& shardings) {
    const std::lock_guard lock(mutex_);
    const Entry* const found = entries_.find(hashed, [&](const Entry& entry) {
      return entry.shardings == shardings && entry.executable->program() == program;
    });
    return found ? found->executable : nullptr;
  }

  static constexpr size_t kLimit = 2048;
  std::mutex mutex_;  // not held while a program is compiled
  RecentlyUsed<Entry> entries_{kLimit};
};

Shardings shardings_of(std::span<const Array> args) {
  Shardings out;
  for (const Array& a : args) out.push_back(a.node()->sharding);
  return out;
}

}  // namespace

bool is_across_processes(const Array& a) {
  return a.node()->pieces.divided && a.node()->pieces.divided->across_processes;
}

EagerProgram compile_now(const Program& program, std::span<const Array> args) {
  // Arrays distributed over processes are computed in place, by all of these processes. The results have shardings already.
  const bool distributed = std::any_of(args.begin(), args.end(), is_across_processes);
  const Shardings in = shardings_of(args);
  EagerProgram out{runtime_part<ExecutableCache>().get(program, distributed ? in : Shardings{}), {}};
  const bool sharded = std::any_of(in.begin(), in.end(), [](const NamedSharding& each) { return each.defined(); });
  if (sharded && !distributed) out.shardings = propagate(program, in);
  return out;
}

Arrays run_now(const EagerProgram& program, std::span<const Array* const> args) {
  check_outside_host_call("call");
  Arrays results(program.executable->results());
  program.executable->run(args.data(), results.data());
  throw_failed_checks();
  if (checks_nans()) check_nans(program.executable->program(), program.executable->arguments(args.data()), results);
  for (size_t i = 0; i < program.shardings.size(); ++i) results[i].node()->sharding = program.shardings[i];
  return results;
}

Arrays run_now(const Program& program, std::span<const Array> args) {
  check_outside_host_call("call");
  std::vector<const Array*> pointers;
  for (const Array& a : args) pointers.push_back(&a);
  return run_now(compile_now(program, args), pointers);
}

}  // namespace lockstep::detail
