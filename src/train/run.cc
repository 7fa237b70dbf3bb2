#include "train/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <limits>
#include <sstream>

#include "array/node.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/live_line.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "cluster/cpu_binding.h"
#include "cluster/session.h"
#include "comm/world.h"
#include "lane/platform_report.h"
#include "lockstep/device_put.h"
#include "lockstep/distributed.h"
#include "sharding/device_table.h"
#include "sharding/lanes.h"
#include "train/checkpoint_folder.h"
#include "train/folder_lock.h"
#include "train/gpt_settings.h"
#include "train/startup.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<Expectation> parse_expectations(const TrainConfig& config) {
  std::vector<Expectation> out;
  for (const std::string& text : config.expect) out.push_back(parse_expectation(text));
  return out;
}

void write_text(const std::string& path, const std::string& text) {
  FileSystem::real().make_dirs(parent_dir(path));
  FileSystem::real().write_atomic(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

constexpr std::string_view kConfigHeader = "# Written by lockstep train: all settings of the run.\n";

// Whether the file exists and was not written by write_config().
bool is_user_file(const std::string& path) {
  FileSystem& files = FileSystem::real();
  if (!files.exists(path)) return false;
  std::vector<uint8_t> bytes(kConfigHeader.size());
  bytes.resize(files.read(path, 0, bytes));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != kConfigHeader;
}

// Writes the resolved settings to the checkpoint and log folders, ready to resume the run, and the files of the problem
// to the checkpoint folder. Never overwrites a config.yaml of the user.
void write_config(TrainConfig config, const std::map<std::string, std::string>& files) {
  config.resume = "auto";
  if (!config.checkpoint_dir.empty())
    for (const auto& [name, text] : files) write_text(config.checkpoint_dir + "/" + name, text);
  for (const std::string& dir : {config.checkpoint_dir, config.log_dir}) {
    if (dir.empty()) continue;
    std::string path = dir + "/config.yaml";
    if (is_user_file(path)) path = dir + "/run-config.yaml";
    write_text(path, std::string(kConfigHeader) + to_yaml(config));
  }
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

bool logs_batches(const TrainConfig& config) { return logger_names(config).find("batches") != std::string::npos; }

Loggers loggers_of(const TrainConfig& config) {
  if (!is_first_process()) return logs_batches(config) ? Loggers{batch_logger()} : Loggers{};
  const std::string names = logger_names(config);
  Loggers out = make_loggers(names, config.log_dir, {.every = config.log_every, .title = false});
  if (names.find("console") == names.npos && names.find("compact") == names.npos && !logs_batches(config))
    out.push_back(std::make_shared<AlarmsOnly>());
  if (auto status = trainer_status_logger()) out.push_back(std::move(status));
  return out;
}

// Moves the checkpoints above a step to a new subfolder previous-N. Returns its path, or an empty string if there were
// no such checkpoints.
std::string move_steps(const std::string& dir, int64_t above) {
  FileSystem& files = FileSystem::real();
  if (dir.empty() || !files.exists(dir)) return "";
  detail::recover_folder(files, dir);  // an interrupted save must not reappear later; the next save reports failures
  std::vector<std::string> old;
  for (const std::string& name : files.list(dir))
    if (const std::optional<int64_t> step = detail::parse_step_name(name); step && *step > above) old.push_back(name);
  if (old.empty()) return "";
  int n = 1;
  while (files.exists(fmt::format("{}/previous-{}", dir, n))) ++n;
  const std::string to = fmt::format("{}/previous-{}", dir, n);
  files.make_dirs(to);
  for (const std::string& name : old) files.rename(dir + "/" + name, to + "/" + name);
  return to;
}

// Keeps a new run apart from an earlier run in the same folder.
void move_all_checkpoints(const std::string& dir) {
  const std::string to = move_steps(dir, -1);
  if (to.empty()) return;
  print_stderr("{}: the checkpoints of an earlier run were moved to {}\n", program_name(), to);
}

// Keeps a run that resumes from an earlier step apart from the checkpoints after it.
void move_checkpoints_after(const std::string& dir, int64_t step) {
  const std::string to = move_steps(dir, step);
  if (to.empty()) return;
  print_stderr("{}: the checkpoints after step {} were moved to {}\n", program_name(), step, to);
}

uint32_t checksum(const Array& array) {
  const BufferPtr& buffer = detail::buffer_of(array, "train");
  return crc32c({buffer->as<const uint8_t>(), static_cast<size_t>(array.type().bytes())});
}

// A value that must be equal in all processes of a job. The compiled program is compared elsewhere.
struct SharedFact {
  std::string name, value;
  std::string origin = {};  // such as a file; may differ between processes
};

std::vector<SharedFact> shared_facts(const TrainConfig& config, const Problem& problem) {
  std::vector<SharedFact> out = {{"the seed", std::to_string(config.seed)},
                                 {"the setting steps", std::to_string(config.steps)},
                                 {"the setting epochs", std::to_string(config.epochs)}};
  const std::pair<const char*, const SourcePtr&> sets[] = {
      {"training", problem.train}, {"validation", problem.validation}, {"test", problem.test}};
  for (const auto& [set, source] : sets)
    out.push_back({fmt::format("{} examples", set), std::to_string(source ? source->count() : 0)});
  for (const auto& [set, source] : sets) {
    if (!source) continue;
    for (const auto& [field, array] : source->resident())
      out.push_back({fmt::format("{} {} with CRC-32C checksum", set, field), fmt::format("{:08x}", checksum(array)),
                     source->origin(field)});
  }
  out.push_back({"the setting checkpoint_every", std::to_string(config.checkpoint_every)});
  out.push_back({"the setting eval_every", std::to_string(config.eval_every)});
  return out;
}

// Throws Error in all processes when a value differs between them; names the first one.
void check_same_facts(Session& session, const std::vector<SharedFact>& facts) {
  std::string own;
  for (const SharedFact& fact : facts) own += fact.value + "\n" + fact.origin + "\n";
  const std::vector<std::string> all = session.exchange("settings and data", own);
  for (size_t p = 1; p < all.size(); ++p) {
    std::istringstream first(all[0]), other(all[p]);
    for (const SharedFact& fact : facts) {
      std::string a, b, a_origin, b_origin;
      std::getline(first, a), std::getline(first, a_origin), std::getline(other, b), std::getline(other, b_origin);
      if (a == b) continue;
      try {
        session.exchange("settings and data", "");  // wait until every process has read all values
      } catch (const CommError&) {
        // Another process has already failed for the same reason.
      }
      const auto of = [](const std::string& origin) { return origin.empty() ? "" : fmt::format(" ({})", origin); };
      throw_error("train: process 0 has {} {}{}, but process {} has {}{}; use the same in all processes", fact.name, a,
                  of(a_origin), p, b, of(b_origin));
    }
  }
}

// Prints why the run computes on the CPU, if it could use a GPU; and whether a launcher has bound the process to fewer
// cores than it could use.
void report_platform() {
  if (const std::string where = platform_in_use(); platform() == Platform::cpu && !where.empty())
    print_stderr("{}: note: computing on {}\n", program_name(), where);
  if (const std::string note = narrow_binding(); !note.empty()) print_stderr("{}: note: {}\n", program_name(), note);
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
  if (logger_names(config).find("console") == std::string::npos) return;
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
    const Mesh mesh = make_devices(config_);
    if (is_first_process() && !config_.quiet) {
      report_platform();
      report_ineffective_settings(config_, mesh);
    }
    const Problem problem = [&] {
      const auto reading = activity(is_user_program() ? "reading data" : "reading " + config_.dataset);
      return open_problem(make_, config_);
    }();
    task_ = problem.task.name;
    Loader train = open_loader(config_, problem, mesh);
    const int64_t total = total_steps(config_, train);

    if (const auto session = current_session()) {
      const std::string& beside = config_.log_dir.empty() ? config_.checkpoint_dir : config_.log_dir;
      if (!beside.empty()) session->set_flight_folder(beside + "/flight");
      check_same_facts(*session, shared_facts(config_, problem));
    }

    // Find and check the checkpoint before any folder is changed, so that errors leave nothing behind.
    if (FileSystem::real().exists(config_.checkpoint_dir)) lock_folder(std::chrono::seconds(5));
    TrainState state = start(make_checked_engine(config_, problem.task, train, mesh), total);
    lock_folder(std::chrono::seconds(0));
    move_old_checkpoints(state.step);
    if (is_first_process()) write_config(config_, problem.files);
    Engine engine = make_engine(config_, problem.task, mesh, total, loggers_of(config_));
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
                                   .stop = options_.stop});
    report_examples_read(train);
    trained_ = state.step > first;
    if (!trained_ && !result.stopped) add_evaluation(result, engine, state, problem);
    const RunOutcome outcome{.ended_by_alarm = result.ended_by_alarm,
                             .stopped = result.stopped,
                             .unsaved = result.unsaved,
                             .step = state.step,
                             .total_steps = total};
    return conclude(outcome, result, train.batches_per_epoch(), seconds_since(began));
  }

 private:
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

  bool holds(const Expectation& expectation, const Scalars& metrics) const {
    for (const auto& [name, value] : metrics) {
      if (name != expectation.metric) continue;
      const bool met = is_met(expectation, metrics);
      if (!met && is_first_process())
        print_stderr("{}: expected {}, but {} is {:.6g}\n", program_name(), to_string(expectation), name, value);
      return met;
    }
    const std::string reason =
        trained_ ? "; the metrics are " + metric_names(metrics) : ": the run was already complete";
    if (is_first_process())
      print_stderr("{}: expected {}, but {} was not measured{}\n", program_name(), to_string(expectation),
                   expectation.metric, reason);
    return false;
  }

  RunOutcome conclude(RunOutcome outcome, const FitResult& result, int64_t steps_per_epoch, double seconds) const {
    const bool complete = !outcome.ended_by_alarm && !outcome.stopped;
    if (complete && is_first_process()) print_result(outcome, result, steps_per_epoch, seconds);
    // Problems come after the result: the last line of a replica that failed is shown as the reason.
    report_problems(outcome);
    for (const Expectation& expectation : expectations_)
      if (complete && !holds(expectation, result.metrics)) outcome.expectations_met = false;
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
    if (!config_.checkpoint_dir.empty() && !outcome.unsaved && !config_.quiet)
      print_stderr("checkpoints are in {}\n", config_.checkpoint_dir);
    const double epochs = static_cast<double>(outcome.step) / static_cast<double>(steps_per_epoch);
    fmt::print(options_.out, "{} {} after {} ({:.4g} epoch{}) in {:.1f} s\n", task_, main_metric(result.metrics),
               counted(outcome.step, "step"), epochs, epochs == 1 ? "" : "s", seconds);
    std::fflush(options_.out);
  }

  const TrainConfig& config_;
  const ProblemFactory& make_;
  const RunOptions& options_;
  std::string task_;      // its name
  bool trained_ = false;  // the run made at least one step
  std::vector<Expectation> expectations_;
  std::optional<FolderLock> lock_;               // held until everything is written
  std::map<std::string, double> found_metrics_;  // of the checkpoint that the run resumes from
};

}  // namespace

