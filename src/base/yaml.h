// YAML from outside. Every such text goes through load_yaml(), which bounds its size, depth and counts, with aliases
// expanded, before it builds a value. Pure functions, safe from any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct YamlLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 64;           // maps and lists inside each other, aliases expanded
  size_t values = 50'000;   // of a document, with maps, lists and keys, aliases expanded
  size_t keys = 10'000;     // of one map
  size_t key_bytes = 4096;  // of one key
  size_t documents = 10'000;
};

// All documents of a text. `source` names it in messages. Throws Error naming source, line and limit, also for an alias
// inside its own anchor; YAML::Exception for what is not YAML.
std::vector<YAML::Node> load_yaml(const std::string& text, std::string_view source, const YamlLimits& limits = {});

}  // namespace lockstep
