#include "jobs/slurm/slurm_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "cluster/detect.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/pod_folder.h"  // JSON files
#include "jobs/local/state.h"
#include "jobs/model/manifest.h"
#include "jobs/slurm/client.h"
#include "jobs/slurm/plan.h"
#include "jobs/slurm/status.h"
#include "jobs/uid.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kEndDeadline{300};   // between scancel and the end
constexpr milliseconds kJobLook{300};  // between two looks at a job that ends

// Keeps, in the folder <state>/slurm/<space>/<name>:
//
//   job.json       a SlurmJob, replaced as a whole
//   script.sh      what was submitted
//   logs/script.log, logs/<attempt>-<task>.log, logs/ended
class SlurmRunner final : public Runner {
 public:
  SlurmRunner()
      : root_(StateDir(StateDir::default_path(detail::read_launch_environment().environment)).path() + "/slurm"),
        program_(std::filesystem::read_symlink("/proc/self/exe").string()) {}

  std::string apply(Job job, const std::function<void(std::string_view)>& note) override {
    if (std::optional<SlurmJob> present = read(job.space, job.name)) return change(*present, job, note);
    job.uid = make_uid();
    job.created = current_time();
    SlurmJob made{.job = std::move(job),
                  .id = {},
                  .first_attempt = 0,
                  .folder = std::filesystem::current_path().string(),
                  .program = program_,
                  .sight = {},
                  .events = {}};
    const Job& its = made.job;
    render(made, note);  // before anything is kept: it may be refused
    set_created(made);
    write(made);
    if (its.spec.suspend) {
      see_suspended(made, current_time());
    } else {
      try {
        submit(made);
      } catch (...) {
        files_.remove_tree(folder_of(its));
        throw;
      }
    }
    write(made);
    return "created";
  }

  Job get(const std::string& space, const std::string& name, std::optional<JobKind>) override {
    SlurmJob its = look(space, name);
    its.job.folder = its.folder;
    return std::move(its.job);
  }

  std::vector<Pod> pods(const Job& job) override {
    const SlurmJob its = look(job.space, job.name);
    return slurm_pods(its, ends_of(its, its.job.status.attempt));
  }

  std::vector<JobEvent> events(const Job& job) override { return look(job.space, job.name).events; }

  void set_suspend(const Job& job, bool suspend) override {
    SlurmJob its = look(job.space, job.name);
    if (is_finished(its.job)) throw_error("{}: it has ended ({}); apply it anew", job.name, job_state(its.job));
    if (its.job.spec.suspend == suspend) return;
    its.job.spec.suspend = suspend;
    ++its.job.generation;
    move_suspend(its);
  }

  void remove(const Job& job) override {
    if (std::optional<SlurmJob> its = read(job.space, job.name); its && its->job.uid == job.uid) {
      adopt(*its);
      if (!its->id.empty() && !is_finished(its->job)) end(*its);
      files_.remove_tree(folder_of(job));
    }
  }

  std::vector<Job> list(const std::string& space, std::optional<JobKind>) override {
    std::vector<Job> out;
    for (const std::string& each : space.empty() ? names_in(root_) : std::vector<std::string>{space})
      for (const std::string& name : names_in(root_ + "/" + each))
        if (std::optional<SlurmJob> job = read(each, name); job && look(*job)) {
          out.push_back(std::move(job->job));
          out.back().folder = job->folder;
        }
    if (out.empty()) slurm_.check();
    std::ranges::stable_sort(out, {}, &Job::name);
    return out;
  }

