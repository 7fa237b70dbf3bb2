// TensorBoard event files: a sequence of records, each with its length, the masked CRC-32C of the length, the bytes,
// and the masked CRC-32C of the bytes. The bytes are an Event message of TensorFlow's event.proto, encoded here
// without a protobuf library. docs/reference/file-formats.md describes the layout. Pure functions, safe from any
// thread; ScalarsEvent is not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/loggers.h"

namespace lockstep::detail {

// Appends one record.
void append_record(std::string& out, std::string_view bytes);

// Serialized Event messages, to be appended as records. `time` is in seconds since 1970.
std::string version_event(double time);  // must be the first record of a file
// Makes readers discard the data of earlier files of the run for `step` and later steps.
std::string session_start_event(double time, int64_t step);
std::string text_event(double time, int64_t step, std::string_view tag, std::string_view markdown);

// An image, encoded as a PNG file; a histogram.
std::string image_event(double time, int64_t step, std::string_view tag, const LogImage& image);
std::string histogram_event(double time, int64_t step, std::string_view tag, const Histogram& histogram);

// Hyperparameters, for TensorBoard's HParams plugin. Values that look like numbers or booleans are stored as such.
using Config = std::map<std::string, std::string>;
std::string experiment_event(double time, int64_t step, const Config& config, const std::vector<std::string>& metrics);
std::string run_start_event(double time, int64_t step, const Config& config);
std::string run_end_event(double time, int64_t step);

// Builds an Event with one value per scalar. Reuses its memory.
class ScalarsEvent {
 public:
  void begin(double time, int64_t step);
  void add(std::string_view tag, float value);
  // Appends the record.
  void end(std::string& out);

 private:
  std::string head_, values_;
};

}  // namespace lockstep::detail
