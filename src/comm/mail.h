// Mail: letters between processes that were started together. Those from one process to another arrive in the order in
// which they were sent. One thread at a time.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

struct Letter {
  int from = 0;
  std::string text = {};
};

class Mail {
 public:
  virtual ~Mail() = default;

  // All throw CommError when there is no way any more.

  // Returns at once.
  virtual void send(int to, std::string text) = 0;
  // A letter that has arrived, if there is one.
  virtual std::optional<Letter> receive() = 0;
  // Whether all that was sent has left, so that this may be destroyed and the others still get it.
  virtual bool all_left() = 0;
};

}  // namespace lockstep
