// RawTerminal: the whole screen of a terminal, for a program that reads single keys. Used by one thread; at most one
// object exists at a time.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

#include "base/terminal_style.h"

namespace lockstep::cli {

class RawTerminal {
 public:
  // Switches standard output to the other screen, and standard input to single keys without echo. REQUIRES: both are
  // terminals.
  RawTerminal();
  // Restores both.
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // Replaces the lines of the screen.
  void draw(const std::vector<std::string>& lines);

  size_t columns() const;
  size_t rows() const;

 private:
  termios before_ = {};
};

}  // namespace lockstep::cli
