// Sub-programs on the GPU. Their kernels are enqueued in order, like those of the program that contains them. A scan
// does not wait for the GPU, so it can be part of a graph capture; if its body is a single kernel, that kernel
// executes all iterations, and so does that of a while_loop. Other loops and choices: graph_control.h.
#include <bit>

#include "lane/cuda/cuda_stream.h"
#include "ops/control.h"
#include "ops/cuda/graph_control.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/rounds.h"
#include "ops/elementwise.h"

namespace lockstep {

namespace {

// Kernels access several elements at a time, and cuBLASLt's are selected for aligned matrices.
constexpr int64_t kAlignment = 64;

// Whether slices of this size can be used in place. A small slice aligned to its size can: no access
// reads more than it.
bool is_usable_in_place(int64_t bytes) {
  return bytes % kAlignment == 0 || (bytes < 16 && std::has_single_bit(static_cast<uint64_t>(bytes)));
}

// Executes all iterations in one kernel. Carries that cannot be updated in place alternate between two buffers.
// Returns an empty Kernel if each iteration must be launched separately.
Kernel single_kernel_scan(const KernelSpec& spec, const SubProgram& sub) {
  struct State {
    RoundsKernel kernel;
    std::vector<int64_t> carry_bytes, back;  // carry_bytes: by carry; back: by x and y, the offset of the first round
    std::vector<BufferPtr> even, odd;        // by carry; null if it is updated in place
    std::vector<const void*> in, odd_in;
    std::vector<void*> out, odd_out;
  };
  const Program& body = spec.attrs.program("body");
  const auto carry = static_cast<size_t>(spec.attrs.integer("carry")),
             xs = static_cast<size_t>(spec.attrs.integer("xs"));
  const int64_t length = spec.attrs.integer("length");
  const bool reverse = spec.attrs.get<bool>("reverse");
  if (length < 2 || length > INT32_MAX) return {};
  const std::vector<Type> in = body.input_types(), out = body.output_types();
  for (size_t i = carry; i < carry + xs; ++i)
    if (!is_usable_in_place(in[i].bytes())) return {};
  for (size_t i = carry; i < out.size(); ++i)
    if (!is_usable_in_place(out[i].bytes())) return {};
  CudaRounds rounds{length, carry, {}, {}};
  rounds.in_steps.resize(in.size());
  rounds.out_steps.resize(out.size());
  for (size_t i = 0; i < carry; ++i) rounds.in_steps[i] = rounds.out_steps[i] = 0;
  auto state = std::make_shared<State>();
  State& s = *state;
  s.in.resize(in.size());
  s.out.resize(out.size());
  const auto steps = [&](const Type& type, std::optional<int64_t>& step) {
    step = reverse ? -type.bytes() : type.bytes();
    s.back.push_back(reverse ? (length - 1) * type.bytes() : 0);
  };
  for (size_t i = carry; i < carry + xs; ++i) steps(in[i], rounds.in_steps[i]);
  for (size_t i = carry; i < out.size(); ++i) steps(out[i], rounds.out_steps[i]);
  std::optional<RoundsKernel> made = sub.rounds(rounds);
  if (!made) return {};
  s.kernel = *std::move(made);
  for (size_t i = 0; i < carry; ++i) {
    s.carry_bytes.push_back(in[i].bytes());
    for (std::vector<BufferPtr>* each : {&s.even, &s.odd})
      each->push_back(s.kernel.in_place[i] ? nullptr : spec.cuda->allocate(in[i].bytes(), "the carries of a scan"));
  }
  return [state, carry, xs, length, lane = spec.cuda](const void* const* from, void* const* to) {
    State& t = *state;
    const auto first_of = [&](size_t i) -> void* { return t.even[i] ? t.even[i]->data() : to[i]; };
    for (size_t i = 0; i < carry; ++i)
      if (first_of(i) != from[i]) lane->copy(first_of(i), from[i], t.carry_bytes[i]);
    for (size_t i = carry; i < t.in.size(); ++i)
      t.in[i] = static_cast<const std::byte*>(from[i]) + (i < carry + xs ? t.back[i - carry] : 0);
    for (size_t i = carry; i < t.out.size(); ++i) t.out[i] = static_cast<std::byte*>(to[i]) + t.back[xs + i - carry];
    t.odd_in = t.in;
    t.odd_out = t.out;
    for (size_t i = 0; i < carry; ++i) {
      t.in[i] = t.odd_out[i] = first_of(i);
      t.odd_in[i] = t.out[i] = t.odd[i] ? t.odd[i]->data() : to[i];
    }
    t.kernel.run(t.in.data(), t.out.data(), t.odd_in.data(), t.odd_out.data());
    for (size_t i = 0; i < carry; ++i)
      if (t.even[i]) lane->copy(to[i], (length % 2 ? t.odd : t.even)[i]->data(), t.carry_bytes[i]);
  };
}

// Executes all rounds of a while_loop in one kernel, which reads the condition itself. So the loop does not wait for
// the GPU and can be part of a graph capture.
struct SingleKernelWhile {
  CudaStream& lane;
  const size_t carries, constants;
  Kernel condition, last = {};
  RoundsKernel kernel = {};
  std::vector<int64_t> bytes = {};             // by carry
  std::vector<BufferPtr> even = {}, odd = {};  // by carry, null if it is updated in place; then the condition
  BufferPtr executed = {};
  std::vector<const void*> in = {}, odd_in = {}, last_in = {};
  std::vector<void*> out = {}, odd_out = {}, last_out = {};

