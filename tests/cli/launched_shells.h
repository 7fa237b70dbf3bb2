// Helpers for jobs of `lockstep launch` whose processes are shells.
#pragma once

#include <string>

#include "support/program.h"
#include "support/text.h"

namespace lockstep::shells {

// `lockstep launch FLAGS -- /bin/sh -c SCRIPT`.
inline Words launch_words(Words flags, const std::string& script) {
  flags.insert(flags.begin(), {program_path(), "launch"});
  flags.insert(flags.end(), {"--", "/bin/sh", "-c", script});
  return flags;
}

inline std::string last_line(const std::string& text) {
  const std::string body = text.substr(0, text.empty() ? 0 : text.size() - 1);
  return body.substr(body.rfind('\n') + 1);
}

}  // namespace lockstep::shells
