#include "hardware/gpu_launch.h"

#include <fmt/format.h>

#include <mutex>

namespace lockstep {
namespace {

thread_local const GpuLaunch* current = nullptr;

// The last launch of the process.
struct LastLaunch {
  std::mutex mutex;
  int64_t number = 0;
  size_t ops = 0;
  std::string_view first, last;
};
LastLaunch& last_launch() {
  static auto* const last = new LastLaunch;
  return *last;
}

std::string launch_text(int64_t number, size_t ops, std::string_view first, std::string_view last) {
  if (ops == 1) return fmt::format("launch {} (of {})", number, first);
  return fmt::format("launch {} ({} ops, from {} to {})", number, ops, first, last);
}

}  // namespace

GpuLaunch::GpuLaunch(size_t ops, std::string_view first, std::string_view last)
    : ops_(ops), first_(first), last_(last), outer_(current) {
  current = this;
  if (outer_) return;
  LastLaunch& last_one = last_launch();
  const std::lock_guard lock(last_one.mutex);
  number_ = ++last_one.number;
  last_one.ops = ops;
  last_one.first = first;
  last_one.last = last;
}

GpuLaunch::~GpuLaunch() { current = outer_; }

std::string GpuLaunch::text() const {
  if (current_op_ == 0) return outer_ ? outer_->text() : launch_text(number_, ops_, first_, last_);
  return fmt::format("op {} of {}, {}, of {}", current_op_, ops_, name_,
                     outer_ ? outer_->text() : fmt::format("launch {}", number_));
}

std::string GpuLaunch::where() {
  if (current) return " in " + current->text();
  LastLaunch& last_one = last_launch();
  const std::lock_guard lock(last_one.mutex);
  return last_one.number == 0 ? ""
                              : " after " + launch_text(last_one.number, last_one.ops, last_one.first, last_one.last);
}

}  // namespace lockstep
