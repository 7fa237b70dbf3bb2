// The trainer: combines a task, an optimizer, a precision, a mesh, checkpoints and loggers.
//
//   Engine engine(image_task(find_model("mlp")), {.optimizer = {.schedule = {.peak = 1e-3}}, .checkpoint_dir = "run"});
//   TrainState state = engine.restore_or_create("auto");
//   FitResult result = engine.fit(state, train, {.steps = 1000, .eval_every = 200, .test = test});
//
// The global batch is sharded over the mesh's data axis. Losses and gradients are means over the global batch, so
// results do not depend on the number of devices. EngineOptions::plan says how parameters and optimizer state are
// sharded. An Engine must be used by one thread.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/alarms.h"
#include "lockstep/checkpoint.h"
#include "lockstep/data.h"
#include "lockstep/float8_products.h"
#include "lockstep/loader.h"
#include "lockstep/loggers.h"
#include "lockstep/meter.h"
#include "lockstep/optimizers.h"
#include "lockstep/precision.h"
#include "lockstep/sharding.h"
#include "lockstep/sharding_plan.h"
#include "lockstep/task.h"
#include "lockstep/tasks.h"

namespace lockstep {

// Everything needed to resume a run; checkpoints store it.
struct TrainState {
  int64_t step = 0;    // optimizer steps, including those skipped because of an overflow
  Cursor cursor = {};  // the next example
  uint64_t seed = 0;
  std::vector<Array> params = {};  // f32, in the order of Task::paths
  OptimizerState optimizer = {};
  LossScale loss_scale = {};
  Float8History float8 = {};
  std::vector<Array> average = {};  // of the trained parameters; empty without EngineOptions::ema_decay
  // The evaluation with the lowest validation loss, and the number of evaluations after it.
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;
  int64_t evaluations_since_best = 0;
};

struct StepMetrics {
  double loss = 0;  // mean over the global batch, before the update
  Scalars metrics;  // of the task, over the same examples: "accuracy"
  double learning_rate = 0;
  double grad_norm = 0;
  std::vector<double> grad_norms;  // one per trained parameter
  bool skipped = false;            // gradients overflowed under loss scaling: no update was made
  double loss_scale = 1;           // after the step
  int64_t examples = 0;
  bool stop = false;  // a process requested to stop
};

struct EvalResult {
  double loss = 0;
  Scalars metrics;  // means over all examples: "loss", "accuracy", ...
  int64_t examples = 0;
  std::map<std::string, std::vector<int64_t>> counts;  // sums of TaskResult::counts

  // Throws Error for an unknown metric, listing the known ones.
  double metric(std::string_view name) const;
};

// What a classifier predicts for a batch of an evaluation.
struct BatchPredictions {
  int64_t first = 0;                 // number of the first example in the set
  std::vector<int32_t> labels;       // [n]
  std::vector<float> probabilities;  // [n, classes]
};

// Callbacks of fit(); each may be empty. When on_step or on_eval returns false, fit() saves a checkpoint and returns.
struct Hooks {
  std::function<bool(const TrainState&, const StepMetrics&)> on_step = {};
  std::function<bool(const TrainState&, const EvalResult&)> on_eval = {};
  std::function<void(const TrainState&)> on_end = {};
};

struct EngineOptions {
  Mesh mesh = {};          // empty: all devices along the plan's data axis
  ShardingPlan plan = {};  // how parameters, gradients and optimizer state are sharded
  int64_t accumulate = 1;  // micro-batches per step; their gradients are accumulated
  Optimizer optimizer = {};
  Precision precision = {};
  // nn::Mode::remat of training steps: less memory, more computation, the same results.
  bool remat = false;
  // Evaluations use an exponential moving average of the parameters with this decay, see averages.h; 0: none.
  double ema_decay = 0;
  uint64_t seed = 0;
  std::string checkpoint_dir = {};  // empty: no checkpoints are written
  int64_t checkpoint_every = 0;     // steps; 0: at every evaluation and at the end
  int64_t keep_last = 3;
  bool keep_best = true;        // also keep the checkpoint with the lowest validation loss
  FileSystem* files = nullptr;  // null: the real file system
  Loggers loggers = {};
  Hooks hooks = {};
  bool strict = false;                             // the first alarm ends the run
  std::map<std::string, std::string> config = {};  // stored in checkpoints and passed to loggers
};

// Memory that a run uses on one lane, in bytes.
struct LaneMemory {
  int64_t parameters = 0;
  int64_t optimizer = 0;  // optimizer state
  int64_t gradients = 0;  // the accumulated sum if accumulate > 1; otherwise gradients are part of the workspace
  int64_t work = 0;       // the workspace of a step: activations, gradients, gathered parameters, constants

