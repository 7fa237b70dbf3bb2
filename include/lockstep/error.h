// The kinds of failure. Every message reads `operation: fact with values; remedy`, in lower case.
//
//   Error        the caller's mistake: shapes that do not fit, a name that does not exist, a file of the wrong format
//   OutOfMemory  the world's failure: the machine has no room for an allocation
//   IoError      the world's failure: a file or network operation did not succeed
//   CommError    the world's failure: an operation between ranks cannot complete, and what it computed is lost;
//                starting again from the last checkpoint may help. One of
//   CommTimeout  some ranks did not come in time
//   CommAborted  another rank failed first, and told the others to stop
//   DeviceLost   the world's failure: a GPU can compute no more in this process; starting again may help, too
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

class DeviceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CommTimeout : public CommError {
 public:
  using CommError::CommError;
};

class CommAborted : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace lockstep
