// A program in a pseudo-terminal, and the screen that a user sees of its output.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace lockstep {

// A terminal of a fixed width whose lines scroll without end. Knows the control sequences that Lockstep uses: \r, \n,
// erasing to the end of the line (K) and of the screen (J), the cursor position (H), the other screen (?1049), and
// colors, which it ignores.
class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns) {}

  void write(std::string_view bytes) {
    rest_ += bytes;
    while (!rest_.empty()) {
      const size_t size = sequence_size(rest_);
      if (size == 0) return;  // incomplete
      apply(rest_.substr(0, size));
      rest_.erase(0, size);
    }
  }

  // The lines without trailing spaces.
  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    for (const auto& cells : lines_) {
      std::string line;
      for (const std::string& cell : cells) line += cell;
      while (line.ends_with(' ')) line.pop_back();
      out.push_back(line);
    }
    while (!out.empty() && out.back().empty()) out.pop_back();
    return out;
  }
  std::string text() const {
    std::string out;
    for (const std::string& line : lines()) out += line + "\n";
    return out;
  }
  bool on_other_screen() const { return other_; }

 private:
  // The size of the character or escape sequence at the beginning; 0: it is incomplete.
  static size_t sequence_size(std::string_view bytes) {
    if (bytes[0] != '\033') {
      const auto first = static_cast<unsigned char>(bytes[0]);
      const size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
      return bytes.size() < size ? 0 : size;
    }
    for (size_t i = 2; i < bytes.size(); ++i)
      if (bytes[i] >= '@' && bytes[i] <= '~') return i + 1;
    return 0;
  }

  std::vector<std::string>& line() {
    while (lines_.size() <= row_) lines_.emplace_back();
    return lines_[row_];
  }

  void apply(const std::string& piece) {
    if (piece == "\r") {
      column_ = 0;
    } else if (piece == "\n") {
      ++row_;
      line();
    } else if (piece[0] == '\033') {
      apply_sequence(piece);
    } else if (static_cast<unsigned char>(piece[0]) >= 0x20) {
      if (column_ == columns_) ++row_, column_ = 0;
      std::vector<std::string>& cells = line();
      if (cells.size() <= column_) cells.resize(column_ + 1, " ");
      cells[column_++] = piece;
    }
  }

  void apply_sequence(const std::string& piece) {
    if (piece.back() == 'K' || piece.back() == 'J') {
      if (piece == "\033[2J") row_ = column_ = 0;
      std::vector<std::string>& cells = line();
      if (cells.size() > column_) cells.resize(column_);
      if (piece.back() == 'J') lines_.resize(row_ + 1);
    } else if (piece.back() == 'H') {
      row_ = column_ = 0;
    } else if (piece == "\033[?1049h" || piece == "\033[?1049l") {
      other_ = piece.back() == 'h';
    }
  }

  size_t columns_, row_ = 0, column_ = 0;
  bool other_ = false;
  std::string rest_;
  std::vector<std::vector<std::string>> lines_;
};

// A program whose standard streams are a terminal of 24 lines. It is killed when the object is destroyed.
class TerminalProgram {
 public:
  TerminalProgram(const std::vector<std::string>& command, unsigned short columns,
                  const std::vector<std::pair<std::string, std::string>>& variables = {})
      : screen_(columns) {
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      for (const char* name : {"NO_COLOR", "COLUMNS", "CLICOLOR_FORCE"}) ::unsetenv(name);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    if (terminal_ >= 0) ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
  }
  ~TerminalProgram() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(terminal_);
  }
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  // Waits for up to a minute until the screen satisfies a condition. Returns whether it did.
  bool shows(const std::function<bool(const Screen&)>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition(screen_)) {
      if (std::chrono::steady_clock::now() > end || !read()) return condition(screen_);
    }
    return true;
  }
  bool shows(const std::string& text) {
    return shows([&](const Screen& screen) { return screen.text().find(text) != std::string::npos; });
  }

  // Types keys.
  void type(std::string_view keys) const { (void)!::write(terminal_, keys.data(), keys.size()); }
  void resize(unsigned short columns) const {
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(terminal_, TIOCSWINSZ, &size);
  }
  void send(int signal) const { ::kill(pid_, signal); }

  // Waits for the program's end. Returns its exit code, or 128 + the number of the signal that killed it.
  int wait() {
    while (read()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  const Screen& screen() const { return screen_; }
  // Everything that the program wrote.
  const std::string& output() const { return output_; }

 private:
  // Reads what the program has written; waits if there is nothing. Returns false at its end.
  bool read() {
    pollfd ready = {.fd = terminal_, .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 1000);
    char bytes[4096];
    const ssize_t n = ::read(terminal_, bytes, sizeof(bytes));
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    screen_.write({bytes, static_cast<size_t>(n)});
    output_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  Screen screen_;
  std::string output_;
  int terminal_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
};

}  // namespace lockstep
