#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "charts/html_report.h"
#include "charts/metrics_folder.h"
#include "charts/svg_chart.h"
#include "charts/terminal_chart.h"
#include "cli/command.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "command/number_check.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

using namespace charts;

constexpr size_t kMaxRuns = 100;
constexpr size_t kMaxReportCharts = 60;
constexpr std::chrono::milliseconds kRedraw{500};

struct PlotArguments {
  std::vector<std::string> runs, metrics;
  std::string x = "step", html, svg, output;
  double smooth = 0;
  bool logarithmic = false, follow = false, ascii = false;
  int width = 0, height = 0;  // 0: of the terminal, and the default
};

struct PlottedRun {
  std::string name;
  std::unique_ptr<RunMetrics> metrics;
};

std::vector<PlottedRun> open_runs(const PlotArguments& arguments) {
  std::vector<std::string> words = arguments.runs;
  if (words.empty()) words = {"last"};
  if (words.size() > kMaxRuns)
    throw UsageError(fmt::format("plot: {} runs are given; at most {} fit in a chart", words.size(), kMaxRuns));
  std::vector<PlottedRun> out;
  for (const std::string& word : words) {
    const std::string folder = find_run("plot", word);
    const std::string file = find_metrics_file(FileSystem::real(), folder);
    if (file.empty())
      throw_error("plot: {} has no log/metrics.jsonl; train without --no-save, and with jsonl if --loggers is given",
                  folder);
    std::string name = run_name(folder);
    const auto has_name = [&](const PlottedRun& run) { return run.name == name; };
    if (std::any_of(out.begin(), out.end(), has_name)) name = folder;
    MetricsLimits limits;
    limits.buckets /= words.size();
    out.push_back({std::move(name), std::make_unique<RunMetrics>(file, FileSystem::real(), limits)});
  }
  return out;
}

// All metrics of the runs. Those that most users look at come first.
std::vector<std::string> known_metrics(const std::vector<PlottedRun>& runs) {
  std::vector<std::string> out;
  for (const PlottedRun& run : runs)
    for (const auto& [tag, series] : run.metrics->series())
      if (std::find(out.begin(), out.end(), tag) == out.end()) out.push_back(tag);
  const auto rank = [](const std::string& tag) {
    constexpr const char* kFirst[] = {
        "loss",          "validation_loss", "test_loss", "accuracy", "validation_accuracy",
        "test_accuracy", "learning_rate",   "grad_norm"};
    return std::find(std::begin(kFirst), std::end(kFirst), tag) - std::begin(kFirst);
  };
  std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return out;
}

// The given metrics, or the loss and the accuracy on the most important set that was evaluated.
std::vector<std::string> chosen_metrics(const PlotArguments& arguments, const std::vector<std::string>& known) {
  const auto is_known = [&](const std::string& tag) {
    return std::find(known.begin(), known.end(), tag) != known.end();
  };
  if (!arguments.metrics.empty()) {
    for (const std::string& metric : arguments.metrics)
      if (!is_known(metric) && !arguments.follow)
        throw UsageError(fmt::format("plot: --metric: no run has logged \"{}\";{} logged are {}", printable(metric),
                                     suggestion(metric, known),
                                     printable(fmt::format("{}", fmt::join(known, ", ")), 300)));
    return arguments.metrics;
  }
  std::vector<std::string> out;
  if (is_known("loss")) out.push_back("loss");
  for (const char* tag : {"validation_accuracy", "test_accuracy", "accuracy", "validation_loss", "test_loss"})
    if (is_known(tag)) {
      out.emplace_back(tag);
      break;
    }
  for (size_t i = 0; i < known.size() && out.empty(); ++i) out.push_back(known[i]);
  return out;
}

Chart chart_of(const PlotArguments& arguments, const std::vector<PlottedRun>& runs, const std::string& metric,
               int64_t points) {
  const XAxis x = arguments.x == "time" ? XAxis::time : arguments.x == "epoch" ? XAxis::epoch : XAxis::step;
  Chart chart{.metric = metric, .x = x, .logarithmic = arguments.logarithmic, .curves = {}};
  const ChartOptions options{
      .x = x, .smooth = arguments.smooth, .logarithmic = arguments.logarithmic, .points = points};
  for (const PlottedRun& run : runs) chart.curves.push_back(curve_of(*run.metrics, run.name, metric, options));
  return chart;
}

void check_epochs(const PlotArguments& arguments, const std::vector<PlottedRun>& runs) {
  if (arguments.x != "epoch") return;
  for (const PlottedRun& run : runs)
    if (run.metrics->steps_per_epoch() == 0 && !run.metrics->series().empty())
      throw_error("plot: {} has no steps per epoch in its log; use --x step or --x time", run.name);
}

