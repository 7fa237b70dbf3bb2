#include "train/run_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text_bytes.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::pair<RunState, std::string_view> kStates[] = {{RunState::running, "running"},
                                                             {RunState::complete, "complete"},
                                                             {RunState::stopped, "stopped"},
                                                             {RunState::failed, "failed"}};

std::string time_text(double seconds) {
  constexpr int64_t kThousand = 1000;
  const auto thousandths = static_cast<int64_t>(std::llround(seconds * kThousand));
  const auto whole = static_cast<std::time_t>(thousandths / kThousand);
  std::tm parts = {};
  ::gmtime_r(&whole, &parts);
  char text[40];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, thousandths % kThousand);
}

double time_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end()) return 0;
  const auto text = at->get<std::string>();
  std::tm parts = {};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  int thousandths = 0;
  if (end && *end == '.') {
    const auto [after, error] = std::from_chars(end + 1, text.c_str() + text.size(), thousandths);
    end = error == std::errc() && after == end + 4 ? after : nullptr;
  }
  if (!end || std::string_view(end) != "Z" || thousandths < 0)
    throw_error("{} is {}; expected a time such as 2026-01-31T12:00:00Z", key, printable(text));
  return static_cast<double>(::timegm(&parts)) + thousandths / 1000.0;
}

// JSON has no infinities and no NaN.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

double to_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "inf" || text == "-inf") return text == "inf" ? INFINITY : -INFINITY;
  if (text == "nan" || text == "-nan") return NAN;
  throw_error("{} is not a number", printable_json(value));
}

Json metrics_json(const std::map<std::string, RecordedMetric>& metrics) {
  Json out = Json::object();
  for (const auto& [name, metric] : metrics) {
    Json& one = out[name] = {{"last", number(metric.last)}};
    if (!metric.best) continue;
    one["best"] = number(*metric.best);
    one["best_step"] = metric.best_step;
  }
  return out;
}

std::map<std::string, RecordedMetric> metrics_at(const Json& json) {
  std::map<std::string, RecordedMetric> out;
  for (const auto& [name, value] : json.at("metrics").items()) {
    RecordedMetric& metric = out[name];
    metric.last = to_number(value.at("last"));
    if (!value.contains("best")) continue;
    metric.best = to_number(value.at("best"));
    metric.best_step = integer_at<int64_t>(value, "best_step");
  }
  return out;
}

RunState state_at(const Json& json) {
  const auto text = json.at("state").get<std::string>();
  for (const auto& [state, name] : kStates)
    if (name == text) return state;
  throw_error("unknown state {}", printable_json(json.at("state")));
}

RunRecord record_of(const Json& json) {
  if (const auto format = integer_at<int64_t>(json, "format"); format != kFormat)
    throw_error("format {} is not supported, only {}; use the version of Lockstep that wrote it", format, kFormat);
  RunRecord out;
  out.state = state_at(json);
  out.error = json.value("error", "");
  json.at("task").get_to(out.task);
  json.at("dataset").get_to(out.dataset);
  json.at("settings").get_to(out.settings);
  json.at("program").get_to(out.program);
  json.at("version").get_to(out.version);
  json.at("command").get_to(out.command);
  json.at("folder").get_to(out.folder);
  json.at("host").get_to(out.host);
  out.pid = integer_at<int64_t>(json, "pid");
  out.created = time_at(json, "created");
  out.started = time_at(json, "started");
  out.updated = time_at(json, "updated");
  out.ended = time_at(json, "ended");
  out.step = integer_at<int64_t>(json, "step");
  out.total_steps = integer_at<int64_t>(json, "total_steps");
  out.metrics = metrics_at(json);
  if (const auto git = json.find("git"); git != json.end()) {
    git->at("commit").get_to(out.git_commit);
    git->at("modified").get_to(out.git_modified);
  }
  const Json& devices = json.at("devices");
  devices.at("platform").get_to(out.platform);
  out.hardware = devices.value("hardware", "");
  out.devices = integer_at<int64_t>(devices, "count");
  out.processes = integer_at<int64_t>(devices, "processes");
  json.at("environment").get_to(out.environment);
  json.at("jobs").get_to(out.jobs);
  return out;
}

}  // namespace

