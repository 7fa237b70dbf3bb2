// LevelCause: why a group of two levels has failed, as it passes through the levels: each of them carries it as the
// reason of an abort, and names ranks by its own numbers where it found the failure itself. Pure; safe from any thread.
#pragma once

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "comm/operation.h"

namespace lockstep::detail {

struct LevelCause {
  static constexpr char kMark = '\x1f';

  bool mismatch = false;
  bool waited = false;  // a timeout: the message begins with the rank that waited
  std::string message = {};
  int depth = -1;  // how often the group that failed was split off; -1: it is the one that hears of it

  std::string encode() const {
    return fmt::format("{}{}{}{}", kMark, mismatch ? 'M' : waited ? 'W' : 'A', static_cast<char>('0' + depth), message);
  }

  // What an exception of a level says; label(r) is how messages call its rank r, and a rank waits that long.
  static LevelCause of(std::string_view what, double seconds, const std::function<std::string(int)>& label) {
    if (const size_t mark = what.rfind(kMark); mark != what.npos && mark + 2 < what.size())
      return {what[mark + 1] == 'M', what[mark + 1] == 'W', std::string(what.substr(mark + 3)), what[mark + 2] - '0'};
    constexpr std::string_view kFirst = "first cause: ", kWaited = " waited ";
    if (const size_t first = what.rfind(kFirst); first != what.npos) what.remove_prefix(first + kFirst.size());
    const size_t waited = what.find(kWaited);
    if (waited == what.npos) return {false, false, rename(what, seconds, label)};
    // `all_gather 3 on "x": rank 1 of 4 waited 5 s for ranks 2, 3; see ...`: the operation is not the caller's.
    const size_t who = what.find("\": rank ");
    if (who != what.npos && who < waited) what.remove_prefix(who + 3);
    return {false, true, rename(what, seconds, label)};
  }

  // For an operation of the whole group.
  std::string text(Operation::Kind kind, int64_t number, const std::string& group, int size) const {
    if (!waited) return message;
    const size_t at = message.find(kSize);
    return fmt::format("{} {} on \"{}\": {} of {}{}", lockstep::name(kind), number, group, message.substr(0, at), size,
                       at == message.npos ? "" : message.substr(at + 1));
  }

 private:
  static constexpr char kSize = '\x1e';  // where the size of the group belongs

  // Puts the caller's names for the ranks after `rank ` and `ranks `, up to the next `;`.
  static std::string rename(std::string_view what, double seconds, const std::function<std::string(int)>& label) {
    std::string result;
    const size_t end = std::min(what.find(';'), what.size());
    size_t at = 0;
    bool listed = false;
    while (at < end) {
      const bool one = what.substr(at, 5) == "rank ", many = what.substr(at, 6) == "ranks ";
      if (one || many) {
        result += what.substr(at, one ? 5 : 6);
        at += one ? 5 : 6;
        listed = true;
      } else if (listed && what.substr(at, 2) == ", ") {
        result += ", ";
        at += 2;
      } else {
        listed = false;
        // The size of the level is not that of the whole.
        if (what.substr(at, 4) == " of " && what.find(" waited ", at) != what.npos) {
          result += fmt::format("{} waited {:.3g}", kSize, seconds);
          at = what.find(" s for ", at);
          if (at == what.npos) return result;
          continue;
        }
        result += what[at++];
        continue;
      }
      int number = 0;
      const size_t digits = at;
      while (at < end && std::isdigit(static_cast<unsigned char>(what[at]))) number = number * 10 + (what[at++] - '0');
      if (at == digits) continue;
      // Its own name for where the rank comes from goes.
      if (what.substr(at, 2) == " (" && what.find(" of \"", at) < what.find(')', at)) at = what.find(')', at) + 1;
      result += label(number);
    }
    return result + std::string(what.substr(end));
  }
};

}  // namespace lockstep::detail
