// Persistent kernels on a GPU: launches, rounds, and the residency of thread blocks.
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/persistent_kernel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hardware/cuda/api.h"
#include "lane/cuda/code.h"
#include "lane/cuda/cuda_stream.h"
#include "lockstep/error.h"
#include "lockstep/runtime.h"
#include "ops/control.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "plan/cuda/cuda_plan.h"
#include "plan/kernel_texts.h"
#include "rows/on_gpu.h"
#include "support/brief.h"

namespace lockstep::detail {
namespace {

// Runs a kernel on values that are given by id, and returns the values of ids that it is asked for.
class RunOnGpu {
 public:
  explicit RunOnGpu(const std::string& text)
      : stream_(CudaStream::local()), kernel_(stream_, scheduled(text, GpuTarget::of(stream_.info()))) {
    for (const TaskValue& value : kernel_.values()) {
      buffers_.push_back(stream_.allocate(value.bytes()));
      stream_.clear(buffers_.back()->data(), value.bytes());
      pointers_.push_back(buffers_.back()->data());
    }
    for (size_t i = 0; i < pointers_.size(); ++i)  // values that overwrite others
      for (size_t k = 0; k < pointers_.size(); ++k)
        if (kernel_.values()[k].id == kernel_.values()[i].memory) pointers_[i] = pointers_[k];
  }

  const PersistentKernel& kernel() const { return kernel_; }
  void run() { kernel_.run(pointers_.data()); }
  void run_rounds(const RoundStrides& strides, int64_t count) {
    kernel_.rounds(strides)->run(pointers_.data(), pointers_.data(), count, nullptr);
  }
  void set(ValueId id, float all) {
    const std::vector<float> values(static_cast<size_t>(kernel_.values()[place(id)].bytes()) / sizeof(float), all);
    stream_.to_device(pointers_[place(id)], values.data(), kernel_.values()[place(id)].bytes());
  }
  std::vector<float> get(ValueId id) {
    std::vector<float> out(static_cast<size_t>(kernel_.values()[place(id)].bytes()) / sizeof(float));
    stream_.to_host(out.data(), pointers_[place(id)], kernel_.values()[place(id)].bytes());
    return out;
  }

 private:
  size_t place(ValueId id) const {
    for (size_t i = 0; i < kernel_.values().size(); ++i)
      if (kernel_.values()[i].id == id) return i;
    throw_error("the kernel has no value %{}", id);
  }

  CudaStream& stream_;
  PersistentKernel kernel_;
  std::vector<BufferPtr> buffers_;
  std::vector<void*> pointers_;
};

// Two phases, a chain, and a reduction that is split.
const std::string kSmallStep = R"(kernel(%0:f32[64,64], %1:f32[64,64], %2:f32[8]) {
  %3:f32[64,64] = einsum[spec="mk,kn->mn"] %0 %1
  %4:f32[64,64] over %0 = add %3 %0
  %5:f32[8] = add %2 %2
  %6:f32[8] over %2 = add %5 %2
  return %4 %6
}
)";

TEST(PersistentKernelOnGpu, RunsItsPhases) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  RunOnGpu gpu(kSmallStep);
  std::vector<ValueId> ids;
  for (const TaskValue& value : gpu.kernel().values()) ids.push_back(value.id);
  EXPECT_EQ(ids, (std::vector<ValueId>{0, 1, 3, 4, 2, 5, 6}));
  gpu.set(0, 1);
  gpu.set(1, 0.5f);
  gpu.set(2, 2);
  for (const float factor : {33.0f, 33.0f * 33.0f}) {
    gpu.run();
    EXPECT_EQ(gpu.get(4), std::vector<float>(64 * 64, factor));
  }
  EXPECT_EQ(gpu.get(6), std::vector<float>(8, 18));
}

TEST(PersistentKernelOnGpu, RepeatsItsPhases) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  RunOnGpu gpu(kSmallStep);
  gpu.set(0, 1);
  gpu.set(1, 0.5f);
  gpu.set(2, 2);
  gpu.run_rounds({}, 3);
  EXPECT_EQ(gpu.get(4), std::vector<float>(64 * 64, 33.0f * 33 * 33));
  EXPECT_EQ(gpu.get(6), std::vector<float>(8, 54));
}

// Thread blocks that are not resident would wait for each other forever.
TEST(PersistentKernelOnGpu, ThreadBlocksThatDoNotFitAreRejected) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  CudaStream& stream = CudaStream::local();
  stream.enter();
  const CudaFunction function = kernel_of("extern \"C\" __global__ void f(int* at) { *at = 1; }\n", stream);
  const CudaInfo& info = stream.info();
  const auto message = [&](int64_t blocks, int64_t shared) -> std::string {
    try {
      function.check_residency(stream, blocks, kStepThreads, shared);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message(info.processors, 0), "");
  EXPECT_EQ(message(info.processors, info.shared), "");
  const std::string many = message(info.processors + 1, info.shared);
  EXPECT_NE(many.find(fmt::format("needs {} resident thread blocks of 512 threads, but only {} fit on the GPU",
                                  info.processors + 1, info.processors)),
            std::string::npos)
      << many;
  EXPECT_NE(many.find("registers per thread"), std::string::npos) << many;
  EXPECT_NE(many.find(fmt::format("{} bytes of shared memory", info.shared)), std::string::npos) << many;
  EXPECT_NE(many.find("LOCKSTEP_PERSISTENT_KERNEL=0"), std::string::npos) << many;
  EXPECT_NE(message(1, info.shared + 1).find("only 0 fit"), std::string::npos);
}

