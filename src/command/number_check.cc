#include "command/number_check.h"

#include <fmt/format.h>

#include <cstdlib>

namespace lockstep::cli {

CLI::Validator integer_between(int low, int high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        char* end = nullptr;
        const long value = std::strtol(text.c_str(), &end, 10);
        return !text.empty() && *end == '\0' && value >= low && value <= high
                   ? ""
                   : fmt::format("\"{}\" is not a whole number from {} to {}", text, low, high);
      },
      "");
}

}  // namespace lockstep::cli
