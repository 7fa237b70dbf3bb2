// The commands of a page of docs/, read as its reader reads them.
//
// A block of code that begins with ```sh is run: a line that begins with "$ " is a command (one that ends with a
// backslash goes on in the next line), the lines below it are what it prints. ```sh mnist is run where MNIST is on this
// machine. All other blocks (```console, for what needs a cluster, is among them) are for reading only.
#pragma once

#include <string>
#include <vector>

namespace lockstep::guides {

struct Step {
  std::string command;
  std::vector<std::string> shown;  // lines that it prints, among others
  int line = 0;                    // of the page
  bool needs_mnist = false;
};

// README.md, CONTRIBUTING.md, CHANGELOG.md and every page under docs/, relative to the root of the source, sorted.
std::vector<std::string> all_pages();

// Throws std::runtime_error for a block to be run that has no command, or is not closed.
std::vector<Step> read_guide(const std::string& text);

// Whether a line of the guide stands for a line that was printed. "..." stands for anything. Times, ages, dates,
// decimal fractions, speeds and the identity of objects may be others, and spaces may be more or fewer.
bool is_shown_as(const std::string& printed, const std::string& shown);

// What was done of it: exit codes and all that was printed, of each step.
struct Outcome {
  int exit_code = 0;
  std::string output;
};

// Runs the commands one after the other, in one shell, in a folder of its own in which examples/ lies, with the program
// that was built on the PATH and no jobs. Steps that need MNIST are left out where there is none.
std::vector<Outcome> run_guide(const std::vector<Step>& steps);

}  // namespace lockstep::guides
