#include "lane/gpu_launch.h"

#include <fmt/format.h>

#include <mutex>

namespace lockstep {
namespace {

thread_local const GpuLaunch* current = nullptr;

// The last launch of the process.
struct Last {
  std::mutex mutex;
  int64_t number = 0;
  size_t ops = 0;
  std::string_view first, last;
};
Last& last_launch() {
  static auto* const last = new Last;
  return *last;
}

std::string whole(int64_t number, size_t ops, std::string_view first, std::string_view last) {
  if (ops == 1) return fmt::format("launch {} (of {})", number, first);
  return fmt::format("launch {} ({} ops, from {} to {})", number, ops, first, last);
}

}  // namespace

GpuLaunch::GpuLaunch(size_t ops, std::string_view first, std::string_view last)
    : ops_(ops), first_(first), last_(last), outer_(current) {
  current = this;
  if (outer_) return;
  Last& all = last_launch();
  const std::lock_guard lock(all.mutex);
  number_ = ++all.number;
  all.ops = ops;
  all.first = first;
  all.last = last;
}

GpuLaunch::~GpuLaunch() { current = outer_; }

std::string GpuLaunch::text() const {
  if (now_ == 0) return outer_ ? outer_->text() : whole(number_, ops_, first_, last_);
  return fmt::format("op {} of {}, {}, of {}", now_, ops_, name_,
                     outer_ ? outer_->text() : fmt::format("launch {}", number_));
}

std::string GpuLaunch::where() {
  if (current) return " in " + current->text();
  Last& all = last_launch();
  const std::lock_guard lock(all.mutex);
  return all.number == 0 ? "" : " after " + whole(all.number, all.ops, all.first, all.last);
}

}  // namespace lockstep
