#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>

#include "base/names.h"
#include "base/printable.h"
#include "jobs/table.h"
#include "train/describe.h"
#include "train/progress_line.h"

namespace lockstep::cli {
namespace {

using Kind = TopRow::Kind;
using Mode = TopState::Mode;

constexpr const char* kSortNames[] = {"newest", "name", "state", "loss", "rate", "memory"};
constexpr size_t kSparkColumns = 12, kPageRows = 10;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool matches(const TopRow& row, const std::string& filter) {
  const std::string text = lower(row.name + " " + row.state + " " + row.what);
  return text.find(lower(filter)) != text.npos;
}

// A job with its replicas, or a run.
struct RowGroup {
  const TopRow* first;
  std::vector<const TopRow*> replicas;
};

bool comes_before(const TopRow& a, const TopRow& b, TopSort sort) {
  switch (sort) {
    case TopSort::newest:
      return a.updated > b.updated;
    case TopSort::name:
      return a.name < b.name;
    case TopSort::state:
      return a.state < b.state;
    case TopSort::loss:
      return std::isnan(b.loss) ? !std::isnan(a.loss) : a.loss < b.loss;
    case TopSort::rate:
      return a.rate > b.rate;
    case TopSort::memory:
      return a.memory > b.memory;
  }
  return false;
}

Paint paint_of(const std::string& state) {
  const std::string name = lower(state);
  for (const char* each : {"running", "complete", "succeeded", "completed"})
    if (name == each) return Paint::green;
  for (const char* each : {"failed", "error", "lost", "oomkilled"})
    if (name == each) return Paint::red;
  return Paint::yellow;
}

// A column of the table. Narrow screens omit those of a high rank.
struct Column {
  const char* title;
  size_t columns;
  int rank;
  bool right;
  std::string (*text)(const TopRow& row, const TerminalStyle& style);
};

std::string name_cell(const TopRow& row, const TerminalStyle&) {
  return (row.kind == Kind::replica ? "  " : "") + printable(row.name);
}
std::string state_cell(const TopRow& row, const TerminalStyle& style) {
  return painted(printable(row.state), paint_of(row.state), style.color);
}
std::string step_cell(const TopRow& row, const TerminalStyle&) {
  if (row.step < 0) return "";
  return row.total_steps > 0 ? fmt::format("{}/{}", row.step, row.total_steps) : std::to_string(row.step);
}
std::string bar_cell(const TopRow& row, const TerminalStyle& style) {
  if (row.total_steps <= 0 || row.step < 0) return "";
  const double done = std::clamp(static_cast<double>(row.step) / static_cast<double>(row.total_steps), 0.0, 1.0);
  return detail::bar_text(done, 10, style);
}
std::string loss_cell(const TopRow& row, const TerminalStyle&) {
  return std::isnan(row.loss) ? "" : fmt::format("{:.4g}", row.loss);
}
std::string spark_cell(const TopRow& row, const TerminalStyle& style) {
  return row.losses.size() > 1 ? detail::sparkline(row.losses, kSparkColumns, style) : "";
}
std::string rate_cell(const TopRow& row, const TerminalStyle&) {
  return row.rate > 0 ? fmt::format("{} {}/s", detail::short_number(row.rate), printable(row.rate_unit)) : "";
}
std::string left_cell(const TopRow& row, const TerminalStyle&) {
  return row.seconds_left >= 0 ? detail::short_duration(row.seconds_left) : "";
}
std::string memory_cell(const TopRow& row, const TerminalStyle&) {
  return row.memory >= 0 ? detail::bytes_text(row.memory) : "";
}
std::string what_cell(const TopRow& row, const TerminalStyle&) { return printable(row.what); }
std::string metric_cell(const TopRow& row, const TerminalStyle&) { return printable(row.metric); }

constexpr Column kColumns[] = {{"NAME", 24, 0, false, name_cell},    {"STATE", 9, 0, false, state_cell},
                               {"STEP", 13, 1, true, step_cell},     {"DONE", 10, 6, false, bar_cell},
                               {"LOSS", 9, 2, true, loss_cell},      {"LOSSES", kSparkColumns, 5, false, spark_cell},
                               {"RATE", 16, 4, true, rate_cell},     {"LEFT", 6, 3, true, left_cell},
                               {"MEMORY", 10, 4, true, memory_cell}, {"MODEL", 12, 7, false, what_cell},
                               {"METRIC", 22, 8, false, metric_cell}};

// The columns that fit. Those of a low rank have precedence.
std::vector<const Column*> columns_that_fit(size_t columns) {
  constexpr int kRanks = 9;
  std::vector<bool> shown(std::size(kColumns), false);
  size_t width = 0;  // with the mark of the selected row, without the gap after the last column
  for (int rank = 0; rank < kRanks; ++rank)
    for (size_t i = 0; i < shown.size(); ++i) {
      if (kColumns[i].rank != rank || (rank > 0 && width + kColumns[i].columns + 2 > columns)) continue;
      shown[i] = true;
      width += kColumns[i].columns + 2;
    }
  std::vector<const Column*> out;
  for (size_t i = 0; i < shown.size(); ++i)
    if (shown[i]) out.push_back(&kColumns[i]);
  return out;
}

// The cell with its column's width.
std::string padded(const std::string& text, const Column& column) {
  const std::string cut = fit_columns(text, column.columns);
  const std::string space(column.columns - display_width(cut), ' ');
  return column.right ? space + cut : cut + space;
}

std::string header_line(const std::vector<const Column*>& shown, const TerminalStyle& style) {
  std::string out = "  ";
  for (const Column* each : shown) out += padded(each->title, *each) + "  ";
  return painted(out, Paint::bold, style.color);
}

std::string row_line(const TopRow& row, bool selected, const std::vector<const Column*>& shown,
                     const TerminalStyle& style) {
  std::string out = selected ? painted("> ", Paint::cyan, style.color) : "  ";
  for (const Column* each : shown) out += padded(each->text(row, style), *each) + "  ";
  return out;
}

std::string percent_bar(double share, const TerminalStyle& style) {
  return detail::bar_text(std::min(share, 0.999), 12, style);
}

void add_machine(std::vector<std::string>& out, const TopState& state, const TerminalStyle& style) {
  const MachineLoad& machine = state.machine;
  const auto running = std::ranges::count_if(
      state.rows, [](const TopRow& row) { return row.kind != Kind::replica && lower(row.state) == "running"; });
  const auto runs = std::ranges::count(state.rows, Kind::run, &TopRow::kind),
             jobs = std::ranges::count(state.rows, Kind::job, &TopRow::kind);
  out.push_back(fmt::format("{}  {}  {}, {}, {} running", painted("lockstep top", Paint::bold, style.color),
                            state.clock, counted(runs, "run"), counted(jobs, "job"), running));
  const double load = machine.load / static_cast<double>(std::max<int64_t>(machine.cpus, 1));
  const auto share = [](int64_t used, int64_t total) {
    return total > 0 ? static_cast<double>(used) / static_cast<double>(total) : 0;
  };
  out.push_back(fmt::format("CPU {} load {:.1f} of {}   memory {} {} of {}", percent_bar(load, style), machine.load,
                            machine.cpus, percent_bar(share(machine.memory_used, machine.memory_total), style),
                            detail::bytes_text(machine.memory_used), detail::bytes_text(machine.memory_total)));
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const GpuLoad& gpu = machine.gpus[i];
    const std::string busy = gpu.busy >= 0 ? fmt::format("{:>3}%", gpu.busy) : "  ?%";
    out.push_back(fmt::format("GPU {} {} {}   memory {} {} of {}   {}", i,
                              percent_bar(static_cast<double>(std::max<int64_t>(gpu.busy, 0)) / 100, style), busy,
                              percent_bar(share(gpu.used, gpu.total), style), detail::bytes_text(gpu.used),
                              detail::bytes_text(gpu.total), printable(gpu.name)));
  }
  out.emplace_back();
}

std::vector<std::string> help_lines() {
  return {"up, down, k, j   select a row        enter   details, and back",
          "/                filter by text      s       sort by another column",
          "d, x             stop: a run saves a checkpoint, a job is suspended",
          "?                this help           q       quit",
          "",
          "Runs are read from runs/, or from the folders that are given. A silent run has",
          "written nothing for a minute; the process of a lost run has ended without a word."};
}

std::vector<std::string> detail_lines(const TopRow& row, const TerminalStyle& style) {
  std::vector<std::string> out;
  out.push_back(painted(printable(row.name), Paint::bold, style.color) + "  " + state_cell(row, style) + "  " +
                printable(row.what));
  if (row.step >= 0)
    out.push_back(fmt::format("step {}  {}  {}  {}", step_cell(row, style), bar_cell(row, style), rate_cell(row, style),
                              row.seconds_left >= 0 ? left_cell(row, style) + " left" : ""));
  if (row.losses.size() > 1)
    out.push_back("loss " + loss_cell(row, style) + "  " + detail::sparkline(row.losses, 60, style));
  if (row.memory >= 0) out.push_back("memory " + memory_cell(row, style));
  for (const auto& [name, value] : row.facts)
    out.push_back(fmt::format("  {:<22} {}", printable(name), printable(value)));
  return out;
}

void add_details(std::vector<std::string>& out, const TopRow& row, size_t rows, const TerminalStyle& style) {
  for (std::string& line : detail_lines(row, style)) out.push_back(std::move(line));
  out.emplace_back();
  const size_t room = rows > out.size() + 1 ? rows - out.size() - 1 : 0;
  for (size_t i = row.log.size() - std::min(row.log.size(), room); i < row.log.size(); ++i)
    out.push_back(printable(row.log[i]));
}

void add_list(std::vector<std::string>& out, const TopState& state, size_t columns, size_t rows,
              const TerminalStyle& style) {
  const std::vector<const TopRow*> visible = visible_rows(state);
  const std::vector<const Column*> shown = columns_that_fit(columns);
  out.push_back(header_line(shown, style));
  const TopRow* const selected = selected_row(state);
  const size_t room = rows > out.size() + 1 ? rows - out.size() - 1 : 1;
  const auto at = static_cast<size_t>(std::ranges::find(visible, selected) - visible.begin());
  const size_t first = at >= room ? at + 1 - room : 0;
  for (size_t i = first; i < std::min(visible.size(), first + room); ++i)
    out.push_back(row_line(*visible[i], visible[i] == selected, shown, style));
  if (visible.empty())
    out.emplace_back(state.rows.empty() ? "  no runs and no jobs yet; start one with `lockstep train`"
                                        : "  no row matches the filter; press / and escape to clear it");
}

std::string footer_line(const TopState& state) {
  const TopRow* const row = selected_row(state);
  switch (state.mode) {
    case Mode::filter:
      return "filter: " + printable(state.filter) + "_   enter: keep, escape: clear";
    case Mode::confirm:
      return row ? fmt::format("{} {}? y: yes, any other key: no", row->kind == Kind::run ? "stop" : "suspend",
                               printable(row->name))
                 : "";
    case Mode::help:
      return "any key: back";
    case Mode::details:
      return "enter, escape: back   d: stop   q: quit";
    case Mode::list:
      break;
  }
  if (!state.message.empty()) return printable(state.message);
  return fmt::format("enter: details  /: filter{}  s: sort ({})  d: stop  ?: help  q: quit",
                     state.filter.empty() ? "" : " (" + printable(state.filter) + ")",
                     kSortNames[static_cast<size_t>(state.sort)]);
}

void move_selection(TopState& state, int64_t by) {
  const std::vector<const TopRow*> visible = visible_rows(state);
  if (visible.empty()) return;
  const auto at = std::ranges::find(visible, selected_row(state)) - visible.begin();
  const int64_t to = std::clamp<int64_t>(at + by, 0, static_cast<int64_t>(visible.size()) - 1);
  state.selected = key_of(*visible[static_cast<size_t>(to)]);
}

void type_filter(TopState& state, const TopInput& input) {
  if (input.key == TopKey::enter) {
    state.mode = Mode::list;
  } else if (input.key == TopKey::escape) {
    state.filter.clear();
    state.mode = Mode::list;
  } else if (input.key == TopKey::backspace) {
    if (!state.filter.empty()) state.filter.pop_back();
  } else if (input.key == TopKey::character) {
    state.filter += input.character;
  }
}

// Whether there is something to stop. Else sets the message.
bool can_stop(TopState& state) {
  const TopRow* const row = selected_row(state);
  if (!row) return false;
  if (row->kind == Kind::run && row->process <= 0)
    state.message = fmt::format("{} is {}: it has no process on this host to stop", row->name, row->state);
  else if (row->kind == Kind::replica)
    state.message = "a replica is not stopped alone; select its job";
  else
    return true;
  return false;
}

TopAction press_character(TopState& state, char key) {
  switch (key) {
    case 'q':
      return TopAction::quit;
    case 'k':
      move_selection(state, -1);
      break;
    case 'j':
      move_selection(state, 1);
      break;
    case '/':
      state.mode = Mode::filter;
      break;
    case 's':
      state.sort = static_cast<TopSort>((static_cast<size_t>(state.sort) + 1) % std::size(kSortNames));
      break;
    case '?':
      state.mode = Mode::help;
      break;
    case 'd':
    case 'x':
      if (can_stop(state)) state.mode = Mode::confirm;
      break;
    default:
      break;
  }
  return TopAction::none;
}

}  // namespace

