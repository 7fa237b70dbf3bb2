// Sets an environment variable of this process, and of programs it starts, for a scope. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

class ScopedVariable {
 public:
  // Without a value, unsets the variable.
  ScopedVariable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ScopedVariable(std::string, std::nullptr_t) = delete;
  ~ScopedVariable() { set(before_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    value ? ::setenv(name_.c_str(), value->c_str(), 1) : ::unsetenv(name_.c_str());
  }

  const std::string name_;
  std::optional<std::string> before_;
};

}  // namespace lockstep
