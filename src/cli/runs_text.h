// Formats runs as tables and text, for `lockstep runs`. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "jobs/table.h"
#include "train/run_folders.h"

namespace lockstep::cli {

// The keys of the settings that differ between the runs, without folders and settings of the output.
std::vector<std::string> differing_settings(const std::vector<ListedRun>& runs);
// The value of a setting as it is shown: "-" if it is empty or the run does not have it.
std::string setting_text(const ListedRun& run, const std::string& key);
// "0.9815", "1.274e-05".
std::string metric_text(double value);

struct RunTableOptions {
  std::string metric;  // empty: the main metric of each run
  bool wide = false;   // more columns, and all settings that differ
  bool headers = true;
  size_t columns = 0;  // of the terminal: columns of the table that do not fit are left out; 0: all fit
};
struct RunTable {
  std::vector<TableRow> rows;
  std::vector<std::string> hidden;  // settings that differ, but are not in the table
};
RunTable table_of_runs(const std::vector<ListedRun>& runs, const RunTableOptions& options, JobTime now);

// The description of a run.
std::string describe_run(const ListedRun& run, const std::vector<std::string>& checkpoints, JobTime now);

// The settings that differ and the metrics of the runs, one column for each.
std::vector<TableRow> compare_runs(const std::vector<ListedRun>& runs);

// A time of a record.
JobTime time_of(double unix_seconds);
// How long the run has trained since it was last started: "45s".
std::string run_time_text(const ListedRun& run, JobTime now);

}  // namespace lockstep::cli
