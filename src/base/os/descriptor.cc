#include "base/os/descriptor.h"

#include <fcntl.h>

#include <array>

#include "base/file.h"

namespace lockstep {

Pipe make_pipe(int flags) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC | flags) != 0) throw_io_error("open", "a pipe", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace lockstep
