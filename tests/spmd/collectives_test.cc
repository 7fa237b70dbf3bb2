// Collectives compared with results of JAX, and each with a loop over the devices on many meshes.
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using Function = std::function<Array(Array)>;

PartitionSpec parse_spec(const std::string& text) {
  PartitionSpec spec;
  for (size_t at = 2; at < text.size() - 1;) {
    const size_t end = std::min(text.find(',', at), text.size() - 1);
    const std::string entry = text.substr(at, end - at);
    if (entry == "None")
      spec.entries.emplace_back();
    else
      spec.entries.emplace_back(entry.substr(1, entry.size() - 2));
    at = text.find_first_not_of(", ", end);
    if (at == std::string::npos) break;
  }
  return spec;
}

const std::map<std::string, Function>& golden_functions() {
  static const std::map<std::string, Function> all = {
      {"psum", [](Array x) { return psum(x, "i"); }},
      {"pmean", [](Array x) { return pmean(x, "i"); }},
      {"pmax", [](Array x) { return pmax(x, "i"); }},
      {"pmin", [](Array x) { return pmin(x, "i"); }},
      {"all_gather_untiled", [](Array x) { return expand_dims(all_gather(x, "i"), 0); }},
      {"all_gather_tiled_axis1", [](Array x) { return all_gather(x, "i", {.axis = 1, .tiled = true}); }},
      {"psum_scatter_tiled_axis1", [](Array x) { return psum_scatter(x, "i", {.axis = 1, .tiled = true}); }},
      {"all_to_all_tiled_1_to_0", [](Array x) { return all_to_all(x, "i", 1, 0, true); }},
      {"ppermute_shift1",
       [](Array x) {
         std::vector<std::pair<int64_t, int64_t>> pairs;
         for (int64_t i = 0; i < 8; ++i) pairs.emplace_back(i, (i + 1) % 8);
         return ppermute(x, "i", pairs);
       }},
      {"ppermute_partial",
       [](Array x) {
         return ppermute(x, "i", {{0, 3}, {3, 5}});
       }},
      {"axis_index_add", [](Array x) { return x + astype(axis_index("i"), f32); }},
      {"psum_axis_a", [](Array x) { return psum(x, "a"); }},
      {"psum_axis_ab",
       [](Array x) {
         return psum(x, {"a", "b"});
       }},
      {"all_gather_b_tiled1", [](Array x) { return all_gather(x, "b", {.axis = 1, .tiled = true}); }},
  };
  return all;
}

Array golden_array(const nlohmann::json& entry) {
  return Array::from(entry["data"].get<std::vector<float>>(), entry["shape"].get<Shape>());
}

