// `--name value` flags for the examples.
#pragma once

#include <charconv>
#include <map>
#include <stdexcept>
#include <string>

class Flags {
 public:
  // Parses flags with these names and defaults. Throws for an unknown flag or a missing value.
  Flags(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string flag = argv[i], name = flag.substr(0, 2) == "--" ? flag.substr(2) : "";
      if (!values_.count(name) || i + 1 == argc) {
        std::string known;
        for (const auto& [each, value] : values_) known += " [--" + each + (value.empty() ? " ..." : " " + value) + "]";
        throw std::invalid_argument((values_.count(name) ? "no value for " : "unknown flag ") + flag + "; usage: " + argv[0] + known);
      }
      values_[name] = argv[i + 1];
    }
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  int integer(const std::string& name) const {
    int value = 0;
    const char *begin = text(name).data(), *end = begin + text(name).size();
    if (const auto [at, error] = std::from_chars(begin, end, value); error != std::errc() || at != end)
      throw std::invalid_argument("--" + name + " " + text(name) + ": not a whole number");
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
};