// A step on small integers: a layer of rows of a table, its loss, new weights, a
// step counter, and the rows of the next step.
Program a_step(int64_t rows, int64_t deep, int64_t wide) {
  Builder b;
  const Value table = b.input({DType::u8, {70, deep}}), index = b.input({DType::i32, {rows}});
  const Value w = b.input({DType::f32, {deep, wide}}), count = b.input({DType::i32, {}});
  const Value labels = b.input({DType::i32, {70}});
  const auto within = [&](Value x, int most) {
    return maximum(minimum(x, full(b, x.type(), most)), full(b, x.type(), -most));
  };
  const Value chosen = cast(gather(table, index, 0), DType::f32);
  const Value x = within(chosen - full(b, chosen.type(), 1), 2);
  const Value label = gather(labels, index + full(b, index.type(), 1), 0);
  const Value y = within(einsum("mk,kn->mn", x, w), 2);
  const Value next = within(w - einsum("mk,mn->kn", x, y), 2);
  return b.take(Values{next, count + full(b, count.type(), 1), reduce_sum(y, {0, 1}), reduce_sum(label, {0}),
                       full(b, index.type(), 69) - index});
}

// The index of the rows is: constant, alternating between calls; computed by the previous call; copied before each
// call; or computed by another program.
enum class From { before, call, copy, program };

void run_steps(const Program& program, From from, int steps, bool& some) {
  CudaStream& lane = CudaStream::local();
  const std::shared_ptr<CudaPlan> plan =
      compile(program, test_pool(), lane, {.donated = {false, false, true, true, false}});
  const int64_t rows = program.input_types()[1].shape[0];
  Builder b;
  const Value given = b.input({DType::i32, {rows}});
  const Program turn = b.take(Values{full(b, given.type(), 68) - given});
  const std::shared_ptr<CudaPlan> turned = compile(turn, test_pool(), lane);

  std::mt19937 random(20261119);
  HostArrays in;
  for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
  const auto device = [&](const HostArray& x) {
    BufferPtr own = lane.allocate(x.type.bytes());
    lane.to_device(own->data(), x.buffer->data(), x.type.bytes());
    return own;
  };
  constexpr int kIndices = 3;
  HostArrays indices;
  std::vector<BufferPtr> places, held;
  for (int k = 0; k < kIndices; ++k) {
    indices.emplace_back(in[1].type);
    for (int64_t i = 0; i < rows; ++i) indices.back().set(i, static_cast<double>((i * (37 + k) + 5 * k) % 70));
    places.push_back(device(indices.back()));
  }
  in[1] = copy_of(indices[0]);
  std::vector<const void*> ins;
  for (const HostArray& x : in) ins.push_back(held.emplace_back(device(x))->data());
  std::vector<std::vector<BufferPtr>> outs;  // by step, if not donated
  lane.wait();

  const int64_t ahead_before = PersistentKernel::ahead_launch_count();
  const void* made = held[1]->data();
  for (int s = 0; s < steps; ++s) {
    if (from == From::before) ins[1] = places[static_cast<size_t>(s % kIndices)]->data();
    if (from == From::call) ins[1] = made;
    if (from == From::copy) lane.copy(held[1]->data(), places[static_cast<size_t>(s % kIndices)]->data(), 4 * rows);
    std::vector<void*> out;
    auto& own = outs.emplace_back();
    for (size_t o = 0; o < program.outputs.size(); ++o) {
      own.push_back(plan->donated_input(o) >= 0 ? nullptr : lane.allocate(program.output_types()[o].bytes()));
      out.push_back(own[o] ? own[o]->data() : const_cast<void*>(ins[static_cast<size_t>(plan->donated_input(o))]));
    }
    plan->run(ins.data(), out.data());
    made = out[4];
    if (from == From::program) {
      void* const to = held[1]->data();
      turned->run(&made, &to);  // of the previous rows
    }
  }
  const int64_t went = PersistentKernel::ahead_launch_count() - ahead_before;
  some |= went > 0;
  EXPECT_TRUE(from == From::before || went == 0) << went;

  HostArrays now = in;
  for (int s = 0; s < steps; ++s) {
    if (from == From::before || from == From::copy) now[1] = indices[static_cast<size_t>(s % kIndices)];
    const HostArrays wanted = eager(program, now);
    for (size_t o = 2; o < wanted.size(); ++o) {
      HostArray got(wanted[o].type);
      lane.to_host(got.buffer->data(), outs[static_cast<size_t>(s)][o]->data(), got.type.bytes());
      EXPECT_EQ(got.values(), wanted[o].values()) << "result " << o << " of step " << s;
    }
    now[2] = wanted[0];
    now[3] = wanted[1];
    if (from == From::call) now[1] = wanted[4];
    if (from == From::program) now[1] = eager(turn, {wanted[4]})[0];
  }
  for (size_t i : {2, 3}) {
    HostArray got(now[i].type);
    lane.to_host(got.buffer->data(), ins[i], got.type.bytes());
    EXPECT_EQ(got.values(), now[i].values()) << "state " << i;
  }
}

