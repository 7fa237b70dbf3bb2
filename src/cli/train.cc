#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
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
volatile std::sig_atomic_t training = 0;  // the run has begun to ask whether to stop

// As if nobody had taken the signal. The first process of a container outlives those, so it exits.
void end_by(int signal) {
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

// Once the run trains the first signal asks for a checkpoint and an orderly end, and the second one kills. Before there
// is nothing to save and nobody who asks: the first one kills. SIGUSR1 is a warning, and waits.
void on_signal(int signal) {
  std::signal(signal, SIG_DFL);
  if (training == 0 && signal != SIGUSR1) end_by(signal);
  stop_signal = signal;
}

volatile std::sig_atomic_t saves = 0;  // there is a folder for checkpoints

bool reader_is_gone() {
  pollfd streams[] = {{STDOUT_FILENO, 0, 0}, {STDERR_FILENO, 0, 0}};
  return ::poll(streams, 2, 0) > 0 && ((streams[0].revents | streams[1].revents) & (POLLERR | POLLHUP)) != 0;
}

// The reader of the output has ended, as `| head` does: like SIGTERM where a checkpoint can be saved, else the end.
// SIGPIPE of any other connection is an error of that write only.
void on_broken_pipe(int) {
  const int error = errno;
  if (stop_signal == 0 && reader_is_gone()) {
    if (training == 0 || saves == 0) {
      std::signal(SIGPIPE, SIG_DFL);
      end_by(SIGPIPE);
    }
    stop_signal = SIGPIPE;
  }
  errno = error;
}

void take_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, on_signal);  // Slurm warns by SIGUSR1
  // nohup has it ignored.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  if (std::signal(SIGPIPE, on_broken_pipe) == SIG_IGN) std::signal(SIGPIPE, SIG_IGN);
}

const char* stopped_by() {
  return stop_signal == SIGINT    ? "SIGINT"
         : stop_signal == SIGTERM ? "SIGTERM"
         : stop_signal == SIGHUP  ? "SIGHUP"
         : stop_signal == SIGUSR1 ? "SIGUSR1"
         : stop_signal == SIGPIPE ? "SIGPIPE (the reader of its output has ended)"
                                  : "another process";
}

int train(const TrainConfig& config) {
  saves = config.checkpoint_dir.empty() ? 0 : 1;
  take_signals();
  const RunOutcome outcome = run_training(config, {.stop = [] {
                                            training = 1;
                                            return stop_signal != 0;
                                          }});
  if (outcome.stopped) {
    if (process_index() == 0)
      say("lockstep: stopped by {} at step {} of {}; {}\n", stopped_by(), outcome.step, outcome.total_steps,
          config.checkpoint_dir.empty() ? "nothing is saved, for there is no --checkpoint-dir"
          : outcome.unsaved             ? "its checkpoint could not be saved"
          : config.resume != "auto"     ? "the same command without --resume goes on from there"
                                        : "the same command goes on from there");
    const bool warned = stop_signal == SIGUSR1 || stop_signal == 0;  // to be started again
    return warned ? distributed::retry_code() : 128 + stop_signal;
  }
  if (outcome.ended_by_alarm || outcome.unsaved) return kFailed;
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
