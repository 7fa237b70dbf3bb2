// EagerCalls: the programs of recent calls outside of traces, found without making them again. Safe from any thread.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/trace.h"
#include "program/program.h"

namespace lockstep::detail {

class Executable;

// A program without captures that is ready to run on some arguments.
struct EagerProgram {
  std::shared_ptr<Executable> executable;
  Shardings shardings;  // to set on the results; may be empty
};
EagerProgram compile_now(const Program& program, std::span<const Array> args);
Arrays run_now(const EagerProgram& program, std::span<const Array* const> args);

// Whether the pieces of an array are divided over several processes.
bool is_across_processes(const Array& a);

// What a call does, beside the types of its operands: function pointers, numbers, shapes. Empty: not known.
class CallKey {
 public:
  CallKey() = default;
  // `what` is the name of the public function, as a literal: its address is a part of the key.
  template <class... Parts>
  explicit CallKey(const char* what, const Parts&... parts) {
    add(what);
    (add(parts), ...);
  }
  CallKey(const CallKey& other) { *this = other; }
  CallKey& operator=(const CallKey& other) {
    used_ = other.used_;
    std::memcpy(bytes_, other.bytes_, other.bytes().size());
    return *this;
  }

  // Empty if the parts are too long.
  std::string_view bytes() const { return {bytes_, used_ <= sizeof bytes_ ? used_ : 0}; }

  template <class T>
  requires(std::has_unique_object_representations_v<T>) void add(const T& part) { add_bytes(&part, sizeof part); }
  void add(double part) { add_bytes(&part, sizeof part); }
  template <class T>
  void add(const std::vector<T>& parts) {
    add(parts.size());
    for (const T& part : parts) add(part);
  }
  template <class T>
  void add(const std::optional<T>& part) {
    add(part.has_value());
    if (part) add(*part);
  }

 private:
  void add_bytes(const void* data, size_t n) {
    if (used_ + n <= sizeof bytes_) std::memcpy(bytes_ + used_, data, n);
    used_ += n;
  }

  size_t used_ = 0;
  char bytes_[256];
};

// The program of the call with this key and these arguments, for which a former call made it; null if there is none, or if
// the arguments must be checked first. REQUIRES: no trace is open, and no argument is empty.
class EagerCall {
 public:
  EagerCall(const CallKey& key, std::span<const Array> args, std::optional<DType> literal_dtype);
  bool is_known() const { return program_ != nullptr; }
  // REQUIRES: is_known().
  Arrays run() const;
  // Keeps the program for later calls, unless the call has no key. `inputs` are the arrays for its inputs.
  void keep(EagerProgram program, std::span<const Array> inputs) const;

 private:
  struct Known;
  friend class EagerCalls;

  const std::span<const Array> args_;
  CallKey key_;
  size_t hash_ = 0;
  std::shared_ptr<const Known> program_;
};

}  // namespace lockstep::detail
