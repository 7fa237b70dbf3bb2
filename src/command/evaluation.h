// What `lockstep eval` and the eval command of users' programs do with a model: evaluate it, print a report, keep it in the
// folder of the run, and write a contact sheet. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "lockstep/engine.h"

namespace lockstep::cli {

struct ReportFlags {
  std::string format = "text";
  std::vector<std::string> worst;  // a number, and a file or nothing; empty: no contact sheet
};

// Adds -o text|json and --worst N [FILE]. REQUIRES: flags outlives the parse.
void add_report_flags(CLI::App& command, ReportFlags& flags);

// What is evaluated. `name`: "test" or "validation".
struct EvaluatedSet {
  SourcePtr source;
  std::string name;
  std::vector<std::string> class_names = {};
  int64_t batch_size = 1000;
  std::string run_folder = {};  // keeps the results; empty: they are only printed
  std::string dataset = {};     // empty: that of a user's program
};

// Evaluates, prints and keeps the results, in the first process of a job. Returns the exit code. Throws UsageError for
// wrong flags.
int evaluate_and_report(Engine& engine, const TrainState& state, const EvaluatedSet& set, const ReportFlags& flags);

}  // namespace lockstep::cli
