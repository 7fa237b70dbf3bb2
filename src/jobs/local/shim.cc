#include "jobs/local/shim.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
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
#include "base/os/environment.h"
#include "base/os/process.h"
#include "cluster/detect.h"
#include "cluster/port_owner.h"
#include "jobs/cause.h"
#include "jobs/child.h"
#include "jobs/lines.h"
#include "jobs/local/client.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/pod_folder.h"
#include "jobs/local/pod_log.h"
#include "jobs/local/replica.h"
#include "jobs/signals.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{2000};  // how often to check that the folder exists and the daemon runs
constexpr milliseconds kWriteRetry{500};      // between attempts to write ended.json
constexpr int kCannotStart = 127;             // as in a shell; codes below 128 are not retried by ExitCode

// The number of OOM kills on this host; -1 if unknown.
int64_t count_oom_kills() {
  std::ifstream in("/proc/vmstat");
  std::string name;
  for (int64_t value = 0; in >> name >> value;)
    if (name == "oom_kill") return value;
  return -1;
}

// Merges standard output and standard error into the log without splitting lines.
class LogLines {
 public:
  explicit LogLines(PodLog& log) : log_(log) {}

  void add(size_t stream, std::string_view bytes) {
    splitters_[stream].add(bytes, [&](const OutputLine& line) { put(stream, line); });
    flush();
  }
  void finish(size_t stream) {
    splitters_[stream].finish([&](const OutputLine& line) { put(stream, line); });
    flush();
  }

 private:
  void put(size_t stream, const OutputLine& line) {
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
  std::optional<size_t> unfinished_;  // the stream whose line the log ends with
  std::string text_;
};

constexpr size_t kMostBytes = 1 << 20;

// Reads the available bytes, up to `most`. Closes the descriptor at the end of the stream.
void read_some(Descriptor& from, size_t stream, LogLines& lines, size_t most = kMostBytes) {
  std::array<char, 65536> bytes;
  while (from && most > 0) {
    const ssize_t n = ::read(from.get(), bytes.data(), std::min(bytes.size(), most));
    if (n > 0) {
      lines.add(stream, std::string_view(bytes.data(), static_cast<size_t>(n)));
      most -= static_cast<size_t>(n);
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) from.close();
    return;
  }
}

// Reads both streams. What a program wrote to standard output before a line of standard error comes before it in the log.
// `hung_up`: whether all writers of standard error have closed it.
void read_both(Child& child, bool hung_up, LogLines& lines) {
  int errors = 0;  // bytes of standard error, counted before standard output is read
  if (child.err()) ::ioctl(child.err().get(), FIONREAD, &errors);
  read_some(child.out(), 0, lines);
  read_some(child.err(), 1, lines, static_cast<size_t>(std::max(errors, hung_up ? 1 : 0)));
}

// Reads what is left in the pipes. Does not wait for the end of the streams, because a process that the replica left
// behind may hold them open.
void drain(Child& child, LogLines& lines) {
  for (Descriptor* from : {&child.out(), &child.err()}) {
    const size_t stream = from == &child.out() ? 0 : 1;
    constexpr int64_t kMaxPipeBytes = 1 << 20;
    for (int64_t i = 0; i < kMaxPipeBytes / 65536 && *from; ++i) {
      pollfd ready = {from->get(), POLLIN, 0};
      if (::poll(&ready, 1, 0) <= 0) break;
      read_some(*from, stream, lines);
    }
    lines.finish(stream);
  }
}

// Whether the last lines of a failed replica report that the port is in use. Not every program names the port; then
// the port itself is checked.
bool log_reports_taken_port(const std::string& log, int port) {
  constexpr int64_t kLines = 50;
  std::string text;
  try {
    LogReader(log, kLines).read([&](std::string_view part) {
      text += part;
      return true;
    });
  } catch (const IoError&) {  // treat it as an empty log
  }
  const std::string name = std::to_string(port);
  bool found_error = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("ddress already in use") == line.npos) continue;
    found_error = true;
    const size_t at = line.find(":" + name);
    const size_t end = at == line.npos ? at : at + 1 + name.size();
    if (at != line.npos && (end == line.size() || line[end] < '0' || line[end] > '9')) return true;
  }
  return found_error && !is_port_free(port);
}

class Shim {
 public:
  Shim(PodFolder folder, SignalPipe& signals)
      : folder_(std::move(folder)),
        signals_(signals),
        spec_(folder_.spec()),
        log_(FileSystem::real(), folder_.log_path(), spec_.log_limit) {}

  // Runs the replica, from started.json to ended.json. Throws IoError if started.json cannot be written; then nothing
  // was started.
  void run() {
    started_ = {.time = current_time(), .session = ::getsid(0)};
    folder_.write(started_, FileSystem::real());
    write_end_record(run_replica());
  }

