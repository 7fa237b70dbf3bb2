#include "board/run_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::board {
namespace {

using nlohmann::json;

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json pairs_json(const std::vector<std::pair<std::string, double>>& values) {
  json out = json::object();
  for (const auto& [name, value] : values) out[name] = std::isfinite(value) ? json(value) : json(nullptr);
  return out;
}

json line_json(const RunLine& run) {
  return {{"id", run.id},           {"name", run.name},
          {"title", run.title},     {"state", run.state},
          {"step", run.step},       {"total_steps", run.total_steps},
          {"bytes", run.bytes},     {"started", run.started},
          {"updated", run.updated}, {"values", pairs_json(run.values)}};
}

}  // namespace

std::string list_json(const std::vector<RunLine>& runs) {
  json out = json::array();
  for (const RunLine& run : runs) out.push_back(line_json(run));
  return dumped({{"runs", std::move(out)}});
}

std::string run_json(const RunStore::Loaded& run) {
  const charts::RunMetrics& metrics = run.metrics;
  json out = line_json(run.line);
  json config = json::object(), tags = json::array(), starts = json::array(), messages = json::array();
  for (const auto& [key, value] : metrics.config()) config[key] = value;
  for (const auto& [tag, series] : metrics.series()) tags.push_back(tag);
  for (const charts::RunStart& start : metrics.starts()) starts.push_back({{"step", start.step}, {"time", start.time}});
  for (const charts::RunMessage& message : metrics.messages())
    messages.push_back(
        {{"step", message.step}, {"time", message.time}, {"alarm", message.alarm}, {"text", message.text}});
  out["step"] = metrics.last_step();
  out["complete"] = run.complete;
  out["bytes_read"] = metrics.bytes_read();
  out["generation"] = metrics.generation();
  out["first_time"] = metrics.first_time();
  out["last_time"] = metrics.last_time();
  out["steps_per_epoch"] = metrics.steps_per_epoch();
  out["total_steps"] = std::max(metrics.total_steps(), run.line.total_steps);
  out["ignored_tags"] = metrics.ignored_tags();
  out["skipped_lines"] = metrics.skipped_lines();
  out["config"] = std::move(config);
  out["tags"] = std::move(tags);
  out["starts"] = std::move(starts);
  out["messages"] = std::move(messages);
  out["files"] = run.files;
  out["result"] = pairs_json(metrics.result());
  return dumped(out);
}

std::string series_json(const RunStore::Loaded& run, const std::string& tag,
                        const std::vector<charts::Bucket>& buckets) {
  json step = json::array(), time = json::array(), low = json::array(), high = json::array(), mean = json::array(),
       count = json::array();
  for (const charts::Bucket& each : buckets) {
    step.push_back(each.first_step == each.last_step
                       ? json(each.first_step)
                       : json(0.5 * static_cast<double>(each.first_step) + 0.5 * static_cast<double>(each.last_step)));
    time.push_back((each.first_time + each.last_time) / 2 - run.metrics.first_time());
    count.push_back(each.count);
    low.push_back(each.count > 0 ? json(each.min) : json(nullptr));
    high.push_back(each.count > 0 ? json(each.max) : json(nullptr));
    mean.push_back(each.count > 0 ? json(each.mean()) : json(nullptr));
  }
  const auto found = run.metrics.series().find(tag);
  const bool known = found != run.metrics.series().end() && !found->second.buckets().empty();
  json out = {{"run", run.line.id},
              {"tag", tag},
              {"complete", run.complete},
              {"generation", run.metrics.generation()},
              {"steps_per_epoch", run.metrics.steps_per_epoch()},
              {"points", known ? found->second.points() : 0},
              {"step", std::move(step)},
              {"time", std::move(time)},
              {"min", std::move(low)},
              {"max", std::move(high)},
              {"mean", std::move(mean)},
              {"count", std::move(count)}};
  if (known) {
    out["first"] = found->second.buckets().front().first_step;
    out["last"] = found->second.buckets().back().last_step;
  }
  return dumped(out);
}

}  // namespace lockstep::board