int terminal_size(bool width) {
  winsize size = {};
  const int measured = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? (width ? size.ws_col : size.ws_row) : 0;
  if (measured > 0) return measured;
  const std::optional<std::string> variable = environment_variable(width ? "COLUMNS" : "LINES");
  const int given = variable ? std::atoi(variable->c_str()) : 0;
  return given > 0 ? given : (width ? 80 : 24);
}

// Whether the locale's encoding is UTF-8.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const std::optional<std::string> value = environment_variable(name)) {
      std::string lower = *value;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
      return lower.find("utf-8") != lower.npos || lower.find("utf8") != lower.npos;
    }
  return false;
}

// `others`: the lines besides the charts.
TerminalStyle style_for(const PlotArguments& arguments, size_t charts, size_t others) {
  TerminalStyle style;
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  style.width = arguments.width > 0 ? arguments.width : std::clamp(terminal_size(true), kMinWidth, 200);
  style.height = arguments.height;
  if (style.height == 0) {
    const auto count = static_cast<int>(charts);
    const int rows = terminal ? terminal_size(false) - static_cast<int>(others) - 1 : 20 * count;
    style.height = std::clamp(rows / count, arguments.follow ? kMinHeight : 11, 20);
  }
  style.unicode = !arguments.ascii && locale_is_utf8();
  style.color = terminal && !environment_variable("NO_COLOR") && environment_variable("TERM") != "dumb";
  return style;
}

std::string state_line(const std::vector<PlottedRun>& runs) {
  std::string out;
  for (const PlottedRun& run : runs) {
    const RunMetrics& metrics = *run.metrics;
    std::string line = printable(run.name, 60) + ": ";
    line += metrics.total_steps() > 0 ? fmt::format("step {} of {}", metrics.last_step(), metrics.total_steps())
                                      : fmt::format("step {}", metrics.last_step());
    line += ", " + short_duration(metrics.last_time() - metrics.first_time());
    if (metrics.has_ended()) line += ", ended";
    const auto alarms = std::count_if(metrics.messages().begin(), metrics.messages().end(),
                                      [](const RunMessage& message) { return message.alarm; });
    if (alarms > 0) line += ", " + counted(alarms, "alarm");
    out += line + "\n";
  }
  return out;
}

std::string terminal_text(const PlotArguments& arguments, const std::vector<PlottedRun>& runs) {
  const std::vector<std::string> metrics = chosen_metrics(arguments, known_metrics(runs));
  if (metrics.empty()) return "no metrics yet\n" + state_line(runs);
  const TerminalStyle style = style_for(arguments, metrics.size(), metrics.size() - 1 + runs.size());
  std::string out;
  for (const std::string& metric : metrics) {
    const Chart chart = chart_of(arguments, runs, metric, 2 * style.width);
    if (!out.empty()) out += "\n";
    out += chart.empty() ? fmt::format("{}: no finite values yet\n", printable(metric)) : draw(chart, style);
  }
  return out + state_line(runs);
}

void print(const std::string& text) { fmt::print("{}", text); }

void follow(const PlotArguments& arguments, std::vector<PlottedRun>& runs) {
  std::string shown;
  int64_t shown_version = -1;
  for (;;) {
    bool ended = true;
    int64_t version = 0;
    for (PlottedRun& run : runs) {
      run.metrics->update();
      ended &= run.metrics->has_ended();
      version += run.metrics->version();
    }
    if (version != shown_version) {
      check_epochs(arguments, runs);
      const auto lines = std::count(shown.begin(), shown.end(), '\n');
      if (lines >= terminal_size(false))
        print("\033[H\033[J");
      else if (lines > 0)
        print(fmt::format("\033[{}F\033[J", lines));
      shown = terminal_text(arguments, runs);
      print(shown);
      if (std::fflush(stdout) != 0) return;
      shown_version = version;
    }
    if (ended) return;
    std::this_thread::sleep_for(kRedraw);
  }
}

void write_report(const std::string& path, const std::string& text) {
  write_user_file(path, text);
  print_stderr("lockstep: wrote {} ({:.0f} kB)\n", path, static_cast<double>(text.size()) / 1e3);
}

