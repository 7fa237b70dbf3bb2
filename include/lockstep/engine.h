// The trainer: a model, an optimizer, a precision, a mesh, checkpoints and loggers, put together once.
//
//   Engine engine(find_model("mlp"), {.optimizer = {.schedule = {.peak = 1e-3}}, .checkpoint_dir = "run"});
//   TrainState state = engine.restore_or_create("auto");
//   FitResult result = engine.fit(state, train, {.steps = 1000, .eval_every = 200, .test = &test});
//
// The global batch is cut over the mesh's data axis and the mean is that of the whole batch, so that the numbers do not
// depend on how many devices there are; how parameters and optimizer state lie is the plan's to say. An Engine is used
// by one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/alarms.h"
#include "lockstep/checkpoint.h"
#include "lockstep/data.h"
#include "lockstep/loader.h"
#include "lockstep/loggers.h"
#include "lockstep/meter.h"
#include "lockstep/models.h"
#include "lockstep/optimizers.h"
#include "lockstep/plan.h"
#include "lockstep/precision.h"
#include "lockstep/sharding.h"

namespace lockstep {

// All that a run needs to go on: what checkpoints hold.
struct TrainState {
  int64_t step = 0;    // optimizer steps tried so far, those skipped because of an overflow included
  Cursor cursor = {};  // the next example
  uint64_t seed = 0;
  std::vector<Array> params = {};  // f32, in the order of Model::paths
  OptimizerState optimizer = {};
  LossScale loss_scale = {};
};

struct StepMetrics {
  double loss = 0;      // the mean over the global batch
  double accuracy = 0;  // of the same examples, before the update
  double learning_rate = 0;
  double grad_norm = 0;
  std::vector<double> grad_norms;  // one per parameter
  bool skipped = false;            // an overflow under loss scaling: no update was made
  double loss_scale = 1;           // after the step
  int64_t examples = 0;
  bool stop = false;  // some process asked to
};

// A data set in memory as arrays.
struct ImageArrays {
  Array images, labels;  // u8 [n, rows, cols] and u8 [n]
  int64_t classes = 0;
};
// Takes the set's memory.
ImageArrays to_arrays(ImageDataset set);

struct EvalResult {
  double loss = 0;
  double accuracy = 0;
  int64_t examples = 0;
  int64_t correct = 0;
  std::vector<int64_t> predictions;  // how many examples were called each class
  std::vector<int64_t> labels;       // how many are
  std::vector<int64_t> hits;         // how many of those were called so
};

// Called by fit(); each may be empty. Returning false from on_step or on_eval ends the run after a checkpoint.
struct Hooks {
  std::function<bool(const TrainState&, const StepMetrics&)> on_step = {};
  std::function<bool(const TrainState&, const EvalResult&)> on_eval = {};
  std::function<void(const TrainState&)> on_end = {};
};

struct EngineOptions {
  Mesh mesh = {};          // empty: all devices along the plan's data axis
  ShardingPlan plan = {};  // what is cut, and by which axes
  int64_t accumulate = 1;  // the batch is computed in so many pieces, one after the other
  Optimizer optimizer = {};
  Precision precision = {};
  double label_smoothing = 0;
  // Pixels become (value / 255 - mean) / sd.
  double pixel_mean = 0, pixel_sd = 1;
  uint64_t seed = 0;
  std::string checkpoint_dir = {};  // empty: none are written
  int64_t checkpoint_every = 0;     // steps; 0: at every evaluation and at the end
  int64_t keep_last = 3;
  bool keep_best = true;        // by test accuracy
  FileSystem* files = nullptr;  // null: the disk
  Loggers loggers = {};
  Hooks hooks = {};
  bool strict = false;                             // an alarm ends the run
  std::map<std::string, std::string> config = {};  // kept in checkpoints and given to loggers
};

// What a run takes of one lane's memory, in bytes.
struct LaneMemory {
  int64_t parameters = 0;
  int64_t optimizer = 0;  // the arrays of its state
  int64_t gradients = 0;  // their sum, where a batch is computed in several pieces; else they are in the work space
  int64_t work = 0;       // of a step: activations, gradients, parameters put together, constants

  int64_t total() const { return parameters + optimizer + gradients + work; }
  bool operator==(const LaneMemory&) const = default;
};

struct FitOptions {
  int64_t steps = 0;                  // the run ends when the state has made so many
  int64_t eval_every = 0;             // steps; 0: once an epoch
  const ImageArrays* test = nullptr;  // null: no evaluation
  int64_t eval_batch = 1000;
  // Asked after every step, or after up to 16 that a GPU does by itself; true ends the run after a checkpoint.
  std::function<bool()> stop = {};
};

struct FitResult {
  Scalars metrics;  // "loss", "accuracy", "test_loss", "test_accuracy", "examples_per_second", ...
  std::vector<std::string> alarms;
  std::vector<std::string> failures;  // of checkpoints
  bool ended_early = false;           // by strictness, a hook or `stop`
  bool by_alarm = false;              // its last state, which the alarm is about, is not saved
  bool stopped = false;               // by `stop`, before the last step
  bool unsaved = false;               // the last state was to be saved and could not be
};

class Engine {
 public:
  // Throws Error when the options do not fit each other.
  Engine(Model model, EngineOptions options);
  ~Engine();
  Engine(Engine&&) noexcept;

  const Model& model() const;
  const EngineOptions& options() const;

  // Fresh parameters from the seed.
  TrainState create_state() const;
  // One optimizer step on a batch of the loader. Whether to stop after it is for all processes to know at once: any one
  // may ask, and all find it in the metrics of this step.
  StepMetrics step(TrainState& state, const Loader& loader, const LoaderBatch& batch, bool ask_to_stop = false);
  // Every example once, whatever the batch size.
  EvalResult evaluate(const TrainState& state, const ImageArrays& set, int64_t batch_size = 1000);
  FitResult fit(TrainState& state, Loader& train, const FitOptions& options);

  // Writes a checkpoint and returns when it is whole. Throws IoError.
  std::string save(const TrainState& state) const;
  // From a checkpoint, written under any mesh and plan. Throws Error when it is one of another model or optimizer,
  // naming what differs.
  TrainState restore(const Checkpoint& checkpoint) const;
  // What --resume names (see find_checkpoint), else fresh parameters.
  TrainState restore_or_create(const std::string& resume);

  // How restore() wants the arrays of a checkpoint to lie, so that each lane reads only its own part of them.
  LoadOptions loading() const;

  // Of each lane of this process, when it trains on batches of this size. Compiles the step for it, if that was not
  // done before; of several processes all call it.
  std::vector<LaneMemory> memory(const TrainState& state, const Loader& loader, int64_t batch_size) const;

  // The mesh, the plan, parameters per layer with shapes, types and shardings, and memory on each lane; the second form
  // with the work space of a step, as memory() says.
  std::string describe() const;
  std::string describe(const TrainState& state, const Loader& loader, int64_t batch_size) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
