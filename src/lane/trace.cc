#include "lane/trace.h"

#include <chrono>
#include <utility>

namespace lockstep {
namespace {

struct Recorded {
  std::mutex mutex;
  std::vector<TraceSpan> spans;
  std::vector<std::function<void()>> finishers;
};

// Never destroyed: a thread may end a span while the process exits.
Recorded& recorded() {
  static auto* const all = new Recorded;
  return *all;
}

}  // namespace

std::string_view to_string(TraceSpan::Kind kind) {
  constexpr std::string_view kNames[] = {"step",       "data",       "dispatch",  "compute",
                                         "collective", "checkpoint", "evaluation"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t Trace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Trace::start() {
  Recorded& all = recorded();
  const std::lock_guard lock(all.mutex);
  all.spans.clear();
  on_ = true;
}

std::vector<TraceSpan> Trace::stop() {
  on_ = false;
  Recorded& all = recorded();
  std::vector<std::function<void()>> finishers;
  {
    const std::lock_guard lock(all.mutex);
    finishers.swap(all.finishers);
  }
  for (const auto& finish : finishers) finish();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.spans, {});
}

void Trace::add(TraceSpan span) {
  Recorded& all = recorded();
  const std::lock_guard lock(all.mutex);
  all.spans.push_back(std::move(span));
}

void Trace::at_stop(std::function<void()> finish) {
  Recorded& all = recorded();
  const std::lock_guard lock(all.mutex);
  all.finishers.push_back(std::move(finish));
}

}  // namespace lockstep
