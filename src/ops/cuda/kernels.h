// The GPU kernels of the rows: the values of their `cuda` and `cuda_task` columns if CUDA is built in. A kernel takes
// pointers to GPU memory and enqueues its work on the lane of its KernelSpec. Kernels are prepared and called by the
// lane's thread. Kinds of tasks are constants with pure functions (task.h), safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "lane/conv_pass.h"
#include "ops/cumulative.h"
#include "ops/reduce_cpu.h"
#include "program/op.h"

#ifdef LOCKSTEP_WITH_CUDA
#define LOCKSTEP_CUDA(kernel) kernel
#else
#define LOCKSTEP_CUDA(kernel) nullptr
#endif

namespace lockstep {

Kernel fused_cuda(const KernelSpec&);
Kernel einsum_cuda(const KernelSpec&);
Kernel einsum_fused_cuda(const KernelSpec&);
Kernel reduce_kernel_cuda(ReduceKind, const KernelSpec&);
template <ReduceKind kR>
Kernel reduce_cuda(const KernelSpec& spec) {
  return reduce_kernel_cuda(kR, spec);
}
Kernel arg_kernel_cuda(bool greatest, const KernelSpec&);
template <bool kGreatest>
Kernel arg_cuda(const KernelSpec& spec) {
  return arg_kernel_cuda(kGreatest, spec);
}
Kernel fft_cuda(const KernelSpec&);
Kernel cholesky_cuda(const KernelSpec&);
Kernel triangular_solve_cuda(const KernelSpec&);
Kernel lu_cuda(const KernelSpec&);
Kernel qr_cuda(const KernelSpec&);
Kernel eigh_cuda(const KernelSpec&);
Kernel svd_cuda(const KernelSpec&);
Kernel full_cuda(const KernelSpec&);
Kernel iota_cuda(const KernelSpec&);
Kernel gather_cuda(const KernelSpec&);
Kernel scatter_cuda(const KernelSpec&);         // of scatter_add and scatter
Kernel scatter_sorted_cuda(const KernelSpec&);  // for many indices
Kernel concatenate_cuda(const KernelSpec&);
Kernel pad_cuda(const KernelSpec&);
Kernel dynamic_slice_cuda(const KernelSpec&);
Kernel update_slice_cuda(const KernelSpec&);
Kernel cumulative_kernel_cuda(CumulativeKind, const KernelSpec&);
template <CumulativeKind kKind>
Kernel cumulative_cuda(const KernelSpec& spec) {
  return cumulative_kernel_cuda(kKind, spec);
}
Kernel sort_kernel_cuda(bool top_k, const KernelSpec&);
template <bool kTop>
Kernel sort_cuda(const KernelSpec& spec) {
  return sort_kernel_cuda(kTop, spec);
}
enum class PoolPass : uint8_t { max, max_grad, pick, sum, sum_grad };
Kernel pool_kernel_cuda(PoolPass, const KernelSpec&);
template <PoolPass kPass>
Kernel pool_cuda(const KernelSpec& spec) {
  return pool_kernel_cuda(kPass, spec);
}
enum class NormPass : uint8_t { layer, layer_grad, rms, rms_grad };
Kernel norm_kernel_cuda(NormPass, const KernelSpec&);
template <NormPass kPass>
Kernel norm_cuda(const KernelSpec& spec) {
  return norm_kernel_cuda(kPass, spec);
}
Kernel rotary_cuda(const KernelSpec&);
Kernel quantize_cuda(const KernelSpec&);
Kernel scaled_product_cuda(const KernelSpec&);
Kernel conv_kernel_cuda(ConvPass, const KernelSpec&);
template <ConvPass kPass>
Kernel conv_cuda(const KernelSpec& spec) {
  return conv_kernel_cuda(kPass, spec);
}
Kernel conv2d_fused_cuda(const KernelSpec&);
Kernel cross_entropy_cuda(const KernelSpec&);
Kernel cross_entropy_grad_cuda(const KernelSpec&);
Kernel attention_cuda(const KernelSpec&);
Kernel attention_grad_cuda(const KernelSpec&);
Kernel random_bits_cuda(const KernelSpec&);
Kernel threefry_cuda(const KernelSpec&);
Kernel scan_cuda(const KernelSpec&);
Kernel cond_cuda(const KernelSpec&);
Kernel while_cuda(const KernelSpec&);

// The tasks of elementwise ops, views, `full`, and of the row `fused`. The attribute "body" of `fused` is its program.
extern const CudaTaskKind elementwise_task;
extern const CudaTaskKind einsum_task;  // of the rows einsum and einsum_fused
extern const CudaTaskKind reduce_sum_task, reduce_prod_task, reduce_max_task, reduce_min_task, reduce_all_task,
    reduce_any_task;
constexpr const CudaTaskKind* reduce_task(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return &reduce_sum_task;
    case ReduceKind::prod:
      return &reduce_prod_task;
    case ReduceKind::max:
      return &reduce_max_task;
    case ReduceKind::min:
      return &reduce_min_task;
    case ReduceKind::all:
      return &reduce_all_task;
    case ReduceKind::any:
      break;
  }
  return &reduce_any_task;
}
extern const CudaTaskKind argmax_task, argmin_task;
extern const CudaTaskKind iota_task, gather_task, scatter_task, concatenate_task, pad_task, dynamic_slice_task,
    update_slice_task;
extern const CudaTaskKind random_bits_task, threefry_task;

// The kernel of an elementwise program; of a single row that is elementwise or a view.
Kernel elementwise_program_cuda(const Program& body, const KernelSpec&);
Kernel elementwise_cuda(const Op& op, const KernelSpec&);

// The text of such a kernel: a function of pointers to its inputs, then to its outputs. For tests.
std::string elementwise_text(const Program& body);
// The texts of rows. They need only the types and attributes of the KernelSpec, no GPU.
std::vector<std::string> cumulative_texts(CumulativeKind, const KernelSpec&);
std::vector<std::string> sort_texts(bool top_k, const KernelSpec&);
std::vector<std::string> scatter_sorted_texts(const KernelSpec&);
// The expression that combines an element with an update, as the attributes of scatter_add or scatter say.
std::string scatter_combined(const Attrs& attrs, std::string_view element, std::string_view update);
std::string pool_text(PoolPass, const KernelSpec&);
std::vector<std::string> norm_texts(NormPass, const KernelSpec&);
std::string rotary_text(const KernelSpec&);
std::string quantize_text(const KernelSpec&);
std::string cross_entropy_text(bool gradient, const KernelSpec&);
std::vector<std::string> attention_texts(const KernelSpec&, bool gradient, int major);

}  // namespace lockstep
