#include "ops/cuda/matrix_kernels.h"

#include <algorithm>

#include "ops/cuda/text.h"
#include "ops/matrix_values.h"

namespace lockstep {
namespace {

constexpr int kMatrixThreads = 256;
constexpr int64_t kTile = 32;

// The names of parameters: "const T* in, uint64_t rows" gives "in, rows".
std::string names_of(std::string_view parameters) {
  std::string out;
  while (!parameters.empty()) {
    const size_t comma = parameters.find(','), end = std::min(comma, parameters.size());
    const std::string_view one = parameters.substr(0, end);
    out += (out.empty() ? "" : ", ") + std::string(one.substr(one.rfind(' ') + 1));
    parameters.remove_prefix(comma == std::string_view::npos ? parameters.size() : comma + 1);
  }
  return out;
}

}  // namespace

std::string matrix_kernel_text(DType dtype, const char* name, const char* parameters) {
  return fmt::format(
      R"(#include "matrices.cuh"
using namespace lockstep;
using T = {type};
extern "C" __global__ void __launch_bounds__(kMatrixThreads) {kernel}({parameters}) {{
  {name}({names});
}}
)",
      fmt::arg("type", memory_type(dtype)), fmt::arg("kernel", kernel_name(name)), fmt::arg("name", name),
      fmt::arg("parameters", parameters), fmt::arg("names", names_of(parameters)));
}

Factorization::Factorization(const KernelSpec& spec) : lane(spec.cuda), solver(nullptr) {
  const MatrixDims dims(spec.in[0].shape);
  matrices = {spec.in[0].dtype, dims.rows, dims.columns, count(dims.batch)};
  // The routines take 32-bit integers.
  bool fits = matrices.count < INT32_MAX;
  for (Types types : {spec.in, spec.out})
    for (const Type& type : types) fits &= count(type.shape) / std::max<int64_t>(matrices.count, 1) < INT32_MAX;
  if (fits && count(spec.in[0].shape) > 0) solver = CudaSolver::of(*lane);
}

bool has_empty_results(const KernelSpec& spec) {
  return std::all_of(spec.out.begin(), spec.out.end(), [](const Type& type) { return count(type.shape) == 0; });
}
Kernel no_kernel() {
  return [](const void* const*, void* const*) {};
}

MatrixMemory::Array MatrixMemory::add(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  const Array out{bytes_, bytes};
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return out;
}

MatrixKernel::MatrixKernel(CudaStream& lane, DType dtype, const char* name, const char* parameters)
    : lane_(&lane), function_(kernel_of(matrix_kernel_text(dtype, name, parameters), lane)) {}

void MatrixKernel::launch(int64_t blocks, void** arguments) const {
  function_.launch(*lane_, blocks, kMatrixThreads, arguments);
}

MatrixKernel MatrixKernels::copy() const { return {*lane_, dtype_, "copy_matrices", "const MatrixMove<T> move"}; }
MatrixKernel MatrixKernels::transpose() const {
  return {*lane_, dtype_, "transpose_matrices", "const MatrixMove<T> move"};
}
MatrixKernel MatrixKernels::find_not_finite() const {
  return {*lane_, dtype_, "find_not_finite",
          "const T* in, uint64_t rows, uint64_t columns, uint64_t count, uint64_t lower, int32_t* not_finite"};
}
MatrixKernel MatrixKernels::fill_failed() const {
  return {*lane_, dtype_, "fill_failed",
          "T* x, uint64_t each, uint64_t count, const int32_t* not_finite, const int32_t* info"};
}
MatrixKernel MatrixKernels::choose_signs() const {
  return {*lane_, dtype_, "choose_signs", "const VectorSigns<T> signs"};
}
MatrixKernel MatrixKernels::check_cholesky() const {
  return {*lane_, dtype_, "check_cholesky", "const T* l, uint64_t n, uint64_t count, int32_t* info"};
}
MatrixKernel MatrixKernels::finish_cholesky() const {
  return {*lane_, dtype_, "finish_cholesky", "T* l, uint64_t n, uint64_t count, const int32_t* info"};
}
MatrixKernel MatrixKernels::permute_rows() const {
  return {*lane_, DType::f32, "permute_rows",
          "const int32_t* exchanges, uint64_t m, uint64_t k, int32_t* pivots, int32_t* permutation"};
}
MatrixKernel MatrixKernels::write_pointers() const {
  return {*lane_, dtype_, "write_pointers", "T* first, uint64_t stride, uint64_t count, T** pointers"};
}

int64_t blocks_for_elements(int64_t elements) { return (elements + kMatrixThreads - 1) / kMatrixThreads; }
int64_t blocks_for_warps(int64_t warps) { return blocks_for_elements(warps * 32); }
int64_t transpose_blocks(const MatrixMove& move) {
  return (move.rows + kTile - 1) / kTile * ((move.columns + kTile - 1) / kTile) * move.count;
}

}  // namespace lockstep
