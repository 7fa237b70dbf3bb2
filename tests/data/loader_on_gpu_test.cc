// On a GPU (LOCKSTEP_PLATFORM=cuda): row numbers of batches are uploaded ahead, without waiting for the GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include "lane/cuda/cuda_stream.h"
#include "lockstep/devices.h"
#include "lockstep/loader.h"
#include "lockstep/math.h"

namespace lockstep {
namespace {

TEST(LoaderOnGpu, RowsAreUploadedWithoutWaiting) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "LOCKSTEP_PLATFORM is not cuda";
  const ImageDataset set{.images = std::vector<uint8_t>(50),
                         .labels = std::vector<uint8_t>(50),
                         .count = 50,
                         .rows = 1,
                         .cols = 1,
                         .classes = 1};
  const LoaderOptions options{.batch_size = 8, .seed = 3};
  Loader loader(set, options);
  // More batches than are uploaded ahead, then a seek.
  std::vector<Array> there;
  std::vector<std::vector<int>> here;
  const int64_t before = CudaStream::wait_count();
  const auto walk = [&](int batches) {
    for (int i = 0; i < batches; ++i) {
      const LoaderBatch batch = loader.next();
      there.push_back(batch.rows + 1);  // computed on the GPU
      here.push_back(batch.rows.to_vector<int>());
    }
  };
  walk(200);
  loader.seek({.epoch = 2, .sample = 16});
  walk(3);
  EXPECT_EQ(CudaStream::wait_count(), before);
  for (size_t i = 0; i < there.size(); ++i) {
    for (int& row : here[i]) ++row;
    EXPECT_EQ(there[i].to_vector<int>(), here[i]) << "batch " << i;
  }
  EXPECT_EQ(here[200], here[16]);  // two epochs of seven batches, plus two batches
}

}  // namespace
}  // namespace lockstep
#endif
