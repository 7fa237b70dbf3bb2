#include "jobs/kubernetes/followed_log.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kLongestTime = 40;

// "2026-01-01T00:00:00.5Z" and "2026-01-01T00:00:00.500000000Z" are the same time: the digits decide.
std::string digits_of(std::string_view time) {
  std::string out(time.substr(0, time.find_first_of("Z+")));
  if (out.find('.') == out.npos) out += '.';
  while (out.size() < kLongestTime) out += '0';
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

void FollowedLog::connect() {
  // What was given of a line that did not end is not given again.
  if (in_line_ && !old_) skip_ = std::max(given_, skip_);
  catching_up_ = !last_.empty();
  head_.clear();
  in_line_ = old_ = false;
  seen_ = given_ = 0;
}

bool FollowedLog::give(std::string_view text) {
  const size_t before = given_;
  given_ += text.size();
  if (old_) return true;
  text.remove_prefix(std::min(text.size(), skip_ > before ? skip_ - before : 0));
  return text.empty() || sink_(text);
}

void FollowedLog::begin_line(const std::string& time) {
  in_line_ = true;
  given_ = 0;
  time_ = time;
  // Later the clock may go back: lines are new once one was.
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
      if (bytes.empty() && head_.size() < kLongestTime) return true;
      const bool timed = !bytes.empty() && bytes[0] == ' ' && is_time(head_);
      if (timed) bytes.remove_prefix(1);
      begin_line(timed ? head_ : time_);
      const std::string text = timed ? "" : head_;
      head_.clear();
      if (!text.empty() && !give(text)) return false;
    }
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const bool whole = end < bytes.size();
    if (!give(bytes.substr(0, end + (whole ? 1 : 0)))) return false;
    bytes.remove_prefix(end + (whole ? 1 : 0));
    if (!whole) continue;
    in_line_ = false;
    if (old_) continue;
    skip_ = 0;
    same_ = time_ == last_ ? same_ + 1 : 1;
    last_ = time_;
  }
  return true;
}

}  // namespace lockstep
