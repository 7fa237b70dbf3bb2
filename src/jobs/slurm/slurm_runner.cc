#include "jobs/slurm/slurm_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/text_bytes.h"
#include "cluster/detect.h"
#include "cluster/job_attempts.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/pod_folder.h"  // JSON files
#include "jobs/local/state.h"
#include "jobs/model/manifest.h"
#include "jobs/slurm/client.h"
#include "jobs/slurm/script_from_job.h"
#include "jobs/slurm/status.h"
#include "jobs/uid.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kCancelDeadline{300};  // for a job to end after scancel
constexpr milliseconds kCancelPollInterval{300};

// Stores each job in a folder <state>/slurm/<namespace>/<name>:
//
//   job.json                    the SlurmJob, replaced atomically
//   script.sh                   the submitted batch script
//   logs/script.log             the output of the batch script
//   logs/<attempt>-<task>.log   the output of a task
//   logs/ended                  the exit code of the batch script
class SlurmRunner final : public Runner {
 public:
  SlurmRunner()
      : root_(StateDir(StateDir::default_path(own_environment())).path() + "/slurm"),
        program_(std::filesystem::read_symlink("/proc/self/exe").string()) {}

  std::string apply(Job job, const std::function<void(std::string_view)>& note) override {
    if (std::optional<SlurmJob> present = read(job.namespace_name, job.name)) return update(*present, job, note);
    job.uid = make_uid();
    job.created = current_time();
    SlurmJob created{.job = std::move(job),
                     .id = {},
                     .first_attempt = 0,
                     .folder = std::filesystem::current_path().string(),
                     .program = program_,
                     .info = {},
                     .events = {}};
    render(created, note);  // throws for an invalid job, before anything is stored
    set_created(created);
    write(created);
    if (created.job.spec.suspend) {
      set_suspended(created, current_time());
    } else {
      try {
        submit(created);
      } catch (...) {
        files_.remove_tree(folder_of(created.job));
        throw;
      }
    }
    write(created);
    return "created";
  }

  Job get(const std::string& namespace_name, const std::string& name, std::optional<JobKind>) override {
    SlurmJob stored = refresh(namespace_name, name);
    stored.job.folder = stored.folder;
    return std::move(stored.job);
  }

  std::vector<Pod> pods(const Job& job) override {
    const SlurmJob stored = refresh(job.namespace_name, job.name);
    return slurm_pods(stored, exit_codes_of(stored, stored.job.status.attempt));
  }

  std::vector<JobEvent> events(const Job& job) override { return refresh(job.namespace_name, job.name).events; }

  void set_suspend(const Job& job, bool suspend) override {
    SlurmJob stored = refresh(job.namespace_name, job.name);
    if (is_finished(stored.job))
      throw_error("{}: the job has ended ({}); delete it and apply it again", job.name, job_state(stored.job));
    if (stored.job.spec.suspend == suspend) return;
    stored.job.spec.suspend = suspend;
    ++stored.job.generation;
    apply_suspend(stored);
  }

  void remove(const Job& job) override {
    if (std::optional<SlurmJob> stored = read(job.namespace_name, job.name); stored && stored->job.uid == job.uid) {
      recover_id(*stored);
      if (!stored->id.empty() && !is_finished(stored->job)) cancel_and_wait(*stored);
      files_.remove_tree(folder_of(job));
    }
  }

  std::vector<Job> list(const std::string& namespace_name, std::optional<JobKind>) override {
    std::vector<Job> out;
    for (const std::string& each : namespace_name.empty() ? names_in(root_) : std::vector<std::string>{namespace_name})
      for (const std::string& name : names_in(root_ + "/" + each))
        if (std::optional<SlurmJob> job = read(each, name); job && refresh(*job)) {
          out.push_back(std::move(job->job));
          out.back().folder = job->folder;
        }
    if (out.empty()) slurm_.check_controller();
    std::ranges::stable_sort(out, {}, &Job::name);
    return out;
  }

