// GPU kernels are texts: that of every elementwise row and dtype must compile, which needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16,    DType::i32,
                          DType::i64, DType::u8,  DType::u32,  DType::boolean};

// Every elementwise row that takes this dtype, each an output of one program.
Program all_rows_of(DType dtype) {
  Builder b;
  const Type type{dtype, {3, 5}};
  const Value x = b.input(type), y = b.input(type), p = b.input({DType::boolean, {3, 5}});
  Values out;
  for (const Op* op : all_ops()) {
    if (!op->loop || op == &cast_op || op == &bitcast_op || op == &select_op) continue;
    for (const size_t operands : {1u, 2u}) {
      const std::vector<Type> in(operands, type);
      try {
        infer_types(*op, in, {});
      } catch (const Error&) {
        continue;
      }
      out.push_back(emit(*op, operands == 1 ? Values{x} : Values{x, y}));
    }
  }
  out.push_back(select(p, x, y));
  for (const DType to : kAll) out.push_back(cast(x, to));
  return b.take(out);
}

TEST(CudaText, EveryElementwiseRowCompiles) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  for (const DType dtype : kAll) {
    SCOPED_TRACE(name(dtype));
    const Program p = all_rows_of(dtype);
    EXPECT_GT(p.outputs.size(), 20u);
    EXPECT_FALSE(compile_quickly(elementwise_text(p), "sm_90").empty());
  }
}

TEST(CudaText, KernelsAreNamedAfterRows) {
  EXPECT_EQ(kernel_name("top_k"), "lockstep_top_k");
  EXPECT_EQ(kernel_name("einsum with column sums"), "lockstep_einsum_with_column_sums");
  Builder b;
  const Value x = b.input({DType::f32, {4}});
  const std::string text = elementwise_text(b.take(Values{add(x, x)}));
  EXPECT_NE(text.find("lockstep_elementwise("), std::string::npos) << text;
}

TEST(CudaText, ViewsAreReadInPlace) {
  Builder b;
  const Value x = b.input({DType::f32, {4, 6}}), v = b.input({DType::f32, {6}});
  const std::string text = elementwise_text(b.take(Values{add(transpose(x, {1, 0}), broadcast(v, {6, 4}, {0}))}));
  EXPECT_NE(text.find("load(in0[(((i) % 4u) * 6u) + (i / 4u)]);"), std::string::npos) << text;
  EXPECT_NE(text.find("out0[i] = Store<float>::of("), std::string::npos) << text;
  if (has_cuda_compiler()) {
    EXPECT_FALSE(compile_quickly(text, "sm_80").empty());
  }
}

// Few elements of a large array: the distance between them decides, not their number.
TEST(CudaText, LargePositionsAreComputedIn64Bits) {
  const Shape some{100000, 10};
  EXPECT_EQ(position_text({.offset = 0, .strides = {100, 1}}, some, "i"), "((i) % 10u) + ((i / 10u) * 100u)");
  EXPECT_EQ(position_text({.offset = 0, .strides = {100000, 1}}, some, "i"),
            "((i) % 10u) + (int64_t(i / 10u) * (100000ll))");
}

TEST(CudaText, CompileErrorsContainTheCompilersMessage) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  try {
    compile_quickly("extern \"C\" __global__ void f() { nonsense; }", "sm_90");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"nonsense\" is undefined"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
#endif
