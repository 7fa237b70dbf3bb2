// Tracing functions into programs and running programs: the building blocks of jit, grad, vmap, scan and the
// other transforms. For the templates of the other public headers; not part of the public API.
//
// Traces belong to the thread that opened them. Everything else is safe to use from any thread.
#pragma once

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
using Arrays = std::vector<Array>;  // also in detail/tree_visitor.h

// A traced function. The program's inputs are the function's arguments, followed by the arrays it captured.
struct Traced {
  ProgramPtr program;
  Arrays captures;
  std::vector<NamedSharding> shardings = {};  // of the outputs; undefined where the function set none
};

// Opens a trace: until it is finished or destroyed, operations of this thread are recorded instead of run.
// Traces nest; the innermost records.
class Tracing {
 public:
  // `what` names the transform in errors. It must outlive the trace.
  explicit Tracing(const char* what);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  // Adds an input of this type for `argument`. If `argument` is a number, the input adapts its element type
  // like a number. REQUIRES: all inputs are added before the function runs.
  Array input(const Type&, const Array& argument);
  // Ends the trace and returns the function. Outputs may be any arrays, including concrete ones and numbers.
  Traced finish(std::span<const Array> outputs);

 private:
  friend class Trace;
  bool open_ = true;
};

// Whether this thread is tracing.
bool tracing();

// Returns the results of a program on these arguments: runs it, or records it in the current trace.
Arrays call(const ProgramPtr&, std::span<const Array> args);

// `args` followed by the captured arrays.
Arrays with_captures(std::span<const Array> args, const Traced&);

// The types of the program's outputs.
std::vector<Type> output_types(const ProgramPtr&);

// Throws Error unless `loss` is a floating scalar.
void check_scalar_loss(const Array& loss);
// Throws Error unless the argument at `path` is floating.
void check_differentiable(const Array& argument, const std::string& path);
// Throws Error unless the cotangent has the type of result `index`.
void check_cotangent(const Array& cotangent, const Array& result, size_t index);

// Maps inputs to {outputs, gradients of output 0 (a scalar) with respect to the wanted inputs}.
ProgramPtr gradient_program(const Traced&, std::vector<bool> wanted);

// The two programs of vjp. `forward` maps inputs to `outputs` results, then residuals. `backward` maps
// residuals, and one cotangent per floating output, to gradients of the wanted inputs.
struct VjpPrograms {
  ProgramPtr forward, backward;
  size_t outputs = 0;
};
VjpPrograms vjp_programs(const Traced&, std::vector<bool> wanted);

// The program with a leading batch axis. Outputs are batched where `force` is set or where they depend on the
// batch.
struct VmapProgram {
  ProgramPtr program;
  std::vector<bool> batched;  // per output
};
VmapProgram batch_program(const Traced&, std::vector<bool> batched_args, int64_t size, const std::vector<bool>& force,
                          const std::string& axis = "");

// A compiled function.
class Executable;
using Shardings = std::vector<NamedSharding>;
std::shared_ptr<Executable> compile(const Traced&, const std::vector<bool>& donated, const Shardings& in = {},
                                    const Shardings& out = {});
// Runs a compiled function. `args` are the function's own arguments, without captures; `results` receives one
// array per output. Repeated calls allocate no memory besides results.
void execute(Executable&, const Array* const* args, Array* results);
size_t result_count(const Executable&);
std::string program_text(const Executable&);
std::string lowered_text(const Executable&);
std::string plan_text(const Executable&);
std::string schedule_text(const Executable&);
std::string explain_text(const Executable&);
std::vector<int64_t> work_bytes(const Executable&);  // per lane
size_t instruction_count(const Executable&);
double multiply_adds(const Executable&);  // on all lanes of this process
void compile_kernels_in_background(const Executable&);  // see Jit::prepare

std::string print_program(const ProgramPtr&);

// Whether an array is a C++ number, or the traced input that represents one: it adapts its element type to
// the other operand.
bool is_number(const Array&);

// Addresses that identify the type and sharding of an array: equal addresses mean equal types (with numbers
// distinct from arrays), or equal shardings.
const void* type_address(const Array&);
const void* sharding_address(const Array&);
NamedSharding known_sharding(const Array&);  // undefined if none was set

// Returns the same array with another sharding. Throws Error when the spec does not fit its rank.
Array with_sharding(const Array&, const NamedSharding&);
// Same on behalf of a user's call of function `what` at line `at`. In a trace, records a constraint equation.
// Also throws Error when the spec names an axis over which the current code runs per device.
Array constrained(const Array&, const NamedSharding&, const char* what, const SourceLine& at);

// Control flow on traced bodies. scan: `body` maps (carry..., x..., captures...) to (carry..., y...).
Arrays scan(const Traced& body, std::span<const Array> init, std::span<const Array> xs, int64_t length, bool reverse);
// cond: both branches map the operands, and their own captures, to results of the same types.
Arrays cond(const Array& predicate, const Traced& if_true, const Traced& if_false, std::span<const Array> operands);
Arrays remat(const Traced& body, std::span<const Array> args, const std::string& policy = "");
Array checkpoint_name(const Array& x, const std::string& name);
// custom_vjp: `forward` maps args to (outputs..., residuals...); `backward` maps (residuals...,
// cotangents...) to one gradient per argument.
Arrays custom_vjp(const Traced& body, const Traced& forward, const Traced& backward, std::span<const Array> args);

// Move `axis` of x to the front, or the front dimension to `axis`.
Array axis_to_front(const Array& x, int64_t axis);
Array front_to_axis(const Array& x, int64_t axis);
Array zeros_of(const Type&);

}  // namespace lockstep::detail
