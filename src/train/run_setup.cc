#include <fmt/format.h>

#include <charconv>

#include "lockstep/distributed.h"
#include "train/run.h"
#include "train/run_files.h"

namespace lockstep {

Mesh make_devices(const TrainConfig& config) {
  const auto axes = parse_mesh(config.mesh);
  if (config.devices != "auto" && config.devices != "all") {
    int count = 0;
    std::from_chars(config.devices.data(), config.devices.data() + config.devices.size(), count);
    set_cpu_devices(count);
  }
  if (!config.platform.empty()) set_platform(config.platform);
  if (!distributed::is_initialized()) distributed::initialize();
  if (config.expect_devices > 0 && device_count() != config.expect_devices)
    throw SettingsError(
        "expect_devices",
        fmt::format("train: --expect-devices is {}, but {} available; nothing was started", config.expect_devices,
                    device_count() == 1 ? "1 device is" : fmt::format("{} devices are", device_count())));
  if (axes.empty()) return make_mesh({MeshAxis("data")});
  std::vector<MeshAxis> mesh;
  for (const auto& [name, size] : axes) mesh.emplace_back(name, size);
  try {
    return make_mesh(mesh);
  } catch (const Error& error) {
    throw SettingsError("mesh", error.what());
  }
}

namespace {

Precision make_precision(const TrainConfig& config) {
  Precision out = precision_of(config.precision);
  out.float8_history = config.float8_history;
  return out;
}

}  // namespace

Engine make_engine(const TrainConfig& config, Task task, const Mesh& mesh, int64_t total_steps, Loggers loggers) {
  return Engine(std::move(task), {.mesh = mesh,
                                  .plan = make_sharding_plan(config),
                                  .accumulate = config.accumulate,
                                  .optimizer = make_optimizer(config, total_steps),
                                  .precision = make_precision(config),
                                  .remat = config.remat == "full",
                                  .ema_decay = config.ema_decay,
                                  .seed = config.seed,
                                  .checkpoint_dir = config.checkpoint_dir,
                                  .checkpoint_every = config.checkpoint_every,
                                  .keep_last = config.keep_last,
                                  .loggers = std::move(loggers),
                                  .strict = config.strict,
                                  .config = to_map(stored_settings(config))});
}

}  // namespace lockstep
