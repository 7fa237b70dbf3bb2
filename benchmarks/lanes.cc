// A data-parallel mlp1024 step (sgd, batch 128) over the lanes of this process. Lanes are counted once, when the process
// starts, so compare two runs:
//
//   for n in 1 2; do LOCKSTEP_CPU_LANES=$n build/benchmarks/lanes; done
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "lane/lanes.h"
#include "support/models.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  using Clock = std::chrono::steady_clock;
  const std::string model = argc > 1 ? argv[1] : "mlp1024";
  set_cpu_devices(8);
  const Mesh mesh = make_mesh({"data"});
  const NamedSharding cut(mesh, P("data")), whole(mesh, P());
  const auto step = jit([](models::State s, models::Batch b) { return models::train_step(s, b, "sgd", 1e-3f); },
                        {.donate = {0}, .in_shardings = {whole, cut}});
  models::State state = device_put(models::create_state(models::init(model, 0)), whole);
  const models::Batch batch = device_put(
      models::Batch{random::uniform(random::key(1), {128, 784}), random::randint(random::key(2), {128}, 0, 10)}, cut);
  const auto begin = Clock::now();
  state = step(state, batch).state;
  const double first = std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<double> times;
  for (int i = 0; i < (model == "cnn" ? 12 : 60); ++i) {
    const auto start = Clock::now();
    state = step(state, batch).state;
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  fmt::print("{} on {} lanes: step {:.3f} ms, {:.0f} examples/s; first call, compiled in it, {:.1f} ms\n", model,
             Lanes::local().count(), times[times.size() / 2] * 1e3, 128 / times[times.size() / 2], first * 1e3);
}
