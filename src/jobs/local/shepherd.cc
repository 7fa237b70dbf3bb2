#include "jobs/local/shepherd.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "cluster/detect.h"
#include "cluster/port_owner.h"
#include "jobs/cause.h"
#include "jobs/child.h"
#include "jobs/lines.h"
#include "jobs/local/client.h"
#include "jobs/local/detach.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/pod_folder.h"
#include "jobs/local/pod_log.h"
#include "jobs/local/replica.h"
#include "jobs/signals.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kShepherdLook{2000};  // how often it looks whether its folder and the daemon are still there
constexpr milliseconds kRetry{500};          // between attempts to write how it ended
constexpr int kCannotStart = 127;            // as a shell has it; below 128: it would happen again

// How often this machine has killed a process for want of memory; -1: it does not say.
int64_t memory_kills() {
  std::ifstream in("/proc/vmstat");
  std::string name;
  for (int64_t value = 0; in >> name >> value;)
    if (name == "oom_kill") return value;
  return -1;
}

// Lines of both outputs, put together without cutting any.
class Lines {
 public:
  explicit Lines(PodLog& log) : log_(log) {}

  void add(size_t stream, std::string_view bytes) {
    splitters_[stream].add(bytes, [&](const Line& line) { put(stream, line); });
    flush();
  }
  void finish(size_t stream) {
    splitters_[stream].finish([&](const Line& line) { put(stream, line); });
    flush();
  }

 private:
  void put(size_t stream, const Line& line) {
    if (unfinished_ && unfinished_ != stream) text_ += '\n';
    text_ += line.text;
    if (line.ends) text_ += '\n';
    unfinished_ = line.ends ? std::nullopt : std::optional(stream);
  }
  void flush() {
    log_.write(text_);
    text_.clear();
  }

  PodLog& log_;
  std::array<LineSplitter, 2> splitters_;
  std::optional<size_t> unfinished_;  // whose line goes on
  std::string text_;
};

// Reads what is there; closes the descriptor at its end.
void read_some(Descriptor& from, size_t stream, Lines& lines) {
  std::array<char, 65536> bytes;
  for (int i = 0; from && i < 16; ++i) {
    const ssize_t n = ::read(from.get(), bytes.data(), bytes.size());
    if (n > 0) {
      lines.add(stream, std::string_view(bytes.data(), static_cast<size_t>(n)));
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) from.close();
    return;
  }
}

// Until nothing is left. Processes that the replica left behind may keep its outputs open: nobody waits for those.
void drain(Child& child, Lines& lines) {
  for (Descriptor* from : {&child.out(), &child.err()}) {
    const size_t stream = from == &child.out() ? 0 : 1;
    constexpr int64_t kMost = 1 << 20;  // what a pipe can hold
    for (int64_t i = 0; i < kMost / 65536 && *from; ++i) {
      pollfd ready = {from->get(), POLLIN, 0};
      if (::poll(&ready, 1, 0) <= 0) break;
      read_some(*from, stream, lines);
    }
    lines.finish(stream);
  }
}

// Whether the last lines of a replica that failed say that it could not listen at the port. Not every program names it.
bool says_port_is_taken(const std::string& log, int port) {
  constexpr int64_t kLines = 50;
  std::string text;
  try {
    LogReader(log, kLines).read([&](std::string_view part) {
      text += part;
      return true;
    });
  } catch (const IoError&) {  // nobody can say, then
  }
  const std::string name = std::to_string(port);
  bool said = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("ddress already in use") == line.npos) continue;
    said = true;
    const size_t at = line.find(":" + name);
    const size_t end = at == line.npos ? at : at + 1 + name.size();
    if (at != line.npos && (end == line.size() || line[end] < '0' || line[end] > '9')) return true;
  }
  return said && !is_port_free(port);
}

class Shepherd {
 public:
  Shepherd(PodFolder folder, SignalPipe& signals)
      : folder_(std::move(folder)),
        signals_(signals),
        spec_(folder_.spec()),
        log_(FileSystem::real(), folder_.log_path(), spec_.log_limit) {}

  // From the mark that it was started to the word how it ended. Throws IoError when the mark cannot be set: nothing was
  // started then.
  void run() {
    started_ = {.time = current_time(), .session = ::getsid(0)};
    folder_.write(started_, FileSystem::real());
    report(watch());
  }

 private:
  Ended watch() {
    std::optional<Child> child;
    try {
      if (::chdir(spec_.folder.c_str()) != 0) throw_io_error("start in", spec_.folder, errno);
      for (const std::string& each : spec_.environment)
        if (each.starts_with("PATH=")) ::setenv("PATH", each.c_str() + 5, 1);
      kills_before_ = memory_kills();
      child.emplace(
          ChildSpec{.argv = spec_.argv, .environment = spec_.environment, .cpus = spec_.cpus, .death_signal = SIGKILL});
    } catch (const std::exception& error) {
      log_.write(fmt::format("lockstep: {}\n", error.what()));
      return {current_time(), kCannotStart, "StartError", error.what()};
    }
    started_.process = child->pid();
    try {
      folder_.write(started_, FileSystem::real());
    } catch (const IoError&) {  // the number is for people; that it was started is written already
    }
    Lines lines(log_);
    std::optional<ExitStatus> exit_status;
    while (!(exit_status = child->poll_exit())) wait(*child, lines);
    drain(*child, lines);
    return ended(*exit_status);
  }

