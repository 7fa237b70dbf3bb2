#include "export/export_model.h"
#include "export/model_trace.h"
#include "train/safetensors.h"

namespace lockstep {

std::string safetensors_file(const ExportedModel& model) {
  std::vector<Type> types;
  for (const Array& each : model.params) types.push_back(each.type());
  const std::vector<size_t> order = detail::safetensors_order(types);
  std::vector<detail::SafetensorsEntry> entries;
  int64_t offset = 0;
  for (const size_t i : order) {
    entries.push_back({model.task.paths[i], types[i], offset});
    offset = entries.back().end();
  }
  std::map<std::string, std::string> metadata = {{"model", model.name}, {"step", std::to_string(model.step)}};
  if (model.info.kind != ModelInfo::Kind::text) metadata["info"] = to_json(model.info);
  std::string out = detail::encode_safetensors(entries, metadata);
  for (const size_t i : order) out += array_bytes(model.params[i]);
  return out;
}

}  // namespace lockstep
