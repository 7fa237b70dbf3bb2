#include "cli/runs_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/names.h"
#include "base/printable.h"
#include "train/config.h"

namespace lockstep::cli {
namespace {

constexpr std::ptrdiff_t kMaxSettings = 4;  // in a table that is not wide
constexpr size_t kMaxValueBytes = 40;       // of a setting in a table

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

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
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

std::string metric_text(double value) {
  constexpr double kLarge = 1000;  // such as examples per second
  return std::abs(value) >= kLarge && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                             : fmt::format("{:.4g}", value);
}

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

namespace {

// A column of the table of runs: its header, and its cell for a run.
struct RunColumn {
  std::string header;
  std::function<std::string(const ListedRun&)> cell;
  bool setting = false;
};

std::vector<RunColumn> columns_of(const std::vector<ListedRun>& runs, const RunTableOptions& options, JobTime now) {
  const std::string metric = options.metric.empty() ? common_metric(runs) : options.metric;
  std::vector<RunColumn> out = {
      {"NAME", [](const ListedRun& run) { return run.name; }},
      {"STATE", [](const ListedRun& run) { return state_of(run); }},
      {"MODEL", [](const ListedRun& run) { return dash_if_empty(run.record.task); }},
      {"DATASET", [](const ListedRun& run) { return dash_if_empty(shortened(run.record.dataset)); }},
      {"STEPS", [](const ListedRun& run) { return steps_text(run.record); }},
      {metric.empty() ? "METRIC" : upper_case(metric),
       [metric](const ListedRun& run) { return metric_cell(run.record, metric); }},
      {"TIME", [now](const ListedRun& run) { return run_time_text(run, now); }},
      {"AGE", [now](const ListedRun& run) { return age_text(time_of(run.record.created), now); }}};
  if (options.wide) {
    out.push_back({"DEVICES", [](const ListedRun& run) { return devices_text(run.record); }});
    out.push_back({"HOST", [](const ListedRun& run) { return dash_if_empty(run.record.host); }});
    out.push_back({"PID", [](const ListedRun& run) { return std::to_string(run.record.pid); }});
    out.push_back(
        {"VERSION", [](const ListedRun& run) { return fmt::format("{} {}", run.record.program, run.record.version); }});
    out.push_back({"COMMIT", [](const ListedRun& run) { return git_text(run.record); }});
  }
  for (const std::string& key : differing_settings(runs))
    if (key != "model" && key != "dataset")
      out.push_back({upper_case(key), [key](const ListedRun& run) { return shortened(setting_text(run, key)); }, true});
  return out;
}

std::vector<TableRow> rows_of(const std::vector<RunColumn>& columns, const std::vector<ListedRun>& runs, bool headers) {
  std::vector<TableRow> out;
  for (size_t i = 0; i < runs.size() + (headers ? 1 : 0); ++i) {
    TableRow& row = out.emplace_back();
    for (const RunColumn& column : columns)
      row.push_back(headers && i == 0 ? column.header : column.cell(runs[i - (headers ? 1 : 0)]));
  }
  return out;
}

size_t width_of(const std::vector<TableRow>& rows) {
  size_t widest = 0, line = 0;
  for (const char c : TableLayout().format(rows)) {
    line = c == '\n' ? 0 : line + 1;
    widest = std::max(widest, line);
  }
  return widest;
}

// The column to leave out of a table that is too wide: a setting, then the model, which names have, then the data set.
std::vector<RunColumn>::iterator least_needed(std::vector<RunColumn>& columns) {
  if (columns.back().setting) return columns.end() - 1;
  for (const char* header : {"MODEL", "DATASET", "TIME"})
    if (const auto at = std::ranges::find(columns, header, &RunColumn::header); at != columns.end()) return at;
  return columns.end();
}

}  // namespace

RunTable table_of_runs(const std::vector<ListedRun>& runs, const RunTableOptions& options, JobTime now) {
  RunTable out;
  std::vector<RunColumn> columns = columns_of(runs, options, now);
  const auto too_many_settings = [&] {
    return !options.wide && std::ranges::count(columns, true, &RunColumn::setting) > kMaxSettings;
  };
  for (;;) {
    out.rows = rows_of(columns, runs, options.headers);
    const bool too_wide = options.columns > 0 && width_of(out.rows) > options.columns;
    if (!too_wide && !too_many_settings()) return out;
    const auto column = least_needed(columns);
    if (column == columns.end()) return out;
    if (column->setting) out.hidden.insert(out.hidden.begin(), lower_case(column->header));
    columns.erase(column);
  }
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
