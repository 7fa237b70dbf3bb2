#include "jobs/gang.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "base/file.h"
#include "lockstep/distributed.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

bool is_stop_signal(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

int milliseconds_until(Time time) {
  constexpr int64_t kMax = 3'600'000;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kMax));
}

void poll_all(std::vector<pollfd>& fds, int timeout) {
  if (::poll(fds.data(), fds.size(), timeout) >= 0) return;
  if (errno != EINTR) throw_io_error("wait for", "processes", errno);
  for (pollfd& each : fds) each.revents = 0;
}

// Adds the queues with pending output to a poll() set, and writes to those that are ready.
struct Writers {
  std::vector<std::pair<size_t, OutputQueue*>> queues;  // with their indexes in the poll() set

  Writers(JobOutput& output, std::vector<pollfd>& fds) {
    for (OutputQueue* queue : output.queues())
      if (queue->pending() > 0) {
        queues.emplace_back(fds.size(), queue);
        fds.push_back({queue->fd(), POLLOUT, 0});
      }
  }
  void write(const std::vector<pollfd>& fds) const {
    for (const auto& [at, queue] : queues)
      if (fds[at].revents != 0) queue->write_some();
  }
};

class Gang {
 public:
  Gang(const std::vector<ChildSpec>& specs, const GangOptions& options, JobOutput& output, SignalPipe& signals,
       JoinEventReceiver& join_events)
      : options_(options), output_(output), signals_(signals), join_events_(join_events), began_(Clock::now()) {
    for (const ChildSpec& spec : specs) {
      members_.push_back(std::make_unique<Member>(spec));
      members_.back()->number = static_cast<int>(members_.size()) - 1;
    }
  }

  GangResult run() {
    while (result_.exits.size() < members_.size() || any_open()) poll_once();
    return std::move(result_);
  }

 private:
  struct Member {
    explicit Member(const ChildSpec& spec) : child(spec), draws(spec.terminal_columns > 0) {}
    Child child;
    int number = 0;
    bool draws;  // it has a terminal
    bool ended = false;
    bool signalled = false;                  // by the launcher
    bool joining = false, joined = false;    // from its join events
    int stopped_by = 0;                      // the signal; 0: it is running
    std::chrono::nanoseconds stopped_for{};  // not counting time in which the launcher itself was stopped
    bool killed_while_stopped = false;
    LineSplitter out, err;
    TerminalLines drawn;
  };

  bool any_open() const {
    return std::ranges::any_of(members_, [](const auto& each) { return each->child.out() || each->child.err(); });
  }

