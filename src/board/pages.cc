#include "board/pages.h"

#include "base/check.h"

namespace lockstep::board {
namespace {

struct EmbeddedFile {
  std::string_view name, text;
};

constexpr EmbeddedFile kEmbeddedFiles[] = {
#include "board/pages.inc"
};

}  // namespace

std::string_view page_text(std::string_view name) {
  for (const EmbeddedFile& file : kEmbeddedFiles)
    if (file.name == name) return file.text;
  LOCKSTEP_CHECK(false, "no page file {}", name);
  return {};
}

}  // namespace lockstep::board
