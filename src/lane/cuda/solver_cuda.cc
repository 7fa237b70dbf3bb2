#include "lane/cuda/solver_cuda.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"
#include "hardware/cuda/solver.h"

namespace lockstep {

bool CudaSolver::is_batched(const CudaMatrices& a) {
  // Routines for large matrices launch many kernels each, but these use all of the GPU.
  constexpr int64_t kLargest = 256;
  return a.count > 1 && std::max(a.rows, a.columns) <= kLargest;
}

bool CudaSolver::svd_is_jacobi(const CudaMatrices& a) {
  constexpr int64_t kLargest = 1024;  // Jacobi's method is faster up to this size
  return svd_is_batched(a) || a.rows <= kLargest;
}

bool CudaSolver::svd_is_batched(const CudaMatrices& a) {
  constexpr int64_t kLargest = 32;  // a limit of cuSOLVER
  return a.count > 1 && std::max(a.rows, a.columns) <= kLargest;
}

#ifdef LOCKSTEP_WITH_CUSOLVER
namespace {

constexpr const char* kFactor = "factor matrices";

void check_solver(cusolverStatus_t status) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw_library_error(status == CUSOLVER_STATUS_ALLOC_FAILED, kFactor,
                      fmt::format("cuSOLVER: error {}", static_cast<int>(status)).c_str());
}

using Library = CudaSolverLibrary;

// The routines for a type, as members of the library.
template <class T>
struct Routines;
#define LOCKSTEP_ROUTINES(T, p, type)                                                              \
  template <>                                                                                      \
  struct Routines<T> {                                                                             \
    static constexpr cudaDataType kType = type;                                                    \
    static constexpr auto potrf_size = &Library::cusolverDn##p##potrf_bufferSize;                  \
    static constexpr auto potrf = &Library::cusolverDn##p##potrf;                                  \
    static constexpr auto potrf_batched = &Library::cusolverDn##p##potrfBatched;                   \
    static constexpr auto getrf_size = &Library::cusolverDn##p##getrf_bufferSize;                  \
    static constexpr auto getrf = &Library::cusolverDn##p##getrf;                                  \
    static constexpr auto getrf_batched = &Library::cublas##p##getrfBatched;                       \
    static constexpr auto trsm = &Library::cublas##p##trsm_v2;                                     \
    static constexpr auto trsm_batched = &Library::cublas##p##trsmBatched;                         \
    static constexpr auto geqrf_size = &Library::cusolverDn##p##geqrf_bufferSize;                  \
    static constexpr auto geqrf = &Library::cusolverDn##p##geqrf;                                  \
    static constexpr auto orgqr_size = &Library::cusolverDn##p##orgqr_bufferSize;                  \
    static constexpr auto orgqr = &Library::cusolverDn##p##orgqr;                                  \
    static constexpr auto syevd_size = &Library::cusolverDn##p##syevd_bufferSize;                  \
    static constexpr auto syevd = &Library::cusolverDn##p##syevd;                                  \
    static constexpr auto gesvd_size = &Library::cusolverDn##p##gesvd_bufferSize;                  \
    static constexpr auto gesvd = &Library::cusolverDn##p##gesvd;                                  \
    static constexpr auto gesvdj_size = &Library::cusolverDn##p##gesvdj_bufferSize;                \
    static constexpr auto gesvdj = &Library::cusolverDn##p##gesvdj;                                \
    static constexpr auto gesvdj_batched_size = &Library::cusolverDn##p##gesvdjBatched_bufferSize; \
    static constexpr auto gesvdj_batched = &Library::cusolverDn##p##gesvdjBatched;                 \
  };
LOCKSTEP_ROUTINES(float, S, CUDA_R_32F)
LOCKSTEP_ROUTINES(double, D, CUDA_R_64F)
#undef LOCKSTEP_ROUTINES

// Calls f.operator()<T>() for the element type.
template <class F>
auto with_type(DType dtype, F f) {
  return dtype == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

int as_int(int64_t n) { return static_cast<int>(n); }
int elements_of(const CudaSolver::Work& work, DType dtype) { return as_int(work.bytes / size_of(dtype)); }

#ifdef LOCKSTEP_WITH_SYEV_BATCHED
// Larger batches might exceed the 32-bit sizes inside of cuSOLVER.
bool eigh_is_batched(const CudaMatrices& a) { return a.count > 1 && a.elements() < INT32_MAX / a.count; }
#endif

cusolverEigMode_t eig_mode(CudaSolver::Vectors vectors) {
  return vectors == CudaSolver::Vectors::none ? CUSOLVER_EIG_MODE_NOVECTOR : CUSOLVER_EIG_MODE_VECTOR;
}

int is_thin(CudaSolver::Vectors vectors) { return vectors == CudaSolver::Vectors::full ? 0 : 1; }

// Calls a routine of the library for the type.
template <class... Parameters, class... Arguments>
void call(cusolverStatus_t (*Library::*routine)(Parameters...), Arguments... arguments) {
  check_solver((cuda_solver()->*routine)(arguments...));
}
template <class... Parameters, class... Arguments>
void call(cublasStatus_t (*Library::*routine)(Parameters...), Arguments... arguments) {
  check_blas((cuda_solver()->*routine)(arguments...), kFactor);
}

}  // namespace

struct CudaSolver::Handles {
  cusolverDnHandle_t solver = nullptr;
  cublasHandle_t blas = nullptr;
  cusolverDnParams_t params = nullptr;
  gesvdjInfo_t jacobi = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> host;  // work in host memory; the last one is the largest
  size_t host_bytes = 0;

