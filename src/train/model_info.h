// What the model of a run takes and returns: the form of its images or tables, and the names of its classes. Stored as
// model.json beside the checkpoints, so that a model can be used without its data set. Pure functions except for the
// files, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint.h"
#include "lockstep/models.h"
#include "lockstep/table_data.h"
#include "lockstep/task.h"
#include "train/config.h"

namespace lockstep {

inline constexpr const char* kModelFile = "model.json";

struct ModelInfo {
  enum class Kind { images, table, text };
  Kind kind = Kind::images;
  // images
  int64_t rows = 0, cols = 0, channels = 1;
  // table: names, means and deviations of the features; and of a numeric target
  std::vector<std::string> features = {};
  std::vector<float> means = {}, deviations = {};
  std::string target = {};
  float target_mean = 0, target_deviation = 1;
  // images and tables
  int64_t classes = 0;                        // 0: the target is a number
  std::vector<std::string> class_names = {};  // empty: the classes have only numbers

  bool operator==(const ModelInfo&) const = default;
};

ModelInfo image_info(const ImageShape& shape, const std::vector<std::string>& class_names);
ModelInfo table_info(const TableData& data);

// "Ankle boot", or the number of a class without a name.
std::string class_name(const ModelInfo& info, int64_t number);

// As JSON and back. parse_model_info() throws Error, naming `where`, when the text is not a description of a model.
std::string to_json(const ModelInfo& info);
ModelInfo parse_model_info(std::string_view text, const std::string& where);

// The description of a run's model. `dir` is the folder of the run, or a checkpoint in it. A run without model.json is
// described by its data set, which is opened if its form is not known. Throws Error when the file is damaged.
ModelInfo load_model_info(const std::string& dir, const TrainConfig& config);

// The task of a run with this model. Throws Error when the settings do not fit. REQUIRES: not a language model.
Task task_of(const TrainConfig& config, const ModelInfo& info);

// Throws Error, naming `where`, if a description and the parameters of a checkpoint do not fit: the last layer has
// another number of classes.
void check_model_info(const ModelInfo& info, const Checkpoint& checkpoint, const std::string& where);

}  // namespace lockstep
