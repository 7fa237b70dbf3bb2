#include "ops/cuda/matrix_kernels.h"

#include <algorithm>

#include "ops/cuda/text.h"
#include "ops/matrix_values.h"

namespace lockstep {
namespace {

constexpr int kMatrixThreads = 256;
constexpr int64_t kTile = 32;
constexpr int kSmallMatrix = 32, kSmallThreads = 64;

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

std::string matrix_kernel_text(DType dtype, const char* name, const char* parameters, MatrixHeader header) {
  const bool small = header == MatrixHeader::small_matrices;
  return fmt::format(
      R"(#include "{header}"
using namespace lockstep;
using T = {type};
extern "C" __global__ void __launch_bounds__({threads}) {kernel}({parameters}) {{
  {name}({names});
}}
)",
      fmt::arg("header", small ? "small_matrices.cuh" : "matrices.cuh"),
      fmt::arg("threads", small ? "kSmallThreads" : "kMatrixThreads"), fmt::arg("type", memory_type(dtype)),
      fmt::arg("kernel", kernel_name(name)), fmt::arg("name", name), fmt::arg("parameters", parameters),
      fmt::arg("names", names_of(parameters)));
}

}  // namespace

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

MatrixKernel::MatrixKernel(CudaStream& lane, DType dtype, const char* name, const char* parameters, MatrixHeader header)
    : lane_(&lane),
      threads_(header == MatrixHeader::small_matrices ? kSmallThreads : kMatrixThreads),
      function_(kernel_of(matrix_kernel_text(dtype, name, parameters, header), lane)) {}

void MatrixKernel::launch(int64_t blocks, void** arguments) const {
  function_.launch(*lane_, blocks, threads_, arguments);
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

MatrixKernel MatrixKernels::small_cholesky() const {
  return {*lane_, dtype_, "small_cholesky", "const T* in, uint64_t size, uint64_t count, T* out",
          MatrixHeader::small_matrices};
}
MatrixKernel MatrixKernels::small_triangular_solve() const {
  return {*lane_, dtype_, "small_triangular_solve",
          "const T* a, const T* b, T* x, uint64_t size, uint64_t sides, uint64_t left, uint64_t lower, uint64_t "
          "transpose, uint64_t unit_diagonal",
          MatrixHeader::small_matrices};
}
MatrixKernel MatrixKernels::small_lu() const {
  return {*lane_, dtype_, "small_lu",
          "const T* in, uint64_t rows, uint64_t columns, uint64_t count, T* out, int32_t* pivots, int32_t* permutation",
          MatrixHeader::small_matrices};
}
MatrixKernel MatrixKernels::small_qr() const {
  return {*lane_, dtype_, "small_qr",
          "const T* in, uint64_t rows, uint64_t columns, uint64_t q_columns, uint64_t count, T* q_out, T* r_out",
          MatrixHeader::small_matrices};
}

bool is_small(int64_t rows, int64_t columns) { return std::max(rows, columns) <= kSmallMatrix; }
int64_t small_blocks(int64_t matrices) {
  constexpr int64_t kWarps = kSmallThreads / 32;
  return (matrices + kWarps - 1) / kWarps;
}
int64_t small_solve_blocks(int64_t matrices, int64_t sides) {
  return (sides + kSmallThreads - 1) / kSmallThreads * matrices;
}

int64_t blocks_for_elements(int64_t elements) { return (elements + kMatrixThreads - 1) / kMatrixThreads; }
int64_t blocks_for_warps(int64_t warps) { return blocks_for_elements(warps * 32); }
int64_t transpose_blocks(const MatrixMove& move) {
  return (move.rows + kTile - 1) / kTile * ((move.columns + kTile - 1) / kTile) * move.count;
}

}  // namespace lockstep
