// The subcommands of `lockstep data` for tokenizers. Used by the main thread only.
#pragma once

#include "cli/command.h"

namespace lockstep::cli {

// Adds `lockstep data tokenize` and `lockstep data train-tokenizer`. REQUIRES: action outlives the parse.
void add_tokenizer_commands(CLI::App& data, Action& action);

}  // namespace lockstep::cli
