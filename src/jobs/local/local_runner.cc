#include "jobs/local/local_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "cluster/detect.h"
#include "cluster/token.h"
#include "jobs/local/client.h"
#include "jobs/local/daemon.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/replica.h"
#include "jobs/local/shim.h"
#include "jobs/local/watch.h"
#include "jobs/stand_in.h"
#include "jobs/uid.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kRemoveDeadline{60};  // in addition to the replicas' termination grace period

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

void note_ignored_fields(const Job& job, const std::string& program,
                         const std::function<void(std::string_view)>& note) {
  const Container& container = job.spec.container;
  const bool own = container.command.empty() && container.args.empty();
  if (const std::string name = stand_in_of(container); !name.empty())
    note(
        fmt::format("the image {} is ignored: replicas are processes on this machine and run {} instead, which does "
                    "the same",
                    container.image, find_stand_in(name, program)));
  else if (!container.image.empty())
    note(fmt::format("the image {} is ignored: replicas are processes on this machine{}", container.image,
                     own ? ", and without a command they run `lockstep train`" : ""));
}

class LocalRunner final : public Runner {
 public:
  explicit LocalRunner(const LocalOptions& options)
      : state_(options.state.empty() ? StateDir::default_path(options.environment) : options.state),
        program_(options.program.empty() ? own_program() : options.program),
        environment_(options.environment),
        client_(state_, program_, environment_) {}

  std::string apply(Job job, const std::function<void(std::string_view)>& note) override {
    job.uid = make_uid();
    job.created = current_time();
    const LocalJob local{.job = job,
                         .folder = std::filesystem::current_path().string(),
                         .program = program_,
                         .environment = inherited_variables(environment_),
                         .events = {},
                         .deleting = false,
                         .reported_attempt = 0,
                         .reported_phases = {}};
    log_limit(local.environment);  // checks the variable now, while the user can see the error
    note_ignored_fields(job, program_, note);
    return client_.request({{"op", "apply"}, {"job", to_json(local)}});
  }

  Job get(const std::string& namespace_name, const std::string& name, std::optional<JobKind>) override {
    LocalJob local = read(namespace_name, name);
    local.job.folder = local.folder;
    return std::move(local.job);
  }

  std::vector<Pod> pods(const Job& job) override {
    const std::vector<int> attempts = state_.attempts(job);
    if (attempts.empty()) return {};
    std::vector<PodStatus> statuses = state_.read_pod_statuses(job, attempts.back());
    std::vector<Pod> out;
    for (size_t i = 0; i < statuses.size(); ++i) {
      // Ended replicas of a suspended job are not listed.
      if (job.spec.suspend && !is_finished(job) && !statuses[i].shim) continue;
      out.push_back(to_pod(statuses[i], static_cast<int>(i), attempts.back()));
      out.back().node = host_;
    }
    return out;
  }

  std::vector<JobEvent> events(const Job& job) override { return read(job.namespace_name, job.name).events; }

  void set_suspend(const Job& job, bool suspend) override {
    client_.request({{"op", "suspend"},
                     {"namespace", job.namespace_name},
                     {"name", job.name},
                     {"uid", job.uid},
                     {"suspend", suspend}});
  }

  void remove(const Job& job) override {
    const Clock::time_point deadline = Clock::now() + seconds(termination_grace(job)) + kRemoveDeadline;
    FolderWatch watch;
    watch.add(state_.job_folder(job));
    // Repeat the request: on a full disk the daemon cannot store it, and loses it if it dies.
    for (Clock::time_point next_request; exists(job);) {
      if (Clock::now() >= deadline)
        throw IoError(
            fmt::format("delete {}: its replicas did not end in time; see {}", job.name, state_.daemon_log()));
      if (Clock::now() >= next_request) {
        try {
          client_.request({{"op", "remove"}, {"namespace", job.namespace_name}, {"name", job.name}, {"uid", job.uid}});
        } catch (const Error&) {  // it is deleted
        }
        next_request = Clock::now() + seconds(2);
      }
      if (exists(job)) watch.wait(milliseconds(100));
    }
  }

  std::vector<Job> list(const std::string& namespace_name, std::optional<JobKind>) override {
    std::vector<Job> out;
    for (const StateDir::Name& each : state_.list(namespace_name))
      if (const auto local = state_.read(each.namespace_name, each.name)) {
        ensure_daemon_for(*local);
        out.push_back(local->job);
        out.back().folder = local->folder;
      }
    std::ranges::stable_sort(out, {}, &Job::name);
    return out;
  }

