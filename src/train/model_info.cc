#include "train/model_info.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/json.h"
#include "lockstep/image_data.h"
#include "lockstep/text_data.h"
#include "train/gpt_settings.h"
#include "train/problem.h"
#include "train/run_file.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxModelInfoBytes = int64_t{64} << 20, kMostClasses = int64_t{1} << 24;
constexpr int64_t kLargestExtent = int64_t{1} << 16;

std::vector<std::string> names_at(const ordered_json& object, const char* key) {
  std::vector<std::string> out;
  for (const ordered_json& each : object.at(key)) out.push_back(each.get<std::string>());
  return out;
}

float number_of(const ordered_json& value, const char* key) {
  const auto out = static_cast<float>(value.get<double>());
  if (!std::isfinite(out)) throw_error("{} is not a finite number", key);
  return out;
}

std::vector<float> numbers_at(const ordered_json& object, const char* key) {
  std::vector<float> out;
  for (const ordered_json& each : object.at(key)) out.push_back(number_of(each, key));
  return out;
}

void check_deviation(float deviation) {
  if (!(deviation > 0)) throw_error("a deviation is {}; it must be positive", deviation);
}

ModelInfo info_of(const ordered_json& object) {
  ModelInfo out;
  const std::string kind = object.at("kind").get<std::string>();
  if (kind == "images") {
    out.rows = integer_in(object.at("rows"), "rows", 1, kLargestExtent);
    out.cols = integer_in(object.at("cols"), "cols", 1, kLargestExtent);
    out.channels = integer_in(object.at("channels"), "channels", 1, kLargestExtent);
  } else if (kind == "table") {
    out.kind = ModelInfo::Kind::table;
    out.features = names_at(object, "features");
    out.means = numbers_at(object, "means");
    out.deviations = numbers_at(object, "deviations");
    if (out.features.empty() || out.means.size() != out.features.size() || out.deviations.size() != out.features.size())
      throw_error("{} features, {} means and {} deviations; there must be one of each per feature", out.features.size(),
                  out.means.size(), out.deviations.size());
    out.target = object.at("target").get<std::string>();
    out.target_mean = number_of(object.at("target_mean"), "target_mean");
    out.target_deviation = number_of(object.at("target_deviation"), "target_deviation");
    std::ranges::for_each(out.deviations, check_deviation);
    check_deviation(out.target_deviation);
  } else {
    throw_error("unknown kind \"{}\" of a model; this version knows images and table", kind);
  }
  out.classes = integer_in(object.at("classes"), "classes", kind == "table" ? 0 : 1, kMostClasses);
  out.class_names = names_at(object, "class_names");
  if (!out.class_names.empty() && std::ssize(out.class_names) != out.classes)
    throw_error("{} classes and {} names", out.classes, out.class_names.size());
  return out;
}

ModelInfo described_by_data(const TrainConfig& config) {
  if (is_text_dataset(config.dataset)) return {.kind = ModelInfo::Kind::text};
  if (!is_image_data(config.dataset))
    return table_info(
        open_table_data({.dataset = config.dataset, .target = config.target, .validation = config.validation}));
  return builtin_image_info(config);
}

}  // namespace

ModelInfo image_info(const ImageShape& shape, const std::vector<std::string>& class_names) {
  return {.rows = shape.rows,
          .cols = shape.cols,
          .channels = shape.channels,
          .classes = shape.classes,
          .class_names = class_names};
}

ModelInfo table_info(const TableData& data) {
  return {.kind = ModelInfo::Kind::table,
          .features = data.feature_names,
          .means = data.means,
          .deviations = data.deviations,
          .target = data.target_name,
          .target_mean = data.target_mean,
          .target_deviation = data.target_deviation,
          .classes = data.classes,
          .class_names = data.class_names};
}

std::string class_name(const ModelInfo& info, int64_t number) {
  const auto at = static_cast<size_t>(number);
  return at < info.class_names.size() ? info.class_names[at] : std::to_string(number);
}

std::string to_json(const ModelInfo& info) {
  LOCKSTEP_CHECK(info.kind != ModelInfo::Kind::text, "a language model has its tokenizer.json");
  ordered_json out;
  if (info.kind == ModelInfo::Kind::images) {
    out = {{"kind", "images"}, {"rows", info.rows}, {"cols", info.cols}, {"channels", info.channels}};
  } else {
    out = {{"kind", "table"},
           {"features", info.features},
           {"means", info.means},
           {"deviations", info.deviations},
           {"target", info.target},
           {"target_mean", info.target_mean},
           {"target_deviation", info.target_deviation}};
  }
  out["classes"] = info.classes;
  out["class_names"] = info.class_names;
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ModelInfo parse_model_info(std::string_view text, const std::string& where) {
  const auto json =
      parse_json<ordered_json>(text, where, {.bytes = static_cast<size_t>(kMaxModelInfoBytes), .depth = 4});
  try {
    return info_of(json);
  } catch (const ordered_json::exception& error) {
    throw_error("read {}: it does not describe a model: {}; use the file that the run wrote", where,
                json_error_text(error));
  } catch (const Error& error) {
    throw_error("read {}: it does not describe a model: {}; use the file that the run wrote", where, error.what());
  }
}

ModelInfo load_model_info(const std::string& dir, const TrainConfig& config) {
  if (config.model == "gpt") return {.kind = ModelInfo::Kind::text};
  const std::string path = run_file(dir, kModelFile);
  if (path.empty()) return described_by_data(config);
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path, kMaxModelInfoBytes);
  return parse_model_info({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

void check_model_info(const ModelInfo& info, const Checkpoint& checkpoint, const std::string& where) {
  int64_t outputs = 0;
  for (const auto& [name, array] : checkpoint.arrays)
    if (name.starts_with("params/") && !array.shape().empty()) outputs = array.shape().back();
  if (outputs == 0) throw_error("{} holds no parameters; choose a checkpoint of `lockstep train`", where);
  if (info.classes > 0 && outputs != info.classes)
    throw_error("{} describes {} classes, but the model has {}; use the {} of its run", where, info.classes, outputs,
                kModelFile);
}

}  // namespace lockstep
