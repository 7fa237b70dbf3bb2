// Reads the numbers of nested JSON arrays, such as the examples of a request, without a tree of values: that would take
// many times the memory of the text. Pure function.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct NumberRange {
  double low = std::numeric_limits<float>::lowest(), high = std::numeric_limits<float>::max();
};

struct Numbers {
  size_t count = 0;
  std::vector<float> values;  // the first `most` of them
};

// Throws Error if the text is not JSON, nested deeper than 8 arrays, or has something else than numbers in this range.
Numbers read_numbers(std::string_view text, size_t most, const NumberRange& range);

}  // namespace lockstep::cli
