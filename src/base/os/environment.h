// The environment variables of this process; docs/reference/environment.md lists those that lockstep reads. Safe from
// any thread while none changes the environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

namespace detail {
// Names and values.
using Environment = std::map<std::string, std::string>;
}  // namespace detail

// The value of a variable; nullopt if it is not set or empty.
std::optional<std::string> environment_variable(const char* name);

// The same, but an empty value is returned as such. For variables of others to which that has a meaning of its own, as
// an empty CUDA_VISIBLE_DEVICES hides all GPUs.
std::optional<std::string> environment_variable_even_if_empty(const char* name);

// Sets a variable for this process and those that it starts. REQUIRES: no other thread uses the environment.
void set_environment_variable(const char* name, const std::string& value);

// All variables.
detail::Environment own_environment();

// `NAME=value` for each variable, as processes are started with.
std::vector<std::string> environment_strings(const detail::Environment& environment);

// The integer in `text`, the value of the variable `name`. Throws Error unless it is in low ... high:
// `lanes: LOCKSTEP_CPU_LANES is "two"; set it to a number from 1 to 1024, or unset it`, where `what` is "lanes".
int64_t number_in_variable(std::string_view what, std::string_view name, std::string_view text, int64_t low,
                           int64_t high);

}  // namespace lockstep
