#include "jobs/hosts.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "support/program.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Hosts = std::vector<HostSlots>;

TEST(Hosts, ParsesNamesAndSlots) {
  EXPECT_EQ(parse_hosts("a", "me"), (Hosts{{"a", 1}}));
  EXPECT_EQ(parse_hosts("a,b:4,me@c.d:2,10.0.0.7", "me"), (Hosts{{"a", 1}, {"b", 4}, {"me@c.d", 2}, {"10.0.0.7", 1}}));
  EXPECT_EQ(parse_hosts("[fd00::1],[fd00::2]:3", "me"), (Hosts{{"fd00::1", 1}, {"fd00::2", 3}}));
}

TEST(Hosts, RecognizesThisHostByItsNames) {
  EXPECT_EQ(parse_hosts("localhost:2,127.0.0.1,[::1],n1,n1.x.org,n2", "n1.x.org"),
            (Hosts{{"", 2}, {"", 1}, {"", 1}, {"", 1}, {"", 1}, {"n2", 1}}));
}

TEST(Hosts, RejectsMalformedLists) {
  EXPECT_THROWS(parse_hosts("", "me"), Error, "--hosts: \"\" has an empty name; write HOST or HOST:SLOTS");
  EXPECT_THROWS(parse_hosts("a,,b", "me"), Error, "--hosts: \"a,,b\" has an empty name");
  EXPECT_THROWS(parse_hosts("a,", "me"), Error, "has an empty name");
  EXPECT_THROWS(parse_hosts(":4", "me"), Error, "--hosts: \":4\" has no valid host name");
  EXPECT_THROWS(parse_hosts("-oProxyCommand=x", "me"), Error, "has no valid host name");
  EXPECT_THROWS(parse_hosts("a;b", "me"), Error, "--hosts: \"a;b\" has no valid host name");
  EXPECT_THROWS(parse_hosts("a:0", "me"), Error, "--hosts: \"a:0\" has \"0\" slots; give a number from 1 to 1024");
  EXPECT_THROWS(parse_hosts("a:x", "me"), Error, "has \"x\" slots");
  EXPECT_THROWS(parse_hosts("a:", "me"), Error, "has \" \" slots");
  EXPECT_THROWS(parse_hosts("a:1025", "me"), Error, "has \"1025\" slots");
  EXPECT_THROWS(parse_hosts("fd00::1", "me"), Error, "has several colons; write an IPv6 address in brackets");
  EXPECT_THROWS(parse_hosts("[fd00::1", "me"), Error, "is not an address in brackets");
  EXPECT_THROWS(parse_hosts("[fd00::1]4", "me"), Error, "is not an address in brackets");
}

TEST(Hosts, ParsesHostFiles) {
  EXPECT_EQ(parse_host_file("# mine\na\n\nb slots=4 # big\n  c:2\nlocalhost\n", "hosts", "me"),
            (Hosts{{"a", 1}, {"b", 4}, {"c", 2}, {"", 1}}));
  EXPECT_THROWS(parse_host_file("a\nb cores=4\n", "hosts", "me"), Error, "hosts:2: \"cores=4\" is not slots=N");
  EXPECT_THROWS(parse_host_file("a slots=x\n", "hosts", "me"), Error, "hosts:1: \"a slots=x\" has \"x\" slots");
  EXPECT_THROWS(parse_host_file("# none\n", "hosts", "me"), Error, "hosts: no hosts found");
}

TEST(Hosts, ProcessesFillSlotsInOrder) {
  const Hosts hosts = {{"a", 1}, {"b", 2}, {"", 1}};
  EXPECT_EQ(assign_hosts(hosts, 2), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(assign_hosts(hosts, 4), (std::vector<std::string>{"a", "b", "b", ""}));
  EXPECT_THROWS(assign_hosts(hosts, 5), Error, "-n 5: --hosts has only 4 slots; give hosts more slots");
}

TEST(Hosts, QuotesWordsForTheShell) {
  const std::vector<std::string> words = {"it's", "a b", "$HOME `x` \"y\" \\", "", "line\nbreak", "*"};
  const ProcessResult result = run_process(
      {"sh", "-c", "for w in " + shell_quote(words) + "; do printf '<%s>' \"$w\"; done"}, std::chrono::seconds(60));
  EXPECT_EQ(result.output, "<it's><a b><$HOME `x` \"y\" \\><><line\nbreak><*>");
}

TEST(Hosts, LimitsTheNumberOfHostsAndTheirNames) {
  std::string many = "a", lines = "a\n";
  for (int i = 0; i < 65536; ++i) many += ",a", lines += "a\n";
  EXPECT_THROWS(parse_hosts(many, "me"), Error, "--hosts: more than 65536 hosts");
  EXPECT_THROWS(parse_host_file(lines, "f", "me"), Error, "f: more than 65536 hosts");
  EXPECT_THROWS(parse_hosts(std::string(256, 'a'), "me"), Error, "host names have at most 255");
  EXPECT_EQ(parse_hosts(std::string(255, 'a'), "me").size(), 1u);
  EXPECT_THROWS(parse_hosts("\033[31m", "me"), Error, "\"\\x1b[31m\" has no valid host name");
}

}  // namespace
}  // namespace lockstep
