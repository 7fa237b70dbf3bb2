// The working directory of a test: a new folder. Not thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"

namespace lockstep {

// While the object exists, the working directory is a new folder, which the destructor removes.
class InNewFolder {
 public:
  InNewFolder() : before_(std::filesystem::current_path()) { std::filesystem::current_path(dir_.path()); }
  ~InNewFolder() { std::filesystem::current_path(before_); }
  InNewFolder(const InNewFolder&) = delete;
  InNewFolder& operator=(const InNewFolder&) = delete;

  const std::string& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  std::filesystem::path before_;
};

// Runs all tests of a program in a new folder, for runs that its programs keep there:
//   const auto* const kFolder = testing::AddGlobalTestEnvironment(new TestsInNewFolder);
class TestsInNewFolder : public testing::Environment {
 public:
  void SetUp() override { here_.emplace(); }
  void TearDown() override { here_.reset(); }

 private:
  std::optional<InNewFolder> here_;
};

}  // namespace lockstep
