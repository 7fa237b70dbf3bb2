// The training loop: steps, evaluations, checkpoints, alarms and what is said of them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "array/gpu_memory.h"
#include "base/check.h"
#include "base/names.h"
#include "comm/world.h"
#include "lockstep/devices.h"
#include "lockstep/jit.h"
#include "lockstep/rearrange.h"
#include "train/engine_impl.h"
#include "train/state.h"

namespace lockstep {
namespace {

// A step as the engine does it: begun, and what it said of itself when it was over. Some engines begin several at once.
struct Stepping {
  std::function<StartedStep(TrainState&, const Loader&, const LoaderBatch&, bool ask_to_stop)> start;
  std::function<StepMetrics(const StartedStep&, std::span<const double>)> metrics;
  std::function<bool(const TrainState&, const Loader&, int64_t batch_size)> starts_several;
  std::function<Array(TrainState&, const Loader&, const LoaderBatches&)> start_several;
  std::function<void(const TrainState&, const Loader&, const FitOptions&)> prepare;
};

// One call of fit().
class FitRun {
 public:
  FitRun(Engine& engine, Stepping stepping, TrainState& state, Loader& train, const FitOptions& options)
      : engine_(engine),
        stepping_(std::move(stepping)),
        state_(state),
        train_(train),
        fit_(options),
        options_(engine.options()),
        eval_every_(options.eval_every > 0 ? options.eval_every : 0),
        alarms_({.total_steps = options.steps, .classes = train.classes(), .paths = engine.model().paths}) {
    if (!options_.checkpoint_dir.empty())
      checkpointer_ =
          std::make_unique<Checkpointer>(CheckpointerOptions{.dir = options_.checkpoint_dir,
                                                             .keep_last = options_.keep_last,
                                                             .best_metric = options_.keep_best ? "test_accuracy" : "",
                                                             .resumed_step = state_.step,
                                                             .files = options_.files});
  }

  FitResult operator()() {
    begin();
    while (state_.step < fit_.steps && !ended()) {
      const bool last_of_epoch = step();
      const bool last = state_.step == fit_.steps || ended();
      // Who stops a run may not wait for an evaluation, and after an alarm there is nothing to measure.
      const bool evaluated = fit_.test && !result_.stopped && !result_.ended_by_alarm &&
                             (last || (eval_every_ > 0 ? state_.step % eval_every_ == 0 : last_of_epoch));
      if (evaluated) evaluate();
      const bool due = options_.checkpoint_every > 0 ? state_.step % options_.checkpoint_every == 0 : evaluated;
      // What ended in an alarm is no state to go on from.
      if ((due || state_.step == fit_.steps || ended()) && !result_.ended_by_alarm) save(evaluated);
    }
    return end();
  }

 private:
  bool ended() const { return result_.ended_early; }

  void begin() {
    train_.seek(state_.cursor);
    first_step_ = reported_ = state_.step;
    const RunInfo info{.config = options_.config,
                       .title = fmt::format("{} on {}", engine_.model().name, counted(options_.mesh.size(), "device")),
                       .total_steps = fit_.steps,
                       .first_step = state_.step,
                       .steps_per_epoch = train_.batches_per_epoch()};
    for (const auto& logger : options_.loggers) logger->begin(info);
    if (process_count() == 1) stop_if(asked_to_stop());  // several agree at the end of a step
    if (!ended() && process_count() == 1) stepping_.prepare(state_, train_, fit_);
  }

  bool asked_to_stop() const { return fit_.stop && fit_.stop(); }
  void stop_if(bool asked) {
    if (asked && state_.step < fit_.steps) result_.ended_early = result_.stopped = true;
  }

  void say(const std::string& text, bool alarm) {
    for (const auto& logger : options_.loggers) logger->message(state_.step, text, alarm);
  }
  void raise(const std::optional<std::string>& alarm) {
    if (!alarm) return;
    say(*alarm, true);
    result_.alarms.push_back(*alarm);
    if (options_.strict) result_.ended_early = result_.ended_by_alarm = true;
  }

  // A GPU is given steps before the last ones are done, and says later how they went; elsewhere a step is over when it
  // was started. Who looks at every step, or agrees on it with other processes, waits for it.
  size_t ahead() const {
    const bool may = platform() == Platform::cuda && process_count() == 1 && !options_.hooks.on_step;
    return may ? kAhead : 1;
  }

  // May so many steps be started at once? Where nobody looks at one of them in between.
  bool starts_several() {
    if (ahead() == 1 || !train_.resident()) return false;
    int64_t left = std::min(fit_.steps - state_.step, train_.full_batches_left());
    for (const int64_t every : {eval_every_, options_.checkpoint_every})
      if (every > 0) left = std::min(left, every - state_.step % every);
    if (left < static_cast<int64_t>(kAhead)) return false;
    if (!several_) several_ = stepping_.starts_several(state_, train_, train_.batch_size());
    return *several_;
  }

