// Manual pages in the format of man(7), from the same parser as the help. Used by the main thread only.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

struct ManPage {
  std::string name;  // "lockstep-data-fetch"; its file is NAME.1
  std::string text;
};

// A section that the parser does not know: its title and rows of a name and a description.
struct ManSection {
  std::string title, introduction;
  std::vector<std::pair<std::string, std::string>> rows;
};

// The pages of a program and of all its commands, except hidden ones. `sections` come before the examples of the
// program's page. `version` is in the footer: "lockstep 0.1.0".
std::vector<ManPage> man_pages(const CLI::App& program, const std::string& version,
                               const std::vector<ManSection>& sections);

}  // namespace lockstep::cli
