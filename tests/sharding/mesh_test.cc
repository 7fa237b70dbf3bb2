#include <gtest/gtest.h>

#include <thread>
#include <unordered_set>

#include "base/throws.h"
#include "lockstep/error.h"
#include "sharding/grid.h"

namespace lockstep {
namespace {

TEST(Mesh, ReportsAxesDevicesAndCoordinates) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}}, cpu_devices(8));
  EXPECT_EQ(to_string(mesh), "Mesh('data': 4, 'model': 2)");
  EXPECT_EQ(mesh.axis_names(), (std::vector<std::string>{"data", "model"}));
  EXPECT_EQ(mesh.shape(), (Shape{4, 2}));
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.size("data"), 4);
  EXPECT_EQ(mesh.find_axis("model"), 1u);
  EXPECT_EQ(mesh.find_axis("batch"), std::nullopt);
  EXPECT_EQ(mesh.devices(), cpu_devices(8));
  EXPECT_EQ(mesh.coordinates(Device{.id = 5}), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(mesh.coordinates(int64_t{6}), (std::vector<int64_t>{3, 0}));
  EXPECT_THROWS(mesh.size("batch"), Error,
                "mesh: no axis \"batch\" in Mesh('data': 4, 'model': 2); its axes are \"data\", \"model\"");
  EXPECT_THROWS(mesh.coordinates(Device{.id = 8}), Error, "mesh: device cpu:8 of process 0 is not in Mesh('data': 4");
}

TEST(Mesh, EmptyHandlesThrow) {
  const Mesh none;
  EXPECT_THROWS(none.size(), Error, "mesh: the Mesh is empty; assign one from make_mesh() before use");
  EXPECT_THROWS(none.find_axis("data"), Error, "mesh: the Mesh is empty");
  EXPECT_THROWS(to_string(none), Error, "mesh: the Mesh is empty");
  EXPECT_THROWS(NamedSharding(none, P("data")), Error, "sharding: no mesh is given for P(");
  EXPECT_THROWS(NamedSharding(none, P()), Error, "sharding: no mesh is given for P(");
  const NamedSharding empty;
  EXPECT_EQ(empty, NamedSharding());
  EXPECT_THROWS(empty.mesh(), Error,
                "sharding: the NamedSharding is empty; assign NamedSharding(mesh, spec) before use");
  EXPECT_THROWS(empty.shard_shape({4}), Error, "sharding: the NamedSharding is empty");
  EXPECT_THROWS(empty.num_shards(0), Error, "sharding: the NamedSharding is empty");
  EXPECT_THROWS(to_string(empty), Error, "sharding: the NamedSharding is empty");
}

