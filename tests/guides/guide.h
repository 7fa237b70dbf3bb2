// Reads and runs the commands of README.md and the pages of docs/. The functions may be called from any thread.
//
// A code block that starts with ```sh is run. A line that starts with "$ " is a command, which continues on the next line
// if it ends with a backslash. The lines below it are part of its output. ```sh mnist blocks run only if MNIST is on this
// machine. Other blocks, such as ```console, are not run.
#pragma once

#include <string>
#include <vector>

namespace lockstep::guides {

struct Step {
  std::string command;
  std::vector<std::string> shown;  // lines that the page shows as output; the command may print more
  int line = 0;                    // line number in the page
  bool needs_mnist = false;
};

// README.md, CONTRIBUTING.md, CHANGELOG.md and every page under docs/, relative to the root of the source, sorted.
std::vector<std::string> all_pages();

// Returns the commands of a page. Throws std::runtime_error for a block to be run that has no command or is not closed.
std::vector<Step> read_guide(const std::string& text);

// Whether a printed line matches a line of the page. "..." matches anything. Times, ages, dates, decimal fractions,
// speeds, uids and the amount of white space are not compared.
bool is_shown_as(const std::string& printed, const std::string& shown);

// The result of one step: exit code, and standard output and error together.
struct Outcome {
  int exit_code = 0;
  std::string output;
};

// Runs the commands in order, in one shell, in a temporary folder with links to examples/ and deploy/, with the built
// program on the PATH, the build folder as the package for CMake, and no jobs. Skips steps that need MNIST if it is not on
// this machine.
std::vector<Outcome> run_guide(const std::vector<Step>& steps);

}  // namespace lockstep::guides