std::string_view to_string(RunState state) {
  for (const auto& [each, name] : kStates)
    if (each == state) return name;
  return "";
}

bool is_lower_better(std::string_view metric) {
  for (const std::string_view word : {"loss", "error", "perplexity", "bits_per_byte"})
    if (metric.find(word) != metric.npos) return true;
  return false;
}

void set_metrics(RunRecord& record, const Scalars& metrics) {
  for (const auto& [name, value] : metrics) record.metrics[name].last = value;
}

void set_evaluated_metrics(RunRecord& record, int64_t step, const Scalars& metrics) {
  set_metrics(record, metrics);
  for (const auto& [name, value] : metrics) {
    RecordedMetric& metric = record.metrics[name];
    if (!std::isfinite(value)) continue;
    if (metric.best && (is_lower_better(name) ? *metric.best <= value : *metric.best >= value)) continue;
    metric.best = value;
    metric.best_step = step;
  }
}

std::string main_metric(const RunRecord& record) {
  for (const char* set : {"validation_", "test_", ""})
    for (const char* name : {"accuracy", "loss"})
      if (record.metrics.contains(std::string(set) + name)) return std::string(set) + name;
  for (const auto& [name, metric] : record.metrics)
    if (metric.best) return name;
  return record.metrics.empty() ? "" : record.metrics.begin()->first;
}

std::optional<double> value_of(const RunRecord& record, const std::string& metric) {
  const auto at = record.metrics.find(metric);
  if (at == record.metrics.end()) return std::nullopt;
  return at->second.best.value_or(at->second.last);
}

std::string to_json(const RunRecord& record) {
  Json out = {{"format", kFormat}, {"state", to_string(record.state)}};
  if (!record.error.empty()) out["error"] = record.error;
  out["task"] = record.task;
  out["dataset"] = record.dataset;
  out["settings"] = Json(record.settings);
  out["program"] = record.program;
  out["version"] = record.version;
  out["command"] = record.command;
  out["folder"] = record.folder;
  out["host"] = record.host;
  out["pid"] = record.pid;
  out["created"] = time_text(record.created);
  out["started"] = time_text(record.started);
  out["updated"] = time_text(record.updated);
  if (record.ended > 0) out["ended"] = time_text(record.ended);
  out["step"] = record.step;
  out["total_steps"] = record.total_steps;
  out["metrics"] = metrics_json(record.metrics);
  if (!record.git_commit.empty()) out["git"] = {{"commit", record.git_commit}, {"modified", record.git_modified}};
  out["devices"] = {{"platform", record.platform}, {"count", record.devices}, {"processes", record.processes}};
  if (!record.hardware.empty()) out["devices"]["hardware"] = record.hardware;
  out["environment"] = Json(record.environment);
  out["jobs"] = Json(record.jobs);
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunRecord parse_run_record(const std::string& text, const std::string& where) {
  const auto json = parse_json<Json>(text, where);
  try {
    return record_of(json);
  } catch (const nlohmann::json::exception& error) {
    throw_error("{}: {}; this is not the record of a run", where, json_error_text(error));
  } catch (const Error& error) {
    throw_error("{}: {}", where, error.what());
  }
}

std::optional<RunRecord> read_run_record(FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/run.json";
  if (!files.exists(path)) return std::nullopt;
  constexpr int64_t kMaxBytes = int64_t{16} << 20;
  const std::vector<uint8_t> bytes = files.read_file(path, kMaxBytes);
  return parse_run_record(std::string(bytes.begin(), bytes.end()), path);
}

void write_run_record(FileSystem& files, const std::string& folder, const RunRecord& record) {
  const std::string temporary = fmt::format("{}/.run.json.tmp-{}", folder, ::getpid());
  files.remove(temporary);
  try {
    files.append(temporary, text_bytes(to_json(record)));
    files.rename(temporary, folder + "/run.json");
  } catch (const IoError&) {
    files.remove(temporary);  // part of it may be on a full disk
    throw;
  }
}

}  // namespace lockstep
