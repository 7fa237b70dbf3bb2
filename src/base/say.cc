#include "base/say.h"

#include <cstdio>

namespace lockstep {

void say_text(const std::string& text) { (void)!std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace lockstep
