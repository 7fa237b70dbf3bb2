#include "train/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/names.h"

namespace lockstep::detail {

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string describe(const Model& model, const EngineOptions& options) {
  size_t widest = 9;
  for (const std::string& path : model.paths) widest = std::max(widest, path.size());
  int64_t parameters = 0, bytes = 0;
  std::string table = fmt::format("  {:<{}}  {:<18}  {:>12}  {:>10}  {}\n", "parameter", widest, "type", "elements",
                                  "memory", "sharding");
  for (size_t i = 0; i < model.paths.size(); ++i) {
    const Type& type = model.types[i];
    parameters += count(type.shape);
    bytes += type.bytes();
    table += fmt::format("  {:<{}}  {:<18}  {:>12}  {:>10}  {}\n", model.paths[i], widest, to_string(type),
                         with_commas(count(type.shape)), bytes_text(type.bytes()), to_string(P()));
  }
  const auto kind = options.optimizer.kind;
  const int64_t copies = kind == Optimizer::Kind::sgd                                      ? 0
                         : kind == Optimizer::Kind::adam || kind == Optimizer::Kind::adamw ? 2
                                                                                           : 1;
  std::string out;
  out += fmt::format("model      {}, {} parameters\n", model.name, with_commas(parameters));
  out += fmt::format("mesh       {}\n", to_string(options.mesh));
  out += fmt::format("plan       data parallel over '{}' ({}){}\n", options.data_axis,
                     counted(options.mesh.size(options.data_axis), "device"),
                     options.accumulate > 1 ? fmt::format(", batches in {} pieces", options.accumulate) : "");
  out += fmt::format("optimizer  {}, {} schedule, peak learning rate {}\n", to_string(kind),
                     to_string(options.optimizer.schedule.kind), options.optimizer.schedule.peak);
  out += fmt::format("precision  {} (parameters, reductions and losses in float32)\n", to_string(options.precision));
  out += fmt::format("memory     parameters {}, optimizer state {}, gradients {}\n", bytes_text(bytes),
                     bytes_text(copies * bytes), bytes_text(bytes));
  return out + table;
}

}  // namespace lockstep::detail