 private:
  EndRecord run_replica() {
    std::optional<Child> child;
    try {
      if (::chdir(spec_.folder.c_str()) != 0) throw_io_error("start in", spec_.folder, errno);
      for (const std::string& each : spec_.environment)
        if (each.starts_with("PATH=")) set_environment_variable("PATH", each.substr(5));
      oom_kills_before_ = count_oom_kills();
      child.emplace(
          ChildSpec{.argv = spec_.argv, .environment = spec_.environment, .cpus = spec_.cpus, .death_signal = SIGKILL});
    } catch (const std::exception& error) {
      log_.write(fmt::format("lockstep: {}\n", error.what()));
      return {current_time(), kCannotStart, "StartError", error.what()};
    }
    started_.process = child->pid();
    try {
      folder_.write(started_, FileSystem::real());
    } catch (const IoError&) {  // the pid is only informative; started.json exists already
    }
    LogLines lines(log_);
    std::optional<ExitStatus> exit_status;
    while (!(exit_status = child->poll_exit())) wait_for_event(*child, lines);
    drain(*child, lines);
    return make_end_record(*exit_status);
  }

  // Waits for output, a signal or a timer, and handles it.
  void wait_for_event(Child& child, LogLines& lines) {
    auto until = next_check_;
    if (stop_at_ && !killed_) until = std::min(until, *stop_at_);
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    std::array<pollfd, 3> fds = {
        {{signals_.fd(), POLLIN, 0}, {child.out().get(), POLLIN, 0}, {child.err().get(), POLLIN, 0}}};
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready < 0 && errno != EINTR) throw_io_error("wait for", "a replica", errno);
    for (const int signal : signals_.take())
      if (signal != SIGCHLD) stop(child);
    if (fds[1].revents != 0 || fds[2].revents != 0) read_both(child, (fds[2].revents & ~POLLIN) != 0, lines);
    const auto time = Clock::now();
    if (stop_at_ && !killed_ && time >= *stop_at_) {
      killed_ = true;
      child.send(SIGKILL);
    }
    if (time >= next_check_) {
      next_check_ = time + kCheckInterval;
      if (!folder_exists()) stop(child);  // without its folder, no command could stop it
      ensure_daemon_runs();
    }
  }

  void stop(Child& child) {
    if (stop_at_) return;
    stop_at_ = Clock::now() + spec_.grace;
    child.send(SIGTERM);
  }

  EndRecord make_end_record(const ExitStatus& exit_status) const {
    if (exit_status.success()) return {current_time(), 0, "Completed", ""};
    EndRecord out{current_time(), exit_code(exit_status), "Error", ""};
    const bool out_of_memory =
        exit_status.signal == SIGKILL && !killed_ && oom_kills_before_ >= 0 && count_oom_kills() > oom_kills_before_;
    if (stop_at_)
      out.reason = "Stopped";
    else if (out_of_memory)
      out.reason = "OOMKilled";
    else if (spec_.port != 0 && log_reports_taken_port(folder_.log_path(), spec_.port))
      return port_taken(*out.code);
    out.message = exit_status.signal != 0 ? fmt::format("Killed by {}", signal_name(exit_status.signal))
                                          : fmt::format("Ended with exit code {}", exit_status.code);
    return out;
  }

  EndRecord port_taken(int code) const {
    const std::string owner = detail::port_owner(spec_.port);
    return {current_time(), code, kPortTaken,
            fmt::format("Port {} was taken{} after it was chosen and before the coordinator could listen on it",
                        spec_.port, owner.empty() ? "" : " by " + owner)};
  }

  // Writes ended.json. On a full disk, retries until it succeeds, the folder is deleted or a signal arrives.
  void write_end_record(const EndRecord& ended) {
    for (;;) {
      log_.finish();
      try {
        folder_.write(ended, FileSystem::real());
        return ensure_daemon_runs();
      } catch (const IoError&) {
        if (!folder_exists()) return;
      }
      pollfd signal_ready = {signals_.fd(), POLLIN, 0};
      ::poll(&signal_ready, 1, static_cast<int>(kWriteRetry.count()));
      // The replica has ended already, so a signal means that the folder is being deleted or the machine shuts down.
      for (const int signal : signals_.take())
        if (signal != SIGCHLD) return;
    }
  }

  // Without a daemon, no process would notice that this replica has ended, and restart the job.
  void ensure_daemon_runs() const {
    if (!folder_exists()) return;
    try {
      ensure_daemon(folder_.state(), kOwnProgram, own_environment());
    } catch (const IoError&) {  // cannot create a process now; retried at the next check
    }
  }

  bool folder_exists() const { return ::access(folder_.lock_path().c_str(), F_OK) == 0; }

  PodFolder folder_;
  SignalPipe& signals_;
  ReplicaSpec spec_;
  PodLog log_;
  StartRecord started_;
  int64_t oom_kills_before_ = -1;
  std::optional<Clock::time_point> stop_at_;  // SIGTERM was sent; SIGKILL follows at this time
  bool killed_ = false;
  Clock::time_point next_check_ = Clock::now() + kCheckInterval;
};

}  // namespace

int run_shim(const std::string& path) {
  ::signal(SIGPIPE, SIG_IGN);
  SignalPipe signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP});  // before the lock, whose holder the daemon signals
  const PodFolder folder(path);
  const std::optional<FileLock> lock = FileLock::try_acquire(folder.lock_path());
  if (!lock || folder.started() || folder.ended()) return 0;
  try {
    Shim(folder, signals).run();
  } catch (const Error& error) {  // spec.json is invalid
    folder.write(EndRecord{current_time(), kCannotStart, "StartError", error.what()}, FileSystem::real());
  }
  return 0;
}

}  // namespace lockstep
