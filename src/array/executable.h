// Executable: a compiled program, for one lane or several. Used by jit and by eager operations. Safe to use
// from several threads; calls of run() are serialized.
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

  // Runs the program. `args` are the function's own arguments, without captures; `results` receives one array
  // per output. Donated arguments are marked as donated. If it throws, the arguments are unchanged.
  virtual void run(const Array* const* args, Array* results) = 0;

  const Program& program() const { return *program_; }
  // Whether other processes compute it with this one. They would have to compile it again together.
  virtual bool is_across_processes() const { return false; }
  size_t results() const { return out_types_.size(); }
  // The arrays for all inputs of the program: the arguments of a call and the captures.
  Arrays arguments(const Array* const* args) const {
    Arrays out;
    for (size_t i = 0; i < in_types_.size(); ++i) out.push_back(argument(args, i));
    return out;
  }
  // The lowered programs, the plans and how lanes execute them, as text.
  virtual std::string lowered_text() const = 0;
  virtual std::string plan_text() const = 0;
  virtual std::string schedule_text() const = 0;
  // Bytes of temporaries and constants on each lane of this process.
  virtual std::vector<int64_t> work_bytes() const = 0;
  virtual size_t instructions() const = 0;  // summed over all lanes
  // Of products, convolutions and attention, on all lanes of this process; see count_multiply_adds().
  virtual double multiply_adds() const = 0;
  // Starts compiling kernels in background threads. run() waits for them.
  virtual void compile_kernels_in_background() const = 0;
  // The sharding of every value over lanes, the reason for it, and the communication, as text.
  virtual std::string explain() const = 0;

 protected:
  // The array for input i of the program: an argument of the call, or a capture.
  const Array& argument(const Array* const* args, size_t i) const {
    const size_t own = in_types_.size() - captures_.size();
    return i < own ? *args[i] : captures_[i - own];
  }
  // Releases the memory of donated arguments, after a run.
  void mark_donated(const Array* const* args) const;

  ProgramPtr program_;
  std::vector<bool> donated_;
  Arrays captures_;
  Shardings out_shardings_;
  std::vector<const Type*> in_types_, out_types_;
};

// Partitions the program over the lanes by the shardings `in` and `given_out`, captures included. Returns
// null if there is only one lane or nothing crosses lanes. `out_shardings` are the shardings to report for
// the results.
std::shared_ptr<Executable> compile_on_lanes(const ProgramPtr& program, const std::vector<bool>& donated,
                                             const Arrays& captures, const Shardings& in, const Shardings& given_out,
                                             const Shardings& out_shardings);

}  // namespace lockstep::detail
