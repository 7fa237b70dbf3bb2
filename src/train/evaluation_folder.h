// The folder `evaluation` of a run: report.json with the results of its last evaluation and, of a classifier of images,
// worst.png with its worst mistakes. docs/reference/run-folder.md has the format. Used by the main thread of the first
// process.
#pragma once

#include <string>

#include "train/evaluation_json.h"

namespace lockstep {

inline constexpr size_t kStoredMistakes = 25;  // a ClassificationReport that is stored keeps this many

// Where the results come from.
struct EvaluationOrigin {
  int64_t step = 0;     // of the evaluated model
  std::string dataset;  // empty: that of a user's program
  SourcePtr source;     // the examples
};

// Replaces the files. Does nothing for a model without classes. A file that cannot be written causes a warning.
void store_evaluation(const std::string& run_folder, const EvaluationReport& evaluation,
                      const EvaluationOrigin& origin);

// The run folder that contains a checkpoint, or is `path` itself; empty if there is none.
std::string run_folder_of(const std::string& path);

}  // namespace lockstep
