// What a run trains: a task with its data, made from the settings of the run. Not thread-safe.
#pragma once

#include <functional>
#include <string>

#include "lockstep/engine.h"
#include "train/config.h"
#include "train/model_info.h"

namespace lockstep {

// Makes the task and opens the data of a run. Called in every process. Throws Error when the settings or the files do
// not fit, IoError when no source has the data.
using ProblemFactory = std::function<Problem(const TrainConfig& config)>;

// The models and data sets of `lockstep train`. Downloads data if necessary.
Problem builtin_problem(const TrainConfig& config);

// Same, for compiling the steps of a run: a named data set of images that stays in memory is neither read nor fetched;
// its images are zeros.
Problem builtin_problem_shapes(const TrainConfig& config);

// The images that the model of a run takes, by the shapes of its data set.
ModelInfo builtin_image_info(const TrainConfig& config);

// The model of a run, with its own description, and a data set to evaluate it on. `dataset` and `data_dir` replace those
// of the run if they are not empty; of two IDX files every example is used.
struct EvalRequest {
  std::string dataset = {}, data_dir = {};
  std::string tokenizer = {};  // the file of the run's tokenizer; empty: none
  ModelInfo info = {};
};
Problem builtin_eval_problem(const TrainConfig& config, const EvalRequest& request);

// make(config), first in process 0. It may have to download data; the other processes wait and, on the same host, find it
// in the cache. REQUIRES: all processes call it.
Problem open_problem(const ProblemFactory& make, const TrainConfig& config);

}  // namespace lockstep