  void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) override {
    const int last = job.spec.replicas - 1;
    if (options.replica < 0 || options.replica > last)
      throw_error("logs: job {} has no replica {}; its replicas are 0 to {}", job.name, options.replica, last);
    const std::optional<int> attempt = attempt_to_read(job, options, sink);
    if (!attempt) return;
    const PodFolder folder = state_.pod_folder(job, *attempt, options.replica);
    std::optional<int64_t> since;
    if (options.since) since = std::time(nullptr) - options.since->count();
    LogReader reader(folder.log_path(), options.tail, since);
    FolderWatch watch;
    watch.add(folder.path(), true);
    for (;;) {
      // Check this before reading, so that the log is complete if the replica has ended.
      const bool last_read = !options.follow || has_ended(job, folder);
      if (!reader.read(sink) || last_read) return;
      watch.wait(seconds(1));
      if (!sink("")) return;
    }
  }

  void wait_for_change() override {
    watch_.add(state_.jobs_folder());
    for (const StateDir::Name& each : state_.list("")) {
      watch_.add(state_.namespace_folder(each.namespace_name));
      Job named;
      named.name = each.name;
      named.namespace_name = each.namespace_name;
      watch_.add(state_.job_folder(named));
      const std::vector<int> attempts = state_.attempts(named);
      if (attempts.empty()) continue;
      const std::string attempt = state_.attempt_folder(named, attempts.back());
      for (const std::string& pod : names_in(attempt)) watch_.add(attempt + "/" + pod);
    }
    watch_.wait(seconds(1));
  }

 private:
  static std::vector<std::string> names_in(const std::string& folder) {
    try {
      return FileSystem::real().list(folder);
    } catch (const IoError&) {  // deleted in the meantime
      return {};
    }
  }

  LocalJob read(const std::string& namespace_name, const std::string& name) {
    std::optional<LocalJob> local = state_.read(namespace_name, name);
    if (!local) throw_not_found(namespace_name, name);
    ensure_daemon_for(*local);
    return std::move(*local);
  }

  [[noreturn]] void throw_not_found(const std::string& namespace_name, const std::string& name) const {
    std::vector<std::string> names;
    std::string text;
    for (const StateDir::Name& each : state_.list(namespace_name)) {
      names.push_back(each.name);
      text += (text.empty() ? "" : ", ") + each.name;
    }
    if (names.empty())
      throw_error("job {}: not found: namespace {} has no jobs on this machine; `lockstep get jobs -A` lists all jobs",
                  name, namespace_name);
    throw_error("job {}: not found in namespace {};{} existing jobs: {}", name, namespace_name, suggestion(name, names),
                text);
  }

  // Every command restarts a daemon that was killed, if the job needs one.
  void ensure_daemon_for(const LocalJob& local) {
    if (state_.needs_daemon(local)) client_.ensure();
  }

  bool exists(const Job& job) const {
    const auto local = state_.read(job.namespace_name, job.name);
    return local && local->job.uid == job.uid;
  }

  // Whether the replica has ended or its job was deleted.
  bool has_ended(const Job& job, const PodFolder& folder) {
    const auto local = state_.read(job.namespace_name, job.name);
    if (!local || local->job.uid != job.uid) return true;
    ensure_daemon_for(*local);
    const PodState state = read_pod_status(folder).state;
    return state == PodState::ended || state == PodState::lost;
  }

  // The attempt whose log to read. With `follow`, waits for the first attempt; nullopt if the job was deleted or `sink`
  // returned false.
  std::optional<int> attempt_to_read(const Job& job, const LogOptions& options,
                                     const std::function<bool(std::string_view)>& sink) {
    const std::string pod = pod_name(job, options.replica);
    for (;;) {
      const std::vector<int> attempts = state_.attempts(job);
      if (options.previous && attempts.size() >= 2) return attempts[attempts.size() - 2];
      if (options.previous) throw_error("logs: {} was started only once; there is no previous log", pod);
      if (!attempts.empty()) return attempts.back();
      const std::optional<LocalJob> local = state_.read(job.namespace_name, job.name);
      const bool deleted = !local || local->job.uid != job.uid;
      if (!deleted && is_finished(local->job))
        throw_error("logs: the log of {} was deleted: its job has ended, and cleanPodPolicy is {}", pod,
                    name_of(local->job.spec.clean));
      if (!options.follow) throw_error("logs: {} has not been started yet; use -f to wait for it", pod);
      if (deleted) return std::nullopt;
      ensure_daemon_for(*local);
      wait_for_change();
      if (!sink("")) return std::nullopt;
    }
  }

  StateDir state_;
  std::string program_;
  detail::Environment environment_;
  DaemonClient client_;
  FolderWatch watch_;
  std::string host_ = detail::read_launch_environment().host_name;
};

}  // namespace

std::unique_ptr<Runner> make_local_runner(const LocalOptions& options) {
  return std::make_unique<LocalRunner>(options);
}

std::unique_ptr<Runner> make_local_runner() {
  return make_local_runner({.state = "", .environment = own_environment()});
}

bool run_internal_process(int argc, char** argv, int& code) {
  if (argc != 3) return false;
  const std::string_view name = argv[1];
  if (name == "__daemon")
    code = run_daemon(argv[2]);
  else if (name == "__shim")
    code = run_shim(argv[2]);
  else
    return false;
  return true;
}

}  // namespace lockstep
