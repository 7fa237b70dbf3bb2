#include "lockstep/task.h"

#include "base/check.h"

namespace lockstep::detail {

Array batch_field(const BatchArrays& batch, const std::string& path, const std::string& task) {
  const auto at = batch.find(path);
  if (at != batch.end()) return at->second;
  std::string known;
  for (const auto& [name, array] : batch) known += (known.empty() ? "" : ", ") + name;
  throw_error("task {}: it reads the field {}, but the data has {}; name the fields of the data so", task, path, known);
}

}  // namespace lockstep::detail