  int64_t total() const { return parameters + optimizer + gradients + work; }
  bool operator==(const LaneMemory&) const = default;
};

struct FitOptions {
  int64_t steps = 0;       // the run ends when TrainState::step reaches this
  int64_t eval_every = 0;  // steps; 0: once an epoch
  // Evaluated during the run. Its loss selects the best checkpoint, and ends the run early; null: none.
  SourcePtr validation = nullptr;
  // With a validation set: evaluated once, at the end. Without one: evaluated during the run; selects nothing.
  SourcePtr test = nullptr;
  int64_t patience = 0;  // end the run after this many evaluations without a lower validation loss; 0: never
  int64_t eval_batch = 1000;
  // Polled after every step. A GPU may run up to 16 steps between two polls. True ends the run after a checkpoint.
  std::function<bool()> stop = {};
};

struct FitResult {
  Scalars metrics;  // "loss", "accuracy", "validation_loss", "test_loss", "test_accuracy", "examples_per_second", ...
  std::vector<std::string> alarms;
  std::vector<std::string> failures;  // checkpoints that could not be saved or removed
  bool ended_early = false;           // by an alarm in a strict run, a hook, `stop` or `patience`
  bool out_of_patience = false;       // by `patience`: the validation loss no longer fell
  bool ended_by_alarm = false;        // a strict run ended by an alarm; the last state is not saved
  bool stopped = false;               // by `stop`, before the last step
  bool unsaved = false;               // saving the last state failed
};

class Engine {
 public:
  // Throws Error when options are invalid or contradict each other.
  Engine(Task task, EngineOptions options);
  // Trains a classifier of images with image_task(model).
  Engine(Model model, EngineOptions options);
  ~Engine();
  Engine(Engine&&) noexcept;

  const Task& task() const;
  const EngineOptions& options() const;

  // Initial parameters, drawn from the seed, and a new optimizer state.
  TrainState create_state() const;
  // The same with the parameters of a checkpoint, or with their average if it has one. Throws Error, naming the
  // parameter, when the checkpoint is of another task.
  TrainState create_state(const Checkpoint& weights) const;
  // One optimizer step on a batch of the loader. If any process passes ask_to_stop, StepMetrics::stop is true in all of
  // them, so that all processes stop after the same step.
  StepMetrics step(TrainState& state, const Loader& loader, const LoaderBatch& batch, bool ask_to_stop = false);
  // Evaluates every example exactly once, even when batch_size does not divide their number.
  // `each`, if given, is called with the predictions of every batch, if the task has `outputs`.
  EvalResult evaluate(const TrainState& state, const SourcePtr& source, int64_t batch_size = 1000,
                      const std::function<void(const BatchPredictions&)>& each = {});
  // Trains until state.step == options.steps, with evaluations, checkpoints, alarms and loggers.
  FitResult fit(TrainState& state, Loader& train, const FitOptions& options);

  // Writes a checkpoint, returns its path once it is complete. Throws IoError.
  std::string save(const TrainState& state) const;
  // The state in a checkpoint, which may have been written under another mesh and plan. Throws Error when its task or
  // optimizer differs from this engine's, naming the difference.
  TrainState restore(const Checkpoint& checkpoint) const;
  // The state of the checkpoint that --resume selects (see find_checkpoint), or create_state() if there is none.
  TrainState restore_or_create(const std::string& resume);

  // Options for load_checkpoint() with the shardings that restore() needs, so that each lane reads only its own part.
  LoadOptions load_options() const;

  // Memory on each lane of this process when training with this batch size. Compiles the step if necessary.
  // REQUIRES: all processes call it.
  std::vector<LaneMemory> memory(const TrainState& state, const Loader& loader, int64_t batch_size) const;

  // How the lanes of this process execute a step on a full batch of the loader, as text; see Jit::schedule. If fit() can
  // run several steps in one call, that call too. Compiles them if necessary. REQUIRES: all processes call it.
  std::string schedule(const TrainState& state, const Loader& loader) const;

  // A table of the mesh, the plan, each parameter's shape, type and sharding, and the memory on each lane. The second
  // form includes the workspace of a step, as memory() does.
  std::string describe() const;
  std::string describe(const TrainState& state, const Loader& loader, int64_t batch_size) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
