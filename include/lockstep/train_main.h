// train_main(): a task becomes a program with the whole command line of `lockstep train`. Link lockstep::main.
//
//   struct Settings {
//     Setting<int64_t> hidden{64, "units of the hidden layer", at_least(1)};
//   };
//   Problem make_problem(const Settings& settings) { ... }  // the task and its data
//   int main(int argc, char** argv) { return train_main(argc, argv, make_problem); }
//
//   my_task [train] [FLAGS] [CONFIG]    trains, with all flags of the trainer and --hidden
//   my_task eval CHECKPOINT             evaluates a checkpoint
//   my_task inspect CHECKPOINT          shows a checkpoint
//   my_task completion bash|zsh         prints the completion script of a shell
//   my_task --help | --version
//
// Exit codes, signals, checkpoints and logs are those of `lockstep train`. The program detects launchers (lockstep
// launch, Slurm, MPI, Kubernetes) as `lockstep train` does. Call from the main thread.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/settings.h"
#include "lockstep/task.h"

namespace lockstep {

// Settings of the trainer that a task or its data may depend on.
struct TrainInputs {
  uint64_t seed = 0;
  int64_t batch_size = 0;  // examples per step, over all devices and processes
};

namespace detail {

int train_main(int argc, char** argv, std::vector<SettingRow> rows,
               std::function<Problem(const NamedSettings&, const TrainInputs&)> make);

// The type of the settings that make() takes: the parameter of a function, or of a call operator.
struct NoSettings {};
template <class F>
struct SettingsOf : SettingsOf<decltype(&F::operator())> {};
template <class R, class... Rest>
struct SettingsOf<R (*)(Rest...)> {
  using Type = NoSettings;
};
template <class R, class S, class... Rest>
struct SettingsOf<R (*)(const S&, Rest...)> {
  using Type = S;
};
template <class R, class C>
struct SettingsOf<R (C::*)() const> : SettingsOf<R (*)()> {};
template <class R, class C, class S, class... Rest>
struct SettingsOf<R (C::*)(const S&, Rest...) const> : SettingsOf<R (*)(const S&, Rest...)> {};

}  // namespace detail

// Runs the program and returns its exit code. `make` returns the Problem: make(), make(const Settings&) or
// make(const Settings&, const TrainInputs&). It is called in every process once devices exist, and must make the same
// task and the same data in each.
template <class Make>
int train_main(int argc, char** argv, Make make) {
  using Settings = typename detail::SettingsOf<Make>::Type;
  return detail::train_main(argc, argv, detail::setting_rows<Settings>(),
                            [make](const NamedSettings& values, const TrainInputs& inputs) -> Problem {
                              if constexpr (std::is_invocable_v<Make, const Settings&, const TrainInputs&>)
                                return make(detail::make_settings<Settings>(values), inputs);
                              else if constexpr (std::is_invocable_v<Make, const Settings&>)
                                return make(detail::make_settings<Settings>(values));
                              else
                                return make();
                            });
}

}  // namespace lockstep
