// Arrays that are sharded over several processes: what this process holds of them.
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/create.h"
#include "lockstep/device_put.h"
#include "lockstep/error.h"
#include "support/one_of_processes.h"

namespace lockstep {
namespace {

// Rows [first, last) of an array whose element [i, j] is 10 i + j.
Array numbered_rows(int64_t first, int64_t last, int64_t columns) {
  std::vector<int32_t> values;
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < columns; ++j) values.push_back(static_cast<int32_t>(10 * i + j));
  return Array::from(std::move(values), {last - first, columns});
}

TEST(ProcessShards, ShardsAreThoseOfThisProcess) {
  const OneOfProcesses job(1, 2, 2);
  const NamedSharding rows(make_mesh({{"data", 4}}), P("data"));
  EXPECT_EQ(process_range(rows, 8), (Range{4, 8}));
  const Array x = make_array_from_process_local_data(rows, numbered_rows(4, 8, 3), {8, 3});
  EXPECT_EQ(x.shape(), (Shape{8, 3}));
  const std::vector<Shard> shards = addressable_shards(x);
  ASSERT_EQ(shards.size(), 2u);
  for (int64_t i = 0; i < 2; ++i) {
    const Shard& shard = shards[static_cast<size_t>(i)];
    const int64_t first = 4 + 2 * i;
    EXPECT_EQ(shard.device.id, 2 + i);
    EXPECT_EQ(shard.index, (IndexBox{{first, first + 2}, {0, 3}}));
    EXPECT_EQ(shard.data.to_vector<int>(), numbered_rows(first, first + 2, 3).to_vector<int>());
  }
  EXPECT_EQ(process_local_data(x).to_vector<int>(), numbered_rows(4, 8, 3).to_vector<int>());
}

// 3 rows on 4 pairs of devices; each pair shards the columns.
TEST(ProcessShards, UnevenShardsMayBeEmpty) {
  const OneOfProcesses job(1, 2, 4);
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const NamedSharding both(mesh, P("data", "model"));
  EXPECT_EQ(process_range(NamedSharding(mesh, P("data")), 3), (Range{2, 3}));
  const Array x = make_array_from_process_local_data(both, numbered_rows(2, 3, 6), {3, 6});
  const std::vector<Shard> shards = addressable_shards(x);
  ASSERT_EQ(shards.size(), 4u);
  EXPECT_EQ(shards[0].data.to_vector<int>(), (std::vector<int>{20, 21, 22}));
  EXPECT_EQ(shards[1].data.to_vector<int>(), (std::vector<int>{23, 24, 25}));
  EXPECT_EQ(shards[2].data.shape(), (Shape{0, 3}));
  EXPECT_EQ(shards[3].data.shape(), (Shape{0, 3}));
}

TEST(ProcessShards, DataOfAnotherShapeIsRejected) {
  const OneOfProcesses job(1, 2, 2);
  const NamedSharding rows(make_mesh({{"data", 4}}), P("data"));
  EXPECT_THROWS(make_array_from_process_local_data(rows, numbered_rows(0, 8, 3), {8, 3}), Error,
                "the data is i32[8,3], but process 1 holds [4:8, 0:3] of [8, 3] under P('data'); pass that part");
}

}  // namespace
}  // namespace lockstep
