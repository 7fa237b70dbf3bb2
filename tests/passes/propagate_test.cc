// propagate(): the shardings of results that follow from those of the arguments.
#include <gtest/gtest.h>

#include <functional>

#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

std::vector<Device> eight_devices() {
  std::vector<Device> out;
  for (int id = 0; id < 8; ++id) out.push_back({id, Platform::cpu, 0});
  return out;
}

// The spec of f's result, where the argument of this shape is sharded over 4 devices "data" and 2 "model".
std::string propagated_spec(const Shape& shape, const PartitionSpec& spec, const std::function<Value(Value)>& f) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}}, eight_devices());
  Builder b;
  const Value x = b.input({f32, shape});
  const Program p = b.take(Values{f(x)});
  return to_string(propagate(p, {NamedSharding(mesh, spec)})[0].spec());
}

std::string spec_after_reshape(const Shape& shape, const PartitionSpec& spec, const Shape& to) {
  return propagated_spec(shape, spec, [&](Value x) { return reshape(x, to); });
}

Value tanh_of(Value x) { return tanh(x); }

TEST(Propagate, ElementwiseResultsAreShardedLikeTheirOperand) {
  EXPECT_EQ(propagated_spec({8, 6}, P("data", "model"), tanh_of), "P('data', 'model')");
  EXPECT_EQ(propagated_spec({6}, P("data"), tanh_of), "P('data')");
}

TEST(Propagate, ReshapeKeepsAShardingWhoseShardsKeepTheirElements) {
  EXPECT_EQ(spec_after_reshape({8, 6}, P("data"), {48}), "P('data')");
  EXPECT_EQ(spec_after_reshape({48}, P("data"), {8, 6}), "P('data')");
  EXPECT_EQ(spec_after_reshape({6, 5}, P("data"), {6, 1, 5}), "P('data')");
}

// 6 rows of 8 elements on 4 devices: 2, 2, 1 and 1 rows. A vector of 48 elements would have shards of 12.
TEST(Propagate, ReshapeDropsAShardingWhoseShardsWouldChange) {
  EXPECT_EQ(spec_after_reshape({6, 8}, P("data"), {48}), "P()");
  EXPECT_EQ(spec_after_reshape({48}, P("data"), {6, 8}), "P()");
}

}  // namespace
}  // namespace lockstep