TEST(Collectives, MatchJaxExactly) {
  std::ifstream file(LOCKSTEP_TEST_DATA "/collectives.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden["cases"].empty());
  for (const auto& entry : golden["cases"]) {
    const std::string name = entry["name"];
    SCOPED_TRACE(name);
    ASSERT_TRUE(golden_functions().contains(name));
    std::vector<MeshAxis> axes;
    for (size_t i = 0; i < entry["mesh"].size(); ++i)
      axes.emplace_back(entry["axes"][i].get<std::string>(), entry["mesh"][i].get<int64_t>());
    const auto f = shard_map(golden_functions().at(name), {.mesh = make_mesh(axes),
                                                           .in_specs = {parse_spec(entry["in_spec"])},
                                                           .out_specs = {parse_spec(entry["out_spec"])}});
    const Array x = golden_array(entry["x"]), y = golden_array(entry["y"]);
    auto check = [&](const Array& got) {
      EXPECT_EQ(to_string(got.type()), to_string(y.type()));
      EXPECT_EQ(got.to_vector<float>(), y.to_vector<float>());
    };
    check(f(x));
    check(jit(f)(x));
  }
}

// The value of one device.
struct Local {
  Shape shape;
  std::vector<double> data;

  explicit Local(Shape s) : shape(std::move(s)), data(static_cast<size_t>(count(shape))) {}
  double& at(const Shape& index) {
    int64_t i = 0;
    for (size_t d = 0; d < shape.size(); ++d) i = i * shape[d] + index[d];
    return data[static_cast<size_t>(i)];
  }
  double at(const Shape& index) const { return const_cast<Local*>(this)->at(index); }
};
using Locals = std::vector<Local>;

// Calls f(index) for every index of the shape.
template <class F>
void for_each(const Shape& shape, F f) {
  Shape index(shape.size(), 0);
  for (int64_t left = count(shape); left > 0; --left) {
    f(index);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// The devices in a device's group along axes, ordered by the axes; the first axis is outermost.
struct Group {
  std::vector<size_t> members;
  int64_t position = 0;  // of the device itself
};
Group group_of(const Mesh& mesh, size_t device, const std::vector<std::string>& axes) {
  const auto mine = mesh.coordinates(static_cast<int64_t>(device));
  std::map<int64_t, size_t> found;
  Group group;
  for (size_t other = 0; other < static_cast<size_t>(mesh.size()); ++other) {
    const auto theirs = mesh.coordinates(static_cast<int64_t>(other));
    int64_t place = 0;
    for (const std::string& axis : axes) place = place * mesh.size(axis) + theirs[*mesh.find_axis(axis)];
    bool reached = true;
    for (size_t d = 0; d < theirs.size(); ++d)
      reached &= theirs[d] == mine[d] || std::find(axes.begin(), axes.end(), mesh.axis_names()[d]) != axes.end();
    if (reached) found[place] = other;
    if (other == device) group.position = place;
  }
  for (const auto& [place, other] : found) group.members.push_back(other);
  return group;
}

// The reference: computes the device's result from the values of all devices in its group.
using Reference = std::function<Local(const std::vector<const Local*>& group, int64_t place)>;

struct Case {
  std::string name;
  std::function<Array(Array, const AxisNames&)> collective;
  Reference reference;
  bool for_bool = true;
};

Reference reduced(double (*combine)(double, double)) {
  return [=](const std::vector<const Local*>& group, int64_t) {
    Local out = *group[0];
    for (size_t g = 1; g < group.size(); ++g)
      for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = combine(out.data[i], group[g]->data[i]);
    return out;
  };
}

Reference gathered(size_t dim, bool tiled) {
  return [=](const std::vector<const Local*>& group, int64_t) {
    Shape shape = group[0]->shape;
    const int64_t extent = tiled ? shape[dim] : 1, n = static_cast<int64_t>(group.size());
    if (tiled)
      shape[dim] *= n;
    else
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), n);
    Local out(shape);
    for_each(shape, [&](const Shape& index) {
      Shape from = index;
      from[dim] %= extent;
      if (!tiled) from.erase(from.begin() + static_cast<std::ptrdiff_t>(dim));
      out.at(index) = group[static_cast<size_t>(index[dim] / extent)]->at(from);
    });
    return out;
  };
}

Reference scattered(size_t dim, bool tiled) {
  return [=](const std::vector<const Local*>& group, int64_t place) {
    const Local sum = reduced([](double a, double b) { return a + b; })(group, place);
    Shape shape = sum.shape;
    const int64_t extent = shape[dim] / static_cast<int64_t>(group.size());
    if (tiled)
      shape[dim] = extent;
    else
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
    Local out(shape);
    for_each(shape, [&](const Shape& index) {
      Shape from = index;
      if (!tiled) from.insert(from.begin() + static_cast<std::ptrdiff_t>(dim), 0);
      from[dim] += place * extent;
      out.at(index) = sum.at(from);
    });
    return out;
  };
}

Reference exchanged(size_t split, size_t concat, bool tiled) {
  return [=](const std::vector<const Local*>& group, int64_t place) {
    const auto n = static_cast<int64_t>(group.size());
    const auto from_dim = static_cast<std::ptrdiff_t>(split), to_dim = static_cast<std::ptrdiff_t>(concat);
    Shape shape = group[0]->shape;
    const int64_t piece = shape[split] / n, extent = shape[concat] / (split == concat ? n : 1);
    if (tiled) {
      shape[split] /= n;
      shape[concat] *= n;
    } else {
      shape.erase(shape.begin() + from_dim);
      shape.insert(shape.begin() + to_dim, n);
    }
    Local out(shape);
    for_each(shape, [&](const Shape& index) {
      Shape from = index;
      int64_t source = index[concat];
      if (tiled) {
        source = index[concat] / extent;
        from[concat] %= extent;
        from[split] += place * piece;
      } else {
        from.erase(from.begin() + to_dim);
        from.insert(from.begin() + from_dim, place);
      }
      out.at(index) = group[static_cast<size_t>(source)]->at(from);
    });
    return out;
  };
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;
Case permuted(const std::string& name, Pairs (*pairs)(int64_t n)) {
  return {name, [=](Array x, const AxisNames& axes) { return ppermute(x, axes, pairs(axis_size(axes))); },
          [=](const std::vector<const Local*>& group, int64_t place) {
            for (const auto& [from, to] : pairs(static_cast<int64_t>(group.size())))
              if (to == place) return *group[static_cast<size_t>(from)];
            return Local(group[0]->shape);
          }};
}

// For operands [3, n, 2n], where n is the number of devices in a group.
std::vector<Case> cases() {
  auto plus = [](double a, double b) { return a + b; };
  std::vector<Case> out = {
      {"psum", [](Array x, const AxisNames& a) { return psum(x, a); }, reduced(plus)},
      {"pmax", [](Array x, const AxisNames& a) { return pmax(x, a); },
       reduced([](double a, double b) { return std::max(a, b); })},
      {"pmin", [](Array x, const AxisNames& a) { return pmin(x, a); },
       reduced([](double a, double b) { return std::min(a, b); })},
      {"pvary", [](Array x, const AxisNames& a) { return pvary(x, a); },
       [](const std::vector<const Local*>& group, int64_t place) { return *group[static_cast<size_t>(place)]; }},
      {"pbroadcast", [](Array x, const AxisNames& a) { return pbroadcast(x, a, axis_size(a) / 2); },
       [](const std::vector<const Local*>& group, int64_t) { return *group[group.size() / 2]; }},
      {"axis_index", [](Array x, const AxisNames& a) { return astype(x, i32) * 0 + axis_index(a); },
       [](const std::vector<const Local*>& group, int64_t place) {
         Local y(group[0]->shape);
         for (double& v : y.data) v = static_cast<double>(place);
         return y;
       }},
      permuted("ppermute ring",
               [](int64_t n) {
                 Pairs pairs;
                 for (int64_t i = 0; i < n; ++i) pairs.emplace_back(i, (i + 1) % n);
                 return pairs;
               }),
      permuted("ppermute reversed",
               [](int64_t n) {
                 Pairs pairs;
                 for (int64_t i = 0; i < n; ++i) pairs.emplace_back(i, n - 1 - i);
                 return pairs;
               }),
      permuted("ppermute some",
               [](int64_t n) {
                 return n > 1 ? Pairs{{0, n - 1}, {1, 0}} : Pairs{};
               }),
  };
  for (int64_t dim : {0, 1, 2, 3, -1})
    out.push_back({"all_gather untiled " + std::to_string(dim),
                   [=](Array x, const AxisNames& a) { return all_gather(x, a, {.axis = dim}); },
                   gathered(static_cast<size_t>(dim < 0 ? 3 : dim), false)});
  for (int64_t dim : {0, 1, 2})
    out.push_back({"all_gather tiled " + std::to_string(dim),
                   [=](Array x, const AxisNames& a) { return all_gather(x, a, {.axis = dim, .tiled = true}); },
                   gathered(static_cast<size_t>(dim), true)});
  out.push_back({"psum_scatter untiled", [](Array x, const AxisNames& a) { return psum_scatter(x, a, {.axis = 1}); },
                 scattered(1, false), false});
  for (int64_t dim : {1, 2})
    out.push_back({"psum_scatter tiled " + std::to_string(dim),
                   [=](Array x, const AxisNames& a) { return psum_scatter(x, a, {.axis = dim, .tiled = true}); },
                   scattered(static_cast<size_t>(dim), true), false});
  for (int64_t concat : {0, 1, 2}) {
    out.push_back({"all_to_all untiled 1 to " + std::to_string(concat),
                   [=](Array x, const AxisNames& a) { return all_to_all(x, a, 1, concat); },
                   exchanged(1, static_cast<size_t>(concat), false)});
    for (int64_t split : {1, 2})
      out.push_back({"all_to_all tiled " + std::to_string(split) + " to " + std::to_string(concat),
                     [=](Array x, const AxisNames& a) { return all_to_all(x, a, split, concat, true); },
                     exchanged(static_cast<size_t>(split), static_cast<size_t>(concat), true)});
  }
  return out;
}

class OnMesh : public testing::TestWithParam<Shape> {
 protected:
  static Mesh mesh() {
    const std::vector<std::string> names = {"i", "j", "k"};
    std::vector<MeshAxis> axes;
    for (size_t d = 0; d < GetParam().size(); ++d) axes.emplace_back(names[d], GetParam()[d]);
    return make_mesh(axes);
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, OnMesh,
                         testing::Values(Shape{1}, Shape{2}, Shape{3}, Shape{4}, Shape{8}, Shape{2, 2}, Shape{4, 2},
                                         Shape{2, 2, 2}),
                         [](const auto& mesh) {
                           std::string name;
                           for (int64_t n : mesh.param) name += (name.empty() ? "" : "x") + std::to_string(n);
                           return name;
                         });

// Every subset of the axes in every order.
std::vector<std::vector<std::string>> choices(std::vector<std::string> axes) {
  std::set<std::vector<std::string>> out;
  std::sort(axes.begin(), axes.end());
  do
    for (size_t n = 1; n <= axes.size(); ++n) out.insert({axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(n)});
  while (std::next_permutation(axes.begin(), axes.end()));
  return {out.begin(), out.end()};
}

// Runs a collective on operands that differ only along the axes in `cut`, and compares the results of all
// devices with the reference.
void expect_like_loop(const Case& c, const Mesh& mesh, const std::vector<std::string>& along,
                      const std::vector<std::string>& cut, DType dtype, bool compiled) {
  int64_t n = 1, pieces = 1;
  for (const std::string& axis : along) n *= mesh.size(axis);
  for (const std::string& axis : cut) pieces *= mesh.size(axis);
  const Shape shape = {3, n, 2 * n};
  const int64_t size = count(shape);
  std::vector<double> global(static_cast<size_t>(pieces * size));
  // Not monotonic along any dimension; small enough that sums are exact.
  for (size_t i = 0; i < global.size(); ++i) global[i] = static_cast<double>(i * 7919 % 31) - (dtype == u8 ? 0 : 15);
  if (dtype == boolean)
    for (double& v : global) v = v > 3;
  Locals locals;
  for (int64_t device = 0; device < mesh.size(); ++device) {
    const auto at = mesh.coordinates(device);
    int64_t piece = 0;
    for (const std::string& axis : cut) piece = piece * mesh.size(axis) + at[*mesh.find_axis(axis)];
    locals.emplace_back(shape);
    std::copy_n(global.begin() + piece * size, size, locals.back().data.begin());
  }
  std::vector<double> wanted;
  Shape one;
  for (size_t device = 0; device < locals.size(); ++device) {
    const Group group = group_of(mesh, device, along);
    std::vector<const Local*> members;
    for (size_t member : group.members) members.push_back(&locals[member]);
    const Local y = c.reference(members, group.position);
    wanted.insert(wanted.end(), y.data.begin(), y.data.end());
    one = y.shape;
  }
  const auto f =
      shard_map([&](Array x) { return expand_dims(c.collective(squeeze(x, 0), AxisNames(along)), 0); },
                {.mesh = mesh, .in_specs = {P(SpecEntry(cut))}, .out_specs = {P(SpecEntry(mesh.axis_names()))}});
  const Array x = astype(Array::from(global, {pieces, 3, n, 2 * n}), dtype);
  const Array y = compiled ? jit(f)(x) : f(x);
  Shape all = one;
  all.insert(all.begin(), mesh.size());
  EXPECT_EQ(to_string(y.shape()), to_string(all));
  EXPECT_EQ(y.to_vector<double>(), wanted);
}

TEST_P(OnMesh, CollectivesMatchTheReference) {
  for (const Case& c : cases())
    for (const auto& along : choices(mesh().axis_names())) {
      SCOPED_TRACE(testing::Message() << c.name << " over " << testing::PrintToString(along));
      expect_like_loop(c, mesh(), along, mesh().axis_names(), f32, false);
    }
}

TEST_P(OnMesh, CollectivesUnderJitMatchTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    expect_like_loop(c, mesh(), mesh().axis_names(), mesh().axis_names(), f32, true);
  }
}

// Operands that are invariant over some axes, or all.
TEST_P(OnMesh, CollectivesOfInvariantValues) {
  for (const Case& c : cases())
    for (const std::vector<std::string>& cut : {std::vector<std::string>{}, {mesh().axis_names().back()}})
      for (const auto& along : choices(mesh().axis_names())) {
        SCOPED_TRACE(testing::Message() << c.name << " over " << testing::PrintToString(along));
        expect_like_loop(c, mesh(), along, cut, i32, false);
      }
}

TEST_P(OnMesh, CollectivesOfEveryType) {
  for (const Case& c : cases())
    for (DType dtype : {boolean, i32, i64, f64, bf16}) {
      if (dtype == boolean && !c.for_bool) continue;
      SCOPED_TRACE(testing::Message() << c.name << " of " << to_string(Type{dtype}));
      expect_like_loop(c, mesh(), mesh().axis_names(), mesh().axis_names(), dtype, false);
    }
}

TEST_P(OnMesh, MeanIsTheSumDividedByTheNumberOfDevices) {
  const auto all = mesh().axis_names();
  const Array x = arange(float(mesh().size() * 2));
  const auto f = shard_map([&](Array v) { return pmean(v, all); },
                           {.mesh = mesh(), .in_specs = {P(SpecEntry(all))}, .out_specs = {P()}});
  const auto n = static_cast<float>(mesh().size());
  EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{n - 1, n}));
  EXPECT_EQ(jit(f)(x).to_vector<float>(), (std::vector<float>{n - 1, n}));
}

