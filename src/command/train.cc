#include "command/train.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>

#include "base/live_line.h"
#include "base/print_stderr.h"
#include "command/config_flags.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "train/user_program.h"

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

// Texts that the signal handlers write; the last two are empty in processes other than the first. The handlers must not
// format.
std::string erase_text, first_interrupt_text, second_interrupt_text;

void write_from_handler(const std::string& text) {
  if (!text.empty()) (void)!::write(STDERR_FILENO, text.data(), text.size());
}

// Interrupts during training. The kernel may deliver the second one to another thread while the first one is handled.
std::atomic<int> interrupts = 0;
std::atomic<bool> acknowledged = false;  // the first text is written

void on_interrupt() {
  if (interrupts.fetch_add(1) == 0) {
    stop_signal = SIGINT;
    write_from_handler(first_interrupt_text);
    acknowledged = true;
    return;
  }
  constexpr timespec kMillisecond{0, 1'000'000};
  for (int i = 0; i < 1000 && !acknowledged; ++i) ::nanosleep(&kMillisecond, nullptr);
  write_from_handler(second_interrupt_text);
  std::signal(SIGINT, SIG_DFL);
  die_by_signal(SIGINT);
}

// During training the first signal requests a checkpoint and an orderly stop, and the second one kills. Before training
// there is nothing to save, so the first one kills. SIGUSR1 is a warning and never kills on its first arrival.
void on_signal(int signal) {
  const int error = errno;
  if (signal == SIGINT && training != 0) {
    on_interrupt();
    errno = error;
    return;
  }
  std::signal(signal, SIG_DFL);
  if (training == 0 && signal != SIGUSR1) {
    write_from_handler(erase_text);
    die_by_signal(signal);
  }
  stop_signal = signal;
  errno = error;
}

// REQUIRES: the process has joined its job.
void prepare_interrupt_texts(bool saves) {
  if (process_index() != 0) return;
  const std::string begin = erase_text + program_name() + ": ";
  first_interrupt_text = fmt::format("{}stopping after this step; press Ctrl-C again to quit {}\n", begin,
                                     saves ? "without saving" : "at once");
  second_interrupt_text =
      fmt::format("{}quit{}\n", begin, saves ? " without saving; the steps since the last checkpoint are lost" : "");
}

bool output_reader_exited() {
  pollfd streams[] = {{STDOUT_FILENO, 0, 0}, {STDERR_FILENO, 0, 0}};
  return ::poll(streams, 2, 0) > 0 && ((streams[0].revents | streams[1].revents) & (POLLERR | POLLHUP)) != 0;
}

// Ends the process when the reader of its output has exited, as with `| head`. SIGPIPE of any other connection only fails
// that write.
void on_broken_pipe(int) {
  const int error = errno;
  if (output_reader_exited()) {
    std::signal(SIGPIPE, SIG_DFL);
    die_by_signal(SIGPIPE);
  }
  errno = error;
}

// A run that is saved continues without its reader.
void install_signal_handlers(bool saves) {
  if (LiveLine::of_stderr().style().redraws) erase_text = "\r\033[J";  // the live line and the echoed ^C
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, on_signal);  // Slurm warns by SIGUSR1
  // Signals that are ignored stay ignored: nohup ignores SIGHUP.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  if (std::signal(SIGPIPE, saves ? SIG_IGN : on_broken_pipe) == SIG_IGN) std::signal(SIGPIPE, SIG_IGN);
}

const char* stopped_by() {
  return stop_signal == SIGINT    ? "SIGINT"
         : stop_signal == SIGTERM ? "SIGTERM"
         : stop_signal == SIGHUP  ? "SIGHUP"
         : stop_signal == SIGUSR1 ? "SIGUSR1"
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
  const bool saves = saves_checkpoints(config);
  install_signal_handlers(saves);
  const RunOutcome outcome = train_problem(config, make,
                                           {.stop =
                                                [saves] {
                                                  if (training == 0) prepare_interrupt_texts(saves);
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
