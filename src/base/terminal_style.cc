#include "base/terminal_style.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "base/os/environment.h"
#include "base/printable.h"

namespace lockstep {
namespace {

bool is_on(const char* variable) {
  const std::optional<std::string> value = environment_variable(variable);
  return value && *value != "0";
}

bool is_utf8_locale() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::optional<std::string> value = environment_variable(variable);
    if (!value) continue;
    std::ranges::transform(*value, value->begin(), [](unsigned char c) { return std::tolower(c); });
    return value->find("utf-8") != value->npos || value->find("utf8") != value->npos;
  }
  return false;
}

struct CodeRange {
  uint32_t first, last;
};

// Characters of two columns: East Asian wide ones and pictograms.
constexpr CodeRange kWide[] = {{0x1100, 0x115f},   {0x231a, 0x231b},   {0x2e80, 0x303e},   {0x3041, 0x33ff},
                               {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xac00, 0xd7a3},
                               {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                               {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
// Characters without a column: combining marks, joiners and variation selectors.
constexpr CodeRange kCombining[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd},  {0x064b, 0x065f},
                                    {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},  {0x20d0, 0x20ff},
                                    {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};

template <size_t n>
bool is_in(const CodeRange (&ranges)[n], uint32_t code) {
  return std::ranges::any_of(ranges, [&](const CodeRange& each) { return code >= each.first && code <= each.last; });
}

// REQUIRES: the text is one valid UTF-8 character.
uint32_t code_of(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(character[i])); };
  if (character.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xffU >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

size_t columns_of(std::string_view character) {
  const uint32_t code = code_of(character);
  if (code < 0x20 || code == 0x7f || is_in(kCombining, code)) return 0;
  return is_in(kWide, code) ? 2 : 1;
}

// The size of the escape sequence at the beginning of a text; 0 if there is none. A sequence ends with a character from
// @ to ~.
size_t escape_size(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  for (size_t i = 2; i < text.size(); ++i)
    if (text[i] >= '@' && text[i] <= '~') return i + 1;
  return text.size();
}

// Calls take(piece, columns) for each character and escape sequence. A byte that is not UTF-8 counts as one column.
template <class Take>
void for_each_piece(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const size_t escape = escape_size(text), character = escape > 0 ? 0 : utf8_character_size(text);
    const std::string_view piece = text.substr(0, std::max<size_t>({escape, character, 1}));
    take(piece, escape > 0 ? 0 : character > 0 ? columns_of(piece) : 1, escape > 0);
    text.remove_prefix(piece.size());
  }
}

}  // namespace

TerminalStyle terminal_style(int descriptor) {
  const std::string term = environment_variable("TERM").value_or("");
  // Open MPI's mpirun gives its processes a pseudo-terminal, also when its own output is a file.
  const bool under_mpirun = environment_variable("OMPI_COMM_WORLD_RANK").has_value();
  const bool terminal = descriptor >= 0 && ::isatty(descriptor) == 1 && term != "dumb" && !under_mpirun;
  const bool forced = is_on("CLICOLOR_FORCE"), disabled = environment_variable("NO_COLOR") || term == "dumb" ||
                                                          (!forced && environment_variable("CLICOLOR") == "0");
  // The font of the Linux console has no eighths of blocks.
  return {.redraws = terminal,
          .color = !disabled && (terminal || forced),
          .unicode = terminal && term != "linux" && is_utf8_locale()};
}

size_t terminal_columns(int descriptor) {
  winsize size = {};
  if (descriptor >= 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::optional<std::string> columns = environment_variable("COLUMNS");
  const unsigned long width = columns ? std::strtoul(columns->c_str(), nullptr, 10) : 0;
  return width > 0 && width <= 10'000 ? width : 80;
}

std::string painted(std::string_view text, Paint paint, bool color) {
  constexpr std::array<const char*, 9> kCodes = {"1", "2", "31", "32", "33", "34", "36", "1;31", "1;33"};
  if (!color || text.empty()) return std::string(text);
  return std::string("\033[") + kCodes[static_cast<size_t>(paint)] + "m" + std::string(text) + "\033[0m";
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for_each_piece(text, [&](std::string_view, size_t columns, bool) { width += columns; });
  return width;
}

std::string fit_columns(std::string_view text, size_t columns) {
  std::string out;
  size_t width = 0;
  bool full = false;
  for_each_piece(text, [&](std::string_view piece, size_t size, bool escape) {
    full = full || (!escape && width + size > columns);
    if (full && !escape) return;
    out += piece;
    width += size;
  });
  return out;
}

}  // namespace lockstep
