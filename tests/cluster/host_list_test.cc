#include "cluster/host_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep::detail {
namespace {

using Names = std::vector<std::string>;

Names expand(const std::string& text) { return expand_host_list(text, "LIST"); }

TEST(HostList, Expands) {
  EXPECT_EQ(expand("a"), (Names{"a"}));
  EXPECT_EQ(expand("a,b"), (Names{"a", "b"}));
  EXPECT_EQ(expand("n[001]"), (Names{"n001"}));
  EXPECT_EQ(expand("n[001-003,7],m[1-2]x[3,4]"), (Names{"n001", "n002", "n003", "n7", "m1x3", "m1x4", "m2x3", "m2x4"}));
  EXPECT_EQ(expand("gpu211-[02,06].site.org"), (Names{"gpu211-02.site.org", "gpu211-06.site.org"}));
}

TEST(HostList, NumbersKeepLeadingZeros) {
  EXPECT_EQ(expand("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expand("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(expand("n[099-100]"), (Names{"n099", "n100"}));
  EXPECT_EQ(expand("n[0,00]"), (Names{"n0", "n00"}));
  EXPECT_EQ(expand("n[1-2][0-1]"), (Names{"n10", "n11", "n20", "n21"}));
  EXPECT_EQ(expand("[1-2]n"), (Names{"1n", "2n"}));
  EXPECT_EQ(expand("n[00000-65535]").size(), 65536u);
}

void expect_refused(const std::string& text, const std::string& fact) {
  try {
    expand(text);
    ADD_FAILURE() << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              fmt::format("initialize: LIST is \"{}\": {}; write a host list like n[001-003,7],login1", text, fact));
  }
}

TEST(HostList, RejectsMalformedText) {
  expect_refused("", "a name is missing");
  expect_refused("a,", "a name is missing");
  expect_refused(",a", "a name is missing");
  expect_refused("a,,b", "a name is missing");
  expect_refused("n[1-2", "a bracket is not closed");
  expect_refused("n[", "a bracket is not closed");
  expect_refused("n1]", "it has an unmatched closing bracket");
  expect_refused("n[1]]", "it has an unmatched closing bracket");
  expect_refused("a b", "it contains a space");
  expect_refused("n[]", "\"\" is not a number or a range of numbers");
  expect_refused("n[1,]", "\"\" is not a number or a range of numbers");
  expect_refused("n[a]", "\"a\" is not a number or a range of numbers");
  expect_refused("n[1-b]", "\"1-b\" is not a number or a range of numbers");
  expect_refused("n[1-]", "\"1-\" is not a number or a range of numbers");
  expect_refused("n[-1]", "\"-1\" is not a number or a range of numbers");
  expect_refused("n[1-2-3]", "\"1-2-3\" is not a number or a range of numbers");
  expect_refused("n[1[2]]", "\"1[2\" is not a number or a range of numbers");
  expect_refused("n[18446744073709551615]", "\"18446744073709551615\" is not a number or a range of numbers");
  expect_refused("n[3-1]", "the range 3-1 runs backwards");
  expect_refused("n[0-65536]", "that is more than 65536 hosts");
  expect_refused("n[0-99999999999999999]", "that is more than 65536 hosts");
  expect_refused("n[0-999][0-999]", "that is more than 65536 hosts");
  expect_refused("n[1-40000],m[1-40000]", "that is more than 65536 hosts");
  expect_refused("n[0-65535]" + std::string(250, 'a'), "a name has more than 255 characters");
  EXPECT_EQ(expand("n[0-9]" + std::string(253, 'a')).size(), 10u);
  EXPECT_THROWS(expand("n[0-65535]" + std::string(20'000, 'a')), Error, "a name has more than 255 characters");
}

}  // namespace
}  // namespace lockstep::detail
