// The trainer as users run it, on MNIST with batches of 128 on 8 virtual devices.
//
//   build/benchmarks/trainer            examples per second for each model and precision, and where the time goes
//   build/benchmarks/trainer time       seconds of training until the test accuracy is 98 % (mlp) and 99 % (cnn)
#include <fmt/format.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <chrono>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

EngineOptions options(int64_t total, const std::string& precision) {
  return {.optimizer = {.schedule = {.kind = Schedule::Kind::cosine, .peak = 1e-3, .total_steps = total}},
          .precision = precision_of(precision)};
}

double metric(const FitResult& result, const std::string& wanted) {
  for (const auto& [name, value] : result.metrics)
    if (name == wanted) return value;
  return 0;
}

void rates(const ImageDataset& train) {
  struct Case {
    const char* model;
    int64_t steps;
  };
  fmt::print("{:8} {:9} {:>12} {:>10} {:>8} {:>8}\n", "model", "precision", "examples/s", "step ms", "data %",
             "compute %");
  for (const Case& c : {Case{"mlp", 400}, Case{"mlp1024", 100}, Case{"cnn", 24}})
    for (const char* precision : {"float32", "bfloat16", "float16"}) {
      Engine engine(find_model(c.model), options(c.steps, precision));
      Loader loader(train, {.batch_size = 128, .seed = 1});
      TrainState state = engine.create_state();
      const FitResult result = engine.fit(state, loader, {.steps = c.steps});
      const double rate = metric(result, "examples_per_second");
      fmt::print("{:8} {:9} {:12.0f} {:10.2f} {:8.2f} {:8.2f}\n", c.model, precision, rate, 128e3 / rate,
                 100 * metric(result, "data_share"), 100 * metric(result, "compute_share"));
    }
}

// Evaluates every quarter of an epoch, without counting the time of evaluations.
void time_to(const char* model, double accuracy, int64_t epochs, const ImageDataset& train, const SourcePtr& test) {
  Loader loader(train, {.batch_size = 128, .seed = 1});
  const int64_t total = epochs * loader.batches_per_epoch();
  EngineOptions with = options(total, "float32");
  double evaluating = 0, reached = 0;
  Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  Engine* self = nullptr;
  with.hooks.on_step = [&](const TrainState& state, const StepMetrics&) {
    if (state.step % (loader.batches_per_epoch() / 4) != 0) return true;
    const double before = seconds(), training = before - evaluating;
    const double now = self->evaluate(state, test).metric("accuracy");
    evaluating += seconds() - before;
    if (now >= accuracy) reached = training;
    return now < accuracy;
  };
  Engine engine(find_model(model), with);
  self = &engine;
  TrainState state = engine.create_state();
  begin = Clock::now();
  engine.fit(state, loader, {.steps = total});
  if (reached == 0)
    fmt::print("{:8} did not reach {:.1f} % in {} epochs\n", model, 100 * accuracy, epochs);
  else
    fmt::print("{:8} {:.1f} % after {} steps, {:.1f} s of training (schedule of {} epochs)\n", model, 100 * accuracy,
               state.step, reached, epochs);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  using namespace lockstep;
  set_cpu_devices(8);
  Dataset data = load_dataset("mnist");
  if (argc > 1 && std::string(argv[1]) == "time") {
    const SourcePtr test = image_source(std::move(data.test));
    time_to("mlp", 0.98, 10, data.train, test);
    time_to("cnn", 0.99, 4, data.train, test);
  } else {
    rates(data.train);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
