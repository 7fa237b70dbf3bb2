// The table of the variables of manifest templates: name, type, help, and the kinds that have the variable. Pure
// functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jobs/kubernetes/variables.h"

namespace lockstep {

enum class VariableType {
  integer,
  text,
  image,
  flag,
  list,         // of strings
  env,          // an object of strings, with names of environment variables
  labels,       // an object of strings, with label keys and label values
  annotations,  // an object of strings, with label keys
  service,      // a DNS label that starts with a letter: also a Service has this name
  label,        // a DNS label
  domain,       // DNS labels, separated by dots: the name of most objects
  domains,      // a list of them
  resource,
  quantity,
  gpus,
  path,
  ports,    // a range
  volumes,  // a list of CLAIM:PATH
  object,
  objects  // a list of objects
};

struct VariableRow {
  ManifestVariable shown;
  VariableType type;
  int64_t low = 0, high = 0;                                 // range of an integer
  const char* kinds = "indexed-job jaxjob jobset trainjob";  // the kinds that have it
};

const std::vector<VariableRow>& variable_rows();

// Null if there is no such variable.
const VariableRow* find_variable_row(const std::string& name);

}  // namespace lockstep
