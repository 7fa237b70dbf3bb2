// `lockstep runs`: lists, shows and compares the runs below the working directory. runs_delete.cc deletes them.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/runs_delete.h"
#include "cli/runs_text.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "command/number_check.h"
#include "lockstep/checkpoint.h"

namespace lockstep::cli {
namespace {

struct ListArguments {
  std::string output, sort, metric;
  int limit = 0;  // 0: all
  bool no_headers = false;
};

JobTime now_here() { return std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now()); }

nlohmann::ordered_json to_object(const ListedRun& run) {
  nlohmann::ordered_json out = {{"name", run.name}, {"folder", run.folder}};
  out.update(nlohmann::ordered_json::parse(to_json(run.record)));
  out["state"] = state_of(run);
  return out;
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<ListedRun> readable_runs() {
  std::vector<std::string> problems;
  std::vector<ListedRun> runs = list_runs(problems);
  for (const std::string& problem : problems) print_stderr("lockstep: {}\n", problem);
  return runs;
}

ListedRun run_of(const std::string& command, const std::string& argument) {
  const std::string folder = find_run(command, argument);
  std::optional<ListedRun> run = read_run(folder);
  if (!run)
    throw_error("{}: {} has no run.json; give the folder of a run, or a name that `lockstep runs` lists", command,
                folder);
  return std::move(*run);
}

std::vector<std::string> known_metrics(const std::vector<ListedRun>& runs) {
  std::vector<std::string> out;
  for (const ListedRun& run : runs)
    for (const auto& [name, metric] : run.record.metrics)
      if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  return out;
}

// A value to sort by: numbers before texts, and runs without the value last.
struct SortKey {
  int missing = 0;
  double number = 0;
  std::string text = {};
  auto operator<=>(const SortKey&) const = default;
};

SortKey text_key(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0') return {.number = number};
  return {.missing = text.empty() || text == "-" ? 2 : 1, .text = text};
}

// The value of a run for --sort: a column, a metric (the best first), or a setting.
SortKey sort_key(const ListedRun& run, const std::string& by) {
  if (by == "name") return {.missing = 1, .text = run.name};
  if (by == "state") return {.missing = 1, .text = state_of(run)};
  if (by == "steps") return {.number = static_cast<double>(run.record.step)};
  if (by == "age") return {.number = -run.record.created};
  if (by == "time")
    return {.number = (run.record.ended > 0 ? run.record.ended : run.record.updated) - run.record.started};
  if (run.record.settings.contains(by)) return text_key(setting_text(run, by));  // learning_rate is a metric as well
  if (const std::optional<double> value = value_of(run.record, by))
    return {.number = is_lower_better(by) ? *value : -*value};
  return {.missing = 2};
}

void sort_runs(std::vector<ListedRun>& runs, const std::string& by) {
  std::vector<std::string> known = {"name", "state", "steps", "age", "time"};
  for (const std::string& metric : known_metrics(runs)) known.push_back(metric);
  for (const ListedRun& run : runs)
    for (const auto& [key, value] : run.record.settings)
      if (std::ranges::find(known, key) == known.end()) known.push_back(key);
  if (std::ranges::find(known, by) == known.end())
    throw UsageError(
        fmt::format("runs: cannot sort by \"{}\";{} choose name, state, steps, age, time, a metric{} or a "
                    "setting",
                    by, suggestion(by, known), runs.empty() ? "" : " of the runs"));
  std::ranges::stable_sort(runs, {}, [&](const ListedRun& run) { return sort_key(run, by); });
}

int list(const ListArguments& arguments) {
  std::vector<ListedRun> runs = readable_runs();
  if (!arguments.metric.empty() && !runs.empty()) {
    const std::vector<std::string> known = known_metrics(runs);
    if (std::ranges::find(known, arguments.metric) == known.end())
      throw UsageError(fmt::format("runs: no run has the metric \"{}\";{} the metrics are {}", arguments.metric,
                                   suggestion(arguments.metric, known), fmt::join(known, ", ")));
  }
  if (!arguments.sort.empty()) sort_runs(runs, arguments.sort);
  if (const auto limit = static_cast<size_t>(arguments.limit); limit > 0 && runs.size() > limit) {
    if (arguments.sort.empty())
      runs.erase(runs.begin(), runs.end() - static_cast<std::ptrdiff_t>(limit));  // the newest are last
    else
      runs.resize(limit);
  }
  if (arguments.output == "json") {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const ListedRun& run : runs) out.push_back(to_object(run));
    fmt::print("{}", json_text(out));
    return kDone;
  }
  if (arguments.output == "name") {
    for (const ListedRun& run : runs) fmt::print("{}\n", run.name);
    return kDone;
  }
  if (runs.empty()) {
    print_stderr("No runs found in {}/\n", kRunsFolder);
    return kDone;
  }
  const bool wide = arguments.output == "wide";
  winsize size = {};
  const bool terminal = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  const size_t columns = terminal && !wide ? size.ws_col : 0;
  const RunTable table = table_of_runs(
      runs, {.metric = arguments.metric, .wide = wide, .headers = !arguments.no_headers, .columns = columns},
      now_here());
  fmt::print("{}", TableLayout().format(table.rows));
  if (!table.hidden.empty())
    print_stderr("not shown: {}; -o wide shows all settings that differ\n", fmt::join(table.hidden, ", "));
  return kDone;
}

int show(const std::string& argument, const std::string& output) {
  const ListedRun run = run_of("runs show", argument);
  if (output == "json") {
    fmt::print("{}", json_text(to_object(run)));
    return kDone;
  }
  std::vector<std::string> checkpoints;
  for (const int64_t step : list_checkpoints(run.folder))
    checkpoints.push_back(std::filesystem::path(checkpoint_path(run.folder, step)).filename().string());
  fmt::print("{}", describe_run(run, checkpoints, now_here()));
  return kDone;
}

int compare(const std::vector<std::string>& arguments, const std::string& output) {
  if (arguments.size() < 2) throw UsageError("runs compare: only one run is given; give at least two");
  std::vector<ListedRun> runs;
  for (const std::string& argument : arguments) runs.push_back(run_of("runs compare", argument));
  if (output == "json") {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const ListedRun& run : runs) out.push_back(to_object(run));
    fmt::print("{}", json_text(out));
    return kDone;
  }
  fmt::print("{}", TableLayout().format(compare_runs(runs)));
  return kDone;
}

