#include "jobs/cause.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/names.h"
#include "lockstep/distributed.h"

namespace lockstep {
namespace {

// The process that a line names as "process 3 (host n07)", "process 0 (the coordinator" or "missing: process 3";
// nullopt if it is the one that printed the line.
std::optional<int> find_other_process(std::string_view line, int own) {
  constexpr std::string_view kWord = "process ", kHost = " (host ", kCoordinator = " (the coordinator",
                             kMissing = "missing: ";
  for (size_t at = 0; (at = line.find(kWord, at)) != line.npos;) {
    at += kWord.size();
    int number = -1;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), number);
    const std::string_view rest(end, static_cast<size_t>(line.data() + line.size() - end));
    const bool missing = line.substr(0, at - kWord.size()).ends_with(kMissing);
    if (error == std::errc() && number != own && (missing || rest.starts_with(kHost) || rest.starts_with(kCoordinator)))
      return number;
  }
  return std::nullopt;
}

// Inside a replica of a Kubeflow JAXJob the retry code differs from kRetry.
bool is_retry_code(int code) { return code == distributed::kRetry || code == distributed::retry_code(); }

// Whether the process failed because of another one.
bool is_consequence(const ProcessExit& end) {
  if (end.stopped_by != 0) return false;
  return end.signalled || is_retry_code(end.exit_status.code) ||
         (end.exit_status.signal == 0 && find_other_process(end.last_line, end.process));
}

const char* signal_hint(int signal) {
  switch (signal) {
    case SIGKILL:
      return " (out of memory? check dmesg)";
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
      return " (it crashed)";
    case SIGABRT:
      return " (it aborted: see its last lines)";
    case SIGXCPU:
      return " (CPU time limit exceeded)";
    default:
      return "";
  }
}

std::string exit_text(const ExitStatus& exit_status) {
  if (exit_status.signal != 0)
    return fmt::format("was killed by {}{}", signal_name(exit_status.signal), signal_hint(exit_status.signal));
  return fmt::format("ended with exit code {}", exit_status.code);
}

// `processes 0 and 1 were stopped by SIGSTOP for 10.1 s`.
std::string stopped_text(const std::vector<ProcessExit>& exits, const ProcessExit& first) {
  std::vector<int> numbers;
  for (const ProcessExit& end : exits)
    if (end.stopped_by != 0) numbers.push_back(end.process);
  std::ranges::sort(numbers);
  std::string names;
  for (size_t i = 0; i < numbers.size(); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  const bool one = numbers.size() == 1;
  return fmt::format("{} {} {} stopped by {} for {:.1f} s", one ? "process" : "processes", names, one ? "was" : "were",
                     signal_name(first.stopped_by), first.stopped_for);
}

}  // namespace

std::optional<size_t> find_cause(const std::vector<ProcessExit>& exits) {
  std::optional<size_t> best;
  // The smallest key is the cause. Within a round, a process killed by a signal died before others could notice it.
  const auto key = [&](size_t i) {
    return std::tuple(is_consequence(exits[i]), exits[i].round, exits[i].exit_status.signal == 0, i);
  };
  for (size_t i = 0; i < exits.size(); ++i)
    if (!exits[i].exit_status.success() && (!best || key(i) < key(*best))) best = i;
  return best;
}

bool restart_may_help(const ExitStatus& exit_status) {
  if (exit_status.signal == 0) return is_retry_code(exit_status.code);
  return exit_status.signal != SIGINT && exit_status.signal != SIGTERM && exit_status.signal != SIGHUP &&
         exit_status.signal != SIGQUIT;
}

int exit_code(const ExitStatus& exit_status) {
  return exit_status.signal != 0 ? 128 + exit_status.signal : exit_status.code;
}

std::string describe_cause(const std::vector<ProcessExit>& exits, size_t cause) {
  const ProcessExit& first = exits[cause];
  const bool by_retry = first.exit_status.signal == 0 && is_retry_code(first.exit_status.code);
  // The processes name the network, and each other only as those that lack its data.
  if (by_retry && !first.signalled && first.last_line.find("check the network between the hosts") != std::string::npos)
    return fmt::format("the network between the hosts failed, according to process {}, which {} after {:.1f} s",
                       first.process, exit_text(first.exit_status), first.seconds);
  // All processes failed because of another one, and this one names it. A hung process is killed by the launcher only
  // later.
  if (const auto other = find_other_process(first.last_line, first.process);
      other && is_consequence(first) && !first.signalled)
    return fmt::format("process {} was lost or hung, according to process {}, which {} after {:.1f} s", *other,
                       first.process, exit_text(first.exit_status), first.seconds);
  std::string out = first.stopped_by != 0 ? stopped_text(exits, first)
                                          : fmt::format("process {} {} after {:.1f} s", first.process,
                                                        exit_text(first.exit_status), first.seconds);
  int64_t alike = 0, others = 0;
  for (size_t i = 0; i < exits.size(); ++i) {
    if (i == cause || exits[i].exit_status.success() || (first.stopped_by != 0 && exits[i].stopped_by != 0)) continue;
    const bool same = exits[i].exit_status == first.exit_status && is_consequence(exits[i]) == is_consequence(first);
    (same ? alike : others) += 1;
  }
  if (alike > 0) out += fmt::format(", and so did {}", alike == 1 ? "another one" : fmt::format("{} others", alike));
  if (others == 1)
    out += exits.size() == 2 ? "; the other one stopped because of it" : "; another one stopped because of it";
  else if (others > 0)
    out += alike == 0 && others + 1 == static_cast<int64_t>(exits.size())
               ? "; the others stopped because of it"
               : fmt::format("; {} others stopped because of it", others);
  return out;
}

}  // namespace lockstep
