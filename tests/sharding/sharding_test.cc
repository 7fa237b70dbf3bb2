#include "lockstep/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <unordered_set>

#include "base/throws.h"
#include "lockstep/error.h"
#include "sharding/grid.h"

namespace lockstep {
namespace {

TEST(PartitionSpec, PrintsAsInJax) {
  EXPECT_EQ(to_string(P()), "P()");
  EXPECT_EQ(to_string(P("data")), "P('data')");
  EXPECT_EQ(to_string(P("data", {})), "P('data', None)");
  EXPECT_EQ(to_string(P({}, "model")), "P(None, 'model')");
  EXPECT_EQ(to_string(P({"x", "y"}, {})), "P(('x', 'y'), None)");
  EXPECT_EQ(to_string(P({"x", "y"})), "P(('x', 'y'))");
  EXPECT_EQ(to_string(P({"x"})), "P('x')");
  EXPECT_EQ(to_string(P({})), "P(None)");
  EXPECT_EQ(to_string(P("data", nullptr, {"x", "y"})), "P('data', None, ('x', 'y'))");
  EXPECT_EQ(to_string(P(std::nullopt, std::string("data"))), "P(None, 'data')");
  EXPECT_EQ(to_string(P("a", "b", "c", "d", "e", "f")), "P('a', 'b', 'c', 'd', 'e', 'f')");
  EXPECT_EQ(to_string(P("x").with_unreduced({"z", "y"})), "P('x', unreduced={'y', 'z'})");
  EXPECT_EQ(to_string(P().with_unreduced({"y"})), "P(unreduced={'y'})");
}

TEST(PartitionSpec, IgnoresTrailingEmptyEntries) {
  EXPECT_EQ(P(), P({}));
  EXPECT_EQ(P("x"), P("x", {}, nullptr));
  EXPECT_EQ(P({"x"}), P("x"));
  const std::unordered_set<PartitionSpec> set = {P(),
                                                 P({}),
                                                 P("x"),
                                                 P("x", {}),
                                                 P({}, "x"),
                                                 P("x", "y"),
                                                 P({"x", "y"}),
                                                 P({"y", "x"}),
                                                 P("x").with_unreduced({"y"}),
                                                 P("x", {}).with_unreduced({"y"})};
  EXPECT_EQ(set.size(), 7u);
}

TEST(ShardRange, LargerShardsComeFirst) {
  EXPECT_EQ(shard_range(128, 3, 0), (Range{0, 43}));
  EXPECT_EQ(shard_range(128, 3, 1), (Range{43, 86}));
  EXPECT_EQ(shard_range(128, 3, 2), (Range{86, 128}));
  EXPECT_EQ(shard_range(2, 4, 1), (Range{1, 2}));
  EXPECT_EQ(shard_range(2, 4, 3), (Range{2, 2}));
  EXPECT_EQ(shard_range(0, 4, 3), (Range{0, 0}));
  EXPECT_EQ(to_string(Range{43, 86}), "43:86");
}

TEST(NamedSharding, MatchesJax) {
  std::ifstream file(LOCKSTEP_TEST_DATA "/shard_indices.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden["cases"].empty());
  for (const auto& entry : golden["cases"]) {
    SCOPED_TRACE(entry.dump());
    PartitionSpec spec;
    for (const auto& axes : entry["spec"])
      spec.entries.push_back(axes.is_null() ? SpecEntry() : SpecEntry(axes.get<std::vector<std::string>>()));
    const NamedSharding sharding(grid(entry["mesh"], entry["axes"]), spec);
    const Shape shape = entry["shape"];
    EXPECT_EQ(sharding.shard_shape(shape), entry["shard_shape"].get<Shape>());
    const auto map = sharding.devices_indices_map(shape);
    EXPECT_EQ(map.size(), entry["indices"].size());
    for (const auto& [device, box] : map) {
      nlohmann::json got = nlohmann::json::array();
      for (const Range& range : box) got.push_back({range.begin, range.end});
      EXPECT_EQ(got, entry["indices"][std::to_string(device.id)]) << to_string(device);
    }
  }
}

// Random meshes, specs and shapes.
class RandomSharding : public testing::TestWithParam<int> {
 protected:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  Mesh random_mesh() {
    Shape shape;
    std::vector<std::string> names;
    for (int64_t i = pick(1, 4); i-- > 0;) {
      shape.push_back(pick(1, 3));
      names.push_back(std::string(1, static_cast<char>('a' + i)));
    }
    std::vector<Device> devices = cpu_devices(static_cast<int>(count(shape)));
    std::shuffle(devices.begin(), devices.end(), random_);
    const Mesh mesh(devices, shape, names);
    EXPECT_EQ(mesh.shape(), shape);
    EXPECT_EQ(mesh.axis_names(), names);
    EXPECT_EQ(mesh.devices(), devices);
    return mesh;
  }

  PartitionSpec random_spec(const Mesh& mesh, int64_t rank) {
    PartitionSpec spec;
    spec.entries.resize(static_cast<size_t>(rank));
    std::vector<std::string> shuffled = mesh.axis_names();
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
    for (const std::string& name : shuffled)
      if (const int64_t where = pick(0, rank); where < rank)
        spec.entries[static_cast<size_t>(where)].axes.push_back(name);
    return spec;
  }

  Shape random_shape(int64_t rank) {
    Shape shape;
    for (int64_t d = 0; d < rank; ++d) shape.push_back(pick(0, 7));
    return shape;
  }

 private:
  std::mt19937 random_{static_cast<unsigned>(GetParam())};
};

// The shard of one dimension that a device holds: number `index` of `count`.
struct ShardNumber {
  int64_t count = 1, index = 0;
};

ShardNumber shard_number(const Mesh& mesh, const SpecEntry& entry, const Device& device) {
  const auto coordinates = mesh.coordinates(device);
  ShardNumber out;
  for (const std::string& axis : entry.axes) {
    const size_t a = *mesh.find_axis(axis);
    out.count *= mesh.shape()[a];
    out.index = out.index * mesh.shape()[a] + coordinates[a];
  }
  return out;
}

// The range of that shard. Deals elements out one by one to find the size of each shard.
Range expected_range(int64_t extent, ShardNumber number) {
  std::vector<int64_t> sizes(static_cast<size_t>(number.count));
  for (int64_t i = 0; i < extent; ++i) ++sizes[static_cast<size_t>(i % number.count)];
  int64_t begin = 0;
  for (int64_t i = 0; i < number.index; ++i) begin += sizes[static_cast<size_t>(i)];
  return {begin, begin + sizes[static_cast<size_t>(number.index)]};
}

// Whether the box contains the element at this position in row-major order.
bool contains_element(const IndexBox& box, const Shape& shape, int64_t element) {
  bool inside = true;
  for (size_t d = shape.size(); d-- > 0; element /= shape[d])
    inside &= element % shape[d] >= box[d].begin && element % shape[d] < box[d].end;
  return inside;
}

// Compares with ranges computed from the device's coordinates alone.
TEST_P(RandomSharding, AssignsEachElementToTheRightDevices) {
  const Mesh mesh = random_mesh();
  const int64_t rank = pick(0, 3);
  const PartitionSpec spec = random_spec(mesh, rank);
  const Shape shape = random_shape(rank);
  const NamedSharding sharding(mesh, spec);
  SCOPED_TRACE(to_string(sharding) + to_string(shape));

  bool replicated = true;
  const auto map = sharding.devices_indices_map(shape);
  ASSERT_EQ(map.size(), mesh.devices().size());
  for (const auto& [device, box] : map) {
    ASSERT_EQ(box.size(), shape.size());
    for (size_t d = 0; d < shape.size(); ++d) {
      const ShardNumber number = shard_number(mesh, spec.entries[d], device);
      EXPECT_EQ(sharding.num_shards(static_cast<int64_t>(d)), number.count);
      replicated &= number.count == 1;
      EXPECT_EQ(box[d], expected_range(shape[d], number));
    }
  }
  EXPECT_EQ(sharding.is_fully_replicated(), replicated);

  // Shards tile the array: every element has the same number of owners.
  int64_t shards = 1;
  for (int64_t d = 0; d < rank; ++d) shards *= sharding.num_shards(d);
  for (int64_t element = 0; element < count(shape); ++element) {
    int64_t owners = 0;
    for (const auto& [device, box] : map) owners += contains_element(box, shape, element);
    EXPECT_EQ(owners, mesh.size() / shards) << "element " << element;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSharding, testing::Range(0, 200));

TEST(NamedSharding, EqualShardingsShareOneAddress) {
  const Mesh mesh = grid({2, 2}, {"x", "y"});
  const NamedSharding a(mesh, P("x"));
  EXPECT_EQ(a.address(), NamedSharding(grid({2, 2}, {"x", "y"}), P("x", {})).address());
  EXPECT_EQ(to_string(NamedSharding(mesh, P("x", {}))), "NamedSharding(Mesh('x': 2, 'y': 2), P('x'))");
  const std::unordered_set<NamedSharding> set = {a,
                                                 NamedSharding(mesh, P("y")),
                                                 NamedSharding(mesh, P("x", "y")),
                                                 NamedSharding(grid({4, 1}, {"x", "y"}), P("x")),
                                                 NamedSharding(mesh, P("x").with_unreduced({"y"})),
                                                 NamedSharding()};
  EXPECT_EQ(set.size(), 6u);
  EXPECT_EQ(a.mesh(), mesh);
  EXPECT_EQ(a.spec(), P("x"));
  EXPECT_FALSE(NamedSharding().defined());
}

TEST(NamedSharding, IsReplicatedWhenNothingIsShardedOrUnreduced) {
  const Mesh mesh = grid({4, 1}, {"x", "one"});
  EXPECT_TRUE(NamedSharding(mesh, P()).is_fully_replicated());
  EXPECT_TRUE(NamedSharding(mesh, P("one")).is_fully_replicated());
  EXPECT_TRUE(NamedSharding(mesh, P().with_unreduced({"one"})).is_fully_replicated());
  EXPECT_FALSE(NamedSharding(mesh, P({}, "x")).is_fully_replicated());
  EXPECT_FALSE(NamedSharding(mesh, P().with_unreduced({"x"})).is_fully_replicated());
}

TEST(NamedSharding, AddressesOnlyDevicesOfThisProcess) {
  const Mesh mesh({{.id = 0}, {.id = 131072, .process_index = 1}, {.id = 1}}, {3}, {"data"});
  const auto map = NamedSharding(mesh, P("data")).addressable_indices_map({128});
  ASSERT_EQ(map.size(), 2u);
  EXPECT_EQ(map[0].box, (IndexBox{{0, 43}}));
  EXPECT_EQ(map[1].device, (Device{.id = 1}));
  EXPECT_EQ(map[1].box, (IndexBox{{86, 128}}));
}

TEST(NamedSharding, RejectsSpecsThatDoNotFitTheMesh) {
  const Mesh mesh = grid({2, 2}, {"data", "model"});
  EXPECT_THROWS(NamedSharding(mesh, P("batch")), Error,
                "sharding: P('batch') names axis \"batch\", which is not in Mesh('data': 2, 'model': 2); its axes are "
                "\"data\", \"model\"");
  EXPECT_THROWS(NamedSharding(mesh, P().with_unreduced({"batch"})), Error, "names axis \"batch\"");
  EXPECT_THROWS(NamedSharding(Mesh(cpu_devices(1), {}, {}), P("x")), Error, "its axes are none");
  EXPECT_THROWS(NamedSharding(mesh, P("data", "data")), Error,
                "sharding: P('data', 'data') uses axis \"data\" twice; an axis shards one dimension, or is unreduced");
  EXPECT_THROWS(NamedSharding(mesh, P({"data", "model", "data"})), Error, "uses axis \"data\" twice");
  EXPECT_THROWS(NamedSharding(mesh, P("model").with_unreduced({"model"})), Error, "uses axis \"model\" twice");
  EXPECT_THROWS(NamedSharding(Mesh(), P("x")), Error,
                "sharding: no mesh is given for P('x'); create one with make_mesh");
}

TEST(NamedSharding, RejectsShapesThatDoNotFitTheSpec) {
  const Mesh mesh = grid({4, 2}, {"data", "model"});
  const NamedSharding sharding(mesh, P({}, "data"));
  const std::string message =
      ": P(None, 'data') has 2 entries, but [8] has 1 dimensions; give at most one entry per dimension";
  EXPECT_THROWS(sharding.shard_shape({8}), Error, "shard_shape" + message);
  EXPECT_THROWS(sharding.devices_indices_map({8}), Error, "sharding" + message);
  EXPECT_THROWS(sharding.devices_indices_map({8, -1}), Error, "shape: extent -1");
  EXPECT_THROWS(
      NamedSharding(mesh, P({"data", "model"})).shard_shape({97, 784}, "shard_map"), Error,
      "shard_map: dimension 0 of [97, 784] is sharded 8 ways by \"data\", \"model\"; per-device code needs equal "
      "shards, but 97 is not a multiple of 8; pad the dimension, or use jit, which allows uneven shards");
  EXPECT_EQ(sharding.shard_shape({97, 784, 3}), (Shape{97, 196, 3}));
}

}  // namespace
}  // namespace lockstep
