#include "cluster/barriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

namespace lockstep {

namespace {

constexpr size_t kLongestName = 1024;
constexpr size_t kShownOfLine = 300;
constexpr size_t kNamed = 16;  // processes listed in a message

// Removes the first line from the text and returns it.
std::optional<std::string_view> next_line(std::string_view& text) {
  if (text.empty()) return std::nullopt;
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// A line for a message; a long line is cut to the part where it begins to differ from the other.
std::string show(const std::optional<std::string_view>& line, const std::optional<std::string_view>& other) {
  if (!line) return "(end of text)";
  if (line->size() <= kShownOfLine) return std::string(*line);
  size_t begin = 0;
  if (other) {
    const auto same = static_cast<size_t>(std::ranges::mismatch(*line, *other).in1 - line->begin());
    if (same > kShownOfLine / 2) begin = same - kShownOfLine / 2;
  }
  const std::string_view part = line->substr(begin, kShownOfLine);
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", part, begin + part.size() < line->size() ? "..." : "");
}

}  // namespace

std::string Barriers::title(const Key& key) {
  switch (key.first) {
    case Kind::barrier:
      return fmt::format("barrier \"{}\"", key.second);
    case Kind::agreement:
      return fmt::format("agree \"{}\"", key.second);
    case Kind::shutdown:
      break;
  }
  return "shutdown";
}

std::string Barriers::labels(const std::vector<int>& processes) const {
  std::string out;
  for (size_t i = 0; i < processes.size() && i < kNamed; ++i)
    out += fmt::format("{}{}", i ? ", " : "", label_(processes[i]));
  if (processes.size() > kNamed) out += fmt::format(" and {} more", processes.size() - kNamed);
  return out;
}

void Barriers::answer_all(const Barrier& barrier, Outcome outcome, const std::string& text) {
  for (const auto& [process, arrival] : barrier.arrived) answer(arrival.call, outcome, text);
}

Barriers::Barrier* Barriers::arrive(uint64_t call, int process, const Key& key, std::vector<int> participants,
                                    std::chrono::nanoseconds timeout, Time now) {
  const auto refuse = [&](const std::string& why) -> Barrier* {
    answer(call, Outcome::refused, fmt::format("{}: {}", title(key), why));
    return nullptr;
  };
  if (key.second.size() > kLongestName)
    return refuse(fmt::format("the name has {} bytes; at most {} are allowed", key.second.size(), kLongestName));
  if (participants.empty()) {
    participants.resize(static_cast<size_t>(process_count_));
    std::iota(participants.begin(), participants.end(), 0);
  }
  std::ranges::sort(participants);
  for (size_t i = 0; i < participants.size(); ++i) {
    if (participants[i] < 0 || participants[i] >= process_count_)
      return refuse(
          fmt::format("participant {} is not a process of this job, which has {}", participants[i], process_count_));
    if (i && participants[i] == participants[i - 1])
      return refuse(fmt::format("participant {} is named twice", participants[i]));
  }
  if (!std::ranges::binary_search(participants, process))
    return refuse(fmt::format("process {} is not one of the participants {}", process, fmt::join(participants, ", ")));

  if (const auto timed_out = timed_out_.find(key); timed_out != timed_out_.end()) {
    const auto late = std::ranges::find(timed_out->second.processes, process);
    if (late != timed_out->second.processes.end()) {
      answer(call, Outcome::timeout, timed_out->second.message);
      timed_out->second.processes.erase(late);
      if (timed_out->second.processes.empty()) timed_out_.erase(timed_out);
      return nullptr;
    }
    timed_out_.erase(timed_out);  // the name is used again
  }

  const auto [found, is_new] = open_.try_emplace(key);
  Barrier& barrier = found->second;
  if (is_new) {
    barrier.participants = std::move(participants);
    barrier.timeout = timeout;
    barrier.deadline = now + timeout;
  } else if (barrier.participants != participants) {
    return refuse(fmt::format("process {} gave participants {}, others gave {}; all must give the same", process,
                              fmt::join(participants, ", "), fmt::join(barrier.participants, ", ")));
  }
  if (const auto [place, first] = barrier.arrived.try_emplace(process, Arrival{.call = call}); !first)
    return refuse(fmt::format("process {} is already waiting there", process));
  return &barrier;
}

bool Barriers::join(uint64_t call, int process, const request::Barrier& request, Time now) {
  const Key key(Kind::barrier, request.name);
  const Barrier* barrier = arrive(call, process, key, request.participants, request.timeout, now);
  if (!barrier || !complete(*barrier)) return false;
  answer_all(*barrier, Outcome::ok, "");
  open_.erase(key);
  return true;
}

bool Barriers::join_shutdown(uint64_t call, int process, const request::Shutdown& request, Time now) {
  const Key key(Kind::shutdown, "");
  const Barrier* barrier = arrive(call, process, key, {}, request.timeout, now);
  if (!barrier || !complete(*barrier)) return false;
  answer_all(*barrier, Outcome::ok, "");
  open_.erase(key);
  return true;
}

void Barriers::agree(uint64_t call, int process, const request::Agree& request, Time now) {
  const Key key(Kind::agreement, request.name);
  Barrier* barrier = arrive(call, process, key, {}, request.timeout, now);
  if (!barrier) return;
  barrier->arrived[process].hash = request.hash;
  if (!complete(*barrier)) return;

  const auto first = barrier->arrived.begin();
  const auto other = std::ranges::find_if(
      barrier->arrived, [&](const auto& arrival) { return arrival.second.hash != first->second.hash; });
  if (other == barrier->arrived.end()) {
    answer_all(*barrier, Outcome::ok, "");
    open_.erase(key);
    return;
  }
  barrier->differing = {first->first, other->first};
  barrier->deadline = now + request.timeout;
  for (const auto& each : {first, other}) {
    answer(each->second.call, Outcome::text_requested, "");
    each->second.call = 0;
  }
}

void Barriers::explain(uint64_t call, int process, const request::Explain& request) {
  const Key key(Kind::agreement, request.name);
  const auto found = open_.find(key);
  const bool asked = found != open_.end() &&
                     (process == found->second.differing.first || process == found->second.differing.second) &&
                     !found->second.arrived[process].explained;
  if (!asked) {
    answer(call, Outcome::refused, fmt::format("{}: process {} was not asked for its text", title(key), process));
    return;
  }
  Arrival& arrival = found->second.arrived[process];
  arrival.call = call;
  arrival.text = request.text;
  arrival.explained = true;
  found->second.line_word = request.line_word;
  close_if_explained(key);
}

void Barriers::close_if_explained(const Key& key) {
  Barrier& barrier = open_.at(key);
  if (!barrier.arrived[barrier.differing.first].explained || !barrier.arrived[barrier.differing.second].explained)
    return;
  answer_all(barrier, Outcome::refused, difference(key, barrier));
  open_.erase(key);
}

std::string Barriers::difference(const Key& key, const Barrier& barrier) const {
  const auto [first, other] = barrier.differing;
  const Arrival& a = barrier.arrived.at(first);
  const Arrival& b = barrier.arrived.at(other);
  std::vector<int> others;
  for (const auto& [process, arrival] : barrier.arrived)
    if (arrival.hash != a.hash) others.push_back(process);
  std::string out = fmt::format("{}: {} and {} differ", title(key), label_(first), label_(other));
  if (others.size() > 1)
    out += fmt::format(" ({} of {} processes differ from process {})", others.size(), barrier.arrived.size(), first);
  if (a.explained && b.explained) {
    std::string_view rest_a = a.text, rest_b = b.text;
    for (int number = 1;; ++number) {
      const auto line_a = next_line(rest_a), line_b = next_line(rest_b);
      if (!line_a && !line_b) {
        out += ", although their texts are equal";
        break;
      }
      if (line_a == line_b) continue;
      out += fmt::format(" at {} {}:\n  process {}: {}\n  process {}: {}\n",
                         barrier.line_word.empty() ? "line" : barrier.line_word, number, first, show(line_a, line_b),
                         other, show(line_b, line_a));
      return out + "all processes must make the same calls in the same order";
    }
  }
  return out + "; all processes must make the same calls in the same order";
}

void Barriers::cancel(uint64_t call) {
  for (auto barrier = open_.begin(); barrier != open_.end(); ++barrier) {
    auto& arrived = barrier->second.arrived;
    const auto found = std::ranges::find_if(arrived, [&](const auto& arrival) { return arrival.second.call == call; });
    if (found == arrived.end()) continue;
    if (barrier->second.differing.first >= 0)
      found->second.call = 0;  // its hash is still compared
    else
      arrived.erase(found);
    if (arrived.empty()) open_.erase(barrier);
    return;
  }
}

std::vector<Barriers::Expired> Barriers::expire(Time now) {
  std::vector<Expired> out;
  for (auto entry = open_.begin(); entry != open_.end();) {
    const auto& [key, barrier] = *entry;
    if (barrier.deadline > now) {
      ++entry;
      continue;
    }
    if (barrier.differing.first >= 0) {
      answer_all(barrier, Outcome::refused, difference(key, barrier));
    } else {
      std::vector<int> missing;
      for (int process : barrier.participants)
        if (!barrier.arrived.contains(process)) missing.push_back(process);
      const std::string message =
          fmt::format("{}: {} of {} processes arrived within {}; missing: {}", title(key), barrier.arrived.size(),
                      barrier.participants.size(), describe(barrier.timeout), labels(missing));
      answer_all(barrier, Outcome::timeout, message);
      timed_out_[key] = {missing, message};
      out.push_back({key.first, missing, message});
    }
    entry = open_.erase(entry);
  }
  return out;
}

std::vector<uint64_t> Barriers::take_waiting() {
  std::vector<uint64_t> calls;
  for (const auto& [key, barrier] : open_)
    for (const auto& [process, arrival] : barrier.arrived)
      if (arrival.call) calls.push_back(arrival.call);
  open_.clear();
  return calls;
}

Barriers::Time Barriers::next_deadline() const {
  Time next = Time::max();
  for (const auto& [key, barrier] : open_) next = std::min(next, barrier.deadline);
  return next;
}

}  // namespace lockstep
