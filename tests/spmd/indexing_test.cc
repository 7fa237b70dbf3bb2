// x(...), x.at(...) and searches of divided arrays equal those of whole ones, bit for bit. Also run with
// LOCKSTEP_CPU_LANES=2 and 4.
#include "lockstep/index.h"

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

namespace lockstep {
namespace {

NamedSharding divided(const PartitionSpec& spec) { return {make_mesh({{"data", 4}, {"model", 2}}), spec}; }

using IndexFunction = Array (*)(const Array& x, const Array& i, const Array& v);

const std::vector<std::pair<const char*, IndexFunction>> kIndexFunctions = {
    {"range", [](const Array& x, const Array&, const Array&) { return x(range(_, _, -2), range(1, -1)); }},
    {"integer", [](const Array& x, const Array&, const Array&) { return x(_, -1); }},
    {"scalar", [](const Array& x, const Array& i, const Array&) { return x(at(i, 0), new_axis); }},
    {"rows", [](const Array& x, const Array& i, const Array&) { return x(i); }},
    {"places", [](const Array& x, const Array& i, const Array&) { return x(i, i); }},
    {"set rows", [](const Array& x, const Array& i, const Array& v) { return x.at(i).set(v); }},
    {"set columns", [](const Array& x, const Array& i, const Array& v) { return x.at(_, i).set(v(0, range(5))); }},
    {"multiply", [](const Array& x, const Array& i, const Array& v) { return x.at(i).multiply(v); }},
    {"max", [](const Array& x, const Array& i, const Array& v) { return x.at(i, 1).max(v(_, 2)); }},
    {"set range", [](const Array& x, const Array&, const Array& v) { return x.at(range(_, 10, 2)).set(v); }},
    {"set scalar", [](const Array& x, const Array& i, const Array& v) { return x.at(at(i, 1)).add(at(v, 0)); }},
    {"segments",
     [](const Array& x, const Array&, const Array&) { return segment_min(x, astype(x(_, 0) * 2.f, i32), 4); }},
    {"unique", [](const Array& x, const Array&, const Array&) { return unique(round(x), {.size = 4}); }},
    {"nonzero",
     [](const Array& x, const Array&, const Array&) { return astype(argwhere(x > 0.f, {.size = 20}), f32); }},
    {"gradient",
     [](const Array& x, const Array& i, const Array& v) {
       return grad([&](const Array& y) { return sum(square(y.at(i).set(v * y(i)))); })(x);
     }},
};

TEST(IndexingOnLanes, EqualsWholeArrays) {
  const Array x = random::normal(random::key(1), {10, 6}), v = random::normal(random::key(2), {5, 6});
  const Array i = array({3, -1, 3, 12, 0});
  for (const auto& [name, function] : kIndexFunctions) {
    const Array wanted = jit(function)(x, i, v);
    for (const PartitionSpec& spec : {P("data"), P({}, "model"), P("model", "data"), P({"data", "model"})})
      for (const PartitionSpec& values : {P(), P("data", "model")}) {
        SCOPED_TRACE(std::string(name) + " " + to_string(spec) + " " + to_string(values));
        const Array got =
            jit(function, {.in_shardings = {divided(spec), divided(P("data")), divided(values)}})(x, i, v);
        EXPECT_EQ(got.shape(), wanted.shape());
        EXPECT_EQ(got.to_vector<float>(), wanted.to_vector<float>());
      }
  }
}

TEST(IndexingOnLanes, WorksInShardMap) {
  const Array x = random::normal(random::key(1), {8, 6}), i = array({5, 0, 5});
  const auto f = [&](const Array& y) { return y.at(_, i).multiply(2.f)(range(_, _, -1)); };
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array got = shard_map(f, {.mesh = mesh, .in_specs = {P("data")}, .out_specs = {P("data")}})(x);
  for (int64_t d = 0; d < 4; ++d) {
    const IndexRange rows = range(2 * d, 2 * d + 2);
    EXPECT_EQ(got(rows).to_vector<float>(), f(x(rows)).to_vector<float>());
  }
}

}  // namespace
}  // namespace lockstep