  ~Handles() {
    const Library& library = *cuda_solver();
    if (jacobi) library.cusolverDnDestroyGesvdjInfo(jacobi);
    if (params) library.cusolverDnDestroyParams(params);
    if (blas) library.cublasDestroy_v2(blas);
    if (solver) library.cusolverDnDestroy(solver);
  }

  void* host_work() const { return host.empty() ? nullptr : host.back().get(); }
  void reserve_host(size_t bytes) {
    if (bytes <= host_bytes) return;
    host.push_back(std::make_unique<std::byte[]>(bytes));
    host_bytes = bytes;
  }

  // Returns whether that was possible.
  bool make(CudaStream& lane) {
    const Library& library = *cuda_solver();
    // Setting the stream resets the workspace.
    return library.cusolverDnCreate(&solver) == CUSOLVER_STATUS_SUCCESS &&
           library.cusolverDnSetStream(solver, lane.stream()) == CUSOLVER_STATUS_SUCCESS &&
           library.cusolverDnCreateParams(&params) == CUSOLVER_STATUS_SUCCESS &&
           library.cusolverDnCreateGesvdjInfo(&jacobi) == CUSOLVER_STATUS_SUCCESS &&
           library.cublasCreate_v2(&blas) == CUBLAS_STATUS_SUCCESS &&
           library.cublasSetStream_v2(blas, lane.stream()) == CUBLAS_STATUS_SUCCESS &&
           library.cublasSetWorkspace_v2(blas, lane.blas_workspace(), CudaStream::kBlasBytes) == CUBLAS_STATUS_SUCCESS;
  }
};

CudaSolver::CudaSolver(CudaStream& lane) : lane_(lane), handles_(std::make_unique<Handles>()) {}
CudaSolver::~CudaSolver() = default;

CudaSolver* CudaSolver::of(CudaStream& lane) {
  if (!cuda_solver()) return nullptr;
  static std::mutex mutex;
  static auto* const all = new std::map<CudaStream*, std::unique_ptr<CudaSolver>>;  // never destroyed, as the lanes
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = all->try_emplace(&lane);
  if (is_new) {
    lane.enter();
    std::unique_ptr<CudaSolver> made(new CudaSolver(lane));
    if (made->handles_->make(lane)) at->second = std::move(made);
  }
  return at->second.get();
}

BufferPtr CudaSolver::workspace(int64_t bytes) {
  if (!workspace_ || workspace_->size() < bytes) workspace_ = lane_.allocate(bytes, "factorizations of matrices");
  return workspace_;
}

namespace {

// Makes the GPU current, and keeps other threads from enqueueing or capturing.
std::unique_lock<std::recursive_mutex> begin_enqueueing(CudaStream& lane) {
  lane.enter();
  std::unique_lock lock = lane.enqueue_lock();
  lane.stream();  // what follows is no longer the last launch
  return lock;
}

}  // namespace

int64_t CudaSolver::cholesky_work(const CudaMatrices& a) {
  if (is_batched(a)) return 0;
  lane_.enter();
  return with_type(a.dtype, [&]<class T>() {
    int size = 0;
    const int n = as_int(a.rows);
    call(Routines<T>::potrf_size, handles_->solver, CUBLAS_FILL_MODE_LOWER, n, static_cast<T*>(nullptr), n, &size);
    return static_cast<int64_t>(size) * size_of(a.dtype);
  });
}

void CudaSolver::cholesky(const CudaMatrices& a, void* data, void* pointers, int32_t* info, const Work& work) {
  const auto lock = begin_enqueueing(lane_);
  const int n = as_int(a.rows);
  with_type(a.dtype, [&]<class T>() {
    if (is_batched(a))
      return call(Routines<T>::potrf_batched, handles_->solver, CUBLAS_FILL_MODE_UPPER, n, static_cast<T**>(pointers),
                  n, info, as_int(a.count));
    for (int64_t i = 0; i < a.count; ++i)
      call(Routines<T>::potrf, handles_->solver, CUBLAS_FILL_MODE_LOWER, n, static_cast<T*>(data) + i * a.elements(), n,
           static_cast<T*>(work.data), elements_of(work, a.dtype), info + i);
  });
}

void CudaSolver::triangular_solve(const TriangularSystem& system, const CudaMatrices& b, const void* a, void* x,
                                  const void* pointers_a, const void* pointers_x) {
  const auto lock = begin_enqueueing(lane_);
  const cublasSideMode_t side = system.left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
  const cublasFillMode_t fill = system.lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
  const cublasOperation_t operation = system.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasDiagType_t diagonal = system.unit_diagonal ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  const int64_t extent = system.left ? b.rows : b.columns;
  const int m = as_int(b.rows), n = as_int(b.columns), lda = as_int(extent);
  with_type(b.dtype, [&]<class T>() {
    const T one = 1;
    if (is_batched({b.dtype, extent, extent, b.count}))
      return call(Routines<T>::trsm_batched, handles_->blas, side, fill, operation, diagonal, m, n, &one,
                  static_cast<const T* const*>(pointers_a), lda, static_cast<T* const*>(pointers_x), m,
                  as_int(b.count));
    for (int64_t i = 0; i < b.count; ++i)
      call(Routines<T>::trsm, handles_->blas, side, fill, operation, diagonal, m, n, &one,
           static_cast<const T*>(a) + i * extent * extent, lda, static_cast<T*>(x) + i * b.elements(), m);
  });
}

int64_t CudaSolver::lu_work(const CudaMatrices& a) {
  lane_.enter();
  return with_type(a.dtype, [&]<class T>() {
    int size = 0;
    call(Routines<T>::getrf_size, handles_->solver, as_int(a.rows), as_int(a.columns), static_cast<T*>(nullptr),
         as_int(a.rows), &size);
    return static_cast<int64_t>(size) * size_of(a.dtype);
  });
}

void CudaSolver::lu(const CudaMatrices& a, void* data, void* pointers, int32_t* pivots, int32_t* info,
                    const Work& work) {
  const auto lock = begin_enqueueing(lane_);
  const int m = as_int(a.rows), n = as_int(a.columns);
  with_type(a.dtype, [&]<class T>() {
    if (m == n && is_batched(a))
      return call(Routines<T>::getrf_batched, handles_->blas, n, static_cast<T* const*>(pointers), n, pivots, info,
                  as_int(a.count));
    for (int64_t i = 0; i < a.count; ++i)
      call(Routines<T>::getrf, handles_->solver, m, n, static_cast<T*>(data) + i * a.elements(), m,
           static_cast<T*>(work.data), pivots + i * std::min(m, n), info + i);
  });
}

int64_t CudaSolver::qr_work(const CudaMatrices& a, int64_t q_columns) {
  lane_.enter();
  return with_type(a.dtype, [&]<class T>() {
    int size = 0, q_size = 0;
    const int m = as_int(a.rows), n = as_int(a.columns);
    call(Routines<T>::geqrf_size, handles_->solver, m, n, static_cast<T*>(nullptr), m, &size);
    call(Routines<T>::orgqr_size, handles_->solver, m, as_int(q_columns), std::min(m, n),
         static_cast<const T*>(nullptr), m, static_cast<const T*>(nullptr), &q_size);
    return static_cast<int64_t>(std::max(size, q_size)) * size_of(a.dtype);
  });
}

void CudaSolver::qr(const CudaMatrices& a, int64_t stride, void* data, void* tau, int32_t* info, const Work& work) {
  const auto lock = begin_enqueueing(lane_);
  const int m = as_int(a.rows), n = as_int(a.columns);
  with_type(a.dtype, [&]<class T>() {
    for (int64_t i = 0; i < a.count; ++i)
      call(Routines<T>::geqrf, handles_->solver, m, n, static_cast<T*>(data) + i * stride, m,
           static_cast<T*>(tau) + i * std::min(m, n), static_cast<T*>(work.data), elements_of(work, a.dtype), info + i);
  });
}

void CudaSolver::orthogonal(const CudaMatrices& a, int64_t stride, int64_t q_columns, void* data, const void* tau,
                            int32_t* info, const Work& work) {
  const auto lock = begin_enqueueing(lane_);
  const int m = as_int(a.rows), k = as_int(std::min(a.rows, a.columns)), columns = as_int(q_columns);
  with_type(a.dtype, [&]<class T>() {
    for (int64_t i = 0; i < a.count; ++i)
      call(Routines<T>::orgqr, handles_->solver, m, columns, k, static_cast<T*>(data) + i * stride, m,
           static_cast<const T*>(tau) + i * k, static_cast<T*>(work.data), elements_of(work, a.dtype), info + i);
  });
}

int64_t CudaSolver::eigh_work(const CudaMatrices& a) {
  lane_.enter();
  return with_type(a.dtype, [&]<class T>() {
    const int n = as_int(a.rows);
#ifdef LOCKSTEP_WITH_SYEV_BATCHED
    if (eigh_is_batched(a)) {
      size_t bytes = 0, host_bytes = 0;
      constexpr cudaDataType kType = Routines<T>::kType;
      call(&Library::cusolverDnXsyevBatched_bufferSize, handles_->solver, handles_->params, CUSOLVER_EIG_MODE_VECTOR,
           CUBLAS_FILL_MODE_UPPER, a.rows, kType, nullptr, a.rows, kType, nullptr, kType, &bytes, &host_bytes, a.count);
      handles_->reserve_host(host_bytes);
      return static_cast<int64_t>(bytes);
    }
#endif
    int size = 0;
    call(Routines<T>::syevd_size, handles_->solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, n,
         static_cast<const T*>(nullptr), n, static_cast<const T*>(nullptr), &size);
    return static_cast<int64_t>(size) * size_of(a.dtype);
  });
}

void CudaSolver::eigh(const CudaMatrices& a, void* data, void* w, int32_t* info, const Work& work) {
  const auto lock = begin_enqueueing(lane_);
  const int n = as_int(a.rows);
  with_type(a.dtype, [&]<class T>() {
#ifdef LOCKSTEP_WITH_SYEV_BATCHED
    if (eigh_is_batched(a)) {
      constexpr cudaDataType kType = Routines<T>::kType;
      return call(&Library::cusolverDnXsyevBatched, handles_->solver, handles_->params, CUSOLVER_EIG_MODE_VECTOR,
                  CUBLAS_FILL_MODE_UPPER, a.rows, kType, data, a.rows, kType, w, kType, work.data,
                  static_cast<size_t>(work.bytes), handles_->host_work(), handles_->host_bytes, info, a.count);
    }
#endif
    for (int64_t i = 0; i < a.count; ++i)
      call(Routines<T>::syevd, handles_->solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, n,
           static_cast<T*>(data) + i * a.elements(), n, static_cast<T*>(w) + i * n, static_cast<T*>(work.data),
           elements_of(work, a.dtype), info + i);
  });
}

int64_t CudaSolver::svd_work(const CudaMatrices& a, Vectors vectors) {
  lane_.enter();
  return with_type(a.dtype, [&]<class T>() {
    int size = 0;
    const int m = as_int(a.rows), n = as_int(a.columns);
    const T* const none = nullptr;
    if (svd_is_batched(a))
      call(Routines<T>::gesvdj_batched_size, handles_->solver, eig_mode(vectors), m, n, none, m, none, none, m, none, n,
           &size, handles_->jacobi, as_int(a.count));
    else if (svd_is_jacobi(a))
      call(Routines<T>::gesvdj_size, handles_->solver, eig_mode(vectors), is_thin(vectors), m, n, none, m, none, none,
           m, none, n, &size, handles_->jacobi);
    else
      call(Routines<T>::gesvd_size, handles_->solver, m, n, &size);
    return static_cast<int64_t>(size) * size_of(a.dtype);
  });
}

void CudaSolver::svd(const CudaMatrices& a, Vectors vectors, void* data, const Svd& out, int32_t* info,
                     const Work& work) {
  const auto lock = begin_enqueueing(lane_);
  const int m = as_int(a.rows), n = as_int(a.columns), size = elements_of(work, a.dtype);
  const int64_t u_size = vectors == Vectors::full ? a.rows * a.rows : a.elements();
  with_type(a.dtype, [&]<class T>() {
    T *const matrices = static_cast<T*>(data), *const s = static_cast<T*>(out.s), *const u = static_cast<T*>(out.u),
             *const v = static_cast<T*>(out.v), *const space = static_cast<T*>(work.data);
    if (svd_is_batched(a))
      return call(Routines<T>::gesvdj_batched, handles_->solver, eig_mode(vectors), m, n, matrices, m, s, u, m, v, n,
                  space, size, info, handles_->jacobi, as_int(a.count));
    const auto job = static_cast<signed char>(vectors);
    for (int64_t i = 0; i < a.count; ++i) {
      T *const x = matrices + i * a.elements(), *const u_i = u ? u + i * u_size : u, *const v_i = v ? v + i * n * n : v;
      if (svd_is_jacobi(a))
        call(Routines<T>::gesvdj, handles_->solver, eig_mode(vectors), is_thin(vectors), m, n, x, m, s + i * n, u_i, m,
             v_i, n, space, size, info + i, handles_->jacobi);
      else
        call(Routines<T>::gesvd, handles_->solver, job, job, m, n, x, m, s + i * n, u_i, m, v_i, n, space, size,
             static_cast<T*>(nullptr), info + i);
    }
  });
}
#else
struct CudaSolver::Handles {};
CudaSolver::CudaSolver(CudaStream& lane) : lane_(lane) {}
CudaSolver::~CudaSolver() = default;
CudaSolver* CudaSolver::of(CudaStream&) { return nullptr; }
// Without an object nothing calls these.
BufferPtr CudaSolver::workspace(int64_t) { return {}; }
int64_t CudaSolver::cholesky_work(const CudaMatrices&) { return 0; }
void CudaSolver::cholesky(const CudaMatrices&, void*, void*, int32_t*, const Work&) {}
void CudaSolver::triangular_solve(const TriangularSystem&, const CudaMatrices&, const void*, void*, const void*,
                                  const void*) {}
int64_t CudaSolver::lu_work(const CudaMatrices&) { return 0; }
void CudaSolver::lu(const CudaMatrices&, void*, void*, int32_t*, int32_t*, const Work&) {}
int64_t CudaSolver::qr_work(const CudaMatrices&, int64_t) { return 0; }
void CudaSolver::qr(const CudaMatrices&, int64_t, void*, void*, int32_t*, const Work&) {}
void CudaSolver::orthogonal(const CudaMatrices&, int64_t, int64_t, void*, const void*, int32_t*, const Work&) {}
int64_t CudaSolver::eigh_work(const CudaMatrices&) { return 0; }
void CudaSolver::eigh(const CudaMatrices&, void*, void*, int32_t*, const Work&) {}
int64_t CudaSolver::svd_work(const CudaMatrices&, Vectors) { return 0; }
void CudaSolver::svd(const CudaMatrices&, Vectors, void*, const Svd&, int32_t*, const Work&) {}
#endif

}  // namespace lockstep
