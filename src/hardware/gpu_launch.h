// GpuLaunch: names the work that is being enqueued on a GPU, for error messages. CUDA reports that something failed,
// often later, but not which op. A GpuLaunch exists while a plan is enqueued; those of sub-programs are nested inside.
// A launch belongs to the thread that made it; where() is safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class GpuLaunch {
 public:
  // A launch of `ops` ops, named by its first and its last. REQUIRES: the names are never destroyed.
  GpuLaunch(size_t ops, std::string_view first, std::string_view last);
  ~GpuLaunch();
  GpuLaunch(const GpuLaunch&) = delete;
  GpuLaunch& operator=(const GpuLaunch&) = delete;

  // Op i, counted from 0, is enqueued next.
  void set_current_op(size_t i, std::string_view name) {
    current_op_ = i + 1;
    name_ = name;
  }

  // " in op 7 of 42, einsum, of launch 12"; " in launch 12 (42 ops, from iota to fused)" if they are enqueued as one
  // graph; " after launch 12 (...)" if this thread is not enqueueing; empty before the first launch.
  static std::string where();

 private:
  std::string text() const;

  size_t ops_, current_op_ = 0;
  std::string_view first_, last_, name_;
  int64_t number_ = 0;  // 0 if nested in another launch
  const GpuLaunch* outer_;
};

}  // namespace lockstep
