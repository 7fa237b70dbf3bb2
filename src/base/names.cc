#include "base/names.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lockstep {
namespace {

// The number of letters to insert, delete, replace or swap with the next one to turn `a` into `b` (optimal string
// alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above, row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(above);
    above = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string with_hyphens(std::string_view word) {
  std::string out(word);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

// Returns "lr" for "learning-rate" and "--lr" for "--learning-rate".
std::string initials(const std::string& word) {
  const size_t first = std::min(word.find_first_not_of('-'), word.size());
  std::string out = word.substr(0, first);
  for (size_t i = first; i < word.size(); ++i)
    if (word[i] != '-' && (i == first || word[i - 1] == '-')) out += word[i];
  return out;
}

}  // namespace

std::string suggestion(std::string_view wrong, const std::vector<std::string>& words) {
  const std::string bare = with_hyphens(wrong);
  const auto letters_of = [](const std::string& word) {
    return static_cast<size_t>(std::count_if(word.begin(), word.end(), [](char c) { return c != '-'; }));
  };
  const size_t letters = letters_of(bare);
  const std::string* best = nullptr;
  size_t nearest = letters > 4 ? 3 : 2;  // above the largest distance of a similar word
  for (const std::string& word : words) {
    const std::string right = with_hyphens(word);
    size_t distance = edit_distance(bare, right);
    if (letters >= 3 && right.starts_with(bare)) distance = std::min<size_t>(distance, letters > 4 ? 2 : 1);
    if (letters >= 2 && bare == initials(right)) distance = std::min<size_t>(distance, 1);
    // Not if every letter differs.
    if (distance < nearest && distance < letters_of(right)) best = &word, nearest = distance;
  }
  return best ? " did you mean \"" + *best + "\"?" : "";
}

std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

void throw_unknown_name(std::string_view what, std::string_view wrong, const std::vector<std::string>& words) {
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  const std::string similar = suggestion(wrong, words);
  throw_error("{}: unknown value \"{}\"; choose {}{}{}", what, wrong, list, similar.empty() ? "" : ";", similar);
}

}  // namespace lockstep
