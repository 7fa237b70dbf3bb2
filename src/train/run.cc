#include "train/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/file.h"
#include "base/live_line.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "cluster/cpu_binding.h"
#include "cluster/job_attempts.h"
#include "cluster/session.h"
#include "comm/world.h"
#include "lane/platform_report.h"
#include "lockstep/device_put.h"
#include "lockstep/distributed.h"
#include "sharding/device_table.h"
#include "sharding/lanes.h"
#include "train/folder_lock.h"
#include "train/gpt_settings.h"
#include "train/remat.h"
#include "train/run_files.h"
#include "train/run_recorder.h"
#include "train/run_reports.h"
#include "train/shared_facts.h"
#include "train/shared_run_folder.h"
#include "train/startup.h"
#include "train/user_program.h"
#include "train/watch_settings.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<Expectation> parse_expectations(const TrainConfig& config) {
  std::vector<Expectation> out;
  for (const std::string& text : config.expect) out.push_back(parse_expectation(text));
  return out;
}

// Only the first process of a job prints messages and writes logs.
bool is_first_process() { return process_index() == 0; }

// For runs without a terminal logger: alarms are always printed.
class AlarmsOnly final : public Logger {
 public:
  void step(int64_t, const Scalars&) override {}
  void evaluation(int64_t, const Scalars&) override {}
  void message(int64_t, const std::string& text, bool alarm) override {
    if (alarm) print_stderr("{}: alarm: {}\n", program_name(), text);
  }
};

bool logs_to_console(const TrainConfig& config) { return logger_names(config).find("console") != std::string::npos; }
bool logs_batches(const TrainConfig& config) { return logger_names(config).find("batches") != std::string::npos; }

Loggers loggers_of(const TrainConfig& config, RunRecorder* recorder) {
  if (!is_first_process()) return logs_batches(config) ? Loggers{batch_logger()} : Loggers{};
  const std::string names = logger_names(config);
  Loggers out = make_loggers(names, config.log_dir, {.every = config.log_every, .title = false});
  if (names.find("console") == names.npos && names.find("compact") == names.npos && !logs_batches(config))
    out.push_back(std::make_shared<AlarmsOnly>());
  if (recorder) out.push_back(recorder->logger());
  if (auto status = trainer_status_logger()) out.push_back(std::move(status));
  return out;
}

// Prints why the run computes on the CPU, if it could use a GPU; and whether a launcher has bound the process to fewer
// cores than it could use.
void report_platform() {
  if (const std::string where = platform_in_use(); platform() == Platform::cpu && !where.empty())
    print_stderr("{}: note: computing on {}\n", program_name(), where);
  for (const std::string& note : {narrow_binding(), unprotected_data()})
    if (!note.empty()) print_stderr("{}: note: {}\n", program_name(), note);
}

// Warns about settings that are valid but have no or little effect.
void report_ineffective_settings(const TrainConfig& config, const Mesh& mesh) {
  if (const int64_t idle = device_count() - mesh.size(); idle > 0)
    print_stderr("{}: note: the mesh {} uses {} of {} devices, {} idle; data=-1 uses all of them\n", program_name(),
                 config.mesh, mesh.size(), device_count(), idle == 1 ? "1 is" : fmt::format("{} are", idle));
  if (config.zero > 0 && !lane_grid(mesh, World::current().lanes()).find(make_sharding_plan(config).data_axis))
    print_stderr(
        "{}: note: --zero {} saves no memory here: all devices along \"{}\" share one lane and one copy of the "
        "state; use several processes or lanes\n",
        program_name(), config.zero, make_sharding_plan(config).data_axis);
}

bool is_verbose() { return environment_variable("LOCKSTEP_VERBOSE").value_or("0") != "0"; }

// Whether any process is verbose. REQUIRES: all processes call it.
bool is_any_verbose() {
  const auto session = current_session();
  if (!session) return is_verbose();
  const std::vector<std::string> all = session->exchange("verbose", is_verbose() ? "1" : "0");
  return std::find(all.begin(), all.end(), "1") != all.end();
}

