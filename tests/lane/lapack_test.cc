// Matrices whose work memory LAPACK cannot count are refused.
#include "lane/cpu/lapack.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lane/cpu/blas.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

TEST(Lapack, RefusesMatricesThatItCannotCount) {
  EXPECT_GT(lapack_eigh_work(30000), 0);
  EXPECT_GT(lapack_svd_work(100, 100000), 0);
  if (sizeof(blasint) > 4) GTEST_SKIP() << "this OpenBLAS counts in 64 bits";
  EXPECT_THROWS(
      lapack_eigh_work(32768), Error,
      "linear algebra: a matrix is too large for LAPACK, which would count 2147680257 elements in 32 bits (at most "
      "2147483647); use smaller matrices");
  EXPECT_THROWS(lapack_svd_work(30000, 30000), Error, "linear algebra: a matrix is too large for LAPACK");
  EXPECT_THROWS(lapack_lu_work(int64_t{1} << 31, 1), Error, "which would count 2147483648 elements");
  EXPECT_THROWS(lapack_qr_work(1, int64_t{1} << 31), Error, "which would count");
}

}  // namespace
}  // namespace lockstep