void write_reports(const PlotArguments& arguments, const std::vector<PlottedRun>& runs) {
  const std::vector<std::string> known = known_metrics(runs);
  std::vector<std::string> metrics = arguments.metrics.empty() ? known : chosen_metrics(arguments, known);
  std::vector<std::string> notes;
  if (metrics.size() > kMaxReportCharts) {
    notes.push_back(
        fmt::format("{} of {} metrics are shown; choose others with --metric", kMaxReportCharts, metrics.size()));
    metrics.resize(kMaxReportCharts);
  }
  std::vector<Chart> charts;
  for (const std::string& metric : metrics)
    if (Chart chart = chart_of(arguments, runs, metric, 500); !chart.empty()) charts.push_back(std::move(chart));
  if (charts.empty()) throw_error("plot: the log has no finite values yet; wait for the first step");
  std::vector<RunSummary> summaries;
  for (const PlottedRun& run : runs) {
    summaries.push_back(summary_of(*run.metrics, run.name));
    for (const RunMessage& message : run.metrics->messages())
      if (message.alarm) notes.push_back(fmt::format("alarm in {}, step {}: {}", run.name, message.step, message.text));
  }
  if (!arguments.html.empty()) write_report(arguments.html, html_report(summaries, charts, notes));
  if (!arguments.svg.empty()) write_report(arguments.svg, svg_file(charts));
}

PlotArguments with_output(PlotArguments arguments) {
  if (arguments.output.empty()) return arguments;
  const bool html = arguments.output.ends_with(".html") || arguments.output.ends_with(".htm");
  if (!html && !arguments.output.ends_with(".svg"))
    throw UsageError(
        fmt::format("plot: -o {}: the kind of file is unknown; end the name with .html or .svg", arguments.output));
  (html ? arguments.html : arguments.svg) = arguments.output;
  return arguments;
}

int plot(const PlotArguments& given) {
  const PlotArguments arguments = with_output(given);
  const bool writes_files = !arguments.html.empty() || !arguments.svg.empty();
  if (arguments.follow && writes_files)
    throw UsageError("plot: --follow draws in the terminal; omit it to write a file");
  if (arguments.follow && ::isatty(STDOUT_FILENO) != 1)
    throw UsageError("plot: --follow redraws in place, but standard output is not a terminal; omit --follow");
  std::vector<PlottedRun> runs = open_runs(arguments);
  if (arguments.follow) {
    follow(arguments, runs);
    return kDone;
  }
  for (PlottedRun& run : runs) {
    run.metrics->update();
    if (run.metrics->skipped_lines() > 0)
      print_stderr("lockstep: plot: skipped {} in the metrics of {}\n",
                   counted(run.metrics->skipped_lines(), "damaged line"), run.name);
    if (run.metrics->series().empty())
      throw_error("plot: {} has logged no metrics yet; wait for the first step, or use --follow", run.name);
  }
  check_epochs(arguments, runs);
  if (writes_files)
    write_reports(arguments, runs);
  else
    print(terminal_text(arguments, runs));
  return kDone;
}

CLI::Validator smoothing() {
  return CLI::Validator(
      [](const std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool valid = !text.empty() && *end == '\0' && value >= 0 && value < 1;
        return valid ? std::string() : fmt::format("\"{}\" is not a number from 0 to below 1", printable(text));
      },
      "");
}

}  // namespace

void add_plot_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("plot", "draw the metrics of runs in the terminal, or write a report");
  auto arguments = std::make_shared<PlotArguments>();
  command->add_option("RUN", arguments->runs, "run folders, names of runs, or metrics.jsonl files (default: last)")
      ->type_name("");
  command->add_option("--metric", arguments->metrics, "metrics, separated by commas (default: loss and accuracy)")
      ->type_name("NAMES")
      ->delimiter(',');
  command->add_option("--x", arguments->x, "the horizontal axis (default: step)")
      ->check(one_of({"step", "time", "epoch"}));
  command
      ->add_option("--smooth", arguments->smooth,
                   "average exponentially with this weight of earlier values, such as 0.9")
      ->type_name("WEIGHT")
      ->check(smoothing());
  command->add_flag("--log", arguments->logarithmic, "logarithmic vertical axis");
  command->add_flag("-f,--follow", arguments->follow, "redraw until the runs have ended, or until Ctrl-C");
  command->add_option("--width", arguments->width, "columns of a chart (default: those of the terminal)")
      ->type_name("N")
      ->check(integer_between(kMinWidth, 1000));
  command->add_option("--height", arguments->height, "lines of a chart")
      ->type_name("N")
      ->check(integer_between(kMinHeight, 200));
  command->add_flag("--ascii", arguments->ascii, "draw with ASCII characters (default unless the locale is UTF-8)");
  command->add_option("--html", arguments->html, "write a report with curves, results and settings")->type_name("FILE");
  command->add_option("--svg", arguments->svg, "write the curves as SVG")->type_name("FILE");
  command->add_option("-o,--output", arguments->output, "write FILE.html or FILE.svg")->type_name("FILE");
  add_examples(*command, {"lockstep plot last --smooth 0.9", "lockstep plot run1 run2 --metric loss,test_accuracy",
                          "lockstep plot run1 run2 -o report.html"});
  command->callback([arguments, &action] { action = [arguments] { return plot(*arguments); }; });
}

}  // namespace lockstep::cli
