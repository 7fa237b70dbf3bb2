#include "cli/runs_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/names.h"
#include "base/printable.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMaxSettings = 4;     // in a table that is not wide
constexpr size_t kMaxValueBytes = 40;  // of a setting in a table

// Whether the setting neither changes the result nor says what is trained.
bool is_incidental(const std::string& key) {
  for (const char* each :
       {"run_dir", "checkpoint_dir", "log_dir", "resume", "no_save", "quiet", "loggers", "log_every"})
    if (key == each) return true;
  return false;
}

std::string upper_case(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string dash_if_empty(std::string text) { return text.empty() ? "-" : std::move(text); }

std::string shortened(const std::string& text) { return printable(text, kMaxValueBytes); }

// "4690", or "1200/4690" if the run is not complete.
std::string steps_text(const RunRecord& record) {
  if (record.total_steps == 0) return "-";
  return record.step == record.total_steps ? std::to_string(record.step)
                                           : fmt::format("{}/{}", record.step, record.total_steps);
}

// The metric that all runs are summarized by; empty if they differ.
std::string common_metric(const std::vector<ListedRun>& runs) {
  std::set<std::string> names;
  for (const ListedRun& run : runs)
    if (const std::string name = main_metric(run.record); !name.empty()) names.insert(name);
  return names.size() == 1 ? *names.begin() : "";
}

std::string metric_cell(const RunRecord& record, const std::string& metric) {
  const std::string name = metric.empty() ? main_metric(record) : metric;
  const std::optional<double> value = value_of(record, name);
  if (!value) return "-";
  return metric.empty() ? fmt::format("{} {}", name, metric_text(*value)) : metric_text(*value);
}

std::string git_text(const RunRecord& record) {
  constexpr size_t kDigits = 9;
  if (record.git_commit.empty()) return "-";
  return record.git_commit.substr(0, kDigits) + (record.git_modified ? "+" : "");
}

std::string devices_text(const RunRecord& record) {
  std::string out = fmt::format("{} {}", record.devices, record.platform);
  if (record.processes > 1) out += fmt::format(" in {}", counted(record.processes, "process"));
  return out;
}

std::string line(std::string_view name, const std::string& value) {
  return fmt::format("{:<14}{}\n", fmt::format("{}:", name), printable(value, std::string::npos));
}

std::string when(double time, JobTime now) {
  return time > 0 ? fmt::format("{} ({} ago)", time_text(time_of(time)), age_text(time_of(time), now)) : "<none>";
}

// "  " before each line of a table.
std::string indented_table(const std::vector<TableRow>& rows) {
  std::string out = "  ";
  for (const char c : TableLayout().format(rows)) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out.substr(0, out.size() - 2);
}

// Quotes a word of a command line if a shell would split or change it.
std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./=,:+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string metrics_section(const RunRecord& record) {
  if (record.metrics.empty()) return "";
  std::vector<TableRow> rows = {{"NAME", "LAST", "BEST", "AT STEP"}};
  for (const auto& [name, metric] : record.metrics)
    rows.push_back({name, metric_text(metric.last), metric.best ? metric_text(*metric.best) : "-",
                    metric.best ? std::to_string(metric.best_step) : "-"});
  return "Metrics:\n" + indented_table(rows);
}

// The settings that differ from their defaults. Those of a user's program are all shown: their defaults are not known.
std::string settings_section(const RunRecord& record) {
  std::vector<TableRow> rows;
  const TrainConfig defaults;
  for (const auto& [key, value] : record.settings) {
    if (is_incidental(key)) continue;
    const ConfigKey* known = find_config_key(key);
    if (!known || text_of(defaults, *known) != value) rows.push_back({key, value});
  }
  return rows.empty() ? "" : "Settings that are not the default:\n" + indented_table(rows);
}

std::string environment_section(const RunRecord& record) {
  if (record.environment.empty()) return "";
  std::vector<TableRow> rows;
  for (const auto& [name, value] : record.environment) rows.push_back({name, value});
  return "Environment:\n" + indented_table(rows);
}

}  // namespace

JobTime time_of(double unix_seconds) { return JobTime(std::chrono::seconds(static_cast<int64_t>(unix_seconds))); }

std::string run_time_text(const ListedRun& run, JobTime now) {
  const RunRecord& record = run.record;
  const double end = record.ended > 0 ? record.ended : record.updated;
  const bool running = record.state == RunState::running && !run.lost;
  return age_text(running ? now - time_of(record.started)
                          : std::chrono::seconds(static_cast<int64_t>(end - record.started)));
}

std::string metric_text(double value) { return fmt::format("{:.4g}", value); }

std::string setting_text(const ListedRun& run, const std::string& key) {
  const auto at = run.record.settings.find(key);
  return at == run.record.settings.end() || at->second.empty() ? "-" : at->second;
}