  void run(const void* const* from, void* const* to) {
    void* first_condition = odd[carries]->data();
    condition(from, &first_condition);
    for (std::vector<const void*>* each : {&in, &odd_in, &last_in}) each->clear();
    for (std::vector<void*>* each : {&out, &odd_out, &last_out}) each->clear();
    last_in.push_back(executed->data());
    for (size_t i = 0; i < carries; ++i) {
      void *const first = even[i] ? even[i]->data() : to[i], *const second = odd[i] ? odd[i]->data() : to[i];
      if (first != from[constants + i]) lane.copy(first, from[constants + i], bytes[i]);
      in.push_back(first);
      odd_out.push_back(first);
      odd_in.push_back(second);
      out.push_back(second);
      if (!even[i]) continue;
      last_in.insert(last_in.end(), {first, second});
      last_out.push_back(to[i]);
    }
    in.insert(in.end(), from, from + constants);
    odd_in.insert(odd_in.end(), from, from + constants);
    out.push_back(even[carries]->data());
    odd_out.push_back(first_condition);
    kernel.run(in.data(), out.data(), odd_in.data(), odd_out.data());
    if (last) last(last_in.data(), last_out.data());
  }
};

// Returns an empty Kernel if each round must be launched separately. `step` was the last program to be compiled.
Kernel single_kernel_while(const KernelSpec& spec, const Kernel& condition, const SubProgram& step) {
  const size_t carries = spec.out.size();
  const auto loop =
      std::make_shared<SingleKernelWhile>(SingleKernelWhile{*spec.cuda, carries, spec.in.size() - carries, condition});
  loop->executed = spec.cuda->allocate(sizeof(uint32_t), "the number of rounds of a while_loop");
  CudaRounds rounds{0, carries, {}, {}, carries, reinterpret_cast<uint32_t*>(loop->executed->data())};
  rounds.in_steps.assign(carries, 0);
  rounds.in_steps.resize(spec.in.size());
  rounds.out_steps.assign(carries + 1, 0);
  std::optional<RoundsKernel> made = step.rounds(rounds);
  if (!made) return {};
  loop->kernel = *std::move(made);
  std::vector<Type> alternating;
  for (size_t i = 0; i <= carries; ++i) {
    const bool in_place = i < carries && loop->kernel.in_place[i];
    loop->bytes.push_back(i < carries ? spec.out[i].bytes() : 1);
    for (std::vector<BufferPtr>* each : {&loop->even, &loop->odd})
      each->push_back(in_place ? nullptr : spec.cuda->allocate(loop->bytes[i], "the carries of a while_loop"));
    if (!in_place && i < carries) alternating.push_back(spec.out[i]);
  }
  if (!alternating.empty()) loop->last = spec.compile(last_carries(alternating));
  return [loop](const void* const* from, void* const* to) { loop->run(from, to); };
}

ScanMemory loop_memory(CudaStream& lane, const char* purpose) {
  return {[&lane, purpose](int64_t bytes) { return lane.allocate(bytes, purpose); },
          [&lane](void* to, const void* from, int64_t bytes) { lane.copy(to, from, bytes); }, kAlignment};
}

}  // namespace

Kernel scan_cuda(const KernelSpec& spec) {
  const Kernel body = spec.compile(spec.attrs.program("body"));
  if (const auto* sub = body.target<SubProgram>())
    if (Kernel one = single_kernel_scan(spec, *sub)) return one;
  KernelSpec compiled = spec;
  compiled.compile = [&](const Program&) { return body; };
  return scan_kernel(compiled, loop_memory(*spec.cuda, "the slices of a scan"));
}

Kernel while_cuda(const KernelSpec& spec) {
  const Kernel condition = spec.compile(while_condition(spec.attrs));
  const Kernel step = spec.compile(while_step(spec.attrs));
  if (const auto* sub = step.target<SubProgram>())
    if (Kernel one = single_kernel_while(spec, condition, *sub)) return one;
  return while_by_rounds(spec, condition, step);
}

Kernel cond_cuda(const KernelSpec& spec) {
  std::vector<Kernel> branches;
  for (const ProgramPtr& branch : branches_of(spec.attrs)) branches.push_back(spec.compile(*branch));
  return cond_by_branches(spec, std::move(branches));
}

}  // namespace lockstep