// Prints what the run trains, where, for how long, and where it is saved. REQUIRES: all processes call it.
void report_start(const TrainConfig& config, const Problem& problem, const Engine& engine, const Loader& train,
                  const TrainState& state, int64_t total) {
  if (!logs_to_console(config)) return;
  // After a restart by the launcher, the lines of the first start are still on the screen.
  const bool restarted = environment_variable("LOCKSTEP_RESTARTS").has_value();
  if (is_first_process() && !restarted) print_startup(startup_facts(config, problem, engine, train, total, state.step));
  if (restarted || !is_any_verbose()) return;
  const std::string text = engine.describe(state, train, config.batch_size);  // all processes must call it
  if (is_first_process()) write_stderr(text);
}

// With LOCKSTEP_VERBOSE, prints how many examples this process has read: only its own part of each batch.
void report_examples_read(const Loader& train) {
  if (is_verbose())
    print_stderr("{}: process {} has read {} of {}\n", program_name(), process_index(),
                 counted(train.examples_read(), "example"), train.count());
}

int64_t steps_of_epochs(int64_t epochs, const Loader& train) {
  const int64_t each = train.batches_per_epoch(), most = std::numeric_limits<int64_t>::max() / each;
  if (epochs > most)
    throw SettingsError("epochs",
                        fmt::format("train: {} epochs of {} overflow the step counter; give at most {} epochs", epochs,
                                    counted(each, "step"), most));
  return epochs * each;
}

int64_t total_steps(const TrainConfig& config, const Loader& train) {
  return config.steps > 0 ? config.steps : steps_of_epochs(config.epochs, train);
}

LoaderOptions loader_options(const TrainConfig& config, const Mesh& mesh) {
  LoaderOptions out{.batch_size = config.batch_size, .seed = config.seed};
  // With micro-batches every process loads complete batches, because each micro-batch is sharded separately.
  if (process_count() > 1 && config.accumulate == 1)
    out.part = [sharding = NamedSharding(mesh, P(make_sharding_plan(config).data_axis))](int64_t n) {
      return process_range(sharding, n);
    };
  return out;
}

Loader open_loader(const TrainConfig& config, const Problem& problem, const Mesh& mesh) {
  const int64_t count = problem.train->count();
  if (config.batch_size > count)
    throw SettingsError("batch_size",
                        fmt::format("train: batch_size is {}, but the training set has {} examples; use at most {}",
                                    config.batch_size, count, count));
  return Loader(problem.train, loader_options(config, mesh));
}

// An engine without loggers. Throws SettingsError if the rules of --shard do not fit the model or the mesh.
Engine make_checked_engine(const TrainConfig& config, const Task& task, const Loader& train, const Mesh& mesh) {
  try {
    return make_engine(config, task, mesh, total_steps(config, train), {});
  } catch (const Error& error) {
    throw SettingsError("shard", error.what());
  }
}

// One call of run_training().
class Run {
 public:
  Run(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options)
      : config_(config), make_(make), options_(options), expectations_(parse_expectations(config)) {}

  RunOutcome operator()() {
    std::optional<LiveLineUpdates> updates;
    if (!config_.quiet) updates.emplace();
    try {
      RunOutcome outcome = train();
      outcome.run_folder = config_.run_dir;
      record_end(outcome);
      return outcome;
    } catch (const std::exception& error) {
      if (recorder_) recorder_->end(RunState::failed, error.what());
      throw;
    }
  }

