// Functions of the host that programs call: debug_callback, for its effect, and pure_callback, for its results. A program
// refers to a function by its number. Safe from any thread.
#pragma once

#include <functional>
#include <string>

#include "program/builder.h"
#include "program/effects.h"

namespace lockstep {

// Reads one example's operands and writes its results: dense buffers in host memory.
using HostCall = std::function<void(Types in, const void* const* operands, Types out, void* const* results)>;

// Returns the number of a function, which is kept until the process ends. Functions of the same key other than "" are the
// same function: the first is kept. Number 0 is a function without effects and results.
int64_t add_host_call(HostCall call, const std::string& key = "");

// Whether this thread is in a HostCall.
bool in_host_call();

// Calls function `callback` for its effect when the operands are computed. The result is zero. `text` describes the call in
// printed programs.
Value debug_callback(Builder& b, const Values& operands, int64_t callback, std::string text, Effect effect);

// The results of function `callback`, of these types.
Values pure_callback(Builder& b, const Values& operands, int64_t callback, const std::vector<Type>& results);

}  // namespace lockstep
