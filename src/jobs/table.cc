#include "jobs/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "base/printable.h"
#include "base/terminal_style.h"

namespace lockstep {
namespace {

constexpr size_t kMinWidth = 6, kPadding = 3;

// "3h5m", "3h".
std::string two_units(int64_t first, char first_unit, int64_t second, char second_unit) {
  std::string out = fmt::format("{}{}", first, first_unit);
  if (second != 0) out += fmt::format("{}{}", second, second_unit);
  return out;
}

// The cell in the color of the state that it names.
std::string painted_state(const std::string& cell, bool color) {
  struct State {
    std::string_view name;
    Paint paint;
  };
  constexpr State kStates[] = {{"Running", Paint::green},
                               {"Succeeded", Paint::green},
                               {"Completed", Paint::green},
                               {"Failed", Paint::red},
                               {"Error", Paint::red},
                               {"OOMKilled", Paint::red},
                               {"CrashLoopBackOff", Paint::red},
                               {"Warning", Paint::yellow},
                               {"Pending", Paint::yellow},
                               {"Restarting", Paint::yellow},
                               {"Created", Paint::yellow},
                               {"Stopped", Paint::yellow},
                               {"ContainerCreating", Paint::yellow},
                               {"Suspended", Paint::cyan},
                               {"Terminating", Paint::cyan}};
  const auto* found = std::ranges::find(kStates, cell, &State::name);
  return found == std::end(kStates) ? cell : painted(cell, found->paint, color);
}

}  // namespace

std::string TableLayout::format(std::vector<TableRow> rows) {
  for (TableRow& row : rows)
    for (std::string& cell : row) cell = printable(cell, std::string::npos);
  for (const TableRow& row : rows)
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      if (widths_.size() == i) widths_.push_back(kMinWidth);
      widths_[i] = std::max(widths_[i], row[i].size() + kPadding);
    }
  std::string out;
  for (const TableRow& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i)
      out += painted_state(row[i], color_) + std::string(widths_[i] - row[i].size(), ' ');
    if (!row.empty()) out += painted_state(row.back(), color_);
    out += '\n';
  }
  return out;
}

std::string age_text(std::chrono::seconds age) {
  const int64_t seconds = age.count(), minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  if (seconds < -1) return "<invalid>";  // clocks of two hosts may differ by a second
  if (seconds < 120) return fmt::format("{}s", std::max<int64_t>(seconds, 0));
  if (minutes < 10) return two_units(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return fmt::format("{}m", minutes);
  if (hours < 8) return two_units(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return fmt::format("{}h", hours);
  if (days < 8) return two_units(days, 'd', hours % 24, 'h');
  if (days < 2 * 365) return fmt::format("{}d", days);
  if (days < 8 * 365) return two_units(days / 365, 'y', days % 365, 'd');
  return fmt::format("{}y", days / 365);
}

std::string age_text(std::optional<JobTime> since, JobTime now) {
  return since && *since != JobTime{} ? age_text(now - *since) : "<unknown>";
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    double milliseconds;
  };
  constexpr std::array<Unit, 5> kUnits = {{{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}}};
  const std::string copy(text);
  const char* at = copy.c_str();
  double total = 0;
  do {
    char* end = nullptr;
    // Only plain decimal numbers: strtod would accept "inf", "0x10" and " 1" too.
    if ((*at < '0' || *at > '9') && *at != '.') return std::nullopt;
    const double number = std::strtod(at, &end);
    const std::string_view digits(at, static_cast<size_t>(end - at));
    if (end == at || digits.find_first_not_of("0123456789.") != digits.npos) return std::nullopt;
    if (*end == '\0' && at == copy.c_str()) return std::chrono::milliseconds(std::llround(number * 1e3));
    std::string_view rest(end);
    rest = rest.substr(0, std::min(rest.find_first_of("0123456789."), rest.size()));
    const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& each) { return each.name == rest; });
    if (unit == kUnits.end()) return std::nullopt;
    total += number * unit->milliseconds;
    at = end + rest.size();
  } while (*at != '\0');
  if (total > 1e15) return std::nullopt;
  return std::chrono::milliseconds(std::llround(total));
}

std::string time_text(std::optional<JobTime> time) { return time && *time != JobTime{} ? time_text(*time) : "<none>"; }

}  // namespace lockstep
