#include "jobs/local/local_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/names.h"
#include "cluster/detect.h"
#include "cluster/token.h"
#include "jobs/local/client.h"
#include "jobs/local/daemon.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/replica.h"
#include "jobs/local/shepherd.h"
#include "jobs/local/watch.h"
#include "jobs/stand_in.h"
#include "jobs/uid.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kRemoveDeadline{60};  // beyond the replicas' own time to end

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

void tell_what_is_ignored(const Job& job, const std::string& program,
                          const std::function<void(std::string_view)>& note) {
  const Container& container = job.spec.container;
  const bool own = container.command.empty() && container.args.empty();
  if (const std::string name = stand_in_of(container); !name.empty())
    note(
        fmt::format("the image {} is not used here: replicas are processes of this machine and run {}, which does the "
                    "same, in its place",
                    container.image, find_stand_in(name, program)));
  else if (!container.image.empty())
    note(fmt::format("the image {} is not used here: replicas are processes of this machine{}", container.image,
                     own ? ", and without a command they run `lockstep train`" : ""));
  const nlohmann::ordered_json::json_pointer volumes(job.kind == JobKind::jax_job
                                                         ? "/spec/jaxReplicaSpecs/Worker/template/spec/volumes"
                                                         : "/spec/template/spec/volumes");
  if (job.manifest.contains(volumes) && !job.manifest.at(volumes).empty())
    note("volumes are not mounted here: replicas see the files of this machine");
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
                         .environment = kept_variables(environment_),
                         .events = {},
                         .deleting = false,
                         .told_attempt = 0,
                         .told = {}};
    log_limit(local.environment);  // now, where its mistake can be said
    tell_what_is_ignored(job, program_, note);
    return client_.request({{"op", "apply"}, {"job", to_json(local)}});
  }

  Job get(const std::string& space, const std::string& name, std::optional<JobKind>) override {
    LocalJob local = read(space, name);
    local.job.folder = local.folder;
    return std::move(local.job);
  }

  std::vector<Pod> pods(const Job& job) override {
    const std::vector<int> attempts = state_.attempts(job);
    if (attempts.empty()) return {};
    std::vector<PodSight> sights = state_.look_at(job, attempts.back());
    std::vector<Pod> out;
    for (size_t i = 0; i < sights.size(); ++i) {
      // Those of a suspended job are gone when they have ended.
      if (job.spec.suspend && !is_finished(job) && !sights[i].shepherd) continue;
      out.push_back(as_pod(sights[i], static_cast<int>(i), attempts.back()));
      out.back().node = host_;
    }
    return out;
  }

  std::vector<JobEvent> events(const Job& job) override { return read(job.space, job.name).events; }

  void set_suspend(const Job& job, bool suspend) override {
    client_.request(
        {{"op", "suspend"}, {"space", job.space}, {"name", job.name}, {"uid", job.uid}, {"suspend", suspend}});
  }

  void remove(const Job& job) override {
    const Clock::time_point deadline = Clock::now() + seconds(grace_of(job)) + kRemoveDeadline;
    FolderWatch watch;
    watch.add(state_.job_folder(job));
    // Asked for again: a daemon that died on a full disk may have forgotten it.
    for (Clock::time_point ask; is_there(job);) {
      if (Clock::now() >= deadline)
        throw IoError(fmt::format("delete {}: its replicas do not end; see {}", job.name, state_.daemon_log()));
      if (Clock::now() >= ask) {
        try {
          client_.request({{"op", "remove"}, {"space", job.space}, {"name", job.name}, {"uid", job.uid}});
        } catch (const Error&) {  // it is gone
        }
        ask = Clock::now() + seconds(2);
      }
      if (is_there(job)) watch.wait(milliseconds(100));
    }
  }

  std::vector<Job> list(const std::string& space, std::optional<JobKind>) override {
    std::vector<Job> out;
    for (const StateDir::Name& each : state_.list(space))
      if (const auto local = state_.read(each.space, each.name)) {
        look_after(*local);
        out.push_back(local->job);
        out.back().folder = local->folder;
      }
    std::ranges::stable_sort(out, {}, &Job::name);
    return out;
  }

  void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) override {
    const int last = job.spec.replicas - 1;
    if (options.replica < 0 || options.replica > last)
      throw_error("logs: there is no replica {} of job {}; its replicas are 0 to {}", options.replica, job.name, last);
    const std::optional<int> attempt = attempt_to_read(job, options, sink);
    if (!attempt) return;
    const PodFolder folder = state_.pod_folder(job, *attempt, options.replica);
    LogReader reader(folder.log_path(), options.tail);
    FolderWatch watch;
    watch.add(folder.path(), true);
    for (;;) {
      // Before the log is read: what it says afterwards is all there will be.
      const bool over = !options.follow || is_over(job, folder);
      if (!reader.read(sink) || over) return;
      watch.wait(seconds(1));
      if (!sink("")) return;
    }
  }

  void wait_for_change() override {
    watch_.add(state_.jobs_folder());
    for (const StateDir::Name& each : state_.list("")) {
      watch_.add(state_.space_folder(each.space));
      Job named;
      named.name = each.name;
      named.space = each.space;
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
    } catch (const IoError&) {  // removed meanwhile
      return {};
    }
  }

  LocalJob read(const std::string& space, const std::string& name) {
    std::optional<LocalJob> local = state_.read(space, name);
    if (!local) throw_not_found(space, name);
    look_after(*local);
    return std::move(*local);
  }

  [[noreturn]] void throw_not_found(const std::string& space, const std::string& name) const {
    std::vector<std::string> names;
    std::string text;
    for (const StateDir::Name& each : state_.list(space)) {
      names.push_back(each.name);
      text += (text.empty() ? "" : ", ") + each.name;
    }
    if (names.empty()) throw_error("job {}: not found: namespace {} has no jobs on this machine", name, space);
    throw_error("job {}: not found in namespace {};{} there are: {}", name, space, suggestion(name, names), text);
  }

  // A daemon that was killed is started again by whoever looks.
  void look_after(const LocalJob& local) {
    if (state_.needs_daemon(local)) client_.ensure();
  }

  bool is_there(const Job& job) const {
    const auto local = state_.read(job.space, job.name);
    return local && local->job.uid == job.uid;
  }

  bool is_over(const Job& job, const PodFolder& folder) {
    const auto local = state_.read(job.space, job.name);
    if (!local || local->job.uid != job.uid) return true;
    look_after(*local);
    const PodState state = look(folder).state;
    return state == PodState::ended || state == PodState::lost;
  }

  // The attempt whose log is wanted; waits for it, where that is asked for. None when it will never come.
  std::optional<int> attempt_to_read(const Job& job, const LogOptions& options,
                                     const std::function<bool(std::string_view)>& sink) {
    const std::string pod = pod_name(job, options.replica);
    for (;;) {
      const std::vector<int> attempts = state_.attempts(job);
      if (options.previous && attempts.size() >= 2) return attempts[attempts.size() - 2];
      if (options.previous) throw_error("logs: {} was started once; there is no log of a start before", pod);
      if (!attempts.empty()) return attempts.back();
      const std::optional<LocalJob> local = state_.read(job.space, job.name);
      const bool gone = !local || local->job.uid != job.uid;
      if (!gone && is_finished(local->job))
        throw_error("logs: those of {} are gone: its job has ended, and cleanPodPolicy is {}", pod,
                    name_of(local->job.spec.clean));
      if (!options.follow) throw_error("logs: {} has not been started yet; -f waits for it", pod);
      if (gone) return std::nullopt;
      look_after(*local);
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
  return make_local_runner({.state = "", .environment = detail::read_launch_environment().environment});
}

bool is_local_process(int argc, char** argv, int& code) {
  if (argc != 3) return false;
  const std::string_view name = argv[1];
  if (name == "__daemon")
    code = run_daemon(argv[2]);
  else if (name == "__shepherd")
    code = run_shepherd(argv[2]);
  else
    return false;
  return true;
}

}  // namespace lockstep
