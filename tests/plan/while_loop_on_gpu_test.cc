// while_loop on a GPU: one kernel that reads its condition itself, and rounds that are launched separately.
#ifdef LOCKSTEP_WITH_CUDA
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "hardware/cuda/api.h"
#include "ops/control.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "rows/on_gpu.h"

namespace lockstep {
namespace {

ProgramPtr taken(Builder& b, const Values& outputs) { return std::make_shared<const Program>(b.take(outputs)); }

// Runs n rounds of two matrices, on integers. `crossed`: a matrix is written before its last use. `sorts`: a round is
// more than one kernel.
Program rounds_of_products(bool crossed, bool sorts) {
  const Type square{DType::bf16, {64, 64}}, one{DType::i32, {}};
  Builder body, cond, b;
  const Value w = body.input(square), n = body.input(one), a = body.input(square), c = body.input(square);
  const auto little = [&](const Value& y) {
    return maximum(minimum(y, full(body, square, 2)), full(body, square, -2));
  };
  const Value product = little(einsum("mk,kn->mn", a, w) + c);
  const Value next = crossed ? c : little(c + w);
  const ProgramPtr round = taken(body, {n - full(body, one, 1), next, sorts ? sort({product}, 1)[0] : product});
  const Value least = cond.input(one), left = cond.input(one);
  cond.input(square);
  cond.input(square);
  const ProgramPtr more = taken(cond, {lt(least, left)});
  const Value zero = b.input(one), weights = b.input(square), count = b.input(one), first = b.input(square),
              second = b.input(square);
  return b.take(while_loop(b, more, round, {zero}, {weights}, {count, first, second}));
}

TEST(WhileLoopOnGpu, AnyNumberOfRoundsEqualsTheReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(20261119);
  for (const bool crossed : {false, true})
    for (const bool sorts : {false, true}) {
      const Program program = rounds_of_products(crossed, sorts);
      for (const int n : {-1, 0, 1, 2, 5}) {
        SCOPED_TRACE(fmt::format("{} rounds{}{}", n, crossed ? ", crossed" : "", sorts ? ", sorted" : ""));
        HostArrays in;
        for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
        in[0].set(0, 0);
        in[2].set(0, n);
        const HostArrays wanted = eager(program, in);
        for (const std::vector<bool>& donated :
             {std::vector<bool>{}, std::vector<bool>{false, false, true, true, true}}) {
          const HostArrays got = planned_on_gpu(program, in, donated);
          for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
        }
      }
    }
}

// The host does not learn the number of rounds, so programs with such a loop can be captured as graphs.
TEST(WhileLoopOnGpu, OneKernelDoesNotWait) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  ::setenv("LOCKSTEP_CUDA_MATH", "full", 0);  // as in planned_on_gpu()
  CudaStream& lane = CudaStream::local();
  for (const bool sorts : {false, true}) {
    const Program program = rounds_of_products(false, sorts);
    const auto plan = compile(program, test_pool(), lane, {});
    std::vector<BufferPtr> memory;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const Type& type : program.input_types()) {
      in.push_back(memory.emplace_back(lane.allocate(type.bytes()))->data());
      lane.clear(memory.back()->data(), type.bytes());
    }
    for (const Type& type : program.output_types())
      out.push_back(memory.emplace_back(lane.allocate(type.bytes()))->data());
    plan->run(in.data(), out.data());
    const int64_t before = CudaStream::wait_count();
    plan->run(in.data(), out.data());
    EXPECT_EQ(CudaStream::wait_count() > before, sorts) << plan->schedule();
    lane.wait();
  }
}

}  // namespace
}  // namespace lockstep
#endif
