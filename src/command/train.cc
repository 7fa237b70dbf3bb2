#include "command/train.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>

#include "base/print_stderr.h"
#include "command/config_flags.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"

namespace lockstep::cli {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t training = 0;  // 1 once the run polls stop_signal

// Ends the process by the default action of the signal. Process 1 of a container ignores default actions, so it exits.
void die_by_signal(int signal) {
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

// During training the first signal requests a checkpoint and an orderly stop, and the second one kills. Before training
// there is nothing to save, so the first one kills. SIGUSR1 is a warning and never kills on its first arrival.
void on_signal(int signal) {
  std::signal(signal, SIG_DFL);
  if (training == 0 && signal != SIGUSR1) die_by_signal(signal);
  stop_signal = signal;
}

volatile std::sig_atomic_t saves = 0;  // 1 if the run writes checkpoints

bool output_reader_exited() {
  pollfd streams[] = {{STDOUT_FILENO, 0, 0}, {STDERR_FILENO, 0, 0}};
  return ::poll(streams, 2, 0) > 0 && ((streams[0].revents | streams[1].revents) & (POLLERR | POLLHUP)) != 0;
}

// When the reader of the output has exited, as with `| head`: stops the run like SIGTERM where a checkpoint can be
// saved, else ends the process. SIGPIPE of any other connection only fails that write.
void on_broken_pipe(int) {
  const int error = errno;
  if (stop_signal == 0 && output_reader_exited()) {
    if (training == 0 || saves == 0) {
      std::signal(SIGPIPE, SIG_DFL);
      die_by_signal(SIGPIPE);
    }
    stop_signal = SIGPIPE;
  }
  errno = error;
}

void install_signal_handlers() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, on_signal);  // Slurm warns by SIGUSR1
  // Signals that are ignored stay ignored: nohup ignores SIGHUP.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  if (std::signal(SIGPIPE, on_broken_pipe) == SIG_IGN) std::signal(SIGPIPE, SIG_IGN);
}

const char* stopped_by() {
  return stop_signal == SIGINT    ? "SIGINT"
         : stop_signal == SIGTERM ? "SIGTERM"
         : stop_signal == SIGHUP  ? "SIGHUP"
         : stop_signal == SIGUSR1 ? "SIGUSR1"
         : stop_signal == SIGPIPE ? "SIGPIPE (the reader of its output exited)"
                                  : "another process";
}

// How the user continues a run that was stopped.
std::string way_to_resume(const TrainConfig& config, const RunOutcome& outcome) {
  if (config.checkpoint_dir.empty() && outcome.run_folder.empty())
    return config.no_save ? "nothing was saved because of --no-save"
                          : "nothing was saved because --checkpoint-dir is not set";
  if (outcome.unsaved) return "its checkpoint could not be saved";
  if (!outcome.run_folder.empty() && config.run_dir.empty())
    return fmt::format("resume it with `{} --resume {}`", train_command(),
                       std::filesystem::path(outcome.run_folder).filename().string());
  return config.resume != "auto" ? "rerun the command without --resume to resume from there"
                                 : "rerun the command to resume from there";
}

int train(const TrainConfig& config, const ProblemFactory& make) {
  saves = saves_checkpoints(config) ? 1 : 0;
  install_signal_handlers();
  const RunOutcome outcome = train_problem(config, make,
                                           {.stop =
                                                [] {
                                                  training = 1;
                                                  return stop_signal != 0;
                                                },
                                            .keep = true});
  if (outcome.stopped) {
    if (process_index() == 0)
      print_stderr("{}: stopped by {} at step {} of {}; {}\n", program_name(), stopped_by(), outcome.step,
                   outcome.total_steps, way_to_resume(config, outcome));
    const bool warned = stop_signal == SIGUSR1 || stop_signal == 0;  // a restart resumes the run
    return warned ? distributed::retry_code() : 128 + stop_signal;
  }
  if (outcome.ended_by_alarm || outcome.unsaved) return kFailed;
  return outcome.expectations_met ? kDone : kNotAsExpected;
}

int print_schedule(const TrainConfig& config, const ProblemFactory& make) {
  const std::string text = problem_schedule(config, make);
  if (process_index() == 0) fmt::print("{}", text);
  return kDone;
}

}  // namespace

void add_training(CLI::App& command, Action& action, const ProblemFactory& make) {
  auto flags = std::make_shared<ConfigFlags>();
  add_config_flags(command, *flags);
  command.callback([flags, make, &command, &action] {
    if (!command.get_subcommands().empty()) return;  // the parser calls the callback of a parent, too
    action = [flags, make] {
      export_flags(flags->runtime);
      KeyLines lines;
      const TrainConfig config = resolve_config(*flags, &lines);
      if (flags->print_config) {
        fmt::print("{}", to_yaml(config));
        return kDone;
      }
      try {
        if (flags->print_schedule) return print_schedule(config, make);
        return train(config, make);
      } catch (const SettingsError& error) {
        throw with_file_and_line(error, lines);
      }
    };
  });
}

void add_train_command(CLI::App& program, Action& action) {
  add_training(*program.add_subcommand("train", "train, evaluate and save a model"), action, {});
}

}  // namespace lockstep::cli
