#include "cli/features.h"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include "base/os/http.h"
#include "cli/commit.h"
#include "comm/mpi/mpi_library.h"

namespace lockstep::cli {
namespace {

constexpr const char* kNotBuilt = "not built";

Feature built_feature(const char* name, const std::string& used) { return {name, used, used.empty() ? kNotBuilt : ""}; }

// "OpenBLAS 0.3.21, kernels for SkylakeX" of "OpenBLAS 0.3.21 NO_LAPACKE ...".
std::string matrix_products() {
  const std::string blas = openblas_get_config();
  return fmt::format("{}, kernels for {}", blas.substr(0, blas.find(' ', blas.find(' ') + 1)), openblas_get_corename());
}

}  // namespace

// LOCKSTEP_FEATURE_... are texts; empty: not built.
std::vector<Feature> features() {
  const MpiLibrary& mpi = mpi_library();
  Feature https = built_feature("HTTPS", http_library());
  if (LOCKSTEP_FEATURE_CURL && https.used.empty()) https.why_not = "not available: libcurl is missing";
  return {built_feature("control plane", LOCKSTEP_FEATURE_GRPC),
          {"collectives over TCP", "built in", ""},
          {"collectives over MPI", mpi.version, mpi.failure.empty() ? "" : "not available: " + mpi.failure},
          built_feature("NVIDIA GPUs", LOCKSTEP_FEATURE_CUDA),
          {"matrix products", matrix_products(), ""},
          std::move(https),
          built_feature("image files", LOCKSTEP_FEATURE_IMAGES)};
}

BuildFacts build_facts() {
  BuildFacts out{.commit = LOCKSTEP_COMMIT, .type = LOCKSTEP_BUILD_TYPE, .compiler = LOCKSTEP_COMPILER, .machine = {}};
  utsname system = {};
  if (::uname(&system) == 0) out.machine = system.machine;
  return out;
}

}  // namespace lockstep::cli