TEST(Mesh, FindsDevicesInAnyOrder) {
  const Mesh mesh({{.id = 3}, {.id = 0}, {.id = 2, .process_index = 1}, {.id = 1}}, {2, 2}, {"x", "y"});
  EXPECT_EQ(mesh.position({.id = 0}), 1);
  EXPECT_EQ(mesh.coordinates(Device{.id = 1}), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(mesh.local_devices(), (std::vector<Device>{{.id = 3}, {.id = 0}, {.id = 1}}));
}

TEST(Mesh, WithoutAxesHasOneDevice) {
  const Mesh mesh(cpu_devices(1), {}, {});
  EXPECT_EQ(to_string(mesh), "Mesh()");
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_TRUE(mesh.coordinates(Device{}).empty());
}

TEST(Mesh, EqualMeshesShareOneAddress) {
  const Mesh a = grid({2, 3}, {"x", "y"});
  EXPECT_EQ(a.address(), grid({2, 3}, {"x", "y"}).address());
  const std::unordered_set<Mesh> set = {
      a,
      grid({2, 3}, {"x", "y"}),
      grid({3, 2}, {"x", "y"}),
      grid({2, 3}, {"x", "z"}),
      Mesh({{.id = 5}, {.id = 1}, {.id = 2}, {.id = 3}, {.id = 4}, {.id = 0}}, {2, 3}, {"x", "y"}),
      Mesh()};
  EXPECT_EQ(set.size(), 5u);
  EXPECT_NE(a, Mesh());
  EXPECT_FALSE(Mesh().defined());
}

TEST(Mesh, MayBeCreatedFromSeveralThreads) {
  std::vector<Mesh> meshes(4);
  std::vector<std::thread> threads;
  for (Mesh& mesh : meshes)
    threads.emplace_back([&mesh] {
      for (int i = 1; i < 50; ++i) mesh = grid({i}, {"threads"});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Mesh& mesh : meshes) EXPECT_EQ(mesh, meshes[0]);
}

TEST(Mesh, RejectsInvalidGrids) {
  const auto four = cpu_devices(4);
  EXPECT_THROWS(Mesh(four, {2, 3}, {"x", "y"}), Error, "mesh: 4 devices for a grid of shape [2, 3], which needs 6");
  EXPECT_THROWS(Mesh(four, {2, 2}, {"x"}), Error,
                "mesh: 1 axis names (\"x\") for the 2 dimensions of [2, 2]; give one name per dimension");
  EXPECT_THROWS(Mesh(four, {2, 2}, {"x", "x"}), Error, "mesh: two axes are named \"x\"; axis names must be unique");
  EXPECT_THROWS(Mesh(four, {2, 2}, {"x", ""}), Error, "mesh: axis 1 of [2, 2] has an empty name");
  EXPECT_THROWS(Mesh({}, {0}, {"x"}), Error, "mesh: axis \"x\" has size 0; sizes must be at least 1");
  EXPECT_THROWS(Mesh({{.id = 1}, {.id = 1}}, {2}, {"x"}), Error, "mesh: device cpu:1 occurs twice");
  EXPECT_THROWS(Mesh({{.id = 0}, {.id = 1, .platform = Platform::cuda}}, {2}, {"x"}), Error,
                "mesh: devices cpu:0 and cuda:1 are of different platforms");
}

TEST(MakeMesh, InfersOneSize) {
  EXPECT_EQ(make_mesh({{"data", 4}, {"model", -1}}, cpu_devices(8)), grid({4, 2}, {"data", "model"}));
  EXPECT_EQ(make_mesh({"data"}, cpu_devices(8)), grid({8}, {"data"}));
  EXPECT_EQ(make_mesh({"data", {"model", 2}}, cpu_devices(8)), grid({4, 2}, {"data", "model"}));
  EXPECT_EQ(make_mesh({{"data", 8}, "model"}, cpu_devices(8)), grid({8, 1}, {"data", "model"}));
  const std::string name = "data";
  EXPECT_EQ(make_mesh({{name, 2}}, cpu_devices(8)), grid({2}, {"data"}));
}

TEST(MakeMesh, DefaultsToAllDevices) { EXPECT_EQ(make_mesh({"data"}).devices(), devices()); }

TEST(MakeMesh, RejectsSizesThatDoNotFitTheDevices) {
  EXPECT_THROWS(make_mesh({{"data", 4}, {"model", 4}}, cpu_devices(8)), Error,
                "make_mesh: 'data': 4, 'model': 4 needs 16 devices, but only 8 are available; set --devices 16 or "
                "LOCKSTEP_NUM_CPU_DEVICES=16");
  EXPECT_THROWS(make_mesh({{"data", 3}, "model"}, cpu_devices(8)), Error,
                "make_mesh: 8 devices are not divisible by 3, the product of the sizes other than \"model\"");
  EXPECT_THROWS(make_mesh({"data", "model"}, cpu_devices(8)), Error,
                "make_mesh: the sizes of \"data\" and \"model\" are both -1; only one can be inferred");
  EXPECT_THROWS(make_mesh({{"data", 0}}, cpu_devices(8)), Error, "mesh: axis \"data\" has size 0");
  EXPECT_THROWS(make_mesh({{"data", -2}}, cpu_devices(8)), Error, "mesh: axis \"data\" has size -2");
}

}  // namespace
}  // namespace lockstep
