// What a terminal can show: colors, Unicode, lines that are drawn again. And the width of text on it. Safe from any
// thread while none changes the environment.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

struct TerminalStyle {
  bool redraws = false;  // a terminal that can erase and overwrite its last line
  bool color = false;
  bool unicode = false;  // block characters; else ASCII only

  bool operator==(const TerminalStyle&) const = default;
};

// The style of a descriptor. NO_COLOR and CLICOLOR=0 disable colors, CLICOLOR_FORCE enables them where the output is no
// terminal. TERM=dumb disables colors and drawing, and so does mpirun, since its output may be a file. Unicode needs a
// UTF-8 locale (LC_ALL, LC_CTYPE or LANG).
TerminalStyle terminal_style(int descriptor);

// The columns of the terminal behind a descriptor: as it reports them, else $COLUMNS, else 80.
size_t terminal_columns(int descriptor);

enum class Paint { bold, dim, red, green, yellow, blue, cyan, bold_red, bold_yellow };

// The text in a color, if `color` is true and the text is not empty.
std::string painted(std::string_view text, Paint paint, bool color);

// The number of columns that a text needs. Wide characters count twice; combining characters and escape sequences do
// not count.
size_t display_width(std::string_view text);

// The longest beginning of a text with at most this many columns. Keeps all escape sequences, so that colors end.
std::string fit_columns(std::string_view text, size_t columns);

}  // namespace lockstep