 private:
  RunOutcome train() {
    const Mesh mesh = make_devices(config_);
    const std::shared_ptr<MetricsServer> metrics = open_metrics_server(config_);
    check_trace_file(config_);
    if (is_first_process() && !config_.quiet) {
      report_platform();
      report_ineffective_settings(config_, mesh);
    }
    const Problem problem = [&] {
      const auto reading = activity(is_user_program() ? "reading data" : "reading " + config_.dataset);
      return open_problem(make_, config_);
    }();
    check_reports(config_, problem);
    task_ = problem.task.name;
    Loader train = open_loader(config_, problem, mesh);
    const int64_t total = total_steps(config_, train);

    if (const auto session = current_session()) {
      set_flight_folder(*session);
      check_same_facts(*session, config_, problem);
    }

    continue_run_folder();
    // Find and check the checkpoint before any folder is changed, so that errors leave nothing behind.
    if (FileSystem::real().exists(config_.checkpoint_dir)) lock_folder(std::chrono::seconds(5));
    TrainState state = start(make_checked_engine(config_, problem.task, train, mesh), total);
    const std::string remat = with_remat(config_, state, train, [&](const TrainConfig& config) {
                                return make_checked_engine(config, problem.task, train, mesh);
                              }).remat;
    make_run_folder();
    lock_folder(std::chrono::seconds(0));
    move_old_checkpoints(state.step);
    record_start();
    if (is_first_process()) write_config(config_, problem.files);
    TrainConfig chosen = config_;
    chosen.remat = remat;
    Loggers loggers = loggers_of(config_, recorder_.get());
    if (metrics) {
      metrics->set_label("run", run_name());
      loggers.push_back(metrics);
    }
    RunReports reports(config_, problem, state.step);
    Engine engine = make_engine(chosen, problem.task, mesh, total, std::move(loggers), reports.hooks());
    reports.store_mesh_of(engine);
    report_start(config_, problem, engine, train, state, total);

    const auto began = Clock::now();
    const int64_t first = state.step;
    FitResult result = engine.fit(state, train,
                                  {.steps = total,
                                   .eval_every = config_.eval_every,
                                   .validation = problem.validation,
                                   .test = problem.test,
                                   .patience = config_.patience,
                                   .eval_batch = config_.eval_batch,
                                   .trace = trace_options(config_),
                                   .predictions = reports.predictions(),
                                   .stop = options_.stop});
    report_examples_read(train);
    trained_ = state.step > first;
    if (!trained_ && !result.stopped) add_evaluation(result, engine, state, problem);
    reports.store_last_evaluation(state.step, result.metrics);
    const RunOutcome outcome{.ended_by_alarm = result.ended_by_alarm,
                             .stopped = result.stopped,
                             .unsaved = result.unsaved,
                             .step = state.step,
                             .total_steps = total};
    return conclude(outcome, result, train.batches_per_epoch(), seconds_since(began));
  }

  // Of the folder; empty if the run has none.
  std::string run_name() const {
    const std::string& folder = config_.run_dir;
    const size_t end = folder.find_last_not_of('/');
    return folder.substr(0, end + 1).substr(folder.find_last_of('/', end) + 1);
  }

  bool makes_run_folder() const { return options_.keep && config_.run_dir.empty() && has_run_folder(config_); }

  void use_run_folder(std::string folder) {
    config_.run_dir = config_.checkpoint_dir = folder;
    config_.log_dir = folder + "/log";
    if (const auto session = current_session()) set_flight_folder(*session);
  }

  // Uses the folder that is given, or that of an earlier attempt of this job.
  void continue_run_folder() {
    if (!config_.run_dir.empty()) return use_run_folder(config_.run_dir);
    if (!makes_run_folder()) return;
    const std::string folder = find_shared_run_folder();
    if (folder.empty()) return;
    use_run_folder(folder);
    if (!list_checkpoints(folder).empty()) config_.resume = "auto";  // the earlier attempt has done what was asked for
  }

  // Makes the folder of a new run.
  void make_run_folder() {
    if (!makes_run_folder()) return;
    const bool in_pod = is_in_job_pod(own_environment());
    if (in_pod && is_first_process() && !config_.quiet)
      print_stderr(
          "{}: note: nothing is saved, because the disk of this pod is lost when it ends; give --run-dir with a folder "
          "of a volume\n",
          program_name());
    if (!in_pod) use_run_folder(make_shared_run_folder(task_));
  }

  void set_flight_folder(Session& session) const {
    const std::string& beside = !config_.run_dir.empty()  ? config_.run_dir
                                : config_.log_dir.empty() ? config_.checkpoint_dir
                                                          : config_.log_dir;
    if (!beside.empty()) session.set_flight_folder(beside + "/flight");
  }

  // Begins the record of a run in its folder.
  void record_start() {
    if (config_.run_dir.empty() || !is_first_process()) return;
    RunRecord facts = facts_of_this_process();
    facts.task = task_;
    facts.dataset = is_user_program() ? "" : config_.dataset;
    facts.settings = to_map(stored_settings(config_));
    recorder_ = std::make_unique<RunRecorder>(config_.run_dir, std::move(facts));
    // The first lines of the console logger name the folder.
    if (!config_.quiet && !logs_to_console(config_))
      print_stderr("{}: saving in {}\n", program_name(), config_.run_dir);
  }

