// The style sheets and scripts of src/charts/page, which are part of the program. Safe from any thread.
#pragma once

#include <string_view>

namespace lockstep::charts {

// The text of a file of src/charts/page. REQUIRES: it exists.
std::string_view page_text(std::string_view name);

}  // namespace lockstep::charts
