// Serves the newest metrics of a run for Prometheus. The training thread stores them; a thread of the HTTP server writes
// them as text when it is asked. The one that reads requests answers /healthz, though NVML may keep the other waiting.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/os/environment.h"
#include "base/start_thread.h"
#include "hardware/nvml.h"
#include "http/metrics_text.h"
#include "http/server.h"
#include "lane/buffer.h"
#include "lane/lane.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "lockstep/loggers.h"
#include "lockstep/version.h"
#include "train/process_memory.h"

namespace lockstep {
namespace {

constexpr std::array kStepSeconds = {1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025,
                                     0.05, 0.1,    0.25, 0.5,  1.0,    2.5,  5.0,  10.0,   25.0, 50.0, 100.0};

// What is known of a run.
struct RunMetrics {
  http::Labels labels;
  RunInfo info;
  int64_t step = 0;
  double step_time = 0;                                     // when it was reported, in seconds since 1970
  Scalars last_step, last_eval;                             // the evaluation of each set
  std::array<int64_t, kStepSeconds.size() + 1> steps = {};  // by duration; the last: longer ones
  Meter::Report timing;
  int64_t checkpoints = 0, checkpoint_step = 0, alarms = 0;
};

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Replaces values in place: the names are the same in every step.
void store(Scalars& to, const Scalars& from) {
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    if (to[i].first != from[i].first) to[i].first = from[i].first;
    to[i].second = from[i].second;
  }
}

void replace(Scalars& all, const Scalars& newer) {
  for (const auto& [name, value] : newer) {
    const auto same = [&name = name](const auto& each) { return each.first == name; };
    if (const auto found = std::find_if(all.begin(), all.end(), same); found != all.end())
      found->second = value;
    else
      all.emplace_back(name, value);
  }
}

void add_progress(http::MetricsText& out, const RunMetrics& run) {
  const auto gauge = [&](const char* name, const char* help, auto value) {
    out.gauge(name, help, static_cast<double>(value));
  };
  gauge("lockstep_step", "The last step that was reported.", run.step);
  gauge("lockstep_total_steps", "The last step of the run.", run.info.total_steps);
  gauge(
      "lockstep_epoch", "Passes over the training set.",
      run.info.steps_per_epoch > 0 ? static_cast<double>(run.step) / static_cast<double>(run.info.steps_per_epoch) : 0);
  gauge("lockstep_last_step_timestamp_seconds", "When the last step was reported; 0: none yet.", run.step_time);
  out.begin("lockstep_step_duration_seconds", "histogram", "Time of steps, without evaluations and checkpoints.");
  int64_t steps = 0;
  for (size_t i = 0; i < kStepSeconds.size(); ++i) {
    steps += run.steps[i];
    out.add(static_cast<double>(steps), {{"le", fmt::format("{}", kStepSeconds[i])}}, "_bucket");
  }
  steps += run.steps.back();
  out.add(static_cast<double>(steps), {{"le", "+Inf"}}, "_bucket");
  out.add(run.timing.seconds, {}, "_sum");
  out.add(static_cast<double>(steps), {}, "_count");
  out.counter("lockstep_data_wait_seconds_total", "Time of steps that waited for data.", run.timing.data_seconds);
  out.counter("lockstep_checkpoints_total", "Checkpoints that were written.", static_cast<double>(run.checkpoints));
  gauge("lockstep_checkpoint_step", "The step of the last checkpoint of this process.", run.checkpoint_step);
  out.counter("lockstep_alarms_total", "Alarms that were raised.", static_cast<double>(run.alarms));
}

void add_job(http::MetricsText& out) {
  out.gauge("lockstep_world_size", "Processes of the job.", process_count());
  out.gauge("lockstep_devices", "Devices of the job.", device_count());
  out.gauge("lockstep_restarts", "How often the launcher has restarted the job.",
            std::atof(environment_variable("LOCKSTEP_RESTARTS").value_or("0").c_str()));
  out.begin("lockstep_build_info", "gauge", "The version of the program.");
  out.add(1, {{"version", LOCKSTEP_VERSION}});
}

// As of the last report. CPU lanes share the memory of the process.
void add_lane_memory(http::MetricsText& out, const RunMetrics& run) {
  std::vector<double> lanes;
  if (platform() == Platform::cpu) {
    lanes.assign(static_cast<size_t>(local_lane_count()), static_cast<double>(Allocator::host().stats().in_use));
  } else {
    std::optional<double> most;
    for (const auto& [name, value] : run.last_step) {
      if (name == "memory") most = value;
      if (name.starts_with("memory/lane_")) lanes.push_back(value);
    }
    if (lanes.empty() && most) lanes.push_back(*most);
  }
  out.begin("lockstep_lane_memory_bytes", "gauge", "Memory of the lane that is in use.");
  for (size_t i = 0; i < lanes.size(); ++i) out.add(lanes[i], {{"lane", std::to_string(i)}});
}

void add_memory(http::MetricsText& out, const RunMetrics& run) {
  out.gauge("lockstep_resident_memory_max_bytes", "The largest resident set of the process so far.",
            static_cast<double>(detail::largest_resident_set()));
  if (!run.last_step.empty()) add_lane_memory(out, run);
  const std::vector<GpuLoad> gpus = gpu_loads();
  if (gpus.empty()) return;
  const auto add = [&](const char* name, const char* help, const auto& value) {
    out.begin(name, "gauge", help);
    for (size_t i = 0; i < gpus.size(); ++i)
      if (value(gpus[i]) >= 0) out.add(value(gpus[i]), {{"gpu", std::to_string(i)}, {"name", gpus[i].name}});
  };
  add("lockstep_gpu_memory_used_bytes", "Memory in use of each GPU of the machine.",
      [](const GpuLoad& gpu) { return static_cast<double>(gpu.used); });
  add("lockstep_gpu_memory_bytes", "Memory of each GPU of the machine.",
      [](const GpuLoad& gpu) { return static_cast<double>(gpu.total); });
  add("lockstep_gpu_utilization_ratio", "The share of the last second in which the GPU computed.",
      [](const GpuLoad& gpu) { return static_cast<double>(gpu.busy) / 100; });
}

// Whatever the run has logged last, except what has a metric of its own.
void add_scalars(http::MetricsText& out, const RunMetrics& run) {
  std::set<std::string> names;
  for (const Scalars* list : {&run.last_step, &run.last_eval})
    for (const auto& [name, value] : *list) {
      if (name == "epoch") continue;
      std::string full = "lockstep_" + http::metric_name(name);
      if (out.text().find("# TYPE " + full + " ") != std::string::npos)
        full = "lockstep_scalar_" + http::metric_name(name);
      if (names.insert(full).second) out.gauge(full, "The last value of " + name + ".", value);
    }
}

class HttpMetricsServer final : public MetricsServer {
 public:
  explicit HttpMetricsServer(const MetricsServerOptions& options)
      : server_({.name = "train",
                 .host = options.host,
                 .port = options.port,
                 .threads = 1,
                 .port_flag = "--metrics-port",
                 .host_flag = "--metrics-host"}) {
    for (const auto& [name, value] : options.labels) set_label(name, value);
    server_.get("/metrics", [this](const http::Request&, http::Response& response) {
      response.set_content(text(), http::kMetricsType);
    });
    server_.get_quick("/healthz", [this](const http::Request&, http::Response& response) {
      const std::lock_guard lock(mutex_);
      response.set_content(nlohmann::json{{"status", "ok"}, {"step", run_.step}}.dump() + "\n", http::kJson);
    });
    thread_ = start_thread([this] { server_.run(); });
  }
  ~HttpMetricsServer() override {
    server_.stop();
    thread_.join();
  }