std::vector<std::string> differing_settings(const std::vector<ListedRun>& runs) {
  std::set<std::string> keys;
  for (const ListedRun& run : runs)
    for (const auto& [key, value] : run.record.settings) keys.insert(key);
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    const auto differs = [&](const ListedRun& run) { return setting_text(run, key) != setting_text(runs[0], key); };
    const bool is_length = key == "steps" || key == "epochs";  // tables have the steps of each run
    if (!is_incidental(key) && !is_length && std::ranges::any_of(runs, differs)) out.push_back(key);
  }
  return out;
}

RunTable table_of_runs(const std::vector<ListedRun>& runs, const RunTableOptions& options, JobTime now) {
  RunTable out;
  const std::string metric = options.metric.empty() ? common_metric(runs) : options.metric;
  std::vector<std::string> settings = differing_settings(runs);
  std::erase_if(settings, [](const std::string& key) { return key == "model" || key == "dataset"; });
  if (!options.wide && settings.size() > kMaxSettings) {
    out.hidden.assign(settings.begin() + kMaxSettings, settings.end());
    settings.resize(kMaxSettings);
  }
  if (options.headers) {
    TableRow header = {"NAME", "STATE", "MODEL", "DATASET", "STEPS", metric.empty() ? "METRIC" : upper_case(metric),
                       "TIME", "AGE"};
    if (options.wide) header.insert(header.end(), {"DEVICES", "HOST", "PID", "VERSION", "COMMIT"});
    for (const std::string& key : settings) header.push_back(upper_case(key));
    out.rows.push_back(std::move(header));
  }
  for (const ListedRun& run : runs) {
    const RunRecord& record = run.record;
    TableRow row = {run.name,
                    state_of(run),
                    dash_if_empty(record.task),
                    dash_if_empty(shortened(record.dataset)),
                    steps_text(record),
                    metric_cell(record, metric),
                    run_time_text(run, now),
                    age_text(time_of(record.created), now)};
    if (options.wide)
      row.insert(row.end(), {devices_text(record), dash_if_empty(record.host), std::to_string(record.pid),
                             fmt::format("{} {}", record.program, record.version), git_text(record)});
    for (const std::string& key : settings) row.push_back(shortened(setting_text(run, key)));
    out.rows.push_back(std::move(row));
  }
  return out;
}

std::string describe_run(const ListedRun& run, const std::vector<std::string>& checkpoints, JobTime now) {
  const RunRecord& record = run.record;
  std::string command;
  for (const std::string& word : record.command) command += (command.empty() ? "" : " ") + shell_word(word);
  std::string out = line("Name", run.name) + line("State", state_of(run));
  if (!record.error.empty()) out += line("Error", record.error);
  out += line("Folder", run.folder) + line("Model", dash_if_empty(record.task));
  if (!record.dataset.empty()) out += line("Dataset", record.dataset);
  out += line("Steps", fmt::format("{} of {}", record.step, record.total_steps)) +
         line("Created", when(record.created, now)) + line("Started", when(record.started, now)) +
         line("Ended", when(record.ended, now)) + line("Time", run_time_text(run, now)) + line("Command", command) +
         line("Working dir", record.folder) +
         line("Devices", devices_text(record) + (record.hardware.empty() ? "" : ", " + record.hardware)) +
         line("Process", fmt::format("{} on host {}", record.pid, record.host)) +
         line("Version", fmt::format("{} {}", record.program, record.version));
  if (!record.git_commit.empty())
    out += line("Git commit", record.git_commit + (record.git_modified ? ", with modified files" : ""));
  out += line("Checkpoints", checkpoints.empty() ? "<none>" : fmt::format("{}", fmt::join(checkpoints, ", ")));
  return out + metrics_section(record) + settings_section(record) + environment_section(record);
}

std::vector<TableRow> compare_runs(const std::vector<ListedRun>& runs) {
  std::vector<TableRow> out;
  const auto add = [&](const std::string& title, const auto& text_of_run) {
    TableRow row = {title};
    for (const ListedRun& run : runs) row.push_back(text_of_run(run));
    out.push_back(std::move(row));
  };
  add("NAME", [](const ListedRun& run) { return run.name; });
  add("state", [](const ListedRun& run) { return state_of(run); });
  add("steps", [](const ListedRun& run) { return steps_text(run.record); });
  add("commit", [](const ListedRun& run) { return git_text(run.record); });
  for (const std::string& key : differing_settings(runs))
    add(key, [&](const ListedRun& run) { return setting_text(run, key); });
  std::set<std::string> metrics;
  for (const ListedRun& run : runs)
    for (const auto& [name, metric] : run.record.metrics) metrics.insert(name);
  out.push_back({"METRIC"});
  for (const std::string& name : metrics)
    add(name, [&](const ListedRun& run) {
      const std::optional<double> value = value_of(run.record, name);
      return value ? metric_text(*value) : "-";
    });
  return out;
}

}  // namespace lockstep::cli
