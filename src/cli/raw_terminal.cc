#include "cli/raw_terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>

namespace lockstep::cli {
namespace {

constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[2J";  // the other screen, without a cursor
constexpr std::string_view kLeave = "\033[?25h\033[?1049l";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n <= 0) return;  // the terminal is gone
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

RawTerminal::RawTerminal() {
  ::tcgetattr(STDIN_FILENO, &before_);
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write_all(kEnter);
}

RawTerminal::~RawTerminal() {
  write_all(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void RawTerminal::draw(const std::vector<std::string>& lines) {
  std::string out = "\033[H";
  for (size_t i = 0; i < lines.size(); ++i) out += lines[i] + "\033[K" + (i + 1 < lines.size() ? "\r\n" : "");
  write_all(out + "\033[J");
}

size_t RawTerminal::columns() const { return terminal_columns(STDOUT_FILENO); }

size_t RawTerminal::rows() const {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

}  // namespace lockstep::cli
