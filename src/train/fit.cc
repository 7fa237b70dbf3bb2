// Engine::fit(), the training loop: steps, evaluations, checkpoints, alarms and logging.
//
// On lanes that compute asynchronously the loop runs ahead: it launches up to kStepsAhead steps before it reads back their
// statistics, and the readback is asynchronous too. A step passes through these stages:
//
//   running_   launched; statistics not requested yet
//   pending_   statistics are being copied to the host
//   finished_  metrics known; not reported to loggers and alarms yet
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "array/lane_memory.h"
#include "base/check.h"
#include "base/live_line.h"
#include "base/names.h"
#include "cluster/session.h"
#include "comm/world.h"
#include "lockstep/devices.h"
#include "lockstep/jit.h"
#include "lockstep/rearrange.h"
#include "plan/lanes.h"
#include "train/engine_impl.h"
#include "train/lane_metrics.h"
#include "train/state.h"
#include "train/step_trace.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The functions of Engine::Impl that the loop calls; see engine_impl.h.
struct StepFunctions {
  std::function<StartedStep(TrainState&, const Loader&, const LoaderBatch&, bool ask_to_stop)> start;
  std::function<StepMetrics(const StartedStep&, std::span<const double>)> metrics;
  std::function<bool(const TrainState&, const Loader&, int64_t batch_size)> can_start_several;
  std::function<Array(TrainState&, const Loader&, const LoaderBatches&)> start_several;
  std::function<void(const TrainState&, const Loader&, const FitOptions&)> prepare;
  std::function<double(const TrainState&, const Loader&, int64_t batch_size)> multiply_adds;
  std::function<void(const Loader&, const LoaderBatch&)> log_examples;
  std::function<void(const TrainState&, const Loader&, const LoaderBatch&)> log_histograms;
};

// One call of fit().
class FitRun {
 public:
  FitRun(Engine& engine, StepFunctions steps, TrainState& state, Loader& train, const FitOptions& options)
      : engine_(engine),
        steps_(std::move(steps)),
        state_(state),
        train_(train),
        fit_(options),
        options_(engine.options()),
        eval_every_(options.eval_every > 0 ? options.eval_every : 0),
        trace_(options.trace),
        alarms_({.total_steps = options.steps, .paths = detail::trained_of(engine.task(), engine.task().paths)}) {
    if (!options_.checkpoint_dir.empty())
      checkpointer_ = std::make_unique<Checkpointer>(CheckpointerOptions{.dir = options_.checkpoint_dir,
                                                                         .keep_last = options_.keep_last,
                                                                         .best_metric = best_metric(),
                                                                         .higher_is_better = false,
                                                                         .resumed_step = state_.step,
                                                                         .files = options_.files});
  }

  FitResult operator()() {
    begin();
    while (state_.step < fit_.steps && !ended()) {
      const bool last_of_epoch = step();
      const bool last = state_.step == fit_.steps || ended();
      // A stop request must not wait for an evaluation, and after a fatal alarm there is nothing to evaluate.
      const bool evaluated = watched() && !result_.stopped && !result_.ended_by_alarm &&
                             (last || (eval_every_ > 0 ? state_.step % eval_every_ == 0 : last_of_epoch));
      if (evaluated) evaluate();
      // The state after a fatal alarm must not be resumed, so it is not saved.
      const bool due = state_.step == fit_.steps || ended() || is_save_due(evaluated);
      if (due && !result_.ended_by_alarm) save(evaluated);
      trace_.after_step(state_.step);
    }
    return end();
  }

 private:
  bool ended() const { return result_.ended_early; }

  // The set that is evaluated during the run; null: none.
  const SourcePtr& watched() const { return fit_.validation ? fit_.validation : fit_.test; }
  std::string unit_rate() const { return engine_.task().unit + "_per_second"; }
  std::vector<std::string> evaluated_sets() const {
    std::vector<std::string> out;
    if (fit_.validation) out.emplace_back("validation");
    if (fit_.test) out.emplace_back("test");
    return out;
  }
  std::string best_metric() const { return options_.keep_best && fit_.validation ? "validation_loss" : ""; }

