// GpuLaunch: what a GPU is given now, so that an error can name it: a GPU says that something went wrong, often later,
// and never in what. One lives while a plan is queued; those of sub-programs live inside. Errors may be made on any
// thread; a launch belongs to its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class GpuLaunch {
 public:
  // Of so many ops, from the first to the last. REQUIRES: the names are never destroyed.
  GpuLaunch(size_t ops, std::string_view first, std::string_view last);
  ~GpuLaunch();
  GpuLaunch(const GpuLaunch&) = delete;
  GpuLaunch& operator=(const GpuLaunch&) = delete;

  // Now op i, from 0, is queued.
  void at(size_t i, std::string_view name) {
    now_ = i + 1;
    name_ = name;
  }

  // " in op 7 of 42, einsum, of launch 12"; " in launch 12 (42 ops, from iota to fused)" where all are queued at once;
  // " after launch 12 (...)" where none is being queued; empty before the first one.
  static std::string where();

 private:
  std::string text() const;

  size_t ops_, now_ = 0;
  std::string_view first_, last_, name_;
  int64_t number_ = 0;  // 0: inside of another
  const GpuLaunch* outer_;
};

}  // namespace lockstep