TEST(Collectives, TakeTrees) {
  struct Pair {
    Array a, b;
  };
  const auto f = shard_map(
      [](Pair p) {
        return std::tuple{psum(p, "i"), pmean(p, "i"), pmax(p, "i"), pmin(p, "i")};
      },
      {.mesh = make_mesh({{"i", 2}}), .in_specs = {P("i")}, .out_specs = {P()}});
  const auto [sums, means, most, least] = f(Pair{array({1.f, 3.f}), array({{1.f, 2.f}, {5.f, 8.f}})});
  EXPECT_TEXT(sums.a, "f32[1] [4]");
  EXPECT_TEXT(sums.b, "f32[1,2] [[6, 10]]");
  EXPECT_TEXT(means.b, "f32[1,2] [[3, 5]]");
  EXPECT_TEXT(most.b, "f32[1,2] [[5, 8]]");
  EXPECT_TEXT(least.a, "f32[1] [1]");
}

TEST(Collectives, WorkAlongANamedAxisOfVmap) {
  const auto f = vmap([](Array x) { return x / psum(x, "batch"); }, {.axis_name = "batch"});
  EXPECT_TEXT(f(array({1.f, 3.f})), "f32[2] [0.25, 0.75]");
  EXPECT_TEXT(vmap([](Array x) { return x * 0 + axis_index("b"); }, {.axis_name = "b"})(array({5, 6, 7})),
              "i32[3] [0, 1, 2]");
}

TEST(Collectives, AxisSizeIsANumber) {
  const Mesh mesh = make_mesh({{"i", 4}, {"j", 2}});
  shard_map(
      [](Array x) {
        EXPECT_EQ(axis_size("i"), 4);
        EXPECT_EQ(axis_size({"i", "j"}), 8);
        return x;
      },
      {.mesh = mesh, .in_specs = {P("i")}, .out_specs = {P("i")}})(arange(4));
}

}  // namespace
}  // namespace lockstep