  void record_end(const RunOutcome& outcome) {
    if (!recorder_) return;
    if (outcome.stopped) return recorder_->end(RunState::stopped);
    if (outcome.ended_by_alarm) return recorder_->end(RunState::failed, "--strict ended the run at an alarm");
    if (outcome.unsaved) return recorder_->end(RunState::failed, "the last checkpoint could not be saved");
    recorder_->end(unmet_.empty() ? RunState::complete : RunState::failed, unmet_);
  }

  // Prevents two runs from overwriting each other's checkpoints. `patience` gives a run that is just ending time to
  // exit. It is 0 for a folder that did not exist at the first look: a run that holds its lock has just started.
  void lock_folder(std::chrono::seconds patience) {
    if (is_first_process() && !config_.checkpoint_dir.empty() && !lock_)
      lock_.emplace(config_.checkpoint_dir, patience);
  }

  // Shows what the run does before its first step.
  std::optional<StartActivity> activity(const std::string& text) const {
    if (!is_first_process() || config_.quiet) return std::nullopt;
    return std::optional<StartActivity>(std::in_place, text);
  }

  TrainState start(const Engine& engine, int64_t total) {
    const auto preparing = activity("preparing the model");
    const auto print = [&](const std::string& text) {
      if (is_first_process()) print_stderr("{}: {}\n", program_name(), text);
    };
    const std::optional<Checkpoint> found =
        find_checkpoint(config_.checkpoint_dir, config_.resume, print, engine.load_options());
    if (!found) return config_.init_from.empty() ? engine.create_state() : start_from_weights(engine);
    check_same_run(config_, found->config);
    found_metrics_ = found->metrics;
    TrainState state = engine.restore(*found);
    if (state.step > total)
      throw_error(
          "train: the checkpoint is at step {}, after the end of the run at step {}; raise --steps or --epochs, or "
          "start a new run with --resume none",
          state.step, total);
    if (!config_.quiet)
      print(state.step < total ? fmt::format("resuming from step {} of {}", state.step, total)
                               : fmt::format("all {} steps are already complete; nothing left to train", total));
    return state;
  }

  // A new run with the weights of another one.
  TrainState start_from_weights(const Engine& engine) const {
    LoadOptions options = engine.load_options();
    options.wanted = [](const std::string& name) {
      return name.starts_with("params/") || name.starts_with("average/");
    };
    const auto note = [&](const std::string& text) {
      if (is_first_process()) print_stderr("{}: init_from: {}\n", program_name(), text);
    };
    return engine.create_state(find_checkpoint("", config_.init_from + "/", note, options).value());
  }

  // Moves checkpoints aside that do not belong to this run. "auto" resumes from the newest complete checkpoint; any
  // incomplete ones above it stay in place.
  void move_old_checkpoints(int64_t step) const {
    if (config_.resume == "auto") return;
    if (process_count() > 1) distributed::sync("checkpoint");  // wait until all processes have read it
    if (!is_first_process()) return;
    if (config_.resume == "none")
      move_all_checkpoints(config_.checkpoint_dir);
    else
      move_checkpoints_after(config_.checkpoint_dir, step);
  }

  // A run that was already complete still reports the accuracy of its model.
  void add_evaluation(FitResult& result, Engine& engine, const TrainState& state, const Problem& problem) const {
    result.metrics.clear();
    const auto add = [&](const SourcePtr& set, const std::string& prefix) {
      if (!set) return;
      for (const auto& [name, value] : engine.evaluate(state, set, config_.eval_batch).metrics)
        result.metrics.emplace_back(prefix + name, value);
    };
    add(problem.validation, "validation_");
    add(problem.test, "test_");
    for (const auto& [name, value] : found_metrics_)
      if (!name.starts_with("test_") && !name.starts_with("validation_")) result.metrics.emplace_back(name, value);
  }

  void report_problems(const RunOutcome& outcome) const {
    if (!is_first_process()) return;
    if (outcome.ended_by_alarm)
      print_stderr("{}: --strict ended the run at step {} of {}\n", program_name(), outcome.step, outcome.total_steps);
    if (outcome.unsaved && !outcome.stopped)
      print_stderr(
          "{}: the last checkpoint, of step {}, could not be saved in {}: the trained model is lost; free disk "
          "space, then rerun the command: it resumes from the newest complete checkpoint, if there is one\n",
          program_name(), outcome.step, config_.checkpoint_dir);
  }

  static std::string metric_names(const Scalars& metrics) {
    std::string out;
    for (const auto& [name, value] : metrics) out += (out.empty() ? "" : ", ") + name;
    return out;
  }

