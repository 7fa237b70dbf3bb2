// Chooses whether the blocks of a model are rematerialized: the settings remat and memory_limit. Pure functions and
// compilation; call choose_remat() from the main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/engine.h"
#include "train/config.h"

namespace lockstep {

// The bytes of a text such as "8G", "512M" or "1.5GiB", in powers of 1024; 0 for an empty one. Throws Error for others.
int64_t memory_limit_bytes(const std::string& text);

// Throws Error unless the settings remat and memory_limit are valid.
void check_remat(const TrainConfig& config);

// Whether a training step rematerializes. `step_bytes(remat)` plans a step and returns the bytes that it needs on the
// lane that needs most; it is called only with a limit. With remat auto, a step is rematerialized if it does not fit
// otherwise; then `note` gets the reason. Throws SettingsError when the step does not fit.
bool choose_remat(const TrainConfig& config, const std::function<int64_t(bool remat)>& step_bytes,
                  const std::function<void(const std::string&)>& note);

// The settings with remat full or none, as choose_remat() says for the steps of the engines that `make` makes. Prints the
// reason. REQUIRES: all processes call it.
TrainConfig with_remat(const TrainConfig& config, const TrainState& state, const Loader& train,
                       const std::function<Engine(const TrainConfig&)>& make);

}  // namespace lockstep
