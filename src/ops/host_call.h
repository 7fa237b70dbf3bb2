// Equations that call functions of the host: debug_callback, for its effect, and pure_callback, for its results. Safe from
// any thread.
#pragma once

#include <string>

#include "program/builder.h"
#include "program/effects.h"
#include "program/host_function.h"

namespace lockstep {

// While it exists, this thread is in a function of the host.
class HostCallScope {
 public:
  HostCallScope();
  ~HostCallScope();
  HostCallScope(const HostCallScope&) = delete;
  HostCallScope& operator=(const HostCallScope&) = delete;

 private:
  const bool before_;
};

// Whether this thread is in a function of the host.
bool in_host_call();

// Calls the function for its effect when the operands are computed. The result is zero. `text` describes the call in
// printed programs.
Value debug_callback(Builder& b, const Values& operands, HostFunctionPtr function, std::string text, Effect effect);

// The results of the function, of these types.
Values pure_callback(Builder& b, const Values& operands, HostFunctionPtr function, const std::vector<Type>& results);

}  // namespace lockstep
