// The program of an exported model. Pure functions, safe from any thread.
#pragma once

#include <functional>

#include "export/export_model.h"
#include "lockstep/trace.h"
#include "program/program.h"

namespace lockstep {

// The inputs of the program are the parameters, the input of the model, and captured constants.
struct ModelProgram {
  Program program;
  std::vector<Array> captures;
};

// Traces the model for `batch` examples, of `tokens` tokens if it is a language model, and simplifies the program. Ops
// that `is_written` excludes are replaced by their programs.
ModelProgram trace_model(const ExportedModel& model, int64_t batch, int64_t tokens,
                         const std::function<bool(const Op&)>& is_written);

// The name of the input, and of each output.
std::string input_name(const ExportedModel& model);
std::vector<std::string> output_names(const ExportedModel& model);

// The elements of an array in row-major order.
std::string array_bytes(const Array& array);

}  // namespace lockstep
