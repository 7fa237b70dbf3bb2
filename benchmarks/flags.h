// Command lines of benchmarks: flags with values and defaults.
#pragma once

#include <lockstep/devices.h>
#include <lockstep/error.h>

#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

using Flags = std::map<std::string, std::string>;

// "a,b" at ',' -> {"a", "b"}.
inline std::vector<std::string> split_text(const std::string& text, char at) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string each; std::getline(in, each, at);) out.push_back(each);
  return out;
}

// Replaces the defaults by the values on the command line. A flag whose default is "off" takes no value and becomes
// "on". Throws Error for an unknown flag and for a missing value.
inline Flags parse_flags(int argc, char** argv, Flags flags) {
  for (int i = 1; i < argc; ++i) {
    const auto found = flags.find(argv[i]);
    if (found == flags.end()) throw Error("unknown flag " + std::string(argv[i]) + "; see the head of the source file");
    if (found->second == "off" || found->second == "on")
      found->second = "on";
    else if (i + 1 < argc)
      found->second = argv[++i];
    else
      throw Error("the flag " + std::string(argv[i]) + " needs a value");
  }
  return flags;
}

// Runs a benchmark with the values of its flags, on the GPUs if --platform is cuda; the default is the CPU. Returns the
// exit status of the program.
inline int run_benchmark(int argc, char** argv, Flags flags, const std::function<void(Flags& given)>& run) {
  try {
    flags["--platform"] = "cpu";
    Flags given = parse_flags(argc, argv, std::move(flags));
    set_platform(given["--platform"]);
    run(given);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace lockstep
