// Words for users: finding the one meant by a misspelt one, and nouns in the plural. Pure functions, safe from any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// ` did you mean "adam"?` when one of the words is near, else nothing: at most two letters differ, or the wrong one is
// the beginning (`learning`) or made of the initials (`lr`) of it. Hyphens and underscores count as the same.
std::string suggestion(std::string_view wrong, const std::vector<std::string>& words);

// `1 device`, `3 devices`.
std::string counted(int64_t number, std::string_view noun);

// Throws Error: `optimizer: there is no "adm"; choose sgd, adam or adamw; did you mean "adam"?`.
[[noreturn]] void throw_unknown_name(std::string_view what, std::string_view wrong,
                                     const std::vector<std::string>& words);

}  // namespace lockstep
