// Where the processes of a job run. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct HostSlots {
  std::string host;  // "" means this machine
  int slots = 1;

  bool operator==(const HostSlots&) const = default;
};

inline constexpr int kMostProcesses = 1024;

// Reads `a,b:4,[fd00::1]:2`; localhost and what else this machine is called (`own_name`, with or without its domain)
// become "". Throws Error, naming what is wrong, for anything else.
std::vector<HostSlots> parse_hosts(std::string_view text, std::string_view own_name);

// Reads the text of a file with a host on each line: `a`, `b:4` or `b slots=4`, and comments after #. `source` is its
// name, for errors.
std::vector<HostSlots> parse_host_file(std::string_view text, std::string_view source, std::string_view own_name);

// The host of each process: as many as each has slots, in their order. Throws Error when there are not enough.
std::vector<std::string> place(const std::vector<HostSlots>& hosts, int processes);

// The words in quotes, so that a POSIX shell reads them as they are.
std::string quoted(const std::vector<std::string>& words);

// What a shell on another machine is to run: it reads the first line of its standard input into the variable `secret`,
// and becomes the program, with the given variables. From then on each line of input is the name of a signal for it;
// at the end of the input it is sent SIGTERM and, when it is still there after a while, SIGKILL.
struct RemoteCommand {
  std::string folder;
  std::vector<std::string> variables;  // NAME=value
  std::string secret;                  // the name of a variable
  std::vector<std::string> argv;
};
std::string shell_text(const RemoteCommand& command);

}  // namespace lockstep