void add_list_flags(CLI::App& command, ListArguments& arguments) {
  command
      .add_option("-o,--output", arguments.output,
                  "wide: more columns, and all settings that differ; json: the complete records; name: only names")
      ->check(one_of({"wide", "json", "name"}));
  command
      .add_option("--sort", arguments.sort,
                  "name, state, steps, age, time, a metric (the best first) or a setting (default: the newest last)")
      ->type_name("KEY");
  command
      .add_option("--limit", arguments.limit, "list only the N newest runs, or with --sort the first N (default: all)")
      ->type_name("N")
      ->check(integer_between(1, std::numeric_limits<int>::max()));
  command.add_option("--metric", arguments.metric, "the metric to list (default: the main one of each run)")
      ->type_name("NAME");
  command.add_flag("--no-headers", arguments.no_headers, "omit the column headers");
  add_examples(command, {"lockstep runs", "lockstep runs --sort test_accuracy --limit 5", "lockstep runs show last",
                         "lockstep runs compare last best", "lockstep runs prune --keep 10"});
}

void add_show_command(CLI::App& runs, Action& action) {
  CLI::App* command = runs.add_subcommand("show", "describe a run");
  auto name = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  command->add_option("RUN", *name, "a run: its name, its folder, last or best")->required()->type_name("RUN");
  command->add_option("-o,--output", *output, "json: the complete record")->check(one_of({"json"}));
  add_examples(*command, {"lockstep runs show last", "lockstep runs show best -o json"});
  command->callback([name, output, &action] { action = [name, output] { return show(*name, *output); }; });
}

void add_compare_command(CLI::App& runs, Action& action) {
  CLI::App* command = runs.add_subcommand("compare", "show the settings that differ between runs, and their metrics");
  auto names = std::make_shared<std::vector<std::string>>();
  auto output = std::make_shared<std::string>();
  command->add_option("RUN", *names, "two or more runs: names, folders, last, best")->required()->type_name("RUN");
  command->add_option("-o,--output", *output, "json: the complete records")->check(one_of({"json"}));
  add_examples(*command, {"lockstep runs compare last best", "lockstep runs compare last best -o json"});
  command->callback([names, output, &action] { action = [names, output] { return compare(*names, *output); }; });
}

}  // namespace

void add_runs_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("runs", "list, show, compare and delete the runs in runs/");
  auto arguments = std::make_shared<ListArguments>();
  add_list_flags(*command, *arguments);
  add_show_command(*command, action);
  add_compare_command(*command, action);
  add_runs_delete_command(*command, action);
  add_runs_prune_command(*command, action);
  command->require_subcommand(0, 1);
  command->callback([arguments, command, &action] {
    if (!command->get_subcommands().empty()) return;  // the parser calls the callback of a parent, too
    action = [arguments] { return list(*arguments); };
  });
}

}  // namespace lockstep::cli
