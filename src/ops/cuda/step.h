// Steps: what a row does on the GPU, as texts of device functions that can be started as kernels of their own or be
// put together with the steps of other rows in one (plan/whole_kernel.h). A step is done by a number of blocks of
// threads that know nothing of each other; the steps of a row are done one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lane/buffer.h"
#include "program/op.h"

namespace lockstep {

constexpr int kStepThreads = 512;  // of a block

struct CudaStep {
  struct Argument {
    enum Kind : uint8_t { operand, result, own } kind;
    size_t index = 0;
  };

  std::string name;        // of the row, for people
  std::string prelude;     // what stands before the function: includes, other functions; equal ones are written once
  std::string parameters;  // "const float* in0, float* out0"
  // What block number `block` does, in which `shared` is memory of the block. Threads may return early only where no
  // __syncthreads() follows.
  std::string body;
  std::vector<Argument> arguments;  // of the parameters, in order
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  double operations = 0;  // of matrix products: multiplications and additions
  bool meets = false;     // blocks side by side wait for each other: all must run at a time
  // Where threads compute elements one by one and write nothing else: how many there are, how many of them a thread has,
  // and the operands of which it reads only elements of the same place.
  int64_t elements = 0, each = 0;
  std::vector<size_t> in_place;
};

// A kernel made of steps. std::function's target() finds it.
class SteppedKernel {
 public:
  // The lane may be null where only the texts are wanted. `own` is memory the steps use besides operands and results.
  // `apart`, where given, does the same in another way, for when it is not put together with others; `remake` the same
  // for that many processors of the GPU.
  using Remake = std::function<SteppedKernel(int processors)>;
  SteppedKernel(CudaLane* lane, std::vector<CudaStep> steps, std::vector<BufferPtr> own = {}, Kernel apart = {},
                Remake remake = {});

  void operator()(const void* const* in, void* const* out) const;

  // Made for when others have the rest of the GPU; itself where that makes no difference.
  SteppedKernel on(int processors) const;

  const std::vector<CudaStep>& steps() const;
  const void* own(size_t index) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// How many of n elements a thread computes, at most so many: then what they are made of is on its way together, few
// blocks of them are done at once, and what one block can do needs no other.
int64_t elements_of_thread(int64_t n, int64_t most);

// The text of a step as a kernel of its own, called `f`.
std::string text_of(const CudaStep& step);

}  // namespace lockstep