  void begin() {
    train_.seek(state_.cursor);
    first_step_ = reported_ = state_.step;
    const RunInfo info{.config = options_.config,
                       .title = fmt::format("{} on {}", engine_.task().name, counted(options_.mesh.size(), "device")),
                       .task = engine_.task().name,
                       .total_steps = fit_.steps,
                       .first_step = state_.step,
                       .steps_per_epoch = train_.batches_per_epoch(),
                       .sets = evaluated_sets()};
    for (const auto& logger : options_.loggers) logger->begin(info);
    if (process_index() == 0 && state_.step < fit_.steps) starting_.emplace("compiling and running the first step");
    if (process_count() == 1) stop_if(stop_requested());  // several processes agree at the end of a step
    if (!ended()) stop_if_out_of_patience();
    if (!ended() && process_count() == 1) steps_.prepare(state_, train_, fit_);
  }

  bool stop_requested() const { return fit_.stop && fit_.stop(); }
  void stop_if(bool requested) {
    if (requested && state_.step < fit_.steps) result_.ended_early = result_.stopped = true;
  }

  void log_message(const std::string& text, bool alarm) {
    for (const auto& logger : options_.loggers) logger->message(state_.step, text, alarm);
  }
  void raise(const std::optional<std::string>& alarm) {
    if (!alarm) return;
    log_message(*alarm, true);
    result_.alarms.push_back(*alarm);
    if (options_.strict) result_.ended_early = result_.ended_by_alarm = true;
  }

  // The number of steps that may be in flight. More than one only if a step may be unfinished when its call returns. A
  // hook that inspects every step, or processes that agree on stopping, need each step's results.
  size_t ahead() const {
    const bool may = Lanes::current().main().info().asynchronous && process_count() == 1 && !options_.hooks.on_step;
    return may ? kStepsAhead : 1;
  }

  // Whether the next kStepsAhead steps can run in one launch: no evaluation, save or end of epoch falls between them.
  bool can_start_several() {
    if (ahead() == 1 || !train_.resident()) return false;
    int64_t left = std::min(fit_.steps - state_.step, train_.full_batches_left());
    for (const int64_t every : {eval_every_, options_.checkpoint_every})
      if (every > 0) left = std::min(left, every - state_.step % every);
    left = std::min(left, trace_.steps_until(state_.step));
    if (left < static_cast<int64_t>(kStepsAhead)) return false;
    if (!several_) several_ = steps_.can_start_several(state_, train_, train_.batch_size());
    return *several_;
  }

  // Launches the next step, or the next kStepsAhead steps. Returns their batches.
  std::vector<LoaderBatch> start() {
    const bool several = can_start_several();
    LoaderBatches batches = [&] {
      const auto timer = meter_.time(Meter::Phase::data);
      const TracedScope scope(TraceSpan::Kind::data, "next batch");
      if (several) return train_.next(kStepsAhead);
      LoaderBatches one;
      one.each.push_back(train_.next());
      return one;
    }();
    for (const auto& logger : options_.loggers)
      for (const LoaderBatch& batch : batches.each) logger->batch(batch);
    if (state_.step == 0) steps_.log_examples(train_, batches.each[0]);
    if (options_.histograms) last_batch_ = batches.each.back();
    World::current().progress(state_.step + static_cast<int64_t>(batches.each.size()), "train step");
    // The first launch of each kind compiles; that time does not count as training.
    const bool first = compiled_.emplace(several, batches.each[0].global_size).second;
    if (first) meter_.pause();
    const auto timer = meter_.time(Meter::Phase::compute);
    const TracedScope scope(TraceSpan::Kind::dispatch, "launch");
    if (several) {
      LOCKSTEP_CHECK(running_.empty(), "{} steps are running", running_.size());
      several_stats_ = steps_.start_several(state_, train_, batches);
      for (const LoaderBatch& batch : batches.each) running_.push_back({{}, batch.global_size});
    } else {
      running_.push_back(steps_.start(state_, train_, batches.each[0], process_count() > 1 && stop_requested()));
    }
    state_.cursor = train_.cursor();
    if (first) meter_.resume();
    return std::move(batches.each);
  }

