// Which of the processes of a job that failed was the first cause, and which only followed. Pure functions, safe from
// any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/child.h"

namespace lockstep {

struct ProcessEnd {
  int process = 0;
  Ending ending = {};
  bool asked = false;          // we had sent it a signal before
  int moment = 0;              // ends of one moment were seen at once: nobody knows which was first
  double seconds = 0;          // since the start
  std::string last_line = {};  // that it printed
  // It was stopped by this signal (SIGSTOP) for so many seconds until we killed it; 0: it was not.
  int stopped_by = 0;
  double stopped_for = 0;
};

// The index in `ends`, which are in the order in which they were seen: of those that ended badly and not because of
// somebody else, the first. Somebody else: exit code 75, a signal sent by us, or a last line that names another
// process. A process that was stopped failed by itself. When all are such, the first of them; none when all ended well.
std::optional<size_t> first_cause(const std::vector<ProcessEnd>& ends);

// Whether starting again may help: exit code 75, or a signal that nobody sends to stop a program. (An error that a
// program reports by itself comes again.)
bool may_help(const Ending& ending);

// 128 + n for signal n.
int exit_code(const Ending& ending);

// `process 1 ended by SIGKILL (out of memory? the kernel's log tells: dmesg) after 12.3 s; the others stopped because
// of it`.
std::string describe_cause(const std::vector<ProcessEnd>& ends, size_t cause);

}  // namespace lockstep