  // Why the expectation is not met; empty if it is.
  std::string why_not_met(const Expectation& expectation, const Scalars& metrics) const {
    for (const auto& [name, value] : metrics)
      if (name == expectation.metric)
        return is_met(expectation, metrics)
                   ? ""
                   : fmt::format("expected {}, but {} is {:.6g}", to_string(expectation), name, value);
    return fmt::format("expected {}, but {} was not measured{}", to_string(expectation), expectation.metric,
                       trained_ ? "; the metrics are " + metric_names(metrics) : ": the run was already complete");
  }

  RunOutcome conclude(RunOutcome outcome, const FitResult& result, int64_t steps_per_epoch, double seconds) {
    const bool complete = !outcome.ended_by_alarm && !outcome.stopped;
    if (complete && is_first_process()) print_result(outcome, result, steps_per_epoch, seconds);
    // Problems come after the result: the last line of a replica that failed is shown as the reason.
    report_problems(outcome);
    for (const Expectation& expectation : expectations_) {
      const std::string why = complete ? why_not_met(expectation, result.metrics) : "";
      if (why.empty()) continue;
      if (is_first_process()) print_stderr("{}: {}\n", program_name(), why);
      outcome.expectations_met = false;
      unmet_ += (unmet_.empty() ? "" : "; ") + why;
    }
    return outcome;
  }

  // "test accuracy 98.12 %", "test loss 1.4731".
  static std::string main_metric(const Scalars& metrics) {
    for (const char* set : {"test_", "validation_", ""})
      for (const char* name : {"accuracy", "loss"})
        for (const auto& [each, value] : metrics) {
          if (each != std::string(set) + name) continue;
          const std::string title = (*set ? std::string(set, std::strlen(set) - 1) : "training") + " " + name;
          return *name == 'a' ? fmt::format("{} {:.2f} %", title, 100 * value) : fmt::format("{} {:.4f}", title, value);
        }
    return "no metric";
  }

  void print_result(const RunOutcome& outcome, const FitResult& result, int64_t steps_per_epoch, double seconds) const {
    if (!config_.run_dir.empty() && !config_.quiet)
      print_stderr("saved in {}\n", config_.run_dir);
    else if (!config_.checkpoint_dir.empty() && !outcome.unsaved && !config_.quiet)
      print_stderr("checkpoints are in {}\n", config_.checkpoint_dir);
    const double epochs = static_cast<double>(outcome.step) / static_cast<double>(steps_per_epoch);
    fmt::print(options_.out, "{} {} after {} ({:.4g} epoch{}) in {:.1f} s\n", task_, main_metric(result.metrics),
               counted(outcome.step, "step"), epochs, epochs == 1 ? "" : "s", seconds);
    std::fflush(options_.out);
  }

  TrainConfig config_;  // with the folders of the run, once they are known
  const ProblemFactory& make_;
  const RunOptions& options_;
  std::string task_;      // its name
  bool trained_ = false;  // the run made at least one step
  std::vector<Expectation> expectations_;
  std::string unmet_;                            // why expectations are not met
  std::optional<FolderLock> lock_;               // held until everything is written
  std::unique_ptr<RunRecorder> recorder_;        // in the first process, if the run has a folder
  std::map<std::string, double> found_metrics_;  // of the checkpoint that the run resumes from
};

// The checked settings with their defaults, and with the model that the run starts from.
TrainConfig resolve(const TrainConfig& config) {
  validate(config);
  const TrainConfig out = with_default_length(config);
  return out.model == "gpt" && !out.init_from.empty() ? start_from(out, out.init_from) : out;
}

}  // namespace

RunOutcome run_training(const TrainConfig& config, const ProblemFactory& make, const RunOptions& options) {
  const TrainConfig resolved = resolve(config);
  return Run(resolved, make, options)();
}

std::string training_schedule(const TrainConfig& config, const ProblemFactory& make) {
  const TrainConfig resolved = resolve(config);
  const Mesh mesh = make_devices(resolved);
  const Problem problem = open_problem(make, resolved);
  const Loader train = open_loader(resolved, problem, mesh);
  const Engine engine = make_checked_engine(resolved, problem.task, train, mesh);
  return engine.schedule(engine.create_state(), train);
}

}  // namespace lockstep
