// The plug-in for MPI is found, and its failures say what to do.
#include "comm/mpi/mpi_library.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"

namespace lockstep {
namespace {

const std::string kRemedy = "set LOCKSTEP_COORDINATOR to HOST:PORT of process 0 and LOCKSTEP_COLLECTIVES=tcp";

TEST(MpiLibrary, IsFoundInTheBuildFolder) {
#ifndef LOCKSTEP_WITH_MPI
  GTEST_SKIP() << "built without MPI";
#endif
  const MpiLibrary& library = mpi_library();
  EXPECT_EQ(library.failure, "");
  ASSERT_NE(library.functions, nullptr);
  EXPECT_EQ(library.functions->interface, kMpiInterface);
  EXPECT_NE(library.version.find_first_of("0123456789"), std::string::npos) << library.version;
  EXPECT_EQ(library.version.find(','), std::string::npos) << library.version;
  int initialized = 1;
  library.functions->initialized(&initialized);
  EXPECT_EQ(initialized, 0) << "loading initializes nothing";
}

TEST(MpiLibrary, MissingFilesAreListed) {
  const MpiLibrary library = load_mpi_library({"/nonexistent/liblockstep_mpi.so", "liblockstep_none.so"});
  EXPECT_EQ(library.functions, nullptr);
  EXPECT_EQ(library.failure,
            "mpi: liblockstep_mpi.so was not found (searched: /nonexistent/liblockstep_mpi.so, liblockstep_none.so); "
            "install it from the package of this lockstep, or build lockstep where libopenmpi-dev is installed, or " +
                kRemedy);
}

TEST(MpiLibrary, TheLinkersMessageNamesWhatCannotBeLoaded) {
  const TempDir dir;
  const std::string file = dir.path() + "/liblockstep_mpi.so";
  std::ofstream(file) << "not a library";
  const MpiLibrary library = load_mpi_library({"/nonexistent/liblockstep_mpi.so", file});
  EXPECT_EQ(library.functions, nullptr);
  EXPECT_EQ(library.failure.find("mpi: cannot load liblockstep_mpi.so (" + file + ": "), 0u) << library.failure;
  EXPECT_TRUE(library.failure.ends_with("); install Open MPI (package openmpi-bin), or " + kRemedy)) << library.failure;
}

TEST(MpiLibrary, AnotherVersionIsRejected) {
  const std::string file = LOCKSTEP_BINARY_DIR "/tests/libforeign_mpi_plugin.so";
  EXPECT_EQ(
      load_mpi_library({file}).failure,
      "mpi: " + file + " belongs to another version of lockstep; install the file of this version, or " + kRemedy);
  // A library that is no plug-in at all.
  EXPECT_NE(load_mpi_library({"libz.so.1"}).failure.find("libz.so.1 belongs to another version of lockstep"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
