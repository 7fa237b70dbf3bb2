// Command lines: a word per line, without the program name. They are parsed but not run.
#include "cli/command_line.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> words = fuzz::parts_of(fuzz::text_of(data, size), '\n', 64);
  words.insert(words.begin(), "lockstep");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  static cli::CommandLine line;  // constructing it takes a hundred times longer than parsing
  try {
    const cli::Action action = line.parse(static_cast<int>(words.size()), argv.data());
    fuzz::require(action != nullptr, "accepted words select an action");
  } catch (const cli::UsageError&) {
  } catch (const Error&) {
  }
  return 0;
}
