#include <fmt/format.h>

#include <csignal>
#include <memory>

#include "base/say.h"
#include "cli/command.h"
#include "cli/config_flags.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "train/run.h"

namespace lockstep::cli {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

// The first signal asks for a checkpoint and an orderly end; the second one kills.
void on_signal(int signal) {
  stop_signal = signal;
  std::signal(signal, SIG_DFL);
}

const char* stopped_by() {
  return stop_signal == SIGINT    ? "SIGINT"
         : stop_signal == SIGTERM ? "SIGTERM"
         : stop_signal == SIGUSR1 ? "SIGUSR1"
                                  : "another process";
}

int train(const TrainConfig& config) {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGUSR1, on_signal);  // what Slurm sends before the time is up
  const RunOutcome outcome = run_training(config, {.stop = [] { return stop_signal != 0; }});
  if (outcome.stopped) {
    if (process_index() == 0)
      say("lockstep: stopped by {} at step {} of {}; {}\n", stopped_by(), outcome.step, outcome.total_steps,
          config.checkpoint_dir.empty() ? "nothing is saved, for there is no --checkpoint-dir"
          : outcome.unsaved             ? "its checkpoint could not be saved"
                                        : "the same command goes on from there");
    const bool warned = stop_signal == SIGUSR1 || stop_signal == 0;  // to be started again
    return warned ? distributed::kRetry : 128 + stop_signal;
  }
  if (outcome.by_alarm || outcome.unsaved) return kFailed;
  return outcome.expectations_met ? kDone : kNotAsExpected;
}

}  // namespace

void add_train_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("train", "train a model, from data to a saved, tested result");
  auto flags = std::make_shared<ConfigFlags>();
  add_config_flags(*command, *flags);
  command->callback([flags, &action] {
    action = [flags] {
      const TrainConfig config = resolve_config(*flags);
      if (!flags->print_config) return train(config);
      fmt::print("{}", to_yaml(config));
      return kDone;
    };
  });
}

}  // namespace lockstep::cli