Mesh make_devices(const TrainConfig& config) {
  const auto axes = parse_mesh(config.mesh);
  if (config.devices != "auto" && config.devices != "all") {
    int count = 0;
    std::from_chars(config.devices.data(), config.devices.data() + config.devices.size(), count);
    set_cpu_devices(count);
  }
  if (!config.platform.empty()) set_platform(config.platform);
  if (!distributed::is_initialized()) distributed::initialize();
  if (config.expect_devices > 0 && device_count() != config.expect_devices)
    throw SettingsError(
        "expect_devices",
        fmt::format("train: --expect-devices is {}, but {} available; nothing was started", config.expect_devices,
                    device_count() == 1 ? "1 device is" : fmt::format("{} devices are", device_count())));
  if (axes.empty()) return make_mesh({MeshAxis("data")});
  std::vector<MeshAxis> mesh;
  for (const auto& [name, size] : axes) mesh.emplace_back(name, size);
  try {
    return make_mesh(mesh);
  } catch (const Error& error) {
    throw SettingsError("mesh", error.what());
  }
}

Engine make_engine(const TrainConfig& config, Task task, const Mesh& mesh, int64_t total_steps, Loggers loggers) {
  return Engine(std::move(task), {.mesh = mesh,
                                  .plan = make_sharding_plan(config),
                                  .accumulate = config.accumulate,
                                  .optimizer = make_optimizer(config, total_steps),
                                  .precision = precision_of(config.precision),
                                  .ema_decay = config.ema_decay,
                                  .seed = config.seed,
                                  .checkpoint_dir = config.checkpoint_dir,
                                  .checkpoint_every = config.checkpoint_every,
                                  .keep_last = config.keep_last,
                                  .loggers = std::move(loggers),
                                  .strict = config.strict,
                                  .config = to_map(config)});
}

namespace {

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
