// LevelFailure: why a HierarchicalComm has failed. The failure travels between the levels as the reason of an abort(),
// in which case it is encoded. A level that found the failure itself uses its own rank numbers in its message; parse()
// replaces them by those of the hierarchical group. Pure functions; safe from any thread.
#pragma once

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "comm/operation.h"

namespace lockstep::detail {

struct LevelFailure {
  bool mismatch = false;
  bool timed_out = false;  // the message begins with the rank that waited
  std::string message = {};
  int depth = -1;  // how many times the failed group was split off; -1: the group that receives this

  // kMark, then one character each for the kind of failure and the depth, then the message.
  std::string encode() const {
    return fmt::format("{}{}{}{}", kMark,
                       mismatch    ? 'M'
                       : timed_out ? 'W'
                                   : 'A',
                       static_cast<char>('0' + depth), message);
  }

  // Parses the message of an exception of a level. label(r) is the name of the level's rank r in messages of the
  // hierarchical group, and `seconds` is the timeout of that group.
  static LevelFailure parse(std::string_view what, double seconds, const std::function<std::string(int)>& label) {
    if (const size_t mark = what.rfind(kMark); mark != what.npos && mark + 2 < what.size())
      return {what[mark + 1] == 'M', what[mark + 1] == 'W', std::string(what.substr(mark + 3)), what[mark + 2] - '0'};
    constexpr std::string_view kFirstCause = "first cause: ", kWaited = " waited ";
    if (const size_t first = what.rfind(kFirstCause); first != what.npos)
      what.remove_prefix(first + kFirstCause.size());
    const size_t waited = what.find(kWaited);
    if (waited == what.npos) return {false, false, relabel(what, seconds, label)};
    // `all_gather 3 on "x": rank 1 of 4 waited 5 s for ranks 2, 3; check ...`: removes the operation, which is not the
    // one that the caller started.
    const size_t rank = what.find("\": rank ");
    if (rank != what.npos && rank < waited) what.remove_prefix(rank + 3);
    return {false, true, relabel(what, seconds, label)};
  }

  // The message for an operation of the hierarchical group.
  std::string text(Operation::Kind kind, int64_t number, const std::string& group, int size) const {
    if (!timed_out) return message;
    const size_t at = message.find(kSize);
    return fmt::format("{} {} on \"{}\": {} of {}{}", lockstep::name(kind), number, group, message.substr(0, at), size,
                       at == message.npos ? "" : message.substr(at + 1));
  }

 private:
  static constexpr char kMark = '\x1f';  // begins an encoded failure
  static constexpr char kSize = '\x1e';  // stands for the size of the group

  // Replaces the ranks after `rank ` and `ranks ` by their labels, up to the next `;`.
  static std::string relabel(std::string_view what, double seconds, const std::function<std::string(int)>& label) {
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
        // Replaces the size and the timeout of the level by those of the hierarchical group.
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
      // Removes the level's own label for the rank, such as ` (3 of "host")`.
      if (what.substr(at, 2) == " (" && what.find(" of \"", at) < what.find(')', at)) at = what.find(')', at) + 1;
      result += label(number);
    }
    return result + std::string(what.substr(end));
  }
};

}  // namespace lockstep::detail