  bool step() {
    trace_.before_step(state_.step);
    const std::string name = Trace::is_on() ? fmt::format("step {}", state_.step + 1) : std::string();
    const TracedScope scope(TraceSpan::Kind::step, name);
    return run_step();
  }

  // Launches the next step or steps, and reports those that are due. Returns whether the epoch is over.
  bool run_step() {
    const std::vector<LoaderBatch> batches = start();
    const LoaderBatch& batch = batches.back();
    bool requested = false;
    {
      const auto timer = meter_.time(Meter::Phase::compute);
      const bool needed_now = batch.last_of_epoch || state_.step == fit_.steps || trace_.is_boundary(state_.step) ||
                              (eval_every_ > 0 && state_.step % eval_every_ == 0) ||
                              (options_.checkpoint_every > 0 && state_.step % options_.checkpoint_every == 0);
      const bool full = running_.size() >= ahead();
      requested = ahead() > 1 && stop_requested();
      if (!full && !needed_now && !requested) {
        meter_.step(batch.global_size);
        return batch.last_of_epoch;
      }
      read_back(needed_now || requested);
    }
    meter_.step(batch.global_size, static_cast<int64_t>(batches.size()));  // several steps have equal batch sizes
    report_finished();
    stop_if(requested);
    if (ended() && !pending_.empty()) {
      finish(pending_, wait_for_pending());
      report_finished();
    }
    return batch.last_of_epoch;
  }

  // Reads back the statistics of the running steps: requests those of the running steps, and waits only for those
  // requested by the previous call. `all`: waits for all steps.
  void read_back(bool all) {
    const TracedScope scope(TraceSpan::Kind::dispatch, "read results");
    if (ahead() == 1) return finish(running_, running_[0].outputs.stats.to_vector<double>());
    const Array stats = several_stats_ ? *std::exchange(several_stats_, {}) : stack_stats();
    std::optional<detail::ArrayReadback> requested;
    if (!all && detail::computes_ahead()) requested.emplace(stats);
    if (!pending_.empty()) finish(pending_, wait_for_pending());
    if (!requested) return finish(running_, stats.to_vector<double>());
    pending_.swap(running_);
    readback_ = std::move(requested);
  }
  Array stack_stats() const {
    std::vector<Array> rows;
    for (const StartedStep& step : running_) rows.push_back(step.outputs.stats);
    rows.resize(kStepsAhead, rows.back());  // a constant number, so that only one kernel is compiled
    return stack_(rows);
  }
  std::vector<double> wait_for_pending() { return std::exchange(readback_, std::nullopt)->wait(); }

  // Moves `steps` to finished_. `stats`: their statistics, concatenated.
  void finish(std::vector<StartedStep>& steps, const std::vector<double>& stats) {
    const size_t each = stats.size() / (ahead() == 1 ? 1 : kStepsAhead);
    for (size_t i = 0; i < steps.size(); ++i)
      finished_.push_back(steps_.metrics(steps[i], std::span(stats).subspan(i * each, each)));
    steps.clear();
  }
  void report_finished() {
    if (finished_.empty()) return;
    if (lanes_.empty()) measure_work();
    memory_.clear();
    detail::append_memory(memory_, lanes_);
    report_checkpoints();
    for (const StepMetrics& metrics : std::exchange(finished_, {})) report(++reported_, metrics);
  }

  // For the metric "mfu". The step was compiled when it ran.
  void measure_work() {
    lanes_ = detail::used_lanes(options_.mesh);
    peak_ = detail::peak_of(lanes_, options_);
    if (peak_ > 0) step_operations_ = 2 * steps_.multiply_adds(state_, train_, train_.batch_size());
  }