  // Starts the next step, or the next kAhead of them. Returns their batches.
  std::vector<LoaderBatch> start() {
    const bool several = starts_several();
    LoaderBatches batches = [&] {
      const auto timer = meter_.time(Meter::Phase::data);
      if (several) return train_.next(kAhead);
      LoaderBatches one;
      one.each.push_back(train_.next());
      return one;
    }();
    for (const auto& logger : options_.loggers)
      for (const LoaderBatch& batch : batches.each) logger->batch(batch);
    World::instance().progress(state_.step + static_cast<int64_t>(batches.each.size()), "train step");
    // What is compiled when it is first used is not training.
    const bool first = started_.emplace(several, batches.each[0].global_size).second;
    if (first) meter_.pause();
    const auto timer = meter_.time(Meter::Phase::compute);
    if (several) {
      LOCKSTEP_CHECK(under_way_.empty(), "{} steps are under way", under_way_.size());
      together_ = stepping_.start_several(state_, train_, batches);
      for (const LoaderBatch& batch : batches.each) under_way_.push_back({{}, batch.global_size});
    } else {
      under_way_.push_back(stepping_.start(state_, train_, batches.each[0], process_count() > 1 && asked_to_stop()));
    }
    state_.cursor = train_.cursor();
    if (first) meter_.resume();
    return std::move(batches.each);
  }

  // Returns whether the epoch is over.
  bool step() {
    const std::vector<LoaderBatch> batches = start();
    const LoaderBatch& batch = batches.back();
    bool asked = false;
    {
      const auto timer = meter_.time(Meter::Phase::compute);
      const bool looked_at = batch.last_of_epoch || state_.step == fit_.steps ||
                             (eval_every_ > 0 && state_.step % eval_every_ == 0) ||
                             (options_.checkpoint_every > 0 && state_.step % options_.checkpoint_every == 0);
      const bool full = under_way_.size() >= ahead();
      asked = ahead() > 1 && asked_to_stop();
      if (!full && !looked_at && !asked) {
        meter_.step(batch.global_size);
        return batch.last_of_epoch;
      }
      look(looked_at || asked);
    }
    meter_.step(batch.global_size, static_cast<int64_t>(batches.size()));  // several are of one size
    report_heard();
    stop_if(asked);
    if (ended() && !asked_.empty()) {  // nobody asks any more
      hear(asked_, received());
      report_heard();
    }
    return batch.last_of_epoch;
  }

  // At what the steps under way say. One GPU is asked for it, and while it goes on, those before them are heard; `all`:
  // none stays under way.
  void look(bool all) {
    if (ahead() == 1) return hear(under_way_, under_way_[0].outputs.facts.to_vector<double>());
    const Array facts = together_ ? *std::exchange(together_, {}) : stacked();
    const bool later = !all && detail::one_gpu_in_use() && facts.dtype() == f32;
    if (later) coming_[next_].send(facts);
    if (!asked_.empty()) hear(asked_, received());
    if (!later) return hear(under_way_, facts.to_vector<double>());
    asked_.swap(under_way_);
    next_ = 1 - next_;
  }
  Array stacked() const {
    std::vector<Array> rows;
    for (const StartedStep& step : under_way_) rows.push_back(step.outputs.facts);
    rows.resize(kAhead, rows.back());  // always as many: every other number would be a kernel more to compile
    return stacked_(rows);
  }
  std::vector<double> received() {
    const std::vector<float> facts = coming_[1 - next_].receive();
    return {facts.begin(), facts.end()};
  }

  // `facts`: of each step, side by side.
  void hear(std::vector<StartedStep>& steps, const std::vector<double>& facts) {
    const size_t each = facts.size() / (ahead() == 1 ? 1 : kAhead);
    for (size_t i = 0; i < steps.size(); ++i)
      heard_.push_back(stepping_.metrics(steps[i], std::span(facts).subspan(i * each, each)));
    steps.clear();
  }
  void report_heard() {
    for (const StepMetrics& metrics : std::exchange(heard_, {})) report(++reported_, metrics);
  }

  void report(int64_t step, const StepMetrics& metrics) {
    const Meter::Report report = meter_.report();
    last_step_ = {{"loss", metrics.loss},
                  {"accuracy", metrics.accuracy},
                  {"learning_rate", metrics.learning_rate},
                  {"grad_norm", metrics.grad_norm},
                  {"epoch", static_cast<double>(step) / static_cast<double>(train_.batches_per_epoch())},
                  {"examples_per_second", report.examples_per_second},
                  {"step_seconds", report.recent_step_seconds},
                  {"data_share", report.data},
                  {"compute_share", report.compute},
                  {"communication_share", report.communication}};
    if (options_.precision.loss_scaling) last_step_.emplace_back("loss_scale", metrics.loss_scale);
    for (const auto& logger : options_.loggers) logger->step(step, last_step_);
    raise(alarms_.check(StepFacts{step, metrics.loss, metrics.grad_norms, metrics.skipped}));
    if (options_.hooks.on_step && !options_.hooks.on_step(state_, metrics)) result_.ended_early = true;
    stop_if(process_count() == 1 ? asked_to_stop() : metrics.stop);
  }

