// The checks of every backend, where each process that mpirun has started is a rank. All run the same tests in the same
// order; the program fails when one of them does.
#include "comm/mpi/mpi.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "comm/conformance.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

class MpiConformance : public testing::TestWithParam<conformance::Check> {};

TEST_P(MpiConformance, Holds) {
  const std::unique_ptr<Comm> comm = mpi_comm();
  EXPECT_EQ(comm->size(), mpi_place().size);
  EXPECT_EQ(comm->rank(), mpi_place().rank);
  EXPECT_EQ(comm->name(), "world");
  if (comm->size() >= GetParam().least) GetParam().run(*comm);
}

std::vector<conformance::Check> all_checks() {
  std::vector<conformance::Check> all;
  for (const auto& checks :
       {conformance::value_checks(), conformance::sequence_checks(), conformance::failure_checks()})
    all.insert(all.end(), checks.begin(), checks.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiConformance, testing::ValuesIn(all_checks()),
                         [](const auto& one) { return std::string(one.param.name); });

// In order of the ranks and rounded once, as in one process.
TEST(MpiComm, SumsHaveTheBitsOfOneProcess) {
  const std::unique_ptr<Comm> comm = mpi_comm();
  float value = comm->rank() == 0 ? 0x1p24f : 1.0f, expected = 0x1p24f;
  BFloat16 half(comm->rank() == 0 ? 1.0f : 0x1p-9f);
  for (int rank = 1; rank < comm->size(); ++rank) expected += 1.0f;
  comm->all_reduce(&value, &value, 1, f32, Reduction::sum);
  comm->all_reduce(&half, &half, 1, bf16, Reduction::sum);
  EXPECT_EQ(value, expected);
  EXPECT_EQ(half.bits, BFloat16(1.0f + static_cast<float>(comm->size() - 1) * 0x1p-9f).bits);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  lockstep::mpi_finalize();
  return result;
}