// In the second the products gather their rows themselves, and prefetch them ahead.
TEST(PersistentKernelOnGpu, LaunchesThatPrefetchAheadEqualTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  bool some = false;
  for (const auto& [rows, deep, wide] :
       {std::tuple<int64_t, int64_t, int64_t>{128, 784, 1024}, {128, 784, 128}, {64, 100, 40}}) {
    const Program program = a_step(rows, deep, wide);
    for (const From from : {From::before, From::call, From::copy, From::program}) {
      SCOPED_TRACE(fmt::format("{} rows of {} to {}, {}", rows, deep, wide, static_cast<int>(from)));
      run_steps(program, from, brief(20, 4), some);
    }
  }
  EXPECT_EQ(some, CudaFunction::uses_dependent_launch(CudaStream::local().info()));
}

// A launch ahead of the previous kernel's end would share the GPU with kernels of the other runtime.
TEST(PersistentKernelOnGpu, RuntimesThatShareAGpuLaunchNothingAhead) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  const auto launches_ahead = [] {
    bool some = false;
    for (const int64_t wide : {128, 1024})
      if (!some) run_steps(a_step(128, 784, wide), From::before, 3, some);
    return some;
  };
  CudaStream& stream = CudaStream::local();
  const bool alone = CudaFunction::uses_dependent_launch(stream.info());
  EXPECT_EQ(stream.is_exclusive(), stream.info().exclusive);
  EXPECT_EQ(launches_ahead(), alone);
  for (int i = 0; i < 2; ++i) {  // the second may have the address of the first
    {
      Runtime other;
      {
        const RuntimeScope scope(other);
        EXPECT_FALSE(CudaStream::local().is_exclusive());
        EXPECT_FALSE(launches_ahead());
      }
      EXPECT_FALSE(stream.is_exclusive());
      EXPECT_FALSE(launches_ahead());
    }
    EXPECT_EQ(stream.is_exclusive(), stream.info().exclusive);
    EXPECT_EQ(launches_ahead(), alone);
  }
}

// Steps on small integers with metrics: the sums of a layer's results and of the squares of its gradient, and a number
// computed from the step count.
TEST(PersistentKernelOnGpu, RoundsThatOverlapReturnTheSameMetrics) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261121);
  const int64_t before = PersistentKernel::late_phase_count();
  for (const auto& [rows, deep, wide] : {std::tuple<int64_t, int64_t, int64_t>{32, 64, 96}, {16, 200, 128}})
    for (const int64_t length : {2, 3, 6}) {
      SCOPED_TRACE(fmt::format("{} rounds of {} rows of {} to {}", length, rows, deep, wide));
      Builder inner;
      const Value w = inner.input({DType::f32, {deep, wide}}), count = inner.input({DType::i32, {}});
      const Value x = inner.input({DType::f32, {rows, deep}});
      const auto within = [&](const Value& y, int most) {
        return maximum(minimum(y, full(inner, y.type(), most)), full(inner, y.type(), -most));
      };
      const Value small = within(x, 1);
      const Value y = within(einsum("mk,kn->mn", small, w), 1);
      const Value gradient = einsum("mk,mn->kn", small, y);
      const Value rate = cast(count, DType::f32) * full(inner, {DType::f32, {}}, 3);
      Values facts;
      for (const Value& each : {reduce_sum(y, {0, 1}), reduce_sum(gradient * gradient, {0, 1}), rate})
        facts.push_back(reshape(each, {1}));
      facts.push_back(full(inner, {DType::f32, {13}}, 0));
      const auto body = std::make_shared<const Program>(
          inner.take(Values{within(w - gradient, 2), count + full(inner, count.type(), 1), concatenate(facts, 0)}));
      Builder b;
      const Value first = b.input({DType::f32, {deep, wide}}), none = b.input({DType::i32, {}});
      const Value xs = b.input({DType::f32, {length, rows, deep}});
      const Program program = b.take(scan(b, body, {first, none}, {xs}, {}, length, false));
      HostArrays in;
      for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
      const HostArrays wanted = eager(program, in);
      for (const std::vector<bool>& donated : {std::vector<bool>{}, std::vector<bool>{true, true, false}}) {
        const HostArrays got = planned_on_gpu(program, in, donated);
        for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
      }
    }
  EXPECT_GT(PersistentKernel::late_phase_count(), before) << "no last phase overlaps the next round";
}

}  // namespace
}  // namespace lockstep::detail
#endif
