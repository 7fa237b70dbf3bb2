// What `lockstep top` shows and how keys change it: pure functions of the state, so safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/terminal_style.h"
#include "cli/top_rows.h"
#include "hardware/nvml.h"

namespace lockstep::cli {

enum class TopSort { newest, name, state, loss, rate, memory };

struct MachineLoad {
  double load = 0;                                      // the mean number of runnable threads over a minute
  int64_t cpus = 1, memory_used = 0, memory_total = 0;  // bytes
  std::vector<GpuLoad> gpus = {};
};

struct TopState {
  std::vector<TopRow> rows = {};
  MachineLoad machine = {};
  std::string clock = {};     // "14:03:12"
  std::string selected = {};  // key_of() the selected row; empty: the first one
  std::string filter = {};
  TopSort sort = TopSort::newest;
  std::string message = {};  // of the last command
  enum class Mode { list, filter, details, confirm, help } mode = Mode::list;
};

// Identifies a row between updates.
std::string key_of(const TopRow& row);

// The rows that match the filter, sorted. Replicas follow their job.
std::vector<const TopRow*> visible_rows(const TopState& state);

// The selected row; null if no row is visible.
const TopRow* selected_row(const TopState& state);

enum class TopKey { up, down, page_up, page_down, home, end, enter, escape, backspace, interrupt, character };

struct TopInput {
  TopKey key = TopKey::character;
  char character = 0;
};

// Splits the bytes of a terminal into keys. Unknown escape sequences are ignored.
std::vector<TopInput> parse_keys(std::string_view bytes);

// What the caller has to do after a key.
enum class TopAction { none, quit, stop };

// Applies a key. `stop` applies to selected_row().
TopAction press(TopState& state, const TopInput& input);

// The lines of the screen, at most `rows`, each at most `columns` wide.
std::vector<std::string> render_top(const TopState& state, size_t columns, size_t rows, const TerminalStyle& style);

// The table alone, for other streams than terminals.
std::string top_table(const TopState& state);

}  // namespace lockstep::cli
