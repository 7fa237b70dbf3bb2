// Meshes as text in programs.
#include "sharding/mesh_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::vector<Device> cpus(const std::vector<int>& ids) {
  std::vector<Device> out;
  for (int id : ids) out.push_back({.id = id});
  return out;
}

TEST(MeshText, OmitsDevicesInDefaultOrder) {
  EXPECT_EQ(mesh_text(Mesh(cpus({0, 1, 2, 3, 4, 5}), {3, 2}, {"data", "model"})), "data=3,model=2");
  EXPECT_EQ(mesh_text(Mesh(cpus({1, 0}), {2}, {"x"})), "x=2 on cpu:1,cpu:0");
  EXPECT_EQ(mesh_text(Mesh({{.id = 0, .platform = Platform::cuda}}, {1}, {"x"})), "x=1 on cuda:0");
  EXPECT_EQ(mesh_text(Mesh(cpus({0}), {}, {})), "");
}

TEST(MeshText, RoundTrips) {
  for (const Mesh& mesh :
       {Mesh(cpus({0, 1, 2, 3, 4, 5}), {3, 2}, {"data", "model"}), Mesh(cpus({5, 3}), {1, 2}, {"a", "b"}),
        Mesh(cpus({0}), {}, {}), Mesh({{.id = 7, .platform = Platform::cuda}}, {1}, {"x"})})
    EXPECT_EQ(mesh_from_text(mesh_text(mesh)), mesh) << mesh_text(mesh);
}

}  // namespace
}  // namespace lockstep
