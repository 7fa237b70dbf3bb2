#include "plan/cuda/cuda_planner.h"

#include <fmt/format.h>

#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "plan/cuda/whole_kernel.h"

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

// Reused memory would create dependencies between instructions that could otherwise share a phase (whole_kernel.h).
bool CudaPlanner::avoids_reuse(int64_t bytes) const {
  constexpr int64_t kNoReuseBytes = int64_t{64} << 20;
  return bytes <= kNoReuseBytes;
}

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
  spec.copy = [&stream = stream_](void* to, const void* from, int64_t bytes) { stream.copy(to, from, bytes); };
  spec.compile = [this, &waits](const Program& sub) -> Kernel {
    std::shared_ptr<CudaPlan> plan = lockstep::compile(sub, pool(), stream_);
    add_sub_plan(*plan, waits);
    return SubProgram{[plan](const void* const* in, void* const* out) { plan->run(in, out); },
                      [sub, stream = &stream_, pool = &pool()](const CudaRounds& rounds) {
                        return CudaPlan::rounds(sub, *pool, *stream, rounds);
                      }};
  };
  Kernel kernel;
  if (op.cuda)
    kernel = op.cuda(spec);
  else if (op.loop || op.view)
    kernel = elementwise_cuda(op, spec);
  if (kernel) return kernel;
  text += " on the host";
  waits = true;
  KernelSpec on_host = host;
  on_host.alias = {};  // operands and results are copied to separate memory
  return through_host(op, spec, on_host);
}

Kernel CudaPlanner::copy_kernel(int64_t bytes) const {
  return [&stream = stream_, bytes](const void* const* in, void* const* out) { stream.copy(out[0], in[0], bytes); };
}

void CudaPlanner::finish(const std::vector<InstructionMemory>& memory) {
  join(memory);
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

void CudaPlanner::join(const std::vector<InstructionMemory>& memory) {
  std::vector<detail::GpuInstruction> all;
  for (size_t i = 0; i < memory.size(); ++i)
    all.push_back({&plan_.instructions_[i].kernel, memory[i].in, memory[i].out, memory[i].escapes});
  std::vector<CudaPlan::Instruction> after;
  std::vector<CudaPlan::PointerRef> moved(plan_.instructions_.size());  // by instruction: where its operands begin
  std::vector<size_t> results(plan_.instructions_.size());
  const auto keep = [&](size_t i) {
    moved[i] = {after.size(), 0, false};
    after.push_back(std::move(plan_.instructions_[i]));
  };
  size_t next = 0;
  for (detail::JoinedInstructions& one : detail::join_instructions(stream_, all)) {
    for (; next < one.first; ++next) keep(next);
    CudaPlan::Instruction instruction;
    instruction.kernel = std::move(one.kernel);
    instruction.label = "persistent kernel";
    instruction.text = " " + one.text;
    for (; next < one.first + one.count; ++next) {
      CudaPlan::Instruction& part = plan_.instructions_[next];
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
  const auto move_pointer = [&](CudaPlan::PointerRef& ref) {
    const size_t from = ref.instruction;
    ref.instruction = moved[from].instruction;
    ref.index += ref.is_result ? results[from] : moved[from].index;
  };
  for (CudaPlan::Patch& patch : plan_.patches_) move_pointer(patch.pointer);
  for (CudaPlan::ArenaPatch& patch : plan_.arena_patches_) move_pointer(patch.pointer);
}

}  // namespace lockstep
