// The GPU kernels of losses and of the gradients of tables: the same bits from run to run and in place, and arrays that
// are not aligned to 16 bytes.
#ifdef LOCKSTEP_WITH_CUDA
#include "rows/on_gpu.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

class LossOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }
};

// Adds `places` updates to a table [200, 72], with enough of them that the indices are sorted.
Sample table_sample(DType dtype, double first, double last, int64_t places = 2400) {
  return {{{{dtype, {200, 72}}}, {{i32, {places}}, {Domain::real, first, last}}, {{dtype, {places, 72}}}},
          {{"axis", int64_t{0}}, {"batch_dims", int64_t{0}}}};
}

Sample loss_sample(DType dtype, int64_t classes) {
  const Shape rows{9};
  return {{{{dtype, {9, classes}}},
           {{i32, rows}, {Domain::real, -1, static_cast<double>(classes)}},
           {{f32, rows}, {Domain::real, 0, 8}},
           {{f32, rows}, {Domain::ties}}},
          {{"smoothing", 0.1}}};
}
Sample without_gradient(Sample sample) {
  sample.in.resize(2);
  return sample;
}

void expect_same_bits(const HostArrays& got, const HostArrays& wanted) {
  for (size_t k = 0; k < wanted.size(); ++k) EXPECT_TRUE(same_bits(got[k], wanted[k])) << "result " << k;
}

TEST_F(LossOnGpu, RunsGiveTheSameBits) {
  const auto expect = [](const Op& op, const Sample& sample) {
    SCOPED_TRACE(sample.text(op));
    const HostArrays in = make_inputs(sample, 5);
    const Program p = program_of(op, sample);
    const HostArrays first = planned_on_gpu(p, in);
    expect_same_bits(planned_on_gpu(p, in), first);
    expect_same_bits(planned_on_gpu(p, in, {true}), first);
  };
  for (const DType dtype : {f32, bf16}) {
    expect(scatter_add_op, table_sample(dtype, -1, 30));
    for (const int64_t classes : {1000, 5001}) {
      expect(cross_entropy_op, without_gradient(loss_sample(dtype, classes)));
      expect(cross_entropy_grad_op, loss_sample(dtype, classes));
    }
  }
}

// All updates are of one row: sums of parts, in order.
TEST_F(LossOnGpu, OneIndexThousandsOfTimes) {
  for (const DType dtype : {f32, bf16, i32}) {
    SCOPED_TRACE(name(dtype));
    const Sample sample = table_sample(dtype, 7, 7);
    const HostArrays in = make_inputs(sample, 6);
    RefArrays wide;
    for (const HostArray& x : in) wide.push_back(to_reference(x));
    expect_close(planned_on_gpu(program_of(scatter_add_op, sample), in)[0],
                 from_reference(reference_of(scatter_add_op, sample, wide)[0]));
  }
}

// Runs the program with every floating operand and result one element behind an aligned address.
HostArrays unaligned_on_gpu(const Program& p, const HostArrays& inputs) {
  CudaStream& lane = CudaStream::local();
  const auto plan = compile(p, test_pool(), lane, {});
  std::vector<BufferPtr> held;
  const auto memory = [&](const Type& type) {
    const int64_t offset = is_floating(type.dtype) ? size_of(type.dtype) : 0;
    return held.emplace_back(lane.allocate(type.bytes() + offset))->data() + offset;
  };
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const HostArray& x : inputs) {
    std::byte* const at = memory(x.type);
    lane.to_device(at, x.buffer->data(), x.type.bytes());
    from.push_back(at);
  }
  for (const Type& type : p.output_types()) to.push_back(memory(type));
  plan->run(from.data(), to.data());
  HostArrays out;
  for (size_t o = 0; o < to.size(); ++o) {
    out.emplace_back(p.output_types()[o]);
    lane.to_host(out[o].buffer->data(), to[o], out[o].type.bytes());
  }
  return out;
}

TEST_F(LossOnGpu, UnalignedArraysGiveTheSameBits) {
  const auto expect = [](const Op& op, const Sample& sample) {
    SCOPED_TRACE(sample.text(op));
    const HostArrays in = make_inputs(sample, 5);
    const Program p = program_of(op, sample);
    expect_same_bits(unaligned_on_gpu(p, in), planned_on_gpu(p, in));
  };
  for (const DType dtype : {f32, bf16}) {
    expect(scatter_add_op, table_sample(dtype, -1, 30));
    expect(cross_entropy_op, without_gradient(loss_sample(dtype, 5001)));
    expect(cross_entropy_grad_op, loss_sample(dtype, 1000));
  }
}

}  // namespace
}  // namespace lockstep
#endif
