// HostFunction: a function of the host that programs call. Equations hold it as an attribute, so it goes with the last
// program that refers to it. It is compared, hashed and printed by its number. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "program/op.h"

namespace lockstep {

// Reads one example's operands and writes its results: dense buffers in host memory.
using HostCall = std::function<void(Types in, const void* const* operands, Types out, void* const* results)>;

class HostFunction {
 public:
  // A function with a number of its own. With a key other than "": the function of this key that a program still refers to,
  // if there is one; then `call` is dropped.
  static HostFunctionPtr make(HostCall call, const std::string& key = "");
  // A function without effects, whose results are zero. Its number is 0.
  static HostFunctionPtr none();
  // The function of this number, for the parser. If no program refers to it, or it is from another process, one that
  // cannot be called.
  static HostFunctionPtr of_number(int64_t number);

  HostFunction(const HostFunction&) = delete;
  HostFunction& operator=(const HostFunction&) = delete;
  ~HostFunction();

  int64_t number() const { return number_; }
  // Throws Error if it cannot be called.
  const HostCall& call() const;
  // How many functions exist in this process.
  static size_t count();

 private:
  class Registry;
  HostFunction(int64_t number, HostCall call, std::string key)
      : number_(number), call_(std::move(call)), key_(std::move(key)) {}

  const int64_t number_;
  const HostCall call_;  // empty: cannot be called
  const std::string key_;
};

}  // namespace lockstep
