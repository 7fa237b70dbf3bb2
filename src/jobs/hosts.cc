#include "jobs/hosts.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"

namespace lockstep {
namespace {

constexpr size_t kMaxHosts = 65536, kMaxHostLength = 255;
constexpr const char* kHostsSyntax = "write HOST or HOST:SLOTS, separated by commas, such as a,b:4";

bool is_host_name(std::string_view host) {
  return !host.empty() && host.front() != '-' && std::ranges::all_of(host, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%' ||
           c == '@';
  });
}

bool is_this_host(std::string_view host, std::string_view own_name) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" ||
         (!own_name.empty() && (host == own_name || host == own_name.substr(0, own_name.find('.'))));
}

int parse_slots(std::string_view text, std::string_view entry, std::string_view what) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMaxProcesses)
    throw_error("{}: \"{}\" has \"{}\" slots; give a number from 1 to {}", what, entry, text, kMaxProcesses);
  return slots;
}

void check_count(size_t count, std::string_view what) {
  if (count > kMaxHosts) throw_error("{}: more than {} hosts; name fewer", what, kMaxHosts);
}

HostSlots parse_host(std::string_view entry, std::string_view what, std::string_view own_name) {
  std::string_view host = entry, slots;
  if (entry.starts_with('[')) {
    const size_t close = entry.find(']');
    const bool more = close != entry.npos && close + 1 < entry.size();
    if (close == entry.npos || (more && entry[close + 1] != ':'))
      throw_error("{}: \"{}\" is not an address in brackets; write [ADDRESS] or [ADDRESS]:SLOTS", what, entry);
    host = entry.substr(1, close - 1);
    if (more) slots = entry.substr(close + 2);
    if (more && slots.empty()) slots = " ";
  } else if (const size_t colon = entry.find(':'); colon != entry.npos) {
    if (entry.find(':', colon + 1) != entry.npos)
      throw_error("{}: \"{}\" has several colons; write an IPv6 address in brackets: [ADDRESS]:SLOTS", what, entry);
    host = entry.substr(0, colon);
    slots = entry.substr(colon + 1);
    if (slots.empty()) slots = " ";
  }
  if (!is_host_name(host)) throw_error("{}: \"{}\" has no valid host name; {}", what, printable(entry), kHostsSyntax);
  if (host.size() > kMaxHostLength)
    throw_error("{}: \"{}\" has a host name of {} characters; host names have at most {}", what, printable(entry, 60),
                host.size(), kMaxHostLength);
  HostSlots out{std::string(host), slots.empty() ? 1 : parse_slots(slots, entry, what)};
  if (is_this_host(host, own_name)) out.host.clear();
  return out;
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text, std::string_view own_name) {
  check_count(1 + static_cast<size_t>(std::ranges::count(text, ',')), "--hosts");
  std::vector<HostSlots> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view entry = text.substr(begin, comma - begin);
    if (entry.empty()) throw_error("--hosts: \"{}\" has an empty name; {}", printable(text), kHostsSyntax);
    out.push_back(parse_host(entry, "--hosts", own_name));
    begin = comma + 1;
  }
  return out;
}

std::vector<HostSlots> parse_host_file(std::string_view text, std::string_view source, std::string_view own_name) {
  std::vector<HostSlots> out;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string what = fmt::format("{}:{}", source, ++number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, word;
    if (!(words >> host)) continue;
    HostSlots entry = parse_host(host, what, own_name);
    while (words >> word) {
      if (!word.starts_with("slots="))
        throw_error("{}: \"{}\" is not slots=N; write one host per line, such as `b slots=4`", what, word);
      entry.slots = parse_slots(std::string_view(word).substr(6), line, what);
    }
    check_count(out.size() + 1, source);
    out.push_back(std::move(entry));
  }
  if (out.empty()) throw_error("{}: no hosts found; write one host per line, such as `b slots=4`", source);
  return out;
}

std::vector<std::string> assign_hosts(const std::vector<HostSlots>& hosts, int processes) {
  std::vector<std::string> out;
  for (const HostSlots& each : hosts)
    for (int i = 0; i < each.slots && static_cast<int>(out.size()) < processes; ++i) out.push_back(each.host);
  if (static_cast<int>(out.size()) < processes)
    throw_error("-n {}: --hosts has only {}; give hosts more slots, such as HOST:4, or start fewer processes",
                processes, counted(static_cast<int64_t>(out.size()), "slot"));
  return out;
}

std::string shell_quote(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += '\'';
    for (const char c : word) {
      if (c == '\'')
        out += "'\\''";
      else
        out += c;
    }
    out += '\'';
  }
  return out;
}

std::string remote_shell_command(const RemoteCommand& command) {
  // exec keeps the process id $$ for the program. The background loop that forwards signals must not keep the output
  // open, or ssh would wait for it.
  std::vector<std::string> program = {"env"};
  program.insert(program.end(), command.variables.begin(), command.variables.end());
  program.insert(program.end(), command.argv.begin(), command.argv.end());
  const std::string script = fmt::format(
      "IFS= read -r {0} || exit 255; export {0}; cd {1} || exit 1; exec 3<&0; "
      "{{ while IFS= read -r s; do kill -s \"$s\" $$; done; kill -s TERM $$ || exit; "
      "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -s 0 $$ || exit; done; kill -s KILL $$; }} "
      "<&3 >/dev/null 2>&1 & exec {2} </dev/null 3<&-",
      command.secret, shell_quote({command.folder}), shell_quote(program));
  // The user's login shell there may not be a POSIX shell.
  return "exec sh -c " + shell_quote({script});
}

}  // namespace lockstep
