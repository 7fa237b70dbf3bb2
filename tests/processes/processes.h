// The processes of a job without a launcher: a test can read the output and exit code of each, and send it signals.
#pragma once

#include "processes/launched.h"
#include "support/listener.h"

namespace lockstep {

class Processes {
 public:
  struct Options {
    Words variables = {};                   // of all processes, `X=1`
    Words command = {};                     // the `lockstep` command
    std::function<Words(int)> own = {};     // additional words of process p
    std::function<Words(int)> before = {};  // words before the command of process p
    std::string coordinator = {};           // empty: a free port of this host
    std::string program = program_path();
  };

  Processes(int count, const Options& options) {
    const std::string coordinator =
        options.coordinator.empty() ? fmt::format("127.0.0.1:{}", unused_port()) : options.coordinator;
    for (int p = 0; p < count; ++p)
      all_.push_back(std::make_unique<RunningProgram>(
          (options.before ? options.before(p) : Words{}) +
          Words{"env", "LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef", "LOCKSTEP_COORDINATOR=" + coordinator,
                fmt::format("LOCKSTEP_NUM_PROCESSES={}", count), fmt::format("LOCKSTEP_PROCESS_ID={}", p),
                "LOCKSTEP_FLIGHT_DIR=" + dir_.path()} +
          options.variables + Words{options.program} + options.command + (options.own ? options.own(p) : Words{})));
  }

  // Waits until process 0 has logged the step; false if it ends first.
  bool reach(int step) {
    const std::string text = fmt::format("\nstep {}/", step);
    bool found = false;
    comes_true([&] { return (found = contains(at(0).err(), text)) || ended(0); });
    return found;
  }
  void send(int process, int signal) { at(process).send(signal); }
  // A failing process ends within a minute; a complete run on a busy machine may take longer.
  RunningProgram::Result wait(int process, std::chrono::seconds limit = std::chrono::minutes(1)) {
    if (!comes_true([&] { return ended(process); }, limit)) {
      ADD_FAILURE() << "process " << process << " hangs:\n" << at(process).err();
      send(process, SIGKILL);
    }
    return at(process).wait();
  }
  bool ended(int process) const { return all_[static_cast<size_t>(process)]->ended(); }
  pid_t pid(int process) const { return all_[static_cast<size_t>(process)]->pid(); }
  int count() const { return static_cast<int>(all_.size()); }
  // The folder of the flight-recorder dumps.
  const std::string& flights() const { return dir_.path(); }
  size_t flight_count() const { return FileSystem::real().list(dir_.path()).size(); }

 private:
  RunningProgram& at(int process) { return *all_[static_cast<size_t>(process)]; }

  const TempDir dir_;
  std::vector<std::unique_ptr<RunningProgram>> all_;
};

// The last line of a process, without the one about its dump.
inline std::string last_words(const RunningProgram::Result& result) {
  std::string out;
  for (const std::string& line : lines_of(result.err))
    if (line.starts_with("lockstep: ") && !line.starts_with("lockstep: the last ")) out = line;
  return out;
}

// The first process that a text names, as `process 1 (host a, pid 12)` or as the unreachable coordinator.
inline int named_in(const std::string& text) {
  for (size_t at = 0; (at = text.find("process ", at)) != text.npos; ++at) {
    char* end = nullptr;
    const long number = std::strtol(text.c_str() + at + 8, &end, 10);
    const std::string_view rest(end);
    if (end != text.c_str() + at + 8 && (rest.starts_with(" (host ") || rest.starts_with(" at ")))
      return static_cast<int>(number);
  }
  return -1;
}

}  // namespace lockstep
