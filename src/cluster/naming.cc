#include "cluster/naming.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace lockstep {
namespace {

// A parser over the rest of a text.
struct ListReader {
  std::string_view rest;

  bool take(std::string_view word) {
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  }
  std::optional<int64_t> number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return value;
  }
};

// Parses a rank as Comms print it: `3`, or `1 (3 of "world")` in a subgroup. Returns the rank in the whole group.
std::optional<int64_t> take_rank(ListReader& reader) {
  const std::optional<int64_t> own = reader.number();
  if (!own) return std::nullopt;
  ListReader ahead = reader;
  if (!ahead.take(" (")) return own;
  const std::optional<int64_t> whole = ahead.number();
  if (!whole || !ahead.take(" of \"")) return own;
  const size_t end = ahead.rest.find("\")");
  if (end == std::string_view::npos) return own;
  ahead.rest.remove_prefix(end + 2);
  reader = ahead;
  return whole;
}

// Skips redundant text after a rank: ` of 4`, ` (process 4842)`.
void skip_details(ListReader& reader) {
  ListReader ahead = reader;
  if (ahead.take(" (process ") && ahead.number() && ahead.take(")")) reader = ahead;
  ahead = reader;
  if (ahead.take(" of ") && ahead.number()) reader = ahead;
}

// Whether a word begins at this position.
bool at_word(std::string_view text, size_t at) {
  return at == 0 || text[at - 1] == ' ' || text[at - 1] == '(' || text[at - 1] == '"';
}

}  // namespace

std::string process_label(int process, std::string_view host, int64_t pid) {
  std::string out = fmt::format("process {}", process);
  if (!host.empty() && pid > 0) return out + fmt::format(" (host {}, pid {})", host, pid);
  if (!host.empty()) return out + fmt::format(" (host {})", host);
  if (pid > 0) return out + fmt::format(" (pid {})", pid);
  return out;
}

std::string replace_ranks_with_processes(std::string_view text, const std::vector<Peer>& peers, int lanes_per_process) {
  std::string out;
  ListReader reader{text};
  while (!reader.rest.empty()) {
    ListReader ahead = reader;
    const bool word = at_word(text, text.size() - reader.rest.size());
    std::vector<int64_t> processes;
    if (word && (ahead.take("ranks ") || ahead.take("rank "))) {
      do {
        ListReader next = ahead;
        const std::optional<int64_t> rank = take_rank(next);
        if (!rank || *rank / lanes_per_process >= static_cast<int64_t>(peers.size())) break;
        ahead = next;
        if (processes.empty() || processes.back() != *rank / lanes_per_process)
          processes.push_back(*rank / lanes_per_process);
        next.take(", ");
        if (next.rest.empty() || next.rest[0] < '0' || next.rest[0] > '9') break;
        ahead = next;
      } while (true);
    }
    if (processes.empty()) {
      out += reader.rest[0];
      reader.rest.remove_prefix(1);
      continue;
    }
    skip_details(ahead);
    for (size_t i = 0; i < processes.size(); ++i) {
      const Peer& peer = peers[static_cast<size_t>(processes[i])];
      out += (i > 0 ? ", " : "") + process_label(static_cast<int>(processes[i]), peer.host, peer.pid);
    }
    reader = ahead;
  }
  return out;
}

CommCause split_cause(std::string_view text) {
  constexpr std::string_view kCause = " stops; first cause: ", kRank = "\": rank ";
  const size_t cause = text.find(kCause), rank = text.find(kRank);
  if (cause == text.npos || rank == text.npos || rank > cause) return {std::string(text), ""};
  std::string_view what = text.substr(cause + kCause.size());
  // An abort is prefixed with the rank that passed it on. Drop the prefix if the text itself names a process.
  if (ListReader reader{what}; reader.take("rank ") && take_rank(reader) && reader.rest.starts_with(": process "))
    what = reader.rest.substr(2);
  return {std::string(what), std::string(text.substr(0, rank + 1))};
}

}  // namespace lockstep
