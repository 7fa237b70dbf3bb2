// Finds phrases that this project does not use, in comments, strings, names and docs. The list is short and has few
// false alarms: it keeps the worst habits from coming back; it does not judge style.
#pragma once

#include <string>
#include <vector>

namespace lockstep::structure {

// What a reader sees of a file: all of a page (.md); comments, strings and names of C++; comments of scripts.
struct ReadableText {
  std::vector<std::string> prose;  // by line, empty where there is none
  std::vector<std::string>
      names;  // identifiers by line, split into lower-case words: "AbortReachesAll" -> "abort reaches all"
};
ReadableText readable_text(const std::string& path, const std::string& text);

// One line for each hit: "src/a.h:12: "nobody": name the function, thread or process".
std::vector<std::string> find_phrases(const std::string& path, const std::string& text);

}  // namespace lockstep::structure
