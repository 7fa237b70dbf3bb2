// What the transforms (jit, grad, vmap, scan, ...) are made of: tracing a function into a program, and calling
// programs. For the templates of the other public headers; users need none of it, except program_text().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/source_line.h"

namespace lockstep {
struct Program;
}  // namespace lockstep

namespace lockstep::detail {

using ProgramPtr = std::shared_ptr<const Program>;
using Arrays = std::vector<Array>;

// A traced function. The program's inputs are the function's arguments, then what it captured from outside.
struct Traced {
  ProgramPtr program;
  Arrays captures;
  std::vector<NamedSharding> shardings = {};  // of the outputs, where the function said so
};

// While it lives, operations on this thread are written down instead of run. Tracings nest; the innermost writes.
class Tracing {
 public:
  // `what` names the transform in errors.
  explicit Tracing(const char* what);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  // A new argument, of this type in the function: one that is a number takes there too the element type of what it
  // meets. All arguments come before the function is called.
  Array input(const Type&, const Array& argument);
  // Ends the trace. Outputs may be any arrays, concrete ones and numbers included.
  Traced finish(std::span<const Array> outputs);

 private:
  friend class Trace;
  bool open_ = true;
};

// Is this thread tracing?
bool tracing();

// The results of a program on these arguments: run now, or written into the trace.
Arrays call(const ProgramPtr&, std::span<const Array> args);

// `args` followed by `captures`.
Arrays with_captures(std::span<const Array> args, const Traced&);

// Types of the program's outputs.
std::vector<Type> output_types(const ProgramPtr&);

// Throws Error unless this can be differentiated: `loss` is a floating scalar.
void check_scalar_loss(const Array& loss);
// Throws Error unless the argument at `path` is floating.
void check_differentiable(const Array& argument, const std::string& path);
// Throws Error unless the cotangent has the type of result `index`.
void check_cotangent(const Array& cotangent, const Array& result, size_t index);

// inputs -> outputs, gradients of output 0 (a scalar) with respect to the wanted inputs.
ProgramPtr gradient_program(const Traced&, std::vector<bool> wanted);

// The two halves of vjp: known maps inputs to outputs and residuals; rest maps residuals and one cotangent per floating
// output to gradients of the wanted inputs.
struct Halves {
  ProgramPtr known, rest;
  size_t outputs = 0;
};
Halves vjp_programs(const Traced&, std::vector<bool> wanted);

// The program over a leading batch axis; every output comes out batched where `force`, else only those that depend on
// the batch.
struct BatchedPtr {
  ProgramPtr program;
  std::vector<bool> batched;
};
BatchedPtr batch_program(const Traced&, std::vector<bool> batched_args, int64_t size, const std::vector<bool>& force,
                         const std::string& axis = "");

// A compiled function: types in, types out, and what runs.
class Executable;
using Shardings = std::vector<NamedSharding>;
std::shared_ptr<Executable> compile(const Traced&, const std::vector<bool>& donated, const Shardings& in = {},
                                    const Shardings& out = {});
// Runs it. `args` are the function's own arguments; results go to `results`, one per output. Allocates nothing in a
// steady state.
void execute(Executable&, const Array* const* args, Array* results);
size_t result_count(const Executable&);
std::string program_text(const Executable&);
std::string lowered_text(const Executable&);
std::string plan_text(const Executable&);
std::string explain_text(const Executable&);
std::vector<int64_t> work_bytes(const Executable&);  // of each lane
size_t instruction_count(const Executable&);
void compile_kernels_in_background(const Executable&);  // see Jit::prepare

std::string print_program(const ProgramPtr&);

// A number as it was written, or what stands for it in a function that is traced: it takes the element type of what it
// meets.
bool is_number(const Array&);

// Equal addresses, equal types: that of the one copy of an array's type, and another for numbers.
const void* type_address(const Array&);
const void* sharding_address(const Array&);
NamedSharding known_sharding(const Array&);  // undefined when nothing was said

// The same array, its pieces lying elsewhere. Throws Error when the spec does not fit its rank.
Array with_sharding(const Array&, const NamedSharding&);
// The same for an array that a user places: while a function is traced, an equation of its program says so. `what` is
// who is asked, `at` where. Throws Error too when the spec names an axis over which this code runs per device.
Array constrained(const Array&, const NamedSharding&, const char* what, const SourceLine& at);

// Control flow, on traced bodies. scan: body maps (carry..., x..., captures...) to (carry..., y...).
Arrays scan(const Traced& body, std::span<const Array> init, std::span<const Array> xs, int64_t length, bool reverse);
// Both branches map operands (and their own captures) to results of the same types.
Arrays cond(const Array& predicate, const Traced& if_true, const Traced& if_false, std::span<const Array> operands);
Arrays remat(const Traced& body, std::span<const Array> args);
// forward maps args to (outputs..., residuals...); backward maps (residuals..., cotangents...) to one gradient per
// argument.
Arrays custom_vjp(const Traced& body, const Traced& forward, const Traced& backward, std::span<const Array> args);

// Array x with `axis` moved to the front, or from the front to `axis`.
Array axis_to_front(const Array& x, int64_t axis);
Array front_to_axis(const Array& x, int64_t axis);
Array zeros_of(const Type&);

}  // namespace lockstep::detail