  // Waits for events and handles them.
  void poll_once() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {join_events_.fd(), POLLIN, 0}};
    const Writers writers(output_, fds);
    std::vector<std::tuple<size_t, Member*, JobOutput::Stream>> readers;
    bool drain = false;
    if (!output_.full())
      for (const auto& each : members_)
        for (const auto stream : {JobOutput::Stream::out, JobOutput::Stream::err})
          if (const Descriptor& from = descriptor(*each, stream)) {
            readers.emplace_back(fds.size(), each.get(), stream);
            fds.push_back({from.get(), POLLIN, 0});
            // Once its process has ended, a pipe can be closed as soon as it is empty, even if a grandchild holds it
            // open.
            drain = drain || each->ended;
          }
    poll_all(fds, drain ? 0 : timeout());
    if (fds[0].revents != 0)
      for (const int signal : signals_.take()) on_signal(signal);
    writers.write(fds);
    for (const auto& [at, member, stream] : readers)
      if (fds[at].revents != 0 || member->ended) read(*member, stream);
    if (fds[1].revents != 0) receive_join_events();
    count_stopped_time();
    if (children_changed_) {
      children_changed_ = false;
      check_stopped();
      check_exited();
    }
    if (stage_ >= Stage::failing) stop_unaware_members();
    enforce_deadlines();
  }

  int timeout() const {
    const int left = deadline_ ? milliseconds_until(*deadline_) : -1;
    if (!any_stopped()) return left;
    constexpr int kStoppedPollMs = 100;
    return left < 0 ? kStoppedPollMs : std::min(left, kStoppedPollMs);
  }

  bool any_stopped() const {
    return std::ranges::any_of(members_, [](const auto& each) { return !each->ended && each->stopped_by != 0; });
  }

  void receive_join_events() {
    for (const JoinEvent& event : join_events_.receive()) {
      if (event.process < 0 || static_cast<size_t>(event.process) >= members_.size()) continue;
      Member& member = *members_[static_cast<size_t>(event.process)];
      member.joining = !event.joined;
      member.joined = event.joined;
    }
  }

  void check_stopped() {
    for (const auto& each : members_) {
      if (each->ended) continue;
      const std::optional<int> change = each->child.poll_stop_change();
      if (!change || *change == each->stopped_by) continue;
      if (*change == 0) {
        output_.print_message(fmt::format("process {} resumed after {:.1f} s", each->number,
                                          std::chrono::duration<double>(each->stopped_for).count()));
      } else if (each->stopped_by == 0) {
        each->stopped_for = {};
        const std::string remedy = fmt::format("kill -CONT {}", each->child.pid());
        output_.print_message(
            members_.size() == 1
                ? fmt::format("process {} is stopped ({}); resume it with {}", each->number, signal_name(*change),
                              remedy)
                : fmt::format("process {} is stopped ({}); the job ends unless it is resumed within {:g} s: {}",
                              each->number, signal_name(*change),
                              static_cast<double>(options_.heartbeat_timeout.count()) / 1000, remedy));
      }
      each->stopped_by = *change;
    }
  }

  // Adds to Member::stopped_for. A gap of more than a second means that the launcher itself was stopped.
  void count_stopped_time() {
    constexpr std::chrono::nanoseconds kMaxGap = std::chrono::seconds(1);
    const Time now = Clock::now();
    const auto gap = std::min<std::chrono::nanoseconds>(now - std::exchange(last_poll_, now), kMaxGap);
    for (const auto& each : members_)
      if (!each->ended && each->stopped_by != 0) each->stopped_for += gap;
  }

  // How long a process may be stopped. A running process that has joined detects it by missing heartbeats.
  std::chrono::milliseconds max_stopped_time() const {
    const bool detected = std::ranges::any_of(
        members_, [](const auto& each) { return !each->ended && each->joined && each->stopped_by == 0; });
    return options_.heartbeat_timeout + (detected ? options_.grace : std::chrono::milliseconds(0));
  }

  // Stops the processes that cannot detect a failure: those waiting for others to join, and stopped ones.
  void stop_unaware_members() {
    for (const auto& each : members_) {
      if (each->ended) continue;
      if (each->stopped_by != 0 && !each->killed_while_stopped) {
        each->killed_while_stopped = true;
        send_signal(*each, SIGKILL);
      } else if (each->joining && !each->signalled) {
        send_signal(*each, SIGTERM);
      }
    }
  }

  static Descriptor& descriptor(Member& member, JobOutput::Stream stream) {
    return stream == JobOutput::Stream::out ? member.child.out() : member.child.err();
  }

  void read(Member& member, JobOutput::Stream stream) {
    static std::array<char, 64 * 1024> bytes;
    Descriptor& from = descriptor(member, stream);
    const bool drawn = stream == JobOutput::Stream::err && member.draws;
    LineSplitter& lines = stream == JobOutput::Stream::out ? member.out : member.err;
    const LineSink sink = [&](const OutputLine& line) { output_.add_line(member.number, stream, line); };
    // A complete line replaces the status line.
    const LineSink replace_status = [&](const OutputLine& line) {
      output_.draw("");
      output_.add_line(member.number, stream, line);
    };
    const ssize_t n = ::read(from.get(), bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || (errno == EAGAIN && !member.ended))) return;
    if (n > 0) {
      const std::string_view got(bytes.data(), static_cast<size_t>(n));
      if (drawn)
        member.drawn.add(got, replace_status);
      else
        lines.add(got, sink);
    } else {  // a terminal reports its end as an error
      from.close();
      if (drawn)
        member.drawn.finish(replace_status);
      else
        lines.finish(sink);
    }
    if (drawn) output_.draw(member.drawn.unfinished());
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) {
      children_changed_ = true;
    } else if (signal == SIGWINCH) {
      for (const auto& each : members_) each->child.resize(output_.columns(), output_.rows());
    } else if (!is_stop_signal(signal)) {
      for (const auto& each : members_) each->child.send(signal);
    } else if (result_.stopped_by == 0) {
      result_.stopped_by = signal;
      for (const auto& each : members_) send_signal(*each, signal == SIGHUP ? SIGTERM : signal);
      if (stage_ == Stage::running) enter(Stage::stopping, options_.stop_timeout);
    } else {
      result_.killed = true;
      kill_all();
    }
  }

  void check_exited() {
    ++round_;
    for (const auto& each : members_) {
      if (each->ended) continue;
      const std::optional<ExitStatus> exit_status = each->child.poll_exit();
      if (!exit_status) continue;
      each->ended = true;
      // Read the rest of its output: the last line often names the cause.
      for (const auto stream : {JobOutput::Stream::err, JobOutput::Stream::out})
        while (descriptor(*each, stream) && !output_.full()) read(*each, stream);
      const bool killed_while_stopped = each->killed_while_stopped && exit_status->signal == SIGKILL;
      result_.exits.push_back(
          {.process = each->number,
           .exit_status = killed_while_stopped ? ExitStatus{.code = distributed::kRetry} : *exit_status,
           .signalled = each->signalled,
           .round = round_,
           .seconds = std::chrono::duration<double>(Clock::now() - began_).count(),
           .last_line = output_.last_line(each->number),
           .stopped_by = killed_while_stopped ? each->stopped_by : 0,
           .stopped_for = killed_while_stopped ? std::chrono::duration<double>(each->stopped_for).count() : 0});
      const bool expected = result_.stopped_by != 0 && each->signalled;
      if (!exit_status->success() && !expected && stage_ <= Stage::stopping) enter(Stage::failing, options_.grace);
    }
  }

  // Ends the job if a process is stopped for too long, and enters the next stage at the deadline of this one.
  void enforce_deadlines() {
    const auto stopped_too_long = [limit = max_stopped_time()](const auto& each) {
      return !each->ended && each->stopped_by != 0 && each->stopped_for >= limit;
    };
    if (stage_ == Stage::running && members_.size() > 1 && std::ranges::any_of(members_, stopped_too_long)) {
      enter(Stage::terminating, options_.grace);
      stop_unaware_members();
      for (const auto& each : members_)
        if (!each->signalled) send_signal(*each, SIGTERM);
    }
    if (!deadline_ || Clock::now() < *deadline_) return;
    if (stage_ == Stage::failing) {
      for (const auto& each : members_) send_signal(*each, SIGTERM);
      enter(Stage::terminating, options_.grace);
    } else {
      kill_all();
    }
  }

  void send_signal(Member& member, int signal) {
    if (member.ended) return;
    member.signalled = true;
    member.child.send(signal);
  }

  void kill_all() {
    for (const auto& each : members_) send_signal(*each, SIGKILL);
    stage_ = Stage::killed;
    deadline_.reset();
  }

  // In this order. Every stage but `running` and `killed` has a deadline.
  enum class Stage {
    running,
    stopping,     // a stop signal was forwarded; SIGKILL at the deadline
    failing,      // a process failed; SIGTERM to the others at the deadline
    terminating,  // SIGTERM was sent after a failure; SIGKILL at the deadline
    killed,       // SIGKILL was sent
  };
  void enter(Stage stage, std::chrono::milliseconds timeout) {
    stage_ = stage;
    deadline_ = Clock::now() + timeout;
  }

  const GangOptions options_;
  JobOutput& output_;
  SignalPipe& signals_;
  JoinEventReceiver& join_events_;
  const Time began_;
  Time last_poll_ = Clock::now();
  std::vector<std::unique_ptr<Member>> members_;
  bool children_changed_ = true;  // true at first: a child may have exited before SIGCHLD was handled
  int round_ = 0;                 // ProcessExit::round
  Stage stage_ = Stage::running;
  std::optional<Time> deadline_;
  GangResult result_;
};

}  // namespace

const std::vector<int>& gang_signals() {
  static const std::vector<int> signals = {SIGCHLD, SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  return signals;
}

GangResult run_gang(const std::vector<ChildSpec>& specs, const GangOptions& options, JobOutput& output,
                    SignalPipe& signals, JoinEventReceiver& join_events) {
  return Gang(specs, options, output, signals, join_events).run();
}

void flush(JobOutput& output, SignalPipe& signals) {
  while (output.pending())
    if (wait_for_stop(std::chrono::milliseconds(0), output, signals) != 0) return;
}

int wait_for_stop(std::chrono::milliseconds time, JobOutput& output, SignalPipe& signals) {
  const Time end = Clock::now() + time;
  do {
    std::vector<pollfd> fds = {{signals.fd(), POLLIN, 0}};
    const Writers writers(output, fds);
    const bool flushing = time.count() == 0 && !writers.queues.empty();
    poll_all(fds, flushing ? -1 : milliseconds_until(end));
    writers.write(fds);
    if (fds[0].revents != 0)
      for (const int signal : signals.take())
        if (is_stop_signal(signal)) return signal;
  } while (Clock::now() < end);
  return 0;
}

}  // namespace lockstep
