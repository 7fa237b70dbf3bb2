#include "base/print_stderr.h"

#include "base/live_line.h"

namespace lockstep {

void write_stderr(const std::string& text) { (void)LiveLine::of_stderr().print(text); }

}  // namespace lockstep
