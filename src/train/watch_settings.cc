#include "train/watch_settings.h"

#include <charconv>

#include "base/check.h"
#include "base/file.h"
#include "base/os/host_name.h"
#include "base/print_stderr.h"
#include "cluster/session.h"
#include "lockstep/devices.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

constexpr int kLargestPort = 65535;

// The whole text as a number from `least` to `most`.
std::optional<int64_t> number_in(std::string_view text, int64_t least, int64_t most) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < least || out > most) return std::nullopt;
  return out;
}

// The first and the last step.
std::pair<int64_t, int64_t> parse_trace_steps(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots != text.npos) {
    const auto first = number_in(std::string_view(text).substr(0, dots), 1, INT64_MAX),
               last = number_in(std::string_view(text).substr(dots + 2), 1, INT64_MAX);
    if (first && last && *first <= *last) return {*first, *last};
  }
  throw_error("trace_steps: \"{}\" is not FIRST..LAST; give two step numbers from 1 on, such as 10..20", text);
}

bool serves_metrics(const TrainConfig& config) { return !config.metrics_port.empty() && config.metrics_port != "0"; }

// The port before the rank is added; 0: any free one. REQUIRES: serves_metrics().
int metrics_port(const TrainConfig& config) {
  if (config.metrics_port == "auto") return 0;
  if (const auto port = number_in(config.metrics_port, 1, kLargestPort)) return static_cast<int>(*port);
  throw_error("metrics_port: \"{}\" is not a port; give a number from 1 to {}, auto for a free one, or 0 for none",
              config.metrics_port, kLargestPort);
}

// The number of earlier processes on this host.
int rank_on_host() {
  const auto session = current_session();
  if (!session) return 0;
  const std::vector<std::string> hosts = session->exchange("metrics", own_host_name());
  int out = 0;
  for (int rank = 0; rank < process_index(); ++rank)
    if (hosts[static_cast<size_t>(rank)] == own_host_name()) ++out;
  return out;
}

std::string bracketed(const std::string& host) { return host.find(':') == host.npos ? host : "[" + host + "]"; }

}  // namespace

void check_watch_settings(const TrainConfig& config) {
  const TrainConfig defaults;
  parse_trace_steps(config.trace_steps);
  if (config.trace.empty() && config.trace_steps != defaults.trace_steps)
    throw_error("trace_steps: there is no trace; give --trace FILE, too");
  if (serves_metrics(config))
    metrics_port(config);
  else if (config.metrics_host != defaults.metrics_host)
    throw_error("metrics_host: no metrics are served; give --metrics-port, too");
}

std::shared_ptr<MetricsServer> open_metrics_server(const TrainConfig& config) {
  if (!serves_metrics(config)) return nullptr;
  const int first = metrics_port(config), offset = rank_on_host();
  if (first > 0 && first + offset > kLargestPort)
    throw SettingsError("metrics_port", fmt::format("train: process {} of this host would listen on port {}; give a "
                                                    "--metrics-port of at most {}",
                                                    offset, first + offset, kLargestPort - offset));
  try {
    auto out = metrics_server({.port = first == 0 ? 0 : first + offset, .host = config.metrics_host});
    if (!config.quiet || first == 0)
      print_stderr("{}: {}metrics are served at http://{}:{}/metrics\n", program_name(),
                   process_count() > 1 ? fmt::format("rank {}: ", process_index()) : "", bracketed(config.metrics_host),
                   out->port());
    return out;
  } catch (const Error& error) {
    throw SettingsError("metrics_port", error.what());
  }
}

void check_trace_file(const TrainConfig& config) {
  if (config.trace.empty() || process_index() != 0) return;
  const std::string folder = parent_dir(config.trace);
  if (!folder.empty()) FileSystem::real().make_dirs(folder);
  FileSystem::real().append(config.trace, {});
}

TraceOptions trace_options(const TrainConfig& config) {
  if (config.trace.empty()) return {};
  const auto [first, last] = parse_trace_steps(config.trace_steps);
  return {.file = config.trace,
          .folder = config.run_dir.empty() ? "" : config.run_dir + "/trace",
          .first_step = first,
          .last_step = last};
}

}  // namespace lockstep