  void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) override {
    if (options.since) throw_error("logs: --since cannot be used under Slurm, whose logs have no times; use --tail");
    SlurmJob stored = refresh(job.namespace_name, job.name);
    if (options.replica < 0 || options.replica >= stored.job.spec.replicas)
      throw_error("logs: job {} has no replica {}; its replicas are 0 to {}", job.name, options.replica,
                  stored.job.spec.replicas - 1);
    const std::string pod = pod_name(stored.job, options.replica);
    const int attempt = options.follow && !options.previous && !is_finished(stored.job)
                            ? stored.job.status.attempt
                            : attempt_to_read(stored, options.previous);
    if (options.previous && attempt < 0) throw_error("logs: {} was started only once; there is no previous log", pod);
    LogReader reader(log_of(stored.job, std::max(attempt, 0), options.replica), options.tail);
    for (bool first = true;; first = false) {
      // Checked before the log is read: after the end nothing is appended any more.
      const bool ended = is_finished(stored.job) || stored.job.status.attempt > std::max(attempt, 0);
      const bool has_log = files_.exists(log_of(stored.job, std::max(attempt, 0), options.replica));
      if (!has_log && ended) return show_script(stored, std::max(attempt, 0), sink);
      if (!has_log && first && !options.follow)
        throw_error(
            "logs: {} has not been started yet ({}); -f waits for it", pod,
            stored.info.reason.empty() || stored.info.reason == "None" ? job_state(stored.job) : stored.info.reason);
      if (!reader.read(sink) || ended || !options.follow) return;
      wait_for_change();
      if (!sink("") || !refresh(stored)) return;
    }
  }

  void wait_for_change() override { std::this_thread::sleep_for(seconds(1)); }

 private:
  std::string folder_of(const Job& job) const { return fmt::format("{}/{}/{}", root_, job.namespace_name, job.name); }
  std::string logs_of(const Job& job) const { return folder_of(job) + "/logs"; }
  std::string log_of(const Job& job, int attempt, int replica) const {
    return fmt::format("{}/{}-{}.log", logs_of(job), attempt, replica);
  }

  std::vector<std::string> names_in(const std::string& folder) {
    return files_.exists(folder) ? files_.list(folder) : std::vector<std::string>();
  }

  std::string text_of(const std::string& path) {
    if (!files_.exists(path)) return "";
    constexpr int64_t kMaxBytes = int64_t{1} << 30;  // of script.log
    const std::vector<uint8_t> bytes = files_.read_file(path, kMaxBytes);
    return {bytes.begin(), bytes.end()};
  }

  std::optional<SlurmJob> read(const std::string& namespace_name, const std::string& name) {
    Job named;
    named.namespace_name = namespace_name;
    named.name = name;
    const std::string path = folder_of(named) + "/job.json";
    if (!files_.exists(path)) return std::nullopt;
    return slurm_job_from_json(read_json(path));
  }

  void write(const SlurmJob& job) {
    files_.make_dirs(logs_of(job.job));
    write_json(files_, folder_of(job.job) + "/job.json", slurm_job_to_json(job));
  }

  static void set_created(SlurmJob& job) {
    const std::string kind(name_of(job.job.kind));
    const std::string message = fmt::format("{} {} is created.", kind, job.job.name);
    const JobTime time = job.job.created;
    job.job.status.conditions.push_back({"Created", true, kind + "Created", message, time, time});
    add_event(job, time, false, kind + "Created", message);
  }

  static std::string comment_of(const SlurmJob& job) {
    return fmt::format("lockstep:{}:{}", job.job.uid, job.first_attempt);
  }

  std::string render(const SlurmJob& job, const std::function<void(std::string_view)>& note) const {
    const SlurmScriptContext context{
        .program = job.program, .folder = job.folder, .logs = logs_of(job.job), .first_attempt = job.first_attempt};
    SlurmScript script = slurm_script_from_job(job.job, context, note);
    // A suspended job is resumed as another Slurm job. By this id its training finds its run again.
    const std::pair<std::string, std::string> id = {
        kJobVariable, job_variable({}, "job-" + job.job.uid, std::to_string(job.first_attempt))};
    script.env.push_back(id);
    for (SlurmScript::Task& task : script.per_task) task.env.push_back(id);
    return render_slurm(script, "apply: " + job.job.name);
  }

  void submit(SlurmJob& job) {
    const std::string path = folder_of(job.job) + "/script.sh";
    const std::string text = render(job, [](std::string_view) {});
    files_.write_atomic(path, text_bytes(text));
    files_.remove(logs_of(job.job) + "/ended");
    job.id = slurm_.submit(
        {.script = path, .folder = job.folder, .output = logs_of(job.job) + "/script.log", .comment = comment_of(job)});
    add_event(job, current_time(), false, "Submitted", fmt::format("submitted as Slurm job {}", job.id));
  }

  // Finds the id if an earlier call was killed between sbatch and storing it.
  void recover_id(SlurmJob& job) {
    if (!job.id.empty() || job.job.spec.suspend || is_finished(job.job)) return;
    if (const std::optional<std::string> id = slurm_.find_by_comment(comment_of(job))) {
      job.id = *id;
      write(job);
    }
  }

  // Queries Slurm and stores the new status. Deletes the job and returns false if ttlSecondsAfterFinished has passed.
  bool refresh(SlurmJob& job) {
    recover_id(job);
    if (!is_finished(job.job) && !job.id.empty()) {
      const int64_t version = job.job.version;
      const std::optional<SlurmJobInfo> info = slurm_.query(job.id);
      const SlurmJobInfo now = info ? *info : info_of_forgotten(job);
      update_status(job, now, exit_codes_of(job, job.first_attempt + now.restarts), current_time());
      if (job.job.version != version) write(job);
    }
    const JobStatus& status = job.job.status;
    const std::optional<int64_t> ttl = job.job.spec.ttl_after_finished;
    if (!is_finished(job.job) || !ttl || !status.completed || current_time() < *status.completed + seconds(*ttl))
      return true;
    files_.remove_tree(folder_of(job.job));
    return false;
  }

  SlurmJob refresh(const std::string& namespace_name, const std::string& name) {
    std::optional<SlurmJob> job = read(namespace_name, name);
    if (!job || !refresh(*job)) throw_not_found(namespace_name, name);
    return std::move(*job);
  }

  [[noreturn]] void throw_not_found(const std::string& namespace_name, const std::string& name) {
    const std::vector<std::string> names = names_in(root_ + "/" + namespace_name);
    if (names.empty())
      throw_error(
          "job {}: not found: namespace {} has no jobs under Slurm; `lockstep get jobs -A --on slurm` lists all jobs",
          name, namespace_name);
    std::string text;
    for (const std::string& each : names) text += (text.empty() ? "" : ", ") + each;
    throw_error("job {}: not found in namespace {};{} existing jobs: {}", name, namespace_name, suggestion(name, names),
                text);
  }

  // The final state of a job that Slurm has forgotten, from the file `ended`. Without that file a node failed.
  SlurmJobInfo info_of_forgotten(const SlurmJob& job) {
    SlurmJobInfo out = job.info;
    const std::string code = text_of(logs_of(job.job) + "/ended");
    out.exit_code = code.empty() ? 1 : std::atoi(code.c_str());
    out.state = code.empty() ? "NODE_FAIL" : out.exit_code == 0 ? "COMPLETED" : "FAILED";
    return out;
  }

  std::map<int, int> exit_codes_of(const SlurmJob& job, int attempt) {
    return parse_task_exit_codes(output_of_attempt(text_of(logs_of(job.job) + "/script.log"), attempt));
  }

  std::string update(SlurmJob& job, const Job& wanted, const std::function<void(std::string_view)>& note) {
    refresh(job);
    const JobSpec before = job.job.spec;
    const std::string done = update_job(job.job, wanted);
    if (job.id.empty() && !job.job.spec.suspend && before == job.job.spec && !is_finished(job.job)) {
      submit(job);  // an earlier call was killed before it submitted the job
      write(job);
      return "configured";
    }
    if (done == "unchanged") return done;
    JobSpec same = job.job.spec;
    same.suspend = before.suspend;
    if (!job.id.empty() && !is_finished(job.job) && !(same == before))
      note(
          "the batch script is already submitted: changes of policies, limits and times take effect after the next "
          "suspend and resume");
    write(job);
    if (job.job.spec.suspend != before.suspend && !is_finished(job.job)) apply_suspend(job);
    return done;
  }

  void apply_suspend(SlurmJob& job) {
    if (job.job.spec.suspend) {
      if (!job.id.empty()) cancel_and_wait(job);
      set_suspended(job, current_time());
    } else {
      submit(job);
      set_resumed(job, current_time());
    }
    write(job);
  }

  // Cancels the Slurm job and waits until its tasks have ended. Training saves a checkpoint first. The script of a job
  // that restarts may requeue it just before the cancellation ends the script; then it is pending and is cancelled again.
  void cancel_and_wait(SlurmJob& job) {
    slurm_.cancel(job.id);
    for (const Clock::time_point deadline = Clock::now() + kCancelDeadline;;) {
      const std::optional<SlurmJobInfo> info = slurm_.query(job.id);
      if (!info) return;
      const SlurmStage stage = stage_of(*info);
      if (stage == SlurmStage::succeeded || stage == SlurmStage::failed) return;
      if (Clock::now() >= deadline)
        throw IoError(
            fmt::format("{}: Slurm job {} was cancelled but does not end; check it with `scontrol show job {}`",
                        job.job.name, job.id, job.id));
      if (info->state == "PENDING") slurm_.cancel(job.id);
      std::this_thread::sleep_for(kCancelPollInterval);
    }
  }

  // The attempt whose log to show; -1 if there is no previous one.
  int attempt_to_read(const SlurmJob& job, bool previous) {
    int attempt = job.job.status.attempt;
    // A requeued job that is pending has no log yet; show the log of its last start.
    const auto has_log = [&](int each) { return files_.exists(log_of(job.job, each, 0)); };
    while (attempt > 0 && !has_log(attempt)) --attempt;
    if (!previous) return attempt;
    for (--attempt; attempt >= 0 && !has_log(attempt);) --attempt;
    return attempt;
  }

  // Shows the output of the batch script, for an attempt whose tasks never started.
  void show_script(const SlurmJob& job, int attempt, const std::function<bool(std::string_view)>& sink) {
    const std::string text = text_of(logs_of(job.job) + "/script.log");
    const std::string_view part = output_of_attempt(text, attempt);
    sink(part.empty() ? std::string_view(text) : part);
  }

  FileSystem& files_ = FileSystem::real();
  SlurmClient slurm_;
  std::string root_, program_;
};

}  // namespace

std::unique_ptr<Runner> make_slurm_runner() { return std::make_unique<SlurmRunner>(); }

}  // namespace lockstep
