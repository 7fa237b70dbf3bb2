#include "jobs/kubernetes/followed_log.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kMaxTimeLength = 40;

// "2026-01-01T00:00:00.5Z" and "2026-01-01T00:00:00.500000000Z" are the same time. Pads the digits for comparison.
std::string digits_of(std::string_view time) {
  std::string out(time.substr(0, time.find_first_of("Z+")));
  if (out.find('.') == out.npos) out += '.';
  while (out.size() < kMaxTimeLength) out += '0';
  return out;
}

bool is_time(std::string_view word) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (word.size() <= kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '0' ? word[i] < '0' || word[i] > '9' : word[i] != kForm[i]) return false;
  return true;
}

}  // namespace

void FollowedLog::start_connection() {
  // Do not repeat the part of an unfinished line that the sink already has.
  if (in_line_ && !old_) skip_ = std::max(emitted_, skip_);
  catching_up_ = !last_.empty();
  head_.clear();
  in_line_ = old_ = false;
  seen_ = emitted_ = 0;
}

bool FollowedLog::emit(std::string_view text) {
  const size_t before = emitted_;
  emitted_ += text.size();
  if (old_) return true;
  text.remove_prefix(std::min(text.size(), skip_ > before ? skip_ - before : 0));
  return text.empty() || sink_(text);
}

void FollowedLog::begin_line(const std::string& time) {
  in_line_ = true;
  emitted_ = 0;
  time_ = time;
  // Lines are skipped only until the first new one: later the clock of the node may go back.
  const std::string now = digits_of(time), last = digits_of(last_);
  old_ = catching_up_ && (now < last || (now == last && ++seen_ <= same_));
  catching_up_ = old_;
}

bool FollowedLog::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!in_line_) {
      const size_t space = bytes.find(' ');
      const size_t end = std::min(bytes.find('\n'), space);
      head_ += bytes.substr(0, std::min(end, bytes.size()));
      bytes.remove_prefix(std::min(end, bytes.size()));
      if (bytes.empty() && head_.size() < kMaxTimeLength) return true;
      const bool timed = !bytes.empty() && bytes[0] == ' ' && is_time(head_);
      if (timed) bytes.remove_prefix(1);
      begin_line(timed ? head_ : time_);
      const std::string text = timed ? "" : head_;
      head_.clear();
      if (!text.empty() && !emit(text)) return false;
    }
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const bool complete = end < bytes.size();
    if (!emit(bytes.substr(0, end + (complete ? 1 : 0)))) return false;
    bytes.remove_prefix(end + (complete ? 1 : 0));
    if (!complete) continue;
    in_line_ = false;
    if (old_) continue;
    skip_ = 0;
    same_ = time_ == last_ ? same_ + 1 : 1;
    last_ = time_;
  }
  return true;
}

}  // namespace lockstep
