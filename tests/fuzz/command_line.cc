// Command lines: a word per line, as `lockstep` gets them behind its name. They are parsed and nothing is run.
#include "cli/command_line.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> words = fuzz::parts_of(fuzz::text_of(data, size), '\n', 64);
  words.insert(words.begin(), "lockstep");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  static cli::CommandLine line;  // making it takes a hundred times as long as parsing
  try {
    const cli::Action action = line.parse(static_cast<int>(words.size()), argv.data());
    fuzz::require(action != nullptr, "words that are understood ask for something");
  } catch (const cli::UsageError&) {
  } catch (const Error&) {
  }
  return 0;
}
