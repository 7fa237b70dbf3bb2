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

bool asks_to_stop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

int milliseconds_until(Time time) {
  constexpr int64_t kLongest = 3'600'000;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kLongest));
}

void poll_all(std::vector<pollfd>& fds, int timeout) {
  if (::poll(fds.data(), fds.size(), timeout) >= 0) return;
  if (errno != EINTR) throw_io_error("wait for", "processes", errno);
  for (pollfd& each : fds) each.revents = 0;
}

// Adds the queues that have something to write; gives their places.
struct Writers {
  std::vector<std::pair<size_t, OutputQueue*>> queues;

  Writers(Output& output, std::vector<pollfd>& fds) {
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
  Gang(const std::vector<ChildSpec>& specs, const GangOptions& options, Output& output, SignalPipe& signals,
       JoinEventReceiver& inbox)
      : options_(options), output_(output), signals_(signals), join_events_(inbox), began_(Clock::now()) {
    for (const ChildSpec& spec : specs) {
      members_.push_back(std::make_unique<Member>(spec));
      members_.back()->number = static_cast<int>(members_.size()) - 1;
    }
  }

  GangResult run() {
    while (result_.ends.size() < members_.size() || any_open()) turn();
    return std::move(result_);
  }

 private:
  struct Member {
    explicit Member(const ChildSpec& spec) : child(spec), draws(spec.terminal_columns > 0) {}
    Child child;
    int number = 0;
    bool draws, ended = false, asked = false;
    bool joining = false, joined = false;    // as it has told us
    int stopped_by = 0;                      // the signal; 0: it runs
    std::chrono::nanoseconds stopped_for{};  // while this process ran
    bool stood_still = false;                // it was killed because it was stopped
    LineSplitter out, err;
    TerminalLines drawn;
  };

  bool any_open() const {
    return std::ranges::any_of(members_, [](const auto& each) { return each->child.out() || each->child.err(); });
  }

  // Waits for one thing to happen, and deals with it.
  void turn() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {join_events_.fd(), POLLIN, 0}};
    const Writers writers(output_, fds);
    std::vector<std::tuple<size_t, Member*, Output::Stream>> readers;
    bool drain = false;
    if (!output_.full())
      for (const auto& each : members_)
        for (const auto stream : {Output::Stream::out, Output::Stream::err})
          if (const Descriptor& from = descriptor(*each, stream)) {
            readers.emplace_back(fds.size(), each.get(), stream);
            fds.push_back({from.get(), POLLIN, 0});
            // The pipe of a process that has ended holds all there is: when it is empty it can be closed, whoever else
            // has it open.
            drain = drain || each->ended;
          }
    poll_all(fds, drain ? 0 : timeout());
    if (fds[0].revents != 0)
      for (const int signal : signals_.take()) on_signal(signal);
    writers.write(fds);
    for (const auto& [at, member, stream] : readers)
      if (fds[at].revents != 0 || member->ended) read(*member, stream);
    if (fds[1].revents != 0) read_news();
    count_stopped_time();
    if (children_changed_) {
      children_changed_ = false;
      look_for_stops();
      look_for_ends();
    }
    if (stage_ >= Stage::failing) end_those_that_cannot_learn();
    keep_deadlines();
  }

  int timeout() const {
    const int left = deadline_ ? milliseconds_until(*deadline_) : -1;
    if (!any_stopped()) return left;
    constexpr int kLook = 100;
    return left < 0 ? kLook : std::min(left, kLook);
  }

  bool any_stopped() const {
    return std::ranges::any_of(members_, [](const auto& each) { return !each->ended && each->stopped_by != 0; });
  }

  void read_news() {
    for (const JoinEvent& event : join_events_.receive()) {
      if (event.process < 0 || static_cast<size_t>(event.process) >= members_.size()) continue;
      Member& member = *members_[static_cast<size_t>(event.process)];
      member.joining = !event.joined;
      member.joined = event.joined;
    }
  }

  void look_for_stops() {
    for (const auto& each : members_) {
      if (each->ended) continue;
      const std::optional<int> change = each->child.stop_change();
      if (!change || *change == each->stopped_by) continue;
      if (*change == 0) {
        output_.say(fmt::format("process {} continues after {:.1f} s", each->number,
                                std::chrono::duration<double>(each->stopped_for).count()));
      } else if (each->stopped_by == 0) {
        each->stopped_for = {};
        const std::string remedy = fmt::format("kill -CONT {}", each->child.pid());
        output_.say(members_.size() == 1
                        ? fmt::format("process {} is stopped ({}); it continues after {}", each->number,
                                      signal_name(*change), remedy)
                        : fmt::format("process {} is stopped ({}); the job ends unless it continues within {:g} s: {}",
                                      each->number, signal_name(*change),
                                      static_cast<double>(options_.heartbeat_timeout.count()) / 1000, remedy));
      }
      each->stopped_by = *change;
    }
  }

  // Adds up how long processes are stopped, without times in which this process was stopped itself.
  void count_stopped_time() {
    constexpr std::chrono::nanoseconds kMost = std::chrono::seconds(1);
    const Time now = Clock::now();
    const auto gap = std::min<std::chrono::nanoseconds>(now - std::exchange(last_turn_, now), kMost);
    for (const auto& each : members_)
      if (!each->ended && each->stopped_by != 0) each->stopped_for += gap;
  }

  // How long a process may be stopped. Processes that have joined notice it themselves, unless all are stopped.
  std::chrono::milliseconds stop_patience() const {
    const bool noticed = std::ranges::any_of(
        members_, [](const auto& each) { return !each->ended && each->joined && each->stopped_by == 0; });
    return options_.heartbeat_timeout + (noticed ? options_.grace : std::chrono::milliseconds(0));
  }

  // Processes that wait for all others to come, and those that are stopped.
  void end_those_that_cannot_learn() {
    for (const auto& each : members_) {
      if (each->ended) continue;
      if (each->stopped_by != 0 && !each->stood_still) {
        each->stood_still = true;
        ask(*each, SIGKILL);
      } else if (each->joining && !each->asked) {
        ask(*each, SIGTERM);
      }
    }
  }

  static Descriptor& descriptor(Member& member, Output::Stream stream) {
    return stream == Output::Stream::out ? member.child.out() : member.child.err();
  }

  void read(Member& member, Output::Stream stream) {
    static std::array<char, 64 * 1024> bytes;
    Descriptor& from = descriptor(member, stream);
    const bool drawn = stream == Output::Stream::err && member.draws;
    LineSplitter& lines = stream == Output::Stream::out ? member.out : member.err;
    const LineSink sink = [&](const Line& line) { output_.line(member.number, stream, line); };
    // A line that takes the place of what is drawn.
    const LineSink above = [&](const Line& line) {
      output_.draw("");
      output_.line(member.number, stream, line);
    };
    const ssize_t n = ::read(from.get(), bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || (errno == EAGAIN && !member.ended))) return;
    if (n > 0) {
      const std::string_view got(bytes.data(), static_cast<size_t>(n));
      if (drawn)
        member.drawn.add(got, above);
      else
        lines.add(got, sink);
    } else {  // of a terminal the end is an error
      from.close();
      if (drawn)
        member.drawn.finish(above);
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
    } else if (!asks_to_stop(signal)) {
      for (const auto& each : members_) each->child.send(signal);
    } else if (result_.stopped_by == 0) {
      result_.stopped_by = signal;
      for (const auto& each : members_) ask(*each, signal == SIGHUP ? SIGTERM : signal);
      if (stage_ == Stage::running) enter(Stage::stopping, options_.stop_timeout);
    } else {
      kill_all();
    }
  }

  void look_for_ends() {
    ++moment_;
    for (const auto& each : members_) {
      if (each->ended) continue;
      const std::optional<Ending> ending = each->child.ended();
      if (!ending) continue;
      each->ended = true;
      // Its last words are in the pipes, and say more than its exit code.
      for (const auto stream : {Output::Stream::err, Output::Stream::out})
        while (descriptor(*each, stream) && !output_.full()) read(*each, stream);
      const bool stood_still = each->stood_still && ending->signal == SIGKILL;
      result_.ends.push_back(
          {.process = each->number,
           .ending = stood_still ? Ending{.code = distributed::kRetry} : *ending,
           .asked = each->asked,
           .moment = moment_,
           .seconds = std::chrono::duration<double>(Clock::now() - began_).count(),
           .last_line = output_.last_line(each->number),
           .stopped_by = stood_still ? each->stopped_by : 0,
           .stopped_for = stood_still ? std::chrono::duration<double>(each->stopped_for).count() : 0});
      const bool as_asked = result_.stopped_by != 0 && each->asked;
      if (!ending->well() && !as_asked && stage_ <= Stage::stopping) enter(Stage::failing, options_.grace);
    }
  }

  // What happens when the deadline of a stage has passed.
  void keep_deadlines() {
    const auto stands = [patience = stop_patience()](const auto& each) {
      return !each->ended && each->stopped_by != 0 && each->stopped_for >= patience;
    };
    if (stage_ == Stage::running && members_.size() > 1 && std::ranges::any_of(members_, stands)) {
      enter(Stage::asked, options_.grace);
      end_those_that_cannot_learn();
      for (const auto& each : members_)
        if (!each->asked) ask(*each, SIGTERM);
    }
    if (!deadline_ || Clock::now() < *deadline_) return;
    if (stage_ == Stage::failing) {
      for (const auto& each : members_) ask(*each, SIGTERM);
      enter(Stage::asked, options_.grace);
    } else {
      kill_all();
    }
  }

  void ask(Member& member, int signal) {
    if (member.ended) return;
    member.asked = true;
    member.child.send(signal);
  }

  void kill_all() {
    for (const auto& each : members_) ask(*each, SIGKILL);
    stage_ = Stage::killed;
    deadline_.reset();
  }

  enum class Stage { running, stopping, failing, asked, killed };
  void enter(Stage stage, std::chrono::milliseconds patience) {
    stage_ = stage;
    deadline_ = Clock::now() + patience;
  }

  const GangOptions options_;
  Output& output_;
  SignalPipe& signals_;
  JoinEventReceiver& join_events_;
  const Time began_;
  Time last_turn_ = Clock::now();
  std::vector<std::unique_ptr<Member>> members_;
  // Some may have ended before anybody listened.
  bool children_changed_ = true;
  int moment_ = 0;
  Stage stage_ = Stage::running;
  std::optional<Time> deadline_;
  GangResult result_;
};

}  // namespace

const std::vector<int>& gang_signals() {
  static const std::vector<int> signals = {SIGCHLD, SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  return signals;
}

GangResult run_gang(const std::vector<ChildSpec>& specs, const GangOptions& options, Output& output,
                    SignalPipe& signals, JoinEventReceiver& inbox) {
  return Gang(specs, options, output, signals, inbox).run();
}

void flush(Output& output, SignalPipe& signals) {
  while (output.pending())
    if (wait_for_stop(std::chrono::milliseconds(0), output, signals) != 0) return;
}

int wait_for_stop(std::chrono::milliseconds time, Output& output, SignalPipe& signals) {
  const Time end = Clock::now() + time;
  do {
    std::vector<pollfd> fds = {{signals.fd(), POLLIN, 0}};
    const Writers writers(output, fds);
    const bool flushing = time.count() == 0 && !writers.queues.empty();
    poll_all(fds, flushing ? -1 : milliseconds_until(end));
    writers.write(fds);
    if (fds[0].revents != 0)
      for (const int signal : signals.take())
        if (asks_to_stop(signal)) return signal;
  } while (Clock::now() < end);
  return 0;
}

}  // namespace lockstep
