#include "plan/cuda/cuda_planner.h"

#include <fmt/format.h>

#include <utility>

#include "ops/cuda/kernels.h"
#include "ops/cuda/rounds.h"
#include "passes/passes.h"
#include "plan/cuda/persistent_kernel.h"

namespace lockstep {
namespace {

// Runs the CPU kernel of an op between copies from the GPU and back.
Kernel through_host(const Op& op, const KernelSpec& spec, const KernelSpec& host) {
  struct State {
    CudaStream& stream;
    Kernel kernel;
    std::vector<BufferPtr> in, out;
    std::vector<const void*> in_data;
    std::vector<void*> out_data;
  };
  auto state = std::make_shared<State>(State{*spec.cuda, op.cpu(host), {}, {}, {}, {}});
  for (const Type& type : spec.in) {
    state->in.push_back(allocate(type.bytes()));
    state->in_data.push_back(state->in.back()->data());
  }
  for (const Type& type : spec.out) {
    state->out.push_back(allocate(type.bytes()));
    state->out_data.push_back(state->out.back()->data());
  }
  return [state](const void* const* in, void* const* out) {
    for (size_t i = 0; i < state->in.size(); ++i)
      state->stream.to_host(state->in[i]->data(), in[i], state->in[i]->size());
    state->kernel(state->in_data.data(), state->out_data.data());
    for (size_t o = 0; o < state->out.size(); ++o)
      state->stream.to_device(out[o], state->out[o]->data(), state->out[o]->size());
  };
}

}  // namespace

const void* CudaPlanner::constant_memory(size_t index, const BufferPtr& host) {
  if (plan_.device_constants_.size() <= index) plan_.device_constants_.resize(index + 1);
  BufferPtr& copy = plan_.device_constants_[index];  // made on first use, when the constant has been computed
  if (!copy) {
    copy = stream_.allocate(host->size());
    stream_.to_device(copy->data(), host->data(), host->size());
  }
  return copy->data();
}

Kernel CudaPlanner::prepare_kernel(const Op& op, const KernelSpec& host, std::string& text, bool& waits) {
  KernelSpec spec = host;
  spec.cuda = &stream_;
  spec.uncapturable = &waits;
  spec.copy = [&stream = stream_](void* to, const void* from, int64_t bytes) { stream.copy(to, from, bytes); };
  const Attr* const combined = host.attrs.find("kernel");
  if (combined) text += fmt::format("[{}]", std::get<std::string>(*combined));
  // If a combined kernel does not exist, its equations must not be combined again.
  spec.compile = [this, &waits, combines = combined == nullptr](const Program& sub) -> Kernel {
    const auto plan = std::make_shared<CudaPlan>(lower(sub), pool(), stream_, PlannerOptions(), combines);
    add_sub_plan(*plan, waits);
    prepared_->bodies.push_back(plan->schedule_.kernels);
    return SubProgram{[plan](const void* const* in, void* const* out) { plan->run(in, out); },
                      [this, sub](const CudaRounds& rounds) -> std::optional<RoundsKernel> {
                        std::optional<CudaPlan::Rounds> made = CudaPlan::rounds(sub, pool(), stream_, rounds);
                        if (!made) return {};
                        prepared_->bodies.back() = {std::move(made->schedule)};
                        return std::move(made->kernel);
                      }};
  };
  Kernel kernel;
  if (op.cuda)
    kernel = op.cuda(spec);
  else if (op.loop || op.view)
    kernel = elementwise_cuda(op, spec);
  if (kernel) return kernel;
  text += " on the host";
  prepared_->on_host = true;
  waits = true;
  KernelSpec on_host = host;
  on_host.alias = {};  // operands and results are copied to separate memory
  return through_host(op, spec, on_host);
}

Kernel CudaPlanner::copy_kernel(int64_t bytes) const {
  return [&stream = stream_, bytes](const void* const* in, void* const* out) { stream.copy(out[0], in[0], bytes); };
}

void CudaPlanner::finish() {
  if (plan_.make_sections()) add_stable_buffers();
}

void CudaPlanner::add_stable_buffers() {
  constexpr int64_t kSmall = 64 << 10;
  const auto add = [&](bool is_input, size_t index, int64_t size) {
    if (size > 0 && size <= kSmall) plan_.stable_buffers_.push_back({is_input, index, stream_.allocate(size)});
  };
  for (size_t i = 0; i < program().inputs.size(); ++i)
    if (!donated()[i]) add(true, i, bytes(program().inputs[i]));
  for (size_t j = 0; j < program().outputs.size(); ++j)
    if (plan_.donated_input_[j] < 0) add(false, j, bytes(program().outputs[j]));
}

void CudaPlanner::add_persistent_kernel(const detail::KernelSchedule& kernel, const std::vector<const Eqn*>& rows) {
  CudaPlan::Instruction instruction;
  const auto& persistent =
      plan_.persistent_kernels_.emplace_back(std::make_shared<detail::PersistentKernel>(stream_, kernel));
  instruction.kernel = [persistent](const void* const*, void* const* values) { persistent->run(values); };
  instruction.label = "persistent kernel";
  instruction.text = fmt::format(" of {} rows in {} phases{}:", rows.size(), kernel.phases.size(),
                                 persistent->prefetches_ahead() ? ", some of the first prefetched ahead" : "");
  for (const Eqn* row : rows) instruction.text += fmt::format(" {}", row->op->name);
  std::vector<ValueId> values;
  for (const TaskValue& value : persistent->values()) values.push_back(value.id);
  add_instruction(std::move(instruction), values);
}

void CudaPlanner::add_instructions() {
  for (const Eqn* eqn : steps())
    if (is_constant(*eqn)) add_instruction(*eqn);
  for (size_t k = 0; k < rows().size(); ++k) {
    detail::KernelSchedule& kernel = plan_.schedule_.kernels[k];
    prepared_ = &kernel;
    if (kernel.library)
      add_instruction(*rows()[k][0]);
    else
      add_persistent_kernel(kernel, rows()[k]);
  }
}

}  // namespace lockstep
