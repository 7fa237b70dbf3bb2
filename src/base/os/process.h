// Starts processes, without a shell. Every process that lockstep starts is started here. Safe from any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ProcessSpec {
  std::string program = {};                                  // a path, such as find_program() returns
  std::vector<std::string> argv = {};                        // with argv[0]
  std::optional<std::vector<std::string>> environment = {};  // NAME=value; nullopt: the environment of this process
  std::string folder = {};                                   // working directory; empty: the current one
  std::array<int, 3> streams = {-1, -1, -1};                 // standard input, output and error; -1: /dev/null
  std::vector<int> cpus = {};                                // CPU affinity; empty: that of this process
  int death_signal = 0;                                      // sent when the thread that started it ends; 0: none
};

// The executable of this process, as ProcessSpec::program.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

// Starts a program as the leader of a new process group and returns its pid. In it all signals have their default action
// and none is blocked. Throws IoError, naming argv[0] or the folder, if it cannot be started.
pid_t start_process(const ProcessSpec& spec);

// Starts a program that outlives its parent, the terminal and the session: it has a session of its own, no descriptors
// besides the standard streams, and umask 077. Ignores death_signal. Throws IoError like start_process().
void start_detached(const ProcessSpec& spec);

// Whether a child of this process has ended. Does not reap it.
bool process_has_ended(pid_t child);

// Kills the process group of the child, reaps the child and returns its exit code, 128 + n for signal n. REQUIRES: the
// child leads its group, and is not reaped.
int kill_group_and_reap(pid_t child);

// Raises this process's soft limit of open files to the hard limit, for many children or connections. Processes that it
// starts get the original limit. Returns the limit.
int raise_open_file_limit();

// The full path of a program on the PATH, or the name itself if it has a slash. Empty if it is not executable.
std::string find_program(std::string_view name);

// The same, but throws Error if there is none: `run a program: "x" was not found on the PATH; install it`, where `what`
// is "run a program" and `remedy` "install it".
std::string require_program(std::string_view what, std::string_view name, std::string_view remedy);

}  // namespace lockstep
