// Counts the heap allocations of this program: a compiled step makes none after the first calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "lockstep/lockstep.h"

#include "support/sanitizers.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

#if !LOCKSTEP_ADDRESS_SANITIZER && !LOCKSTEP_THREAD_SANITIZER

namespace {
void* counted(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes ? bytes : 1) != 0) throw std::bad_alloc();
  return memory;
}
}  // namespace

// The array forms and those without exceptions call these.
void* operator new(size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

#endif

namespace lockstep {
namespace {

struct Params {
  Array w1, b1, w2, b2;
};
struct Batch {
  Array image, label;
};
struct Result {
  Params params;
  Array loss;
};

Array loss(const Params& p, const Batch& b) {
  const Array hidden = tanh(dot(b.image, p.w1) + p.b1);
  return -mean(sum(log_softmax(dot(hidden, p.w2) + p.b2) * b.label, 1));
}

// Allocations in `calls` calls of f, after as many to warm up.
template <class F>
int64_t count_allocations(F f, int calls = 20) {
  for (int i = 0; i < calls; ++i) f();
  const int64_t before = allocations;
  for (int i = 0; i < calls; ++i) f();
  return allocations - before;
}

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
#if LOCKSTEP_ADDRESS_SANITIZER || LOCKSTEP_THREAD_SANITIZER
    GTEST_SKIP() << "sanitizers allocate for themselves";
#endif
  }
};

TEST_F(Allocation, CounterCountsAllocations) {
  static int* volatile place;  // the compiler may remove an unobserved pair of new and delete
  EXPECT_EQ(count_allocations(
                [] {
                  place = new int;
                  delete place;
                },
                5),
            5);
}

TEST_F(Allocation, TrainingStepAllocatesNothing) {
  const auto step = jit(
      [](Params p, Batch b) {
        auto [value, g] = value_and_grad(loss)(p, b);
        return Result{tree_map([](Array w, Array dw) { return w - 0.1f * dw; }, p, g), value};
      },
      {.donate = {0}});
  Params params{random::normal(random::key(0), {64, 128}), zeros({128}), random::normal(random::key(1), {128, 10}),
                zeros({10})};
  const Batch batch{random::uniform(random::key(2), {32, 64}), one_hot(arange(32) % 10, 10)};
  Array value;
  EXPECT_EQ(count_allocations([&] {
              Result r = step(params, batch);
              params = std::move(r.params);
              value = std::move(r.loss);
            }),
            0);
  EXPECT_GT(value.item<float>(), 0);
  EXPECT_EQ(step.compiled(), 1u);
}

TEST_F(Allocation, StaticArgumentsAndNumbersAllocateNothing) {
  const auto f = jit([](Array x, Array scale, int power) {
    for (int i = 0; i < power; ++i) x = x * scale;
    return x;
  });
  const Array x = ones({1000});
  EXPECT_EQ(count_allocations([&] { f(x, 0.5f, 3); }), 0);
}

TEST_F(Allocation, CallsOfSeveralVersionsInTurnAllocateNothing) {
  const auto f = jit([](Array x, int power) {
    for (int i = 0; i < power; ++i) x = x * 2;
    return x;
  });
  const Array x = ones({10});
  EXPECT_EQ(count_allocations([&] {
              for (int power = 0; power < 4; ++power) f(x, power);
            }),
            0);
}

// One is the list of results.
TEST_F(Allocation, KnownOperationsOutsideOfTracesMakeNoProgram) {
  const Array x = ones({10}), y = ones({10});
  constexpr int kCalls = 20;
  EXPECT_EQ(count_allocations([&] { x + y; }, kCalls), kCalls);
  EXPECT_EQ(count_allocations([&] { x * 2.5f; }, kCalls), kCalls);
}

TEST_F(Allocation, LoopsAndBranchesAllocateNothing) {
  const auto f = jit([](Array x) {
    const Array y = scan(
                        [](Array c, Nothing) {
                          return std::pair{tanh(c) + 0.1f, Nothing{}};
                        },
                        x, Nothing{}, {.length = 5})
                        .first;
    return cond(
        sum(y) > 0.f, [](Array z) { return dot(z, z); }, [](Array z) { return z; }, y);
  });
  const Array x = random::normal(random::key(0), {16, 16});
  EXPECT_EQ(count_allocations([&] { f(x); }), 0);
}

TEST_F(Allocation, RandomSortAndConvolutionAllocateNothing) {
  const auto f = jit([](Array key, Array w) {
    const Array x = random::normal(key, {4, 8, 8, 3});
    const Array pooled = max_pool(relu(conv2d(x, w)));
    return std::tuple{pooled, sort(ravel(x)), argmax(x), cumsum(x, 1), random::permutation(key, 100)};
  });
  const Array key = random::key(0), w = ones({3, 3, 3, 8});
  EXPECT_EQ(count_allocations([&] { f(key, w); }), 0);
}

}  // namespace
}  // namespace lockstep
