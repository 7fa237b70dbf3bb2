#include "lockstep/optimizers.h"

namespace lockstep {

bool matches(std::string_view pattern, std::string_view path) {
  // `star` is the position of the last * in the pattern. It currently matches the path up to `from`.
  size_t p = 0, s = 0, star = std::string_view::npos, from = 0;
  while (s < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = s;
    } else if (p < pattern.size() && pattern[p] == path[s]) {
      ++p, ++s;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      s = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace lockstep
