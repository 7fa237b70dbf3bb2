// A report of runs as one HTML file: curves, results and settings. It needs no other files and no network. Pure
// functions, safe from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "charts/chart.h"

namespace lockstep::charts {

// What a report says about a run besides its curves.
struct RunSummary {
  std::string name, title, state;  // state: "ended", "not ended"
  int64_t step = 0, total_steps = 0;
  double seconds = 0;
  std::vector<std::pair<std::string, double>> results;      // the last value of each metric
  std::vector<std::pair<std::string, std::string>> config;  // the settings
};

RunSummary summary_of(const RunMetrics& run, const std::string& name);

// `notes` are shown above the charts.
std::string html_report(const std::vector<RunSummary>& runs, const std::vector<Chart>& charts,
                        const std::vector<std::string>& notes);

// A row of the table of settings: the value of each run ("" if it has none), and whether they differ.
struct SettingRow {
  std::string key;
  std::vector<std::string> values;
  bool differs = false;
};
// The settings of all runs, in order of their names; those that differ first.
std::vector<SettingRow> compare_settings(const std::vector<RunSummary>& runs);

}  // namespace lockstep::charts
