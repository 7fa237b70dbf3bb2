// Names of text data sets: "moby-dick", "text:PATH", "tokens:TRAIN,VALIDATION". Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

struct TextSpec {
  enum class Kind { named, text, tokens };
  Kind kind = Kind::named;
  std::string train;            // the name of the set, or a path
  std::string validation = {};  // a path; empty: none
};

// Throws Error when the name is not one of a text data set, has an empty path or more than two.
TextSpec parse_text_spec(std::string_view dataset);

// The named data sets of text.
std::vector<std::string> named_text_sets();

}  // namespace lockstep::detail
