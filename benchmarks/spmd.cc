// The cost of virtual devices: the mlp1024 training step (sgd, batch 128) on 1, 8 and 64 devices of one process with
// jit, shard_map and pmap, measured alternately in one run.
//
//   build/benchmarks/spmd [rounds]
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "support/models.h"
#include "timing.h"

namespace lockstep {
namespace {

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

models::Params descend(const models::Params& p, const models::Params& g) {
  return tree_map([](const Array& w, const Array& dw) { return w - 0.001f * dw; }, p, g);
}

struct Case {
  std::string name;
  std::function<void()> step;
  std::vector<double> times = {};
};

void run(int rounds) {
  set_cpu_devices(64);
  std::vector<Case> cases;
  auto batch = [](const Mesh& mesh) {
    const models::Batch b{random::uniform(random::key(1), {128, 784}), random::randint(random::key(2), {128}, 0, 10)};
    return device_put(b, NamedSharding(mesh, P("data")));
  };
  for (const int64_t n : {int64_t{1}, int64_t{8}, int64_t{64}}) {
    const Mesh mesh = make_mesh({{"data", n}});
    auto params = std::make_shared<models::Params>(models::init("mlp1024", 0));
    const auto by_jit =
        jit([](models::Params p, models::Batch b) { return descend(p, grad(models::loss)(p, b)); }, {.donate = {0}});
    cases.push_back({fmt::format("jit, {} devices", n), [=, b = batch(mesh)] { *params = by_jit(*params, b); }});
  }
  for (const int64_t n : {int64_t{8}, int64_t{64}}) {
    const Mesh mesh = make_mesh({{"data", n}});
    auto params = std::make_shared<models::Params>(models::init("mlp1024", 0));
    auto mean_loss = [](models::Params p, models::Batch b) { return pmean(models::loss(p, b), "data"); };
    const auto by_shard_map =
        jit(shard_map([mean_loss](models::Params p, models::Batch b) { return descend(p, grad(mean_loss)(p, b)); },
                      {.mesh = mesh, .in_specs = {P(), P("data")}, .out_specs = {P()}}),
            {.donate = {0}});
    cases.push_back(
        {fmt::format("shard_map, {} devices", n), [=, b = batch(mesh)] { *params = by_shard_map(*params, b); }});
    auto copies = std::make_shared<models::Params>(models::init("mlp1024", 0));
    const auto by_pmap =
        pmap([](models::Params p, models::Batch b) { return descend(p, pmean(grad(models::loss)(p, b), "data")); },
             {.axis_name = "data", .in_axes = {std::nullopt, 0}, .out_axes = std::nullopt, .donate = {0}});
    const models::Batch b = batch(mesh), pieces{reshape(b.image, {n, 128 / n, 784}), reshape(b.label, {n, 128 / n})};
    cases.push_back({fmt::format("pmap, {} devices", n), [=] { *copies = by_pmap(*copies, pieces); }});
  }
  for (int round = -2; round < rounds; ++round)
    for (Case& c : cases)
      for (int i = 0; i < 4; ++i) {
        const auto begin = Clock::now();
        c.step();
        if (round >= 0) c.times.push_back(seconds_since(begin));
      }
  const double one = median(cases[0].times);
  for (const Case& c : cases)
    fmt::print("{:24} {:8.3f} ms   {:.3f} times 1 device\n", c.name, median(c.times) * 1e3, median(c.times) / one);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  lockstep::run(argc > 1 ? std::stoi(argv[1]) : 25);
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