std::string key_of(const TopRow& row) {
  std::string out = std::to_string(static_cast<int>(row.kind)) + " " + row.name;
  for (const auto& [name, value] : row.facts)
    if (name == "folder" || name == "namespace") out += " " + value;
  return out;
}

std::vector<const TopRow*> visible_rows(const TopState& state) {
  std::vector<RowGroup> groups;
  for (const TopRow& row : state.rows) {
    if (row.kind == Kind::replica && !groups.empty())
      groups.back().replicas.push_back(&row);
    else
      groups.push_back({&row, {}});
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const RowGroup& a, const RowGroup& b) { return comes_before(*a.first, *b.first, state.sort); });
  std::vector<const TopRow*> out;
  for (const RowGroup& group : groups) {
    const bool all = matches(*group.first, state.filter);
    if (all || std::ranges::any_of(group.replicas, [&](const TopRow* row) { return matches(*row, state.filter); }))
      out.push_back(group.first);
    for (const TopRow* row : group.replicas)
      if (all || matches(*row, state.filter)) out.push_back(row);
  }
  return out;
}

const TopRow* selected_row(const TopState& state) {
  const std::vector<const TopRow*> visible = visible_rows(state);
  const auto at = std::ranges::find_if(visible, [&](const TopRow* row) { return key_of(*row) == state.selected; });
  return at != visible.end() ? *at : visible.empty() ? nullptr : visible.front();
}

