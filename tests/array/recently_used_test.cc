#include "array/recently_used.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::detail {
namespace {

using Cache = RecentlyUsed<std::string>;

std::string* find(Cache& cache, size_t hash, const std::string& value) {
  return cache.find(hash, [&](const std::string& each) { return each == value; });
}

std::vector<std::string> values(const auto& entries) {
  std::vector<std::string> out;
  for (const auto& entry : entries) out.push_back(entry.value);
  return out;
}

TEST(RecentlyUsed, FindsValuesOfEqualHashes) {
  Cache cache(10);
  for (const char* value : {"a", "b", "c"}) EXPECT_TRUE(cache.insert(7, value).empty());
  EXPECT_TRUE(cache.insert(8, "d").empty());
  for (const char* value : {"a", "b", "c"}) {
    ASSERT_NE(find(cache, 7, value), nullptr);
    EXPECT_EQ(*find(cache, 7, value), value);
    EXPECT_EQ(*cache.last(), value);
  }
  EXPECT_EQ(find(cache, 7, "d"), nullptr);
  EXPECT_EQ(find(cache, 9, "a"), nullptr);
}

TEST(RecentlyUsed, ReplacesTheLeastRecentlyUsed) {
  Cache cache(3);
  for (const char* value : {"a", "b", "c"}) EXPECT_TRUE(cache.insert(1, value).empty());
  find(cache, 1, "a");
  EXPECT_EQ(values(cache.insert(1, "d")), std::vector<std::string>{"b"});
  EXPECT_EQ(values(cache), (std::vector<std::string>{"d", "a", "c"}));
  EXPECT_EQ(find(cache, 1, "b"), nullptr);
  EXPECT_EQ(cache.size(), 3u);
}

TEST(RecentlyUsed, KeptOnesAreNotReplacedAndDoNotCount) {
  Cache cache(1);
  EXPECT_TRUE(cache.insert(1, "kept", true).empty());
  EXPECT_TRUE(cache.insert(2, "a").empty());
  EXPECT_EQ(values(cache.insert(3, "b")), std::vector<std::string>{"a"});
  EXPECT_TRUE(cache.insert(4, "kept too", true).empty());
  EXPECT_EQ(values(cache), (std::vector<std::string>{"kept too", "b", "kept"}));
  EXPECT_EQ(values(cache.remove_if([](const std::string& each) { return each == "kept"; })),
            std::vector<std::string>{"kept"});
  EXPECT_EQ(values(cache.insert(5, "c")), std::vector<std::string>{"b"});
}

TEST(RecentlyUsed, RemovesValues) {
  Cache cache(10);
  for (const char* value : {"a", "b", "c"}) EXPECT_TRUE(cache.insert(1, value).empty());
  EXPECT_EQ(cache.remove_if([](const std::string& each) { return each != "b"; }).size(), 2u);
  EXPECT_EQ(values(cache), std::vector<std::string>{"b"});
  EXPECT_EQ(find(cache, 1, "a"), nullptr);
  EXPECT_NE(find(cache, 1, "b"), nullptr);
}

}  // namespace
}  // namespace lockstep::detail
