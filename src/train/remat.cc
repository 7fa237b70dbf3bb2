#include "train/remat.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "cluster/session.h"
#include "lockstep/devices.h"
#include "train/describe.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

// The bytes of the lane that needs most, in all processes.
int64_t most_bytes(const std::vector<LaneMemory>& memory) {
  int64_t most = 0;
  for (const LaneMemory& lane : memory) most = std::max(most, lane.total());
  const auto session = current_session();
  if (!session) return most;
  for (const std::string& each : session->exchange("memory of a step", std::to_string(most)))
    most = std::max<int64_t>(most, std::stoll(each));
  return most;
}

}  // namespace

int64_t memory_limit_bytes(const std::string& text) {
  if (text.empty()) return 0;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  if (unit.ends_with("iB")) unit.resize(unit.size() - 2);
  constexpr std::string_view kUnits = "KMGT";
  const size_t power = unit.size() == 1 ? kUnits.find(unit[0]) : kUnits.npos;
  const double bytes = power == kUnits.npos ? 0 : number * std::exp2(10.0 * static_cast<double>(power + 1));
  if (error != std::errc() || !(bytes >= 1 && bytes <= 0x1p60))
    throw_error("memory_limit: \"{}\" is not an amount of memory; give a number with K, M, G or T, such as 8G", text);
  return static_cast<int64_t>(bytes);
}

void check_remat(const TrainConfig& config) {
  const std::vector<std::string> known = {"auto", "none", "full"};
  if (std::find(known.begin(), known.end(), config.remat) == known.end())
    throw_unknown_name("remat", config.remat, known);
  memory_limit_bytes(config.memory_limit);
}

bool choose_remat(const TrainConfig& config, const std::function<int64_t(bool remat)>& step_bytes,
                  const std::function<void(const std::string&)>& note) {
  const int64_t limit = memory_limit_bytes(config.memory_limit);
  const bool may = config.remat != "none";
  if (limit == 0) return config.remat == "full";
  const int64_t stored = config.remat == "full" ? 0 : step_bytes(false);
  if (config.remat != "full" && stored <= limit) return false;
  const int64_t least = may ? step_bytes(true) : stored;
  const auto text = [](int64_t bytes) { return detail::bytes_text(bytes); };
  if (least > limit) {
    const std::string remedy = may ? "" : "set remat to auto, ";
    const std::string without = may && stored > least ? fmt::format(", {} without remat", text(stored)) : "";
    throw SettingsError("memory_limit",
                        fmt::format("train: a step of {} needs {} on a lane{}, and the memory_limit is {}; {}lower "
                                    "batch_size, raise accumulate, choose another precision, or raise memory_limit",
                                    counted(config.batch_size, "example"), text(least), without, text(limit), remedy));
  }
  if (stored > 0)
    note(fmt::format("a step needs {}, more than the memory_limit of {}: blocks are rematerialized (remat), with {}",
                     text(stored), text(limit), text(least)));
  return true;
}

TrainConfig with_remat(const TrainConfig& config, const TrainState& state, const Loader& train,
                       const std::function<Engine(const TrainConfig&)>& make) {
  TrainConfig out = config;
  const auto step_bytes = [&](bool remat) {
    out.remat = remat ? "full" : "none";
    return most_bytes(make(out).memory(state, train, config.batch_size));
  };
  const auto note = [&](const std::string& text) {
    if (process_index() == 0 && !config.quiet) print_stderr("{}: note: {}\n", program_name(), text);
  };
  out.remat = choose_remat(config, step_bytes, note) ? "full" : "none";
  return out;
}

}  // namespace lockstep