  // Passes checkpoints that are complete by now to the loggers.
  void report_checkpoints() {
    if (saves_begun_ == saves_reported_) return;
    const std::vector<int64_t> saved = checkpointer_->saved();
    for (; saves_reported_ < saved.size(); ++saves_reported_)
      for (const auto& logger : options_.loggers) logger->checkpoint(saved[saves_reported_]);
  }

  void report(int64_t step, const StepMetrics& metrics) {
    starting_.reset();
    const Meter::Report report = meter_.report();
    last_step_ = {{"loss", metrics.loss}};
    last_step_.insert(last_step_.end(), metrics.metrics.begin(), metrics.metrics.end());
    last_step_.insert(last_step_.end(),
                      {{"learning_rate", metrics.learning_rate},
                       {"grad_norm", metrics.grad_norm},
                       {"epoch", static_cast<double>(step) / static_cast<double>(train_.batches_per_epoch())},
                       {"examples_per_second", report.examples_per_second},
                       {"step_seconds", report.recent_step_seconds},
                       {"data_share", report.data},
                       {"compute_share", report.compute},
                       {"communication_share", report.communication}});
    if (const Task& task = engine_.task(); !task.unit.empty())
      last_step_.emplace_back(unit_rate(), report.examples_per_second * static_cast<double>(task.units_per_example));
    task_metrics_ = 1 + metrics.metrics.size();
    if (options_.precision.loss_scaling) last_step_.emplace_back("loss_scale", metrics.loss_scale);
    last_step_.insert(last_step_.end(), memory_.begin(), memory_.end());
    if (step_operations_ > 0) {
      const double seconds = report.recent_step_seconds;  // 0 before the first counted step
      last_step_.emplace_back("mfu", seconds > 0 ? step_operations_ / seconds / peak_ : 0);
    }
    for (const auto& logger : options_.loggers) {
      logger->timing(report);
      logger->step(step, last_step_);
    }
    raise(alarms_.check(StepFacts{step, metrics.loss, metrics.grad_norms, metrics.skipped}));
    if (options_.hooks.on_step && !options_.hooks.on_step(state_, metrics)) result_.ended_early = true;
    stop_if(process_count() == 1 ? stop_requested() : metrics.stop);
  }

  void evaluate() {
    World::current().progress(state_.step, "evaluation");
    const TracedScope scope(TraceSpan::Kind::evaluation, "evaluate");
    meter_.pause();
    last_eval_.clear();
    const bool several_sets = fit_.validation && fit_.test;  // then the test set is the last one
    const EvalResult result =
        measure(watched(), fit_.validation ? "validation_" : "test_", may_be_last() && !several_sets);
    if (fit_.validation) compare_with_best(result.loss);
    const auto labels = result.counts.find("labels"), predictions = result.counts.find("predictions");
    if (labels != result.counts.end() && predictions != result.counts.end())
      raise(alarms_.check(EvalFacts{state_.step, result.metric("accuracy"), predictions->second,
                                    fit_.validation ? "validation" : "test"},
                          labels->second));
    if (options_.hooks.on_eval && !options_.hooks.on_eval(state_, result)) result_.ended_early = true;
    stop_if_out_of_patience();
    const bool last = state_.step == fit_.steps || ended();
    if (several_sets && last && !result_.ended_by_alarm) measure(fit_.test, "test_", true);
    if (options_.histograms) steps_.log_histograms(state_, train_, last_batch_);
    meter_.resume();
  }

  // Whether the evaluation at this step may be the last one.
  bool may_be_last() const {
    return state_.step == fit_.steps || ended() ||
           (fit_.patience > 0 && state_.evaluations_since_best + 1 >= fit_.patience);
  }

