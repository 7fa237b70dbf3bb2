// Names in messages: suggestions for misspelled names, and plurals. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns ` did you mean "adam"?` for the most similar word, or "" if none is similar. A word is similar if at most two
// letters differ (one if the wrong name has up to four letters), or if the wrong name is its beginning (`learning`) or
// its initials (`lr`). Two swapped letters count as one. Hyphens and underscores are equal.
std::string suggestion(std::string_view wrong, const std::vector<std::string>& words);

// `1 device`, `3 devices`.
std::string counted(int64_t number, std::string_view noun);

// Throws Error: `optimizer: unknown value "adm"; choose sgd, adam or adamw; did you mean "adam"?`.
[[noreturn]] void throw_unknown_name(std::string_view what, std::string_view wrong,
                                     const std::vector<std::string>& words);

}  // namespace lockstep
