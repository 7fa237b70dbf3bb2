#include "train/shared_facts.h"

#include <fmt/format.h>

#include <sstream>

#include "array/node.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "cluster/session.h"

namespace lockstep {
namespace {

uint32_t checksum(const Array& array) {
  const BufferPtr& buffer = detail::buffer_of(array, "train");
  return crc32c({buffer->as<const uint8_t>(), static_cast<size_t>(array.type().bytes())});
}

struct SharedFact {
  std::string name, value;
  std::string origin = {};  // such as a file; may differ between processes
};

std::string kind_of_folder(const TrainConfig& config) {
  if (!has_run_folder(config)) return "for checkpoints or logs";
  return config.run_dir.empty() ? "in runs/" : "of --run-dir";
}

std::vector<SharedFact> shared_facts(const TrainConfig& config, const Problem& problem) {
  std::vector<SharedFact> out = {{"the seed", std::to_string(config.seed)},
                                 {"the setting steps", std::to_string(config.steps)},
                                 {"the setting epochs", std::to_string(config.epochs)},
                                 {"the setting no_save", config.no_save ? "true" : "false"},
                                 {"a folder", kind_of_folder(config)}};
  const std::pair<const char*, const SourcePtr&> sets[] = {
      {"training", problem.train}, {"validation", problem.validation}, {"test", problem.test}};
  for (const auto& [set, source] : sets)
    out.push_back({fmt::format("{} examples", set), std::to_string(source ? source->count() : 0)});
  for (const auto& [set, source] : sets) {
    if (!source) continue;
    for (const auto& [field, array] : source->resident())
      out.push_back({fmt::format("{} {} with CRC-32C checksum", set, field), fmt::format("{:08x}", checksum(array)),
                     source->origin(field)});
  }
  out.push_back({"the setting checkpoint_every", std::to_string(config.checkpoint_every)});
  out.push_back({"the setting checkpoint_seconds", std::to_string(config.checkpoint_seconds)});
  out.push_back({"the setting histograms", config.histograms ? "true" : "false"});
  out.push_back({"the setting eval_every", std::to_string(config.eval_every)});
  return out;
}

}  // namespace

void check_same_facts(Session& session, const TrainConfig& config, const Problem& problem) {
  const std::vector<SharedFact> facts = shared_facts(config, problem);
  std::string own;
  for (const SharedFact& fact : facts) own += fact.value + "\n" + fact.origin + "\n";
  const std::vector<std::string> all = session.exchange("settings and data", own);
  for (size_t p = 1; p < all.size(); ++p) {
    std::istringstream first(all[0]), other(all[p]);
    for (const SharedFact& fact : facts) {
      std::string a, b, a_origin, b_origin;
      std::getline(first, a), std::getline(first, a_origin), std::getline(other, b), std::getline(other, b_origin);
      if (a == b) continue;
      try {
        session.exchange("settings and data", "");  // wait until every process has read all values
      } catch (const CommError&) {
        // Another process has already failed for the same reason.
      }
      const auto of = [](const std::string& origin) { return origin.empty() ? "" : fmt::format(" ({})", origin); };
      throw_error("train: process 0 has {} {}{}, but process {} has {}{}; use the same in all processes", fact.name, a,
                  of(a_origin), p, b, of(b_origin));
    }
  }
}

}  // namespace lockstep