  // Evaluates a set. Appends its metrics to last_eval_ and passes them to the loggers.
  EvalResult measure(const SourcePtr& set, const std::string& prefix, bool predictions) {
    std::optional<Activity> evaluating;
    if (process_index() == 0) evaluating.emplace("evaluating");
    EvalResult result = engine_.evaluate(
        state_, set, fit_.eval_batch, predictions ? fit_.predictions : std::function<void(const BatchPredictions&)>());
    Scalars metrics;
    for (const auto& [name, value] : result.metrics) metrics.emplace_back(prefix + name, value);
    for (const auto& logger : options_.loggers) logger->evaluation(state_.step, metrics);
    last_eval_.insert(last_eval_.end(), metrics.begin(), metrics.end());
    return result;
  }

  void compare_with_best(double loss) {
    const bool better = loss < state_.best_loss;
    if (better) state_.best_loss = loss, state_.best_step = state_.step;
    state_.evaluations_since_best = better ? 0 : state_.evaluations_since_best + 1;
  }

  void stop_if_out_of_patience() {
    if (fit_.patience <= 0 || state_.evaluations_since_best < fit_.patience || state_.step >= fit_.steps) return;
    log_message(fmt::format("the validation loss did not fall below {:.4f}, of step {}, in {}: the run ends",
                            state_.best_loss, state_.best_step, counted(state_.evaluations_since_best, "evaluation")),
                false);
    result_.ended_early = result_.out_of_patience = true;
  }

  // Whether to save after this step, which is not the last one. All processes get the same answer.
  bool is_save_due(bool evaluated) const {
    if (options_.checkpoint_every > 0) return state_.step % options_.checkpoint_every == 0;
    if (!evaluated || !checkpointer_) return false;
    const bool best = options_.keep_best && fit_.validation && state_.best_step == state_.step;
    if (options_.checkpoint_seconds == 0 || best) return true;
    const bool due = Clock::now() - saved_at_ >= std::chrono::duration<double>(options_.checkpoint_seconds);
    if (process_count() == 1) return due;
    return current_session()->exchange("save is due", due ? "1" : "0")[0] == "1";  // by the first one's clock
  }

  // `evaluated`: last_eval_ was measured on the current state, so it is stored in the checkpoint.
  void save(bool evaluated) {
    if (!checkpointer_) return;
    const TracedScope scope(TraceSpan::Kind::checkpoint, "save");
    meter_.pause();
    Checkpoint checkpoint = detail::to_checkpoint(state_, engine_.task(), options_.optimizer);
    checkpoint.config = options_.config;
    for (size_t i = 0; i < task_metrics_; ++i) checkpoint.metrics[last_step_[i].first] = last_step_[i].second;
    if (evaluated)
      for (const auto& [name, value] : last_eval_) checkpoint.metrics[name] = value;
    checkpointer_->save(std::move(checkpoint));
    ++saves_begun_;
    saved_at_ = Clock::now();
    report_failures();
    report_checkpoints();
    meter_.resume();
  }

  void report_failures() {
    for (const std::string& failure : checkpointer_->failures()) {
      const bool continues = state_.step < fit_.steps && !ended();
      log_message(failure + (continues ? "; training continues, and earlier checkpoints are intact"
                                       : "; earlier checkpoints are intact"),
                  true);
      result_.failures.push_back(failure);
    }
  }

  // Reports an evaluation that was better than the last one.
  void report_best() {
    if (state_.best_step == 0 || state_.best_step == state_.step) return;
    const std::vector<int64_t> saved = checkpointer_ ? checkpointer_->saved() : std::vector<int64_t>();
    const bool kept = options_.keep_best && std::ranges::find(saved, state_.best_step) != saved.end();
    log_message(fmt::format("lowest validation loss: {:.4f} at step {}{}", state_.best_loss, state_.best_step,
                            kept ? ", whose checkpoint is kept" : ""),
                false);
  }

