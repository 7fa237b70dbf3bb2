#include "charts/pages.h"

#include "base/check.h"

namespace lockstep::charts {
namespace {

struct PageFile {
  std::string_view name, text;
};

constexpr PageFile kPageFiles[] = {
#include "charts/pages.inc"
};

}  // namespace

std::string_view page_text(std::string_view name) {
  for (const PageFile& file : kPageFiles)
    if (file.name == name) return file.text;
  LOCKSTEP_CHECK(false, "no page file {}", name);
  return {};
}

}  // namespace lockstep::charts
