// Convolutions on the GPU by this library's kernels and by cuDNN give the same results.
#ifdef LOCKSTEP_WITH_CUDA
#include "ops/cuda/conv_choice.h"
#include "rows/on_gpu.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

class ConvOnGpu : public testing::TestWithParam<ConvBackend> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
    set_conv_backend(GetParam());
  }
  void TearDown() override { set_conv_backend(ConvBackend::fastest); }
};

INSTANTIATE_TEST_SUITE_P(Backend, ConvOnGpu, testing::Values(ConvBackend::own, ConvBackend::cudnn),
                         [](const auto& by) { return by.param == ConvBackend::own ? "own" : "cudnn"; });

TEST_P(ConvOnGpu, MatchesReference) {
  for (const Op* op : {&conv2d_op, &conv2d_fused_op, &conv2d_input_grad_op, &conv2d_filter_grad_op})
    for (const Sample& sample : row_of(*op).samples) {
      SCOPED_TRACE(sample.text(*op));
      const HostArrays in = make_inputs(sample, 7);
      RefArrays wide;
      for (const HostArray& x : in) wide.push_back(to_reference(x));
      const RefArrays wanted = reference_of(*op, sample, wide);
      const HostArrays got = planned_on_gpu(program_of(*op, sample), in);
      for (size_t k = 0; k < got.size(); ++k) expect_close(got[k], from_reference(wanted[k]));
    }
}

TEST_P(ConvOnGpu, IsDeterministic) {
  const Sample sample{{{{f32, {8, 14, 14, 32}}}, {{f32, {8, 14, 14, 64}}}},
                      {{"stride", std::vector<int64_t>{1, 1}},
                       {"pad", std::vector<int64_t>{2, 2, 2, 2}},
                       {"lhs_dilation", std::vector<int64_t>{1, 1}},
                       {"rhs_dilation", std::vector<int64_t>{1, 1}},
                       {"groups", int64_t{1}},
                       {"shape", std::vector<int64_t>{5, 5, 32, 64}}}};
  const Program p = program_of(conv2d_filter_grad_op, sample);
  const HostArrays in = make_inputs(sample, 3);
  const HostArray first = planned_on_gpu(p, in)[0], again = planned_on_gpu(p, in)[0];
  EXPECT_EQ(first.values(), again.values());
}

}  // namespace
}  // namespace lockstep
#endif
