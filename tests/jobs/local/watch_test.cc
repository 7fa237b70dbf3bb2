#include "jobs/local/watch.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

void append_line(const std::string& path) { std::ofstream(path, std::ios::app) << "1\n"; }

std::chrono::steady_clock::duration time_of_wait(FolderWatch& watch, std::chrono::milliseconds time) {
  const auto begin = std::chrono::steady_clock::now();
  watch.wait(time);
  return std::chrono::steady_clock::now() - begin;
}

// Each change ends one wait; without one, a wait lasts as long as it may.
TEST(FolderWatch, WaitEndsAfterAChange) {
  const TempDir dir;
  FolderWatch watch;
  watch.add(dir.path());
  EXPECT_GE(time_of_wait(watch, 5ms), 5ms);
  append_line(dir.path() + "/a");
  append_line(dir.path() + "/b");
  EXPECT_LT(time_of_wait(watch, 60s), 60s);
  EXPECT_GE(time_of_wait(watch, 5ms), 5ms);
}

TEST(FolderWatch, ContentsAreWatchedOnRequest) {
  const TempDir dir;
  const std::string log = dir.path() + "/log";
  append_line(log);
  FolderWatch names, contents;
  names.add(dir.path());
  contents.add(dir.path(), true);
  append_line(log);
  EXPECT_GE(time_of_wait(names, 5ms), 5ms);
  EXPECT_LT(time_of_wait(contents, 60s), 60s);
}

TEST(FolderWatch, MissingFoldersAreIgnored) {
  FolderWatch watch;
  watch.add("/nonexistent");
  EXPECT_GE(time_of_wait(watch, 5ms), 5ms);
}

}  // namespace
}  // namespace lockstep