std::vector<TopInput> parse_keys(std::string_view bytes) {
  struct Sequence {
    std::string_view bytes;
    TopKey key;
  };
  constexpr Sequence kSequences[] = {
      {"\033[A", TopKey::up},      {"\033[B", TopKey::down},     {"\033OA", TopKey::up},
      {"\033OB", TopKey::down},    {"\033[5~", TopKey::page_up}, {"\033[6~", TopKey::page_down},
      {"\033[H", TopKey::home},    {"\033[F", TopKey::end},      {"\033[1~", TopKey::home},
      {"\033[4~", TopKey::end},    {"\r", TopKey::enter},        {"\n", TopKey::enter},
      {"\x7f", TopKey::backspace}, {"\b", TopKey::backspace},    {"\x03", TopKey::interrupt}};
  std::vector<TopInput> out;
  while (!bytes.empty()) {
    const auto* known =
        std::ranges::find_if(kSequences, [&](const Sequence& each) { return bytes.starts_with(each.bytes); });
    if (known != std::end(kSequences)) {
      out.push_back({known->key, 0});
      bytes.remove_prefix(known->bytes.size());
    } else if (bytes.starts_with("\033[") || bytes.starts_with("\033O")) {
      size_t end = 2;
      while (end < bytes.size() && (bytes[end] < '@' || bytes[end] > '~')) ++end;
      bytes.remove_prefix(std::min(end + 1, bytes.size()));
    } else {
      if (bytes[0] == '\033')
        out.push_back({TopKey::escape, 0});
      else if (static_cast<unsigned char>(bytes[0]) >= 0x20)
        out.push_back({TopKey::character, bytes[0]});
      bytes.remove_prefix(1);
    }
  }
  return out;
}

