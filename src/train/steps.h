// The compiled functions of a run: one optimizer step, a piece of an accumulated one, and an evaluation batch. Used by
// one thread.
#pragma once

#include "lockstep/engine.h"
#include "lockstep/jit.h"

namespace lockstep::detail {

// What a step reads and writes.
struct Trained {
  std::vector<Array> params;
  OptimizerState optimizer;
  LossScale loss_scale;
};

// What a step says of itself.
struct StepOutputs {
  // f32, or f64 where the loss is, so that one copy brings all of it: the mean loss over the batch, how many were
  // right, the rate, 0 where losses are scaled and a gradient is not finite, the loss scale after it, and the squares
  // of the gradients' norms, one a parameter; and zeros up to a multiple of kTogether, so that those of several steps,
  // one after the other, all begin where a GPU likes to write.
  Array facts;
  static constexpr size_t kSquares = 5;  // where they begin
  static constexpr size_t kTogether = 16;
  std::vector<Array> stop;  // i32: how many devices voted to stop; none where one process decides alone
};

// A sum over the pieces of a batch computed so far.
struct Accumulated {
  std::vector<Array> grads;  // still scaled
  Array loss, correct;
};

struct EvalSums {
  Array loss, correct;  // f32 and i32
  Array predictions;    // i32 [classes]: how often each was the answer
  Array hits;           // i32 [classes]: how often it was the right one
};

// The part of a data set that a batch is made of: rows of the whole set, or, with no rows, all of it.
struct BatchArrays {
  Array images, labels;     // u8
  std::vector<Array> rows;  // i32 [n], or none
};

// One per device of the mesh, i32, cut over all of its axes: whether its process asks to stop. None where a process is
// alone.
using Votes = std::vector<Array>;

// How everything lies on the mesh: arguments that lie so stay as they are, and results come out so.
struct Layout {
  NamedSharding whole, cut, each;  // the data set; the rows of a batch; one element per device
  std::vector<NamedSharding> params, grads, state;

  Layout(const Mesh& mesh, const std::string& data_axis, const std::vector<ParameterSpecs>& specs);

  // On concrete arrays and on traced ones. A batch is `global_size` examples, or this process's part of so many.
  Trained placed(const Trained& state) const;
  Accumulated placed(const Accumulated& sum) const;
  BatchArrays placed(const BatchArrays& batch, int64_t global_size) const;
  ImageArrays placed(const ImageArrays& set) const;
  Votes votes(bool stop) const;
};

class Steps {
 public:
  Steps(const Model& model, const EngineOptions& options, const Layout& layout);

  // Arguments are placed already. `state` is donated. `global_size` is what the mean divides by.
  std::pair<Trained, StepOutputs> step(const Trained& state, const BatchArrays& batch, int64_t global_size,
                                       const Votes& votes) const {
    return step_(state, batch, global_size, votes);
  }
  // Several steps of one process, one after the other, by the same call: of rows [steps, n]. `state` is donated. With
  // it, the facts of all of them, [steps, ...].
  std::pair<Trained, Array> several(const Trained& state, const BatchArrays& batches, int64_t global_size) const {
    return several_(state, batches, global_size);
  }
  // Adds a piece of a batch; `sum` is donated.
  Accumulated accumulate(const Accumulated& sum, const Trained& state, const BatchArrays& batch, int64_t global_size,
                         int piece) const {
    return accumulate_(sum, state, batch, global_size, Array(piece));
  }
  Accumulated empty_sum() const;
  // The step that ends an accumulated batch; both are donated.
  std::pair<Trained, StepOutputs> finish(const Trained& state, const Accumulated& sum, const Votes& votes) const {
    return finish_(state, sum, votes);
  }
  // Sums over rows, i32 [n], of a set.
  EvalSums evaluate(const std::vector<Array>& params, const ImageArrays& set, const Array& rows) const {
    return evaluate_(params, set, rows);
  }

  // Work space on each lane of a step, of a piece of one that is accumulated, and of its end; see Jit::work_bytes.
  std::vector<int64_t> step_work(const Trained& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.work_bytes(state, batch, global_size, layout_.votes(false));
  }
  std::vector<int64_t> accumulate_work(const Accumulated& sum, const Trained& state, const BatchArrays& batch,
                                       int64_t global_size) const {
    return accumulate_.work_bytes(sum, state, batch, global_size, Array(0));
  }
  std::vector<int64_t> finish_work(const Trained& state, const Accumulated& sum) const {
    return finish_.work_bytes(state, sum, layout_.votes(false));
  }

  // Compiled while something else is done; see Jit::prepare.
  void prepare_step(const Trained& state, const BatchArrays& batch, int64_t global_size) const {
    step_.prepare(state, batch, global_size, layout_.votes(false));
  }
  void prepare_evaluate(const std::vector<Array>& params, const ImageArrays& set, const Array& rows) const {
    evaluate_.prepare(params, set, rows);
  }

  // What the step was compiled to for these arguments; see Jit::instructions and Jit::plan.
  size_t step_instructions(const Trained& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.instructions(state, batch, global_size, layout_.votes(false));
  }
  std::string plan(const Trained& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.plan(state, batch, global_size, layout_.votes(false));
  }

 private:
  // What the functions need, by value: they outlive the constructor's arguments.
  struct Recipe {
    Model model;
    Optimizer optimizer;
    Precision precision;
    double label_smoothing, pixel_mean, pixel_sd;
    uint64_t seed;

    Array pixels(const Array& images) const;
    Array logits(const std::vector<Array>& params, const Array& images, const nn::Mode& mode) const;
    Accumulated gradients(const Trained& state, const BatchArrays& batch, int64_t global_size,
                          const Array& piece) const;
    std::pair<Trained, StepOutputs> updated(const Trained& state, const Accumulated& sum, const Votes& votes) const;
  };
  using StepFunction = std::function<std::pair<Trained, StepOutputs>(Trained, BatchArrays, int64_t, Votes)>;
  using SeveralFunction = std::function<std::pair<Trained, Array>(Trained, BatchArrays, int64_t)>;
  using AccumulateFunction = std::function<Accumulated(Accumulated, Trained, BatchArrays, int64_t, Array)>;
  using FinishFunction = std::function<std::pair<Trained, StepOutputs>(Trained, Accumulated, Votes)>;
  using EvaluateFunction = std::function<EvalSums(std::vector<Array>, ImageArrays, Array)>;

  std::vector<Type> types_;
  Layout layout_;
  Jit<StepFunction> step_;
  Jit<SeveralFunction> several_;
  Jit<AccumulateFunction> accumulate_;
  Jit<FinishFunction> finish_;
  Jit<EvaluateFunction> evaluate_;
};

}  // namespace lockstep::detail
