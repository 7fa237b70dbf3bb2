// `--name value` flags for the examples.
#pragma once

#include <charconv>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

class Flags {
 public:
  struct Flag {
    std::string_view name, value;
  };

  // Parses flags with these names and defaults. Throws for an unknown flag or a missing value.
  Flags(int argc, char** argv, std::initializer_list<Flag> defaults) : flags_(defaults) {
    for (int i = 1; i < argc; i += 2) {
      const std::string_view flag = argv[i];
      Flag* const found = flag.substr(0, 2) == "--" ? find(flag.substr(2)) : nullptr;
      if (!found || i + 1 == argc) throw_usage(found ? "no value for " : "unknown flag ", flag, argv[0]);
      found->value = argv[i + 1];
    }
  }
  std::string text(std::string_view name) const { return std::string(value(name)); }
  int integer(std::string_view name) const {
    const std::string_view digits = value(name);
    const char *begin = digits.data(), *end = begin + digits.size();
    int number = 0;
    if (const auto [at, error] = std::from_chars(begin, end, number); error != std::errc() || at != end)
      throw_not_whole(name, digits);
    return number;
  }

 private:
  Flag* find(std::string_view name) {
    for (Flag& each : flags_)
      if (each.name == name) return &each;
    return nullptr;
  }
  std::string_view value(std::string_view name) const {
    for (const Flag& each : flags_)
      if (each.name == name) return each.value;
    throw std::out_of_range("no such flag");
  }

  // Rare, so they are kept out of their callers and are not optimized for speed.
  [[noreturn, gnu::cold, gnu::noinline]] void throw_usage(std::string_view what, std::string_view flag,
                                                          const char* program) const {
    std::string message(what);
    message.append(flag).append("; usage: ").append(program);
    std::string_view last;
    for (size_t i = 0; i < flags_.size(); ++i) {  // in alphabetical order
      const Flag* next = nullptr;
      for (const Flag& each : flags_)
        if (each.name > last && (!next || each.name < next->name)) next = &each;
      message.append(" [--").append(next->name).append(" ");
      message.append(next->value.empty() ? "..." : next->value).append("]");
      last = next->name;
    }
    throw std::invalid_argument(message);
  }
  [[noreturn, gnu::cold, gnu::noinline]] static void throw_not_whole(std::string_view name, std::string_view digits) {
    std::string message("--");
    message.append(name).append(" ").append(digits).append(": not a whole number");
    throw std::invalid_argument(message);
  }

  std::vector<Flag> flags_;
};