TopAction press(TopState& state, const TopInput& input) {
  state.message.clear();
  if (input.key == TopKey::interrupt) return TopAction::quit;
  if (state.mode == Mode::filter) {
    type_filter(state, input);
    return TopAction::none;
  }
  if (state.mode == Mode::help || state.mode == Mode::confirm) {
    const bool yes = state.mode == Mode::confirm && input.key == TopKey::character && input.character == 'y';
    state.mode = Mode::list;
    return yes ? TopAction::stop : TopAction::none;
  }
  constexpr auto kPage = static_cast<int64_t>(kPageRows);
  switch (input.key) {
    case TopKey::up:
      move_selection(state, -1);
      break;
    case TopKey::down:
      move_selection(state, 1);
      break;
    case TopKey::page_up:
      move_selection(state, -kPage);
      break;
    case TopKey::page_down:
      move_selection(state, kPage);
      break;
    case TopKey::home:
      move_selection(state, -static_cast<int64_t>(state.rows.size()));
      break;
    case TopKey::end:
      move_selection(state, static_cast<int64_t>(state.rows.size()));
      break;
    case TopKey::enter:
      state.mode = state.mode == Mode::details ? Mode::list : Mode::details;
      break;
    case TopKey::escape:
      if (state.mode == Mode::list) state.filter.clear();
      state.mode = Mode::list;
      break;
    case TopKey::character:
      return press_character(state, input.character);
    case TopKey::backspace:
    case TopKey::interrupt:
      break;
  }
  return TopAction::none;
}