  FitResult end() {
    if (checkpointer_) {
      checkpointer_->wait();
      report_failures();
      report_checkpoints();
      const std::vector<int64_t> saved = checkpointer_->saved();
      const bool is_saved = state_.step == first_step_ || (!saved.empty() && saved.back() == state_.step);
      result_.unsaved = !is_saved && !result_.ended_by_alarm;
    }
    report_best();
    const Meter::Report report = meter_.report();
    result_.metrics = last_step_;
    for (auto& [name, value] : result_.metrics) {
      if (name == "examples_per_second") value = report.mean_examples_per_second;
      if (name == unit_rate())
        value = report.mean_examples_per_second * static_cast<double>(engine_.task().units_per_example);
    }
    result_.metrics.insert(result_.metrics.end(), last_eval_.begin(), last_eval_.end());
    trace_.write([this](const std::string& text, bool problem) { log_message(text, problem); });
    for (const auto& logger : options_.loggers) logger->end(state_.step, result_.metrics);
    if (options_.hooks.on_end) options_.hooks.on_end(state_);
    return std::move(result_);
  }

  Engine& engine_;
  StepFunctions steps_;
  TrainState& state_;
  Loader& train_;
  const FitOptions& fit_;
  const EngineOptions& options_;
  const int64_t eval_every_;
  detail::StepTrace trace_;
  Alarms alarms_;
  Meter meter_;
  std::unique_ptr<Checkpointer> checkpointer_;
  Clock::time_point saved_at_ = Clock::now();  // the last save, or the begin of the run
  int64_t first_step_ = 0;
  int64_t reported_ = 0;  // the last step that was reported
  std::vector<StartedStep> running_, pending_;
  std::vector<StepMetrics> finished_;
  LoaderBatch last_batch_;                         // with EngineOptions::histograms
  std::optional<Array> several_stats_;             // the statistics of running_ if these were started in one launch
  std::optional<bool> several_;                    // whether the compiled step allows several steps per launch
  std::set<std::pair<bool, int64_t>> compiled_;    // launches made before: (several steps, batch size)
  std::optional<detail::ArrayReadback> readback_;  // the statistics of pending_
  Jit<std::function<Array(const std::vector<Array>&)>> stack_ =
      jit(std::function<Array(const std::vector<Array>&)>([](const std::vector<Array>& rows) { return stack(rows); }));
  Scalars last_step_, last_eval_, memory_;
  std::vector<Lane*> lanes_;    // that compute the steps; empty before the first report
  double peak_ = 0;             // operations per second of the lanes; 0: unknown
  double step_operations_ = 0;  // of a full batch; 0 if the peak is not known
  size_t saves_begun_ = 0, saves_reported_ = 0;
  size_t task_metrics_ = 0;           // the first elements of last_step_: the loss and the metrics of the task
  std::optional<Activity> starting_;  // until the first step is reported
  FitResult result_;
};

}  // namespace

FitResult Engine::fit(TrainState& state, Loader& train, const FitOptions& options) {
  if (options.steps < state.step)
    throw_error("fit: the state is at step {}, after the end of the run at step {}; raise FitOptions::steps",
                state.step, options.steps);
  const StepFunctions steps{
      [this](TrainState& s, const Loader& l, const LoaderBatch& b, bool ask) { return impl_->start(s, l, b, ask); },
      [this](const StartedStep& step, std::span<const double> stats) { return impl_->metrics(step, stats); },
      [this](const TrainState& s, const Loader& l, int64_t size) { return impl_->can_start_several(s, l, size); },
      [this](TrainState& s, const Loader& l, const LoaderBatches& b) { return impl_->start(s, l, b); },
      [this](const TrainState& s, const Loader& l, const FitOptions& f) { impl_->prepare(s, l, f); },
      [this](const TrainState& s, const Loader& l, int64_t size) { return impl_->multiply_adds(s, l, size); },
      [this](const Loader& l, const LoaderBatch& b) { impl_->log_examples(l, b); },
      [this](const TrainState& s, const Loader& l, const LoaderBatch& b) { impl_->log_histograms(s, l, b); }};
  return FitRun(*this, steps, state, train, options)();
}

}  // namespace lockstep
