// Checks the value of a variable of manifest templates. Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jobs/kubernetes/variable_rows.h"

namespace lockstep {

// Throws Error: "variables: NAME is VALUE; REMEDY".
[[noreturn]] void throw_invalid_variable(const std::string& name, const nlohmann::ordered_json& value,
                                         const std::string& remedy);

// Throws Error, naming the variable, its value and the remedy, if the value is invalid for the row's type.
void check_variable(const VariableRow& row, const nlohmann::ordered_json& value);

// A volume of the variable `volumes`: "CLAIM:PATH" or "CLAIM:PATH:ro".
struct ClaimMount {
  std::string claim, path;
  bool read_only = false;
};
// REQUIRES: the text has passed check_variable().
ClaimMount parse_claim_mount(const std::string& text);

// A range of ports: "61000-64999".
struct PortNumbers {
  int first = 0, last = 0;
};
// REQUIRES: the text has passed check_variable().
PortNumbers parse_port_numbers(const std::string& text);

}  // namespace lockstep
