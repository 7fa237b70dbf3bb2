#include "command/choice_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"

namespace lockstep::cli {

CLI::Validator one_of(const std::vector<std::string>& words) {
  return CLI::Validator(
      [words](const std::string& text) -> std::string {
        if (std::ranges::find(words, text) != words.end()) return "";
        const std::string meant = suggestion(text, words);
        return fmt::format("\"{}\" is not one of {}{}{}", text, fmt::join(words, ", "), meant.empty() ? "" : ";",
                           meant);
      },
      fmt::format("{{{}}}", fmt::join(words, ",")));
}

}  // namespace lockstep::cli
