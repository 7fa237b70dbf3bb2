// Loops and choices on a GPU: one kernel that reads its condition itself, and rounds and branches that are launched
// separately, as conditional work of a graph.
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

// A plan with its inputs and results at the same addresses in all runs, so that a captured graph is replayed.
class Planned {
 public:
  explicit Planned(const Program& program) : program_(program) {
    ::setenv("LOCKSTEP_CUDA_MATH", "full", 0);  // as in planned_on_gpu()
    plan_ = compile(program, test_pool(), lane_, {});
    for (const Type& type : program.input_types())
      in_.push_back(memory_.emplace_back(lane_.allocate(type.bytes()))->data());
    for (const Type& type : program.output_types())
      out_.push_back(memory_.emplace_back(lane_.allocate(type.bytes()))->data());
  }

  // Runs the plan and returns how often it waited for the GPU.
  int64_t run(const HostArrays& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      lane_.to_device(memory_[i]->data(), inputs[i].buffer->data(), inputs[i].type.bytes());
    const int64_t before = CudaStream::wait_count();
    plan_->run(in_.data(), out_.data());
    return CudaStream::wait_count() - before;
  }
  HostArrays results() const {
    HostArrays out;
    for (size_t o = 0; o < out_.size(); ++o) {
      out.emplace_back(program_.output_types()[o]);
      lane_.to_host(out[o].buffer->data(), out_[o], out[o].type.bytes());
    }
    return out;
  }
  std::string schedule() const { return plan_->schedule(); }

 private:
  const Program program_;
  CudaStream& lane_ = CudaStream::local();
  std::shared_ptr<CudaPlan> plan_;
  std::vector<BufferPtr> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

bool gpu_decides(bool one_kernel) { return one_kernel || CudaStream::has_graph_conditions(); }

// The host does not learn the number of rounds, so programs with such a loop can be captured as graphs.
TEST(WhileLoopOnGpu, TheHostDoesNotWait) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  std::mt19937 random(7);
  for (const bool sorts : {false, true}) {
    const Program program = rounds_of_products(false, sorts);
    Planned plan(program);
    HostArrays in;
    for (const Type& type : program.input_types()) in.push_back(small_integers(type, random()));
    in[0].set(0, 0);
    int runs = 0;
    for (const int n : {3, 3, 3, 0, 4, 1, 2, 5}) {
      SCOPED_TRACE(fmt::format("{} rounds{}", n, sorts ? ", sorted" : ""));
      in[2].set(0, n);
      const int64_t waits = plan.run(in);
      if (++runs > 1) {
        EXPECT_EQ(waits == 0, gpu_decides(!sorts)) << plan.schedule();
      }
      const HostArrays wanted = eager(program, in), got = plan.results();
      for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
    }
  }
}

// Sorting is a kernel of its own, so `x` sorted once for each round is more than one kernel per round.
ProgramPtr sorted_sum(int64_t factor) {
  Builder b;
  const Value x = b.input({DType::f32, {300}});
  const Value sorted = sort({x}, 0)[0];
  return taken(b, {sorted * full(b, sorted.type(), factor) + x});
}

TEST(CondOnGpu, TheHostDoesNotWaitOnceAllBranchesHaveRun) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  for (const int64_t branches : {2, 3, 40}) {
    Builder b;
    const Value which = b.input({branches == 2 ? DType::boolean : DType::i32, {}}), x = b.input({DType::f32, {300}});
    std::vector<ProgramPtr> all;
    for (int64_t i = 0; i < branches; ++i) all.push_back(sorted_sum(i));
    const Program program =
        b.take(branches == 2 ? cond(which, all[1], all[0], Values{x}) : switch_case(which, all, Values{x}));
    Planned plan(program);
    HostArrays in = {HostArray(program.input_types()[0]), small_integers(program.input_types()[1], 5)};
    const auto run = [&](int64_t branch) {
      SCOPED_TRACE(fmt::format("branch {} of {}", branch, branches));
      in[0].set(0, static_cast<double>(branch));
      const int64_t waits = plan.run(in);
      EXPECT_EQ(plan.results()[0].values(), eager(program, in)[0].values());
      return waits;
    };
    EXPECT_GT(run(0), 0);
    EXPECT_GT(run(0), 0) << "the other branches have not run";
    for (int64_t i = 1; i < branches; ++i) run(i);
    for (const int64_t i : {int64_t{0}, int64_t{1}, branches - 1, int64_t{1}})
      EXPECT_EQ(run(i) == 0, gpu_decides(false));
    if (branches > 2)
      for (const int64_t outside : {int64_t{-7}, branches, branches + 9}) run(outside);
  }
}

// A loop in a choice in a loop: how many rounds the inner one has depends on the round of the outer one.
TEST(WhileLoopOnGpu, NestsWithChoicesAndLoops) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  const Type one{DType::i32, {}}, many{DType::f32, {300}};
  const auto count_down = [&](const ProgramPtr& change) {
    Builder body, more;
    const Value n = body.input(one), x = body.input(many);
    const Value changed = body.inline_program(*change, Values{n, x})[0];
    const ProgramPtr round = taken(body, {n - full(body, one, 1), changed});
    const Value left = more.input(one);
    more.input(many);
    const ProgramPtr any = taken(more, {lt(full(more, one, 0), left)});
    Builder b;
    const Value rounds = b.input(one), start = b.input(many);
    return taken(b, {while_loop(b, any, round, {}, {}, {rounds, start})[1]});
  };
  const auto plus = [&](int64_t add, bool sorts) {
    Builder b;
    b.input(one);
    const Value x = b.input(many);
    const Value y = sorts ? sort({neg(x)}, 0)[0] : x;
    return taken(b, {y + full(b, many, add)});
  };
  const ProgramPtr inner = count_down(plus(1, true)), still = plus(5, true);
  Builder b;
  const Value n = b.input(one), x = b.input(many);
  const Value is_even = eq(bit_and(n, full(b, one, 1)), full(b, one, 0));
  const ProgramPtr choice = taken(b, cond(is_even, inner, still, {n, x}));
  const ProgramPtr outer = count_down(choice);
  Planned plan(*outer);
  HostArrays in = {HostArray(one), small_integers(many, 3)};
  int runs = 0;
  for (const int rounds : {5, 5, 5, 5, 0, 1, 4, 7}) {
    SCOPED_TRACE(fmt::format("{} rounds", rounds));
    in[0].set(0, rounds);
    const int64_t waits = plan.run(in);
    if (++runs > 3) {
      EXPECT_EQ(waits == 0, gpu_decides(false));
    }
    EXPECT_EQ(plan.results()[0].values(), eager(*outer, in)[0].values());
  }
}

}  // namespace
}  // namespace lockstep
#endif
