// Parsing of untrusted YAML. load_yaml() limits size, depth and counts, with aliases expanded, before it builds a value.
// Pure functions, safe from any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct YamlLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 64;           // nested maps and lists, aliases expanded
  size_t values = 50'000;   // per document, including maps, lists and keys, aliases expanded
  size_t keys = 10'000;     // per map
  size_t key_bytes = 4096;  // per key
  size_t documents = 10'000;
};

// Parses all documents of a text. `source` names it in messages. Throws Error with source, line and limit, also for an
// alias inside its own anchor. Throws YAML::Exception if the text is not YAML.
std::vector<YAML::Node> load_yaml(const std::string& text, std::string_view source, const YamlLimits& limits = {});

}  // namespace lockstep