  int port() const override { return server_.port(); }
  void set_label(const std::string& name, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const auto& label) { return label.first == name; };
    if (const auto at = std::find_if(run_.labels.begin(), run_.labels.end(), same); at != run_.labels.end())
      at->second = value;
    else
      run_.labels.emplace_back(name, value);
  }

  void begin(const RunInfo& info) override {
    set_label("rank", std::to_string(process_index()));
    set_label("model", info.task);
    const std::lock_guard lock(mutex_);
    run_.info = info;
    run_.step = info.first_step;
    run_.info.config.clear();
  }
  void timing(const Meter::Report& report) override {
    const std::lock_guard lock(mutex_);
    const int64_t steps = report.counted_steps - run_.timing.counted_steps;
    if (steps > 0) {
      const double each = (report.seconds - run_.timing.seconds) / static_cast<double>(steps);
      const auto bucket = std::lower_bound(kStepSeconds.begin(), kStepSeconds.end(), each) - kStepSeconds.begin();
      run_.steps[static_cast<size_t>(bucket)] += steps;
    }
    run_.timing = report;
  }
  void step(int64_t step, const Scalars& scalars) override {
    const std::lock_guard lock(mutex_);
    run_.step = step;
    run_.step_time = seconds_since_epoch();
    store(run_.last_step, scalars);
  }
  void evaluation(int64_t, const Scalars& scalars) override {
    const std::lock_guard lock(mutex_);
    replace(run_.last_eval, scalars);
  }
  void checkpoint(int64_t step) override {
    const std::lock_guard lock(mutex_);
    ++run_.checkpoints;
    run_.checkpoint_step = step;
  }
  void message(int64_t, const std::string&, bool alarm) override {
    const std::lock_guard lock(mutex_);
    if (alarm) ++run_.alarms;
  }

 private:
  std::string text() const {
    const RunMetrics run = [this] {
      const std::lock_guard lock(mutex_);
      return run_;
    }();
    http::MetricsText out(run.labels);
    add_progress(out, run);
    add_job(out);
    add_memory(out, run);
    add_scalars(out, run);
    return out.text();
  }

  mutable std::mutex mutex_;
  RunMetrics run_;
  http::Server server_;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<MetricsServer> metrics_server(const MetricsServerOptions& options) {
  return std::make_shared<HttpMetricsServer>(options);
}

}  // namespace lockstep