  void evaluate() {
    World::instance().progress(state_.step, "evaluation");
    meter_.pause();
    const EvalResult result = engine_.evaluate(state_, *fit_.test, fit_.eval_batch);
    last_eval_ = {{"test_loss", result.loss}, {"test_accuracy", result.accuracy}};
    for (const auto& logger : options_.loggers) logger->evaluation(state_.step, last_eval_);
    raise(alarms_.check(EvalFacts{state_.step, result.accuracy, result.predictions}, result.labels));
    if (options_.hooks.on_eval && !options_.hooks.on_eval(state_, result)) result_.ended_early = true;
    meter_.resume();
  }

  // `evaluated`: the last evaluation is of this very state, so that its figures belong to the checkpoint.
  void save(bool evaluated) {
    if (!checkpointer_) return;
    meter_.pause();
    Checkpoint checkpoint = detail::to_checkpoint(state_, engine_.model());
    checkpoint.config = options_.config;
    for (const auto& [name, value] : last_step_)
      if (name == "loss" || name == "accuracy") checkpoint.metrics[name] = value;
    if (evaluated)
      for (const auto& [name, value] : last_eval_) checkpoint.metrics[name] = value;
    checkpointer_->save(std::move(checkpoint));
    report_failures();
    meter_.resume();
  }

  void report_failures() {
    for (const std::string& failure : checkpointer_->failures()) {
      const bool goes_on = state_.step < fit_.steps && !ended();
      say(failure +
              (goes_on ? "; training goes on, and what was saved before is whole" : "; what was saved before is whole"),
          true);
      result_.failures.push_back(failure);
    }
  }

  FitResult end() {
    if (checkpointer_) {
      checkpointer_->wait();
      report_failures();
      const std::vector<int64_t> saved = checkpointer_->saved();
      const bool is_saved = state_.step == first_step_ || (!saved.empty() && saved.back() == state_.step);
      result_.unsaved = !is_saved && !result_.ended_by_alarm;
    }
    const Meter::Report report = meter_.report();
    result_.metrics = last_step_;
    for (auto& [name, value] : result_.metrics)
      if (name == "examples_per_second") value = report.mean_examples_per_second;
    result_.metrics.insert(result_.metrics.end(), last_eval_.begin(), last_eval_.end());
    for (const auto& logger : options_.loggers) logger->end(state_.step, result_.metrics);
    if (options_.hooks.on_end) options_.hooks.on_end(state_);
    return std::move(result_);
  }

  Engine& engine_;
  Stepping stepping_;
  TrainState& state_;
  Loader& train_;
  const FitOptions& fit_;
  const EngineOptions& options_;
  const int64_t eval_every_;
  Alarms alarms_;
  Meter meter_;
  std::unique_ptr<Checkpointer> checkpointer_;
  int64_t first_step_ = 0;
  int64_t reported_ = 0;  // the last step that was
  static constexpr size_t kAhead = 16;
  std::vector<StartedStep> under_way_, asked_;  // those that one GPU was asked for
  std::optional<Array> together_;               // the facts of those under way, where they were started at once
  std::optional<bool> several_;                 // can they be?
  std::set<std::pair<bool, int64_t>> started_;  // several at once, and of how many examples
  detail::FloatsSoon coming_[2];                // what it says, in turns
  size_t next_ = 0;                             // of them
  std::vector<StepMetrics> heard_;              // of steps that are not reported yet
  // Compiled: it is asked for as often as steps are looked at.
  Jit<std::function<Array(const std::vector<Array>&)>> stacked_ =
      jit(std::function<Array(const std::vector<Array>&)>([](const std::vector<Array>& rows) { return stack(rows); }));
  Scalars last_step_, last_eval_;
  FitResult result_;
};

}  // namespace

FitResult Engine::fit(TrainState& state, Loader& train, const FitOptions& options) {
  if (options.steps < state.step)
    throw_error("fit: the state has made {} steps already and the run ends at {}; give more steps", state.step,
                options.steps);
  const Stepping stepping{
      [this](TrainState& s, const Loader& l, const LoaderBatch& b, bool ask) { return impl_->start(s, l, b, ask); },
      [this](const StartedStep& step, std::span<const double> facts) { return impl_->metrics(step, facts); },
      [this](const TrainState& s, const Loader& l, int64_t size) { return impl_->starts_several(s, l, size); },
      [this](TrainState& s, const Loader& l, const LoaderBatches& b) { return impl_->start(s, l, b); },
      [this](const TrainState& s, const Loader& l, const FitOptions& f) { impl_->prepare(s, l, f); }};
  return FitRun(*this, stepping, state, train, options)();
}

}  // namespace lockstep
