// Parses host lists and host files, and builds the commands that start processes on other hosts. Pure functions, safe
// from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct HostSlots {
  std::string host;  // "": this host
  int slots = 1;

  bool operator==(const HostSlots&) const = default;
};

inline constexpr int kMaxProcesses = 1024;

// Parses `a,b:4,[fd00::1]:2`. localhost, 127.0.0.1, ::1 and `own_name` (with or without its domain) become "". Throws
// Error.
std::vector<HostSlots> parse_hosts(std::string_view text, std::string_view own_name);

// Parses a host file with one host per line: `a`, `b:4` or `b slots=4`, and comments after #. `source` is the file
// name for error messages. Throws Error.
std::vector<HostSlots> parse_host_file(std::string_view text, std::string_view source, std::string_view own_name);

// The host of each process, filling the slots of the hosts in order. Throws Error if there are too few slots.
std::vector<std::string> assign_hosts(const std::vector<HostSlots>& hosts, int processes);

// The words separated by spaces and quoted for a POSIX shell.
std::string shell_quote(const std::vector<std::string>& words);

// A program to run on another host.
struct RemoteCommand {
  std::string folder;                  // working directory
  std::vector<std::string> variables;  // NAME=value
  std::string secret;                  // the name of a variable whose value is sent through standard input
  std::vector<std::string> argv;
};

// The command for a remote shell. It reads the first line of standard input into the variable `secret`, then execs the
// program. Each further line of input is a signal name to send to the program. At the end of the input the program
// gets SIGTERM, and SIGKILL ten seconds later.
std::string remote_shell_command(const RemoteCommand& command);

}  // namespace lockstep
