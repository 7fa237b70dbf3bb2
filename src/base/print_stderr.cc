#include "base/print_stderr.h"

#include <cstdio>

namespace lockstep {

void write_stderr(const std::string& text) { (void)!std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace lockstep
