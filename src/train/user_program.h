// The program of a user, with its own task and settings (see lockstep/train_main.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/settings.h"

namespace lockstep {

struct ConfigKey;

// While the object exists, the keys of this process are the program's own settings and those of the trainer. The keys
// that select and configure lockstep's models and data sets do not exist. Not thread-safe: made by main() before
// anything else.
class UserProgram {
 public:
  // Throws Error when a setting has the name of a flag of the trainer, or a default that its own limits exclude.
  UserProgram(std::string name, std::vector<detail::SettingRow> rows);
  ~UserProgram();
  UserProgram(const UserProgram&) = delete;
  UserProgram& operator=(const UserProgram&) = delete;
};

// The functions below are safe from any thread while no UserProgram is made or destroyed.
bool is_user_program();
std::string program_name();   // "lockstep", or the name of the user's program
std::string train_command();  // "lockstep train", or the name of the user's program

// The defaults of the settings of the user's program; empty if there is none.
NamedSettings initial_user_settings();
// The keys of this process; empty if this is not a user's program.
const std::vector<ConfigKey>& user_program_keys();

}  // namespace lockstep
