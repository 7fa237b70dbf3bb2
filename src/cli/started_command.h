// The command that `lockstep launch` and `lockstep submit` start: the words after "--". Used by the main thread only.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

inline constexpr const char* kLaunchExample = "such as `lockstep launch -n 2 --devices 8 -- train --model mlp`";
inline constexpr const char* kSubmitExample = "such as `lockstep submit -n 2 --name mnist -- train --model mlp`";

// The words after "--", which take_launched_command() has stored.
std::vector<std::string>& command_after_dashes();

// The names of all subcommands of lockstep.
std::vector<std::string> names_of_commands();

}  // namespace lockstep::cli
