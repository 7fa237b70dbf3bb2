// Peaks of GPUs are found by the words of their names.
#include "train/peak.h"

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

TEST(PeakOfGpu, DependsOnTheNameAndTheType) {
  EXPECT_EQ(peak_of_gpu("NVIDIA H200", DType::bf16, true), 989.4e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H200", DType::f16, false), 989.4e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H200", DType::f8_e4m3, true), 1978.9e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H200", DType::f32, true), 494.7e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H200", DType::f32, false), 67e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H100 80GB HBM3", DType::bf16, true), 989.4e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H100 PCIe", DType::bf16, true), 756.5e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA H20", DType::bf16, true), 148e12);
  EXPECT_EQ(peak_of_gpu("NVIDIA A100-SXM4-80GB", DType::f32, true), 156e12);
  EXPECT_EQ(peak_of_gpu("Tesla V100-SXM2-16GB", DType::f32, true), 15.7e12);
}

TEST(PeakOfGpu, OfOtherGpusIsUnknown) {
  for (const char* name : {"", "NVIDIA RTX A1000", "NVIDIA RTX A3000 Laptop GPU", "NVIDIA L400", "Emulated GPU"})
    EXPECT_EQ(peak_of_gpu(name, DType::bf16, true), 0) << name;
  EXPECT_EQ(peak_of_gpu("NVIDIA H200", DType::f64, false), 0);
  EXPECT_EQ(peak_of_gpu("NVIDIA A100-SXM4-80GB", DType::f8_e4m3, true), 0);
}

}  // namespace
}  // namespace lockstep::detail
