#include "train/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "base/text_bytes.h"
#include "lane/lane.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "train/trace_file.h"

namespace lockstep::detail {

StepTrace::~StepTrace() {
  if (state_ != State::on) return;
  try {
    Trace::stop();
  } catch (const std::exception&) {  // a GPU that is lost cannot be asked for times
  }
}

void StepTrace::begin(int64_t done) {
  state_ = done >= options_.last_step ? State::done : State::on;
  if (state_ == State::on) Trace::start();
}

void StepTrace::end() {
  state_ = State::done;
  spans_ = Trace::stop();
}

int64_t StepTrace::steps_until(int64_t done) const {
  if (options_.file.empty() || state_ == State::done || done >= options_.last_step)
    return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(options_.first_step - 1 - done, 1);
}

void StepTrace::write(const Note& note) {
  if (options_.file.empty()) return;
  if (state_ == State::on) end();
  const std::string folder = options_.folder.empty() ? options_.file + ".ranks" : options_.folder;
  FileSystem& files = FileSystem::real();
  const int rank = process_index(), lanes = static_cast<int>(local_lane_count());
  try {
    if (spans_.empty())
      note(fmt::format("the trace is empty: no step from {} to {} was run", options_.first_step, options_.last_step),
           true);
    files.make_dirs(folder);
    files.write(rank_trace_path(folder, rank), text_bytes(trace_json(spans_, rank, lanes)));
  } catch (const IoError& error) {
    note(fmt::format("the trace of rank {} is lost: {}", rank, error.what()), true);
  }
  if (process_count() > 1) distributed::sync("trace");
  if (rank != 0) return;
  try {
    for (const std::string& problem : join_traces(files, folder, process_count(), lanes, options_.file))
      note("the trace is incomplete: " + problem, true);
    note(fmt::format("the trace is in {}; open it at https://ui.perfetto.dev", options_.file), false);
  } catch (const IoError& error) {
    note(fmt::format("the trace cannot be written: {}", error.what()), true);
  }
}

}  // namespace lockstep::detail
