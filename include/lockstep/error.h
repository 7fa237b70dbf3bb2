// The kinds of failure. Every message reads `operation: fact with values; remedy`, in lower case.
//
//   Error        the caller's mistake: shapes that do not fit, a name that does not exist, a file of the wrong format
//   OutOfMemory  the world's failure: the machine has no room for an allocation
//   IoError      the world's failure: a file or network operation did not succeed
//
// A broken promise of our own is not an exception: LOCKSTEP_CHECK prints where and what, and aborts.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
