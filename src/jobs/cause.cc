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

// The process that a line means by "process 3 (host n07)", "process 0 (the coordinator" or "missing: process 3", if
// that is not the one that printed it.
std::optional<int> named_other(std::string_view line, int own) {
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

// Inside of a replica of a Kubeflow JAXJob processes end with another code than elsewhere.
bool is_retry_code(int code) { return code == distributed::kRetry || code == distributed::retry_code(); }

bool follows(const ProcessEnd& end) {
  if (end.stopped_by != 0) return false;
  return end.asked || is_retry_code(end.ending.code) ||
         (end.ending.signal == 0 && named_other(end.last_line, end.process));
}

const char* hint(int signal) {
  switch (signal) {
    case SIGKILL:
      return " (out of memory? the kernel's log tells: dmesg)";
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
      return " (it crashed)";
    case SIGABRT:
      return " (it gave up: see its last lines)";
    case SIGXCPU:
      return " (its processor time was over)";
    default:
      return "";
  }
}

std::string how(const Ending& ending) {
  if (ending.signal != 0) return fmt::format("by {}{}", signal_name(ending.signal), hint(ending.signal));
  return fmt::format("with exit code {}", ending.code);
}

// `processes 0 and 1 stood still: SIGSTOP had stopped them for 10.1 s`.
std::string stopped_text(const std::vector<ProcessEnd>& ends, const ProcessEnd& first) {
  std::vector<int> numbers;
  for (const ProcessEnd& end : ends)
    if (end.stopped_by != 0) numbers.push_back(end.process);
  std::ranges::sort(numbers);
  std::string names;
  for (size_t i = 0; i < numbers.size(); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  const bool one = numbers.size() == 1;
  return fmt::format("{} {} stood still: {} had stopped {} for {:.1f} s", one ? "process" : "processes", names,
                     signal_name(first.stopped_by), one ? "it" : "them", first.stopped_for);
}

}  // namespace

std::optional<size_t> first_cause(const std::vector<ProcessEnd>& ends) {
  std::optional<size_t> best;
  // Smaller is nearer to the cause. What a signal ended was dead before anybody could learn of it.
  const auto key = [&](size_t i) {
    return std::tuple(follows(ends[i]), ends[i].moment, ends[i].ending.signal == 0, i);
  };
  for (size_t i = 0; i < ends.size(); ++i)
    if (!ends[i].ending.well() && (!best || key(i) < key(*best))) best = i;
  return best;
}

bool may_help(const Ending& ending) {
  if (ending.signal == 0) return is_retry_code(ending.code);
  return ending.signal != SIGINT && ending.signal != SIGTERM && ending.signal != SIGHUP && ending.signal != SIGQUIT;
}

int exit_code(const Ending& ending) { return ending.signal != 0 ? 128 + ending.signal : ending.code; }

std::string describe_cause(const std::vector<ProcessEnd>& ends, size_t cause) {
  const ProcessEnd& first = ends[cause];
  // Nobody ended by itself, and this one says why: who stands still is ended by us.
  if (const auto other = named_other(first.last_line, first.process); other && follows(first) && !first.asked)
    return fmt::format("process {} was lost or stood still, says process {}, which ended {} after {:.1f} s", *other,
                       first.process, how(first.ending), first.seconds);
  std::string out = first.stopped_by != 0 ? stopped_text(ends, first)
                                          : fmt::format("process {} ended {} after {:.1f} s", first.process,
                                                        how(first.ending), first.seconds);
  int64_t alike = 0, others = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (i == cause || ends[i].ending.well() || (first.stopped_by != 0 && ends[i].stopped_by != 0)) continue;
    const bool same = ends[i].ending == first.ending && follows(ends[i]) == follows(first);
    (same ? alike : others) += 1;
  }
  if (alike > 0) out += fmt::format(", and so did {}", alike == 1 ? "another one" : fmt::format("{} others", alike));
  if (others == 1)
    out += ends.size() == 2 ? "; the other one stopped because of it" : "; another one stopped because of it";
  else if (others > 0)
    out += alike == 0 && others + 1 == static_cast<int64_t>(ends.size())
               ? "; the others stopped because of it"
               : fmt::format("; {} others stopped because of it", others);
  return out;
}

}  // namespace lockstep
