// The files of src/board/page, which are part of the program. Safe from any thread.
#pragma once

#include <string_view>

namespace lockstep::board {

// The text of a file of src/board/page. REQUIRES: it exists.
std::string_view page_text(std::string_view name);

}  // namespace lockstep::board
