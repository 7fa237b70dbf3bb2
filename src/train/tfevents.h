// TensorBoard's event files: records (length, masked CRC-32C of it, bytes, masked CRC-32C of them), each an Event
// message of TensorFlow's event.proto, written by hand. Pure functions that append to a string: any thread may call
// them. The layout is described in docs/reference/file-formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Appends one record.
void append_record(std::string& out, std::string_view bytes);

// Serialised Event messages, to be put in records. `time` is in seconds since 1970.
std::string version_event(double time);  // must be the first of a file
// Tells readers to forget what an earlier file of the run says of `step` and later ones.
std::string session_start_event(double time, int64_t step);
std::string text_event(double time, int64_t step, std::string_view tag, std::string_view markdown);

// Hyperparameters, for the plugin of that name. Values that read as numbers or as true and false are given as such.
using Config = std::map<std::string, std::string>;
std::string experiment_event(double time, int64_t step, const Config& config, const std::vector<std::string>& metrics);
std::string run_start_event(double time, int64_t step, const Config& config);
std::string run_end_event(double time, int64_t step);

// One Event with a value per scalar. The object keeps its memory from call to call.
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