  // Until something happens, and does what that asks for.
  void wait(Child& child, Lines& lines) {
    auto until = next_look_;
    if (stop_at_ && !killed_) until = std::min(until, *stop_at_);
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    std::array<pollfd, 3> fds = {
        {{signals_.fd(), POLLIN, 0}, {child.out().get(), POLLIN, 0}, {child.err().get(), POLLIN, 0}}};
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready < 0 && errno != EINTR) throw_io_error("wait for", "a replica", errno);
    for (const int signal : signals_.take())
      if (signal != SIGCHLD) stop(child);
    if (fds[1].revents != 0) read_some(child.out(), 0, lines);
    if (fds[2].revents != 0) read_some(child.err(), 1, lines);
    const auto time = Clock::now();
    if (stop_at_ && !killed_ && time >= *stop_at_) {
      killed_ = true;
      child.send(SIGKILL);
    }
    if (time >= next_look_) {
      next_look_ = time + kShepherdLook;
      if (!folder_is_there()) stop(child);  // nobody could ever stop it otherwise
      revive_daemon();
    }
  }

  void stop(Child& child) {
    if (stop_at_) return;
    stop_at_ = Clock::now() + spec_.grace;
    child.send(SIGTERM);
  }

  Ended ended(const ExitStatus& exit_status) const {
    if (exit_status.success()) return {current_time(), 0, "Completed", ""};
    Ended out{current_time(), exit_code(exit_status), "Error", ""};
    const bool no_memory = exit_status.signal == SIGKILL && !killed_ && kills_before_ >= 0 && memory_kills() > kills_before_;
    if (stop_at_)
      out.reason = "Stopped";
    else if (no_memory)
      out.reason = "OOMKilled";
    else if (spec_.port != 0 && says_port_is_taken(folder_.log_path(), spec_.port))
      return port_taken(*out.code);
    out.message = exit_status.signal != 0 ? fmt::format("it was ended by {}", signal_name(exit_status.signal))
                                     : fmt::format("it ended with exit code {}", exit_status.code);
    return out;
  }

  Ended port_taken(int code) const {
    const std::string owner = detail::port_owner(spec_.port);
    return {current_time(), code, kPortTaken,
            fmt::format("port {} was free when it was chosen, and was taken{} before it could listen there", spec_.port,
                        owner.empty() ? "" : " by " + owner)};
  }

  // Until there is room on the disk, or nobody who wants to know.
  void report(const Ended& ended) {
    for (;;) {
      log_.finish();
      try {
        folder_.write(ended, FileSystem::real());
        return revive_daemon();
      } catch (const IoError&) {
        if (!folder_is_there()) return;
      }
      pollfd asked = {signals_.fd(), POLLIN, 0};
      ::poll(&asked, 1, static_cast<int>(kRetry.count()));
      // Nothing is left to be stopped: its folder is about to be removed, or the machine goes down.
      for (const int signal : signals_.take())
        if (signal != SIGCHLD) return;
    }
  }

  // Who else would see that this replica has ended, and start the set again?
  void revive_daemon() const {
    if (!folder_is_there()) return;
    try {
      ensure_daemon(folder_.state(), kOwnProgram, detail::read_launch_environment().environment);
    } catch (const IoError&) {  // no process can be made now; it is tried again
    }
  }

  bool folder_is_there() const { return ::access(folder_.lock_path().c_str(), F_OK) == 0; }

  PodFolder folder_;
  SignalPipe& signals_;
  ReplicaSpec spec_;
  PodLog log_;
  Started started_;
  int64_t kills_before_ = -1;
  std::optional<Clock::time_point> stop_at_;  // it was asked to end, and is killed then
  bool killed_ = false;
  Clock::time_point next_look_ = Clock::now() + kShepherdLook;
};

}  // namespace

int run_shepherd(const std::string& path) {
  ::signal(SIGPIPE, SIG_IGN);
  SignalPipe signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP});  // before the lock, through which it can be found
  const PodFolder folder(path);
  const std::optional<FileLock> lock = FileLock::take(folder.lock_path());
  if (!lock || folder.started() || folder.ended()) return 0;
  try {
    Shepherd(folder, signals).run();
  } catch (const Error& error) {  // there is nothing that could be started
    folder.write(Ended{current_time(), kCannotStart, "StartError", error.what()}, FileSystem::real());
  }
  return 0;
}

}  // namespace lockstep