  void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) override {
    SlurmJob its = look(job.space, job.name);
    if (options.replica < 0 || options.replica >= its.job.spec.replicas)
      throw_error("logs: job {} has no replica {}; its replicas are 0 to {}", job.name, options.replica,
                  its.job.spec.replicas - 1);
    const std::string pod = pod_name(its.job, options.replica);
    const int attempt = options.follow && !options.previous && !is_finished(its.job)
                            ? its.job.status.attempt
                            : attempt_to_read(its, options.previous);
    if (options.previous && attempt < 0)
      throw_error("logs: {} was started only once; there is no previous log", pod);
    LogReader reader(log_of(its.job, std::max(attempt, 0), options.replica), options.tail);
    for (bool first = true;; first = false) {
      // Before the log is read: what it says afterwards is all there will be.
      const bool over = is_finished(its.job) || its.job.status.attempt > std::max(attempt, 0);
      const bool there = files_.exists(log_of(its.job, std::max(attempt, 0), options.replica));
      if (!there && over) return show_script(its, std::max(attempt, 0), sink);
      if (!there && first && !options.follow)
        throw_error("logs: {} has not been started yet ({}); -f waits for it", pod,
                    its.sight.reason.empty() || its.sight.reason == "None" ? job_state(its.job) : its.sight.reason);
      if (!reader.read(sink) || over || !options.follow) return;
      wait_for_change();
      if (!sink("") || !look(its)) return;
    }
  }

  void wait_for_change() override { std::this_thread::sleep_for(seconds(1)); }

 private:
  std::string folder_of(const Job& job) const { return fmt::format("{}/{}/{}", root_, job.space, job.name); }
  std::string logs_of(const Job& job) const { return folder_of(job) + "/logs"; }
  std::string log_of(const Job& job, int attempt, int replica) const {
    return fmt::format("{}/{}-{}.log", logs_of(job), attempt, replica);
  }

  std::vector<std::string> names_in(const std::string& folder) {
    return files_.exists(folder) ? files_.list(folder) : std::vector<std::string>();
  }

  std::string text_of(const std::string& path) {
    if (!files_.exists(path)) return "";
    constexpr int64_t kMostBytes = int64_t{1} << 30;  // of the log of a batch script
    const std::vector<uint8_t> bytes = files_.read_file(path, kMostBytes);
    return {bytes.begin(), bytes.end()};
  }

  std::optional<SlurmJob> read(const std::string& space, const std::string& name) {
    Job named;
    named.space = space;
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
    tell(job, time, false, kind + "Created", message);
  }

  static std::string comment_of(const SlurmJob& job) {
    return fmt::format("lockstep:{}:{}", job.job.uid, job.first_attempt);
  }

  std::string render(const SlurmJob& job, const std::function<void(std::string_view)>& note) const {
    const SlurmPlace place{
        .program = job.program, .folder = job.folder, .logs = logs_of(job.job), .first_attempt = job.first_attempt};
    return render_slurm(slurm_script(job.job, place, note), "apply: " + job.job.name);
  }

  void submit(SlurmJob& job) {
    const std::string path = folder_of(job.job) + "/script.sh";
    const std::string text = render(job, [](std::string_view) {});
    files_.write_atomic(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    files_.remove(logs_of(job.job) + "/ended");
    job.id = slurm_.submit(
        {.script = path, .folder = job.folder, .output = logs_of(job.job) + "/script.log", .comment = comment_of(job)});
    tell(job, current_time(), false, "Submitted", fmt::format("it is Slurm's job {}", job.id));
  }

  // A job of which this program was killed between sbatch and the note of its number.
  void adopt(SlurmJob& job) {
    if (!job.id.empty() || job.job.spec.suspend || is_finished(job.job)) return;
    if (const std::optional<std::string> id = slurm_.find(comment_of(job))) {
      job.id = *id;
      write(job);
    }
  }

  // Sees how it stands and keeps that. False when its time to live after the end is over, and it is gone.
  bool look(SlurmJob& job) {
    adopt(job);
    if (!is_finished(job.job) && !job.id.empty()) {
      const int64_t version = job.job.version;
      const std::optional<SlurmSight> sight = slurm_.ask(job.id);
      const SlurmSight now = sight ? *sight : forgotten(job);
      see(job, now, ends_of(job, job.first_attempt + now.restarts), current_time());
      if (job.job.version != version) write(job);
    }
    const JobStatus& status = job.job.status;
    const std::optional<int64_t> ttl = job.job.spec.ttl_after_finished;
    if (!is_finished(job.job) || !ttl || !status.completed || current_time() < *status.completed + seconds(*ttl))
      return true;
    files_.remove_tree(folder_of(job.job));
    return false;
  }

  SlurmJob look(const std::string& space, const std::string& name) {
    std::optional<SlurmJob> job = read(space, name);
    if (!job || !look(*job)) throw_not_found(space, name);
    return std::move(*job);
  }

  [[noreturn]] void throw_not_found(const std::string& space, const std::string& name) {
    const std::vector<std::string> names = names_in(root_ + "/" + space);
    if (names.empty()) throw_error("job {}: not found: namespace {} has no jobs under Slurm", name, space);
    std::string text;
    for (const std::string& each : names) text += (text.empty() ? "" : ", ") + each;
    throw_error("job {}: not found in namespace {};{} existing jobs: {}", name, space, suggestion(name, names), text);
  }

  // Of a job that Slurm does not know any more: what its script has left, or the worst.
  SlurmSight forgotten(const SlurmJob& job) {
    SlurmSight out = job.sight;
    const std::string code = text_of(logs_of(job.job) + "/ended");
    out.exit_code = code.empty() ? 1 : std::atoi(code.c_str());
    out.state = code.empty() ? "NODE_FAIL" : out.exit_code == 0 ? "COMPLETED" : "FAILED";
    return out;
  }

  std::map<int, int> ends_of(const SlurmJob& job, int attempt) {
    return parse_task_ends(attempt_text(text_of(logs_of(job.job) + "/script.log"), attempt));
  }

  std::string change(SlurmJob& job, const Job& wanted, const std::function<void(std::string_view)>& note) {
    look(job);
    const JobSpec before = job.job.spec;
    const std::string done = update_job(job.job, wanted);
    if (job.id.empty() && !job.job.spec.suspend && before == job.job.spec && !is_finished(job.job)) {
      submit(job);  // a start of this program before was killed in between
      write(job);
      return "configured";
    }
    if (done == "unchanged") return done;
    JobSpec same = job.job.spec;
    same.suspend = before.suspend;
    if (!job.id.empty() && !is_finished(job.job) && !(same == before))
      note(
          "Slurm has its script already: what has changed of policies, limits and times counts from the next resume "
          "on");
    write(job);
    if (job.job.spec.suspend != before.suspend && !is_finished(job.job)) move_suspend(job);
    return done;
  }

  void move_suspend(SlurmJob& job) {
    if (job.job.spec.suspend) {
      if (!job.id.empty()) end(job);
      see_suspended(job, current_time());
    } else {
      submit(job);
      see_resumed(job, current_time());
    }
    write(job);
  }

  // Cancels it and waits until its processes have ended. Training ends with a checkpoint.
  void end(SlurmJob& job) {
    const auto is_over = [&] {
      const std::optional<SlurmSight> sight = slurm_.ask(job.id);
      if (!sight) return true;
      const SlurmStage stage = stage_of(*sight);
      return stage == SlurmStage::succeeded || stage == SlurmStage::failed;
    };
    slurm_.cancel(job.id);
    for (const Clock::time_point deadline = Clock::now() + kEndDeadline; !is_over();) {
      if (Clock::now() >= deadline)
        throw IoError(fmt::format("end {}: Slurm's job {} does not end; see `scontrol show job {}`", job.job.name,
                                  job.id, job.id));
      std::this_thread::sleep_for(kJobLook);
    }
  }

  // -1: there is none before.
  int attempt_to_read(const SlurmJob& job, bool previous) {
    int attempt = job.job.status.attempt;
    // One that waits has printed nothing yet: its last start is shown.
    const auto is_there = [&](int each) { return files_.exists(log_of(job.job, each, 0)); };
    while (attempt > 0 && !is_there(attempt)) --attempt;
    if (!previous) return attempt;
    for (--attempt; attempt >= 0 && !is_there(attempt);) --attempt;
    return attempt;
  }

  // Where processes were never started the script says why.
  void show_script(const SlurmJob& job, int attempt, const std::function<bool(std::string_view)>& sink) {
    const std::string text = text_of(logs_of(job.job) + "/script.log");
    const std::string_view part = attempt_text(text, attempt);
    sink(part.empty() ? std::string_view(text) : part);
  }

  FileSystem& files_ = FileSystem::real();
  SlurmClient slurm_;
  std::string root_, program_;
};

}  // namespace

std::unique_ptr<Runner> make_slurm_runner() { return std::make_unique<SlurmRunner>(); }

}  // namespace lockstep