std::vector<std::string> render_top(const TopState& state, size_t columns, size_t rows, const TerminalStyle& style) {
  std::vector<std::string> out;
  add_machine(out, state, style);
  const TopRow* const row = selected_row(state);
  if (state.mode == Mode::help)
    for (std::string& line : help_lines()) out.push_back(std::move(line));
  else if (state.mode == Mode::details && row)
    add_details(out, *row, rows, style);
  else
    add_list(out, state, columns, rows, style);
  const size_t body = rows > 0 ? rows - 1 : 0;
  out.resize(body);
  if (rows > 0) out.push_back(painted(footer_line(state), Paint::dim, style.color));
  for (std::string& line : out) line = fit_columns(line, columns);
  return out;
}

std::string top_table(const TopState& state) {
  std::vector<TableRow> rows = {{"NAME", "STATE", "STEP", "LOSS", "METRIC", "RATE", "LEFT", "MEMORY", "MODEL"}};
  const TerminalStyle plain;
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const TopRow* row : visible_rows(state)) {
    TableRow cells;
    for (const auto& cell :
         {name_cell, state_cell, step_cell, loss_cell, metric_cell, rate_cell, left_cell, memory_cell, what_cell})
      cells.push_back(or_dash(cell(*row, plain)));
    rows.push_back(std::move(cells));
  }
  return TableLayout().format(std::move(rows));
}

}  // namespace lockstep::cli
