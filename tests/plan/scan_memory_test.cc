// The loop of a scan on a lane whose kernels require aligned memory, as on a GPU.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/control.h"
#include "ops/ops.h"
#include "plan/lanes.h"
#include "plan/plan.h"

namespace lockstep {
namespace {

constexpr std::string_view kBody = R"(program(%0:f32[3], %1:f32[3]) {
  %2:f32[3] = add %0 %1
  %3:f32[3] = mul %0 %1
  return %2 %3
})";

// Runs a scan of kBody over the rows 1 2 3, 4 5 6, ... from a carry of zeros, and counts the copies of memory.
struct Scanned {
  std::vector<float> last, rows;
  int copies = 0;
  bool aligned = true;  // whether all pointers of the body were aligned

  Scanned(int64_t length, bool reverse, int64_t alignment) : last(3), rows(static_cast<size_t>(3 * length)) {
    const Attrs attrs = {{"body", std::make_shared<const Program>(parse(kBody, all_ops()))},
                         {"carry", int64_t{1}},
                         {"xs", int64_t{1}},
                         {"length", length},
                         {"reverse", reverse}};
    const Type one{DType::f32, {3}}, all{DType::f32, {length, 3}};
    const std::vector<Type> in = {one, all}, out = {one, all};
    Pool& pool = Lanes::current().host_pool();
    const KernelSpec spec{
        in, out, attrs, pool, {}, [&](const Program& body) -> Kernel {
          const std::shared_ptr<Plan> plan = compile(body, pool);
          return [this, plan, alignment](const void* const* from, void* const* to) {
            for (const void* each : {from[0], from[1], const_cast<const void*>(to[0]), const_cast<const void*>(to[1])})
              aligned &= reinterpret_cast<uintptr_t>(each) % static_cast<uintptr_t>(alignment) == 0;
            plan->run(from, to);
          };
        }};
    const Kernel kernel = scan_kernel(spec, {allocate,
                                             [&](void* to, const void* from, int64_t bytes) {
                                               ++copies;
                                               std::memcpy(to, from, static_cast<size_t>(bytes));
                                             },
                                             alignment});
    const BufferPtr carry = allocate(12), xs = allocate(12 * length), end = allocate(12), ys = allocate(12 * length);
    std::memset(carry->data(), 0, 12);
    for (int64_t i = 0; i < 3 * length; ++i) xs->as<float>()[i] = static_cast<float>(i + 1);
    const void* from[] = {carry->data(), xs->data()};
    void* to[] = {end->data(), ys->data()};
    kernel(from, to);
    std::copy_n(end->as<float>(), 3, last.begin());
    std::copy_n(ys->as<float>(), 3 * length, rows.begin());
  }
};

TEST(ScanMemory, UnalignedSlicesAreCopied) {
  for (const bool reverse : {false, true}) {
    const Scanned plain(4, reverse, 1), aligned(4, reverse, 64);
    EXPECT_EQ(plain.last, (std::vector<float>{22, 26, 30}));
    EXPECT_EQ(aligned.last, plain.last);
    EXPECT_EQ(aligned.rows, plain.rows);
    EXPECT_EQ(plain.copies, 0);
    EXPECT_EQ(aligned.copies, 8);
    EXPECT_TRUE(aligned.aligned);
  }
}

TEST(ScanMemory, EmptyLoopCopiesItsCarry) {
  const Scanned none(0, false, 64);
  EXPECT_EQ(none.last, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(none.copies, 1);
}

}  // namespace
}  // namespace lockstep
