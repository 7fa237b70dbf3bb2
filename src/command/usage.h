// Messages about wrong command lines, in the style of this program instead of the parser's. Used by the main thread
// only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

// Returns the words with `help train` and `train help` replaced by `train --help`. A command line without words becomes
// `--help` if a command is required. `train help` is left alone where a file named "help" exists. Throws UsageError for an unknown command after
// `help`.
std::vector<char*> replace_help_words(const CLI::App& program, int argc, char** argv);

// Throws UsageError for `--flag=` and `--switch=x`. The parser would use the next word as the value of the first, and
// read x as a number in the second.
void check_words(const CLI::App& program, int argc, char** argv);

// Returns the message for an error of the parser, with the subcommand that it concerns:
// `data fetch: unknown flag --dri; did you mean "--dir"? see `lockstep data fetch --help``.
std::string usage_error(const CLI::App& program, const CLI::ParseError& error);

}  // namespace lockstep::cli
