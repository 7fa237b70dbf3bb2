#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/loggers.h"

namespace lockstep {
namespace {

struct LoggerKind {
  const char* name;
  bool writes_files;
  std::shared_ptr<Logger> (*make)(const std::string& dir, const ConsoleOptions& console);
};

const LoggerKind kLoggers[] = {
    {"console", false, [](const std::string&, const ConsoleOptions& console) { return console_logger(console); }},
    {"compact", false,
     [](const std::string&, const ConsoleOptions& console) { return compact_logger(console.stream); }},
    {"batches", false, [](const std::string&, const ConsoleOptions& console) { return batch_logger(console.stream); }},
    {"jsonl", true, [](const std::string& dir, const ConsoleOptions&) { return json_lines_logger(dir); }},
    {"csv", true, [](const std::string& dir, const ConsoleOptions&) { return csv_logger(dir); }},
    {"tensorboard", true, [](const std::string& dir, const ConsoleOptions&) { return tensorboard_logger(dir); }},
};

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    const size_t begin = std::min(names.find_first_not_of(" \t", at), comma);
    const size_t last = comma == begin ? begin : names.find_last_not_of(" \t", comma - 1) + 1;
    if (last > begin) words.push_back(names.substr(begin, last - begin));
    at = comma + 1;
  }
  return words;
}

}  // namespace

Loggers make_loggers(const std::string& names, const std::string& dir, const ConsoleOptions& console) {
  std::vector<const LoggerKind*> chosen;  // check all names before the first logger creates a file
  for (const std::string& word : split(names)) {
    if (word == "none") continue;
    const auto at =
        std::find_if(std::begin(kLoggers), std::end(kLoggers), [&](const LoggerKind& l) { return word == l.name; });
    if (at == std::end(kLoggers)) {
      std::vector<std::string> words;
      for (const LoggerKind& logger : kLoggers) words.push_back(logger.name);
      words.push_back("none");
      throw_unknown_name("logger", word, words);
    }
    if (at->writes_files && dir.empty())
      throw_error("logger: {} writes files, but no folder is given; give the folder for the metrics files", word);
    if (std::find(chosen.begin(), chosen.end(), at) == chosen.end()) chosen.push_back(at);
  }
  Loggers out;
  for (const LoggerKind* logger : chosen) out.push_back(logger->make(dir, console));
  return out;
}

}  // namespace lockstep
