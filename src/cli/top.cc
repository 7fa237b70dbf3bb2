#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/raw_terminal.h"
#include "cli/top_view.h"
#include "command/help.h"
#include "command/number_check.h"
#include "command/runtime_flags.h"
#include "hardware/nvml.h"
#include "jobs/runner.h"
#include "jobs/signals.h"
#include "lane/cpus.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct TopArguments {
  std::vector<std::string> folders;
  bool once = false;
  int interval = 1;  // seconds
  RuntimeFlags runtime;
};

MachineLoad machine_load() {
  MachineLoad out{.cpus = unbound_cpus(), .gpus = gpu_loads()};
  std::ifstream("/proc/loadavg") >> out.load;
  int64_t available = 0;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kibibytes = 0; file >> name >> kibibytes && std::getline(file, unit);) {
    if (name == "MemTotal:") out.memory_total = kibibytes << 10;
    if (name == "MemAvailable:") available = kibibytes << 10;
  }
  out.memory_used = out.memory_total - available;
  return out;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The folder or the run that an argument names.
std::string folder_of(const std::string& argument) {
  return FileSystem::real().exists(argument) ? argument : find_run("top", argument);
}

class Top {
 public:
  explicit Top(const TopArguments& arguments) : runner_(make_runner("local")) {
    for (const std::string& each : arguments.folders) folders_.push_back(folder_of(each));
    if (folders_.empty()) folders_.emplace_back(kRunsFolder);
  }

  TopState& state() { return state_; }

  void refresh() {
    const ProcessTable processes;
    state_.rows = read_run_rows(folders_, processes, unix_seconds());
    try {
      for (TopRow& row : read_job_rows(*runner_, processes)) state_.rows.push_back(std::move(row));
    } catch (const std::runtime_error& error) {  // such as the state of another version
      state_.message = error.what();
    }
    state_.machine = machine_load();
    const std::time_t now = std::time(nullptr);
    state_.clock = fmt::format("{:%H:%M:%S}", fmt::localtime(now));
    if (state_.mode == TopState::Mode::details) read_log();
  }

  // Reads the log of the selected replica.
  void read_log() {
    const TopRow* const selected = selected_row(state_);
    if (!selected || selected->kind != TopRow::Kind::replica) return;
    std::string text;
    try {
      const Job job = runner_->get(fact(*selected, "namespace"), fact(*selected, "job"));
      constexpr int64_t kLines = 200;
      runner_->logs(job, {.replica = std::stoi(fact(*selected, "replica")), .tail = kLines},
                    [&](std::string_view part) {
                      text += part;
                      return true;
                    });
    } catch (const std::runtime_error& error) {  // it has no log yet, or was deleted
      text = error.what();
    }
    const auto row = std::ranges::find_if(state_.rows, [&](const TopRow& each) { return &each == selected; });
    row->log.clear();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) row->log.push_back(std::move(line));
  }

  // Stops the selected run or job.
  void stop() {
    const TopRow* const row = selected_row(state_);
    if (!row) return;
    try {
      if (row->kind == TopRow::Kind::run) {
        if (::kill(row->process, SIGTERM) != 0) throw_error("top: process {} has ended", row->process);
        state_.message = fmt::format("asked {} (process {}) to save and stop", row->name, row->process);
      } else {
        runner_->set_suspend(runner_->get(fact(*row, "namespace"), row->name), true);
        state_.message = fmt::format("suspended {}; lockstep resume {} continues it", row->name, row->name);
      }
    } catch (const std::runtime_error& error) {
      state_.message = error.what();
    }
  }

 private:
  static std::string fact(const TopRow& row, const std::string& name) {
    for (const auto& [key, value] : row.facts)
      if (key == name) return value;
    return "";
  }

  std::unique_ptr<Runner> runner_;
  std::vector<std::string> folders_;
  TopState state_;
};

// Applies the keys that were typed. Returns whether the program ends.
bool read_keys(Top& top) {
  std::array<char, 256> bytes;
  const ssize_t n = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (n <= 0) return true;  // the terminal is gone
  for (const TopInput& input : parse_keys({bytes.data(), static_cast<size_t>(n)})) {
    const TopAction action = press(top.state(), input);
    if (action == TopAction::quit) return true;
    if (action == TopAction::stop) top.stop();
  }
  top.read_log();
  return false;
}

// Returns the signal that ended the program; 0: the user did.
int show_screen(Top& top, std::chrono::milliseconds interval) {
  SignalPipe signals({SIGINT, SIGTERM, SIGHUP, SIGWINCH});
  RawTerminal terminal;
  const TerminalStyle style = terminal_style(STDOUT_FILENO);
  auto next = std::chrono::steady_clock::now();
  for (;;) {
    if (std::chrono::steady_clock::now() >= next) {
      top.refresh();
      next = std::chrono::steady_clock::now() + interval;
    }
    terminal.draw(render_top(top.state(), terminal.columns(), terminal.rows(), style));
    pollfd events[] = {{STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
    ::poll(events, 2, static_cast<int>(std::max<int64_t>(wait.count(), 0)));
    for (const int signal : signals.take())
      if (signal != SIGWINCH) return signal;
    if (events[0].revents != 0 && read_keys(top)) return 0;
  }
}

int top(const TopArguments& arguments) {
  export_flags(arguments.runtime);
  Top program(arguments);
  if (arguments.once || !terminal_style(STDOUT_FILENO).redraws || ::isatty(STDIN_FILENO) != 1) {
    program.refresh();
    fmt::print("{}", top_table(program.state()));
    return kDone;
  }
  const int signal = show_screen(program, std::chrono::seconds(arguments.interval));
  return signal == 0 ? kDone : 128 + signal;
}

}  // namespace

void add_top_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("top", "watch the runs and jobs of this machine");
  auto arguments = std::make_shared<TopArguments>();
  command->add_option("FOLDER", arguments->folders, "folders of runs, or runs (default: runs)")->type_name("");
  command->add_flag("--once", arguments->once, "print a table and exit, as on other streams than a terminal");
  command->add_option("--interval", arguments->interval, "time between two updates (default: 1)")
      ->type_name("SECONDS")
      ->check(integer_between(1, 3600));
  add_runtime_flags(*command, arguments->runtime, {SettingGroup::jobs});
  add_footer(*command,
             "Keys: up and down select a row, enter shows its details, / filters, s sorts, d stops, ? lists all.");
  add_examples(*command, {"lockstep top", "lockstep top --once", "lockstep top experiments/ runs/"});
  command->callback([arguments, &action] { action = [arguments] { return top(*arguments); }; });
}

}  // namespace lockstep::cli
