// Exceptions. Every message reads `operation: fact with values; remedy`, in lower case.
//
//   Error        a mistake of the caller: shapes that do not fit, an unknown name, a file of the wrong format
//   OutOfMemory  an allocation failed on the host or on a GPU
//   IoError      a file or network operation failed
//   CommError    a collective cannot complete and its results are lost; restart from the last checkpoint. Subclasses:
//   CommTimeout    some ranks did not join in time
//   CommAborted    another rank failed first and told the others to stop
//   DeviceLost   a GPU can no longer be used by this process; restart from the last checkpoint
//
// A bug in Lockstep itself is not an exception: LOCKSTEP_CHECK prints the location and the failed condition,
// and aborts.
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
