// What is wrong with a command line, in sentences of our own instead of the parser's. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

// The words with `help train` written as `train --help`; a line without any words asks for help, too. Throws UsageError
// for help on a command that does not exist.
std::vector<char*> with_help_flag(const CLI::App& program, int argc, char** argv);

// Throws UsageError for what the parser would accept or misread: `--flag=` takes the next word, and `--switch=x` is a
// number to it.
void check_words(const CLI::App& program, int argc, char** argv);

// The sentence for an error of the parser, said of the subcommand where it is:
// `data fetch: no flag --dri; did you mean "--dir"? ...`.
std::string usage_error(const CLI::App& program, const CLI::ParseError& error);

}  // namespace lockstep::cli
