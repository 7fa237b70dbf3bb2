// Executable: a program made ready to run, on one lane or on several. Used by jit and by eager operations. Calls of
// run() follow one another.
#pragma once

#include "array/node.h"
#include "lockstep/trace.h"
#include "program/program.h"

namespace lockstep::detail {

class Executable {
 public:
  Executable(ProgramPtr program, std::vector<bool> donated, Arrays captures, Shardings out_shardings);
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // `args` are the function's own arguments, without captures; results go to `results`, one per output.
  virtual void run(const Array* const* args, Array* results) = 0;

  const Program& program() const { return *program_; }
  size_t results() const { return out_types_.size(); }
  // What runs, as programs and as plans.
  virtual std::string lowered_text() const = 0;
  virtual std::string plan_text() const = 0;
  // Bytes of work space and constants on each lane of this process.
  virtual std::vector<int64_t> work_bytes() const = 0;
  virtual size_t instructions() const = 0;  // of all lanes
  // Has kernels of GPUs compiled by other threads, for a run to come.
  virtual void begin() const = 0;
  // How it lies on lanes, why, and what moves between them.
  virtual std::string explain() const = 0;

 protected:
  // The array at a place of the program's inputs: one of the call's, or a capture.
  const Array& argument(const Array* const* args, size_t i) const {
    const size_t own = in_types_.size() - captures_.size();
    return i < own ? *args[i] : captures_[i - own];
  }
  // After a run: donated arguments hold nothing any more.
  void mark_donated(const Array* const* args) const;

  ProgramPtr program_;
  std::vector<bool> donated_;
  Arrays captures_;
  Shardings out_shardings_;
  std::vector<const Type*> in_types_, out_types_;
};

// Cuts the program over the lanes of the process where shardings say so; null where there is one lane, or nothing
// crosses lanes. `in` and `out`: as in compile(), for captures too.
std::shared_ptr<Executable> compile_on_lanes(const ProgramPtr& program, const std::vector<bool>& donated,
                                             const Arrays& captures, const Shardings& in, const Shardings& said_out,
                                             const Shardings& out_shardings);

}  // namespace lockstep::detail
