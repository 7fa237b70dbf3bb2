// Each HTTP server of Lockstep answers honest clients while 1,000 silent ones, 200 slow ones and 100 with a wrong token
// and 16 MiB of body occupy it and it is busy. `./dev test --long` attacks each for five minutes, and also measures
// times. `http_attack SERVER SECONDS` prints the same figures.
#include <gtest/gtest.h>

#include "servers/attacked_servers.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

class Attack : public testing::TestWithParam<const char*> {};

TEST_P(Attack, HonestClientsAreServed) {
  const std::unique_ptr<AttackedServer> server = start_attacked(GetParam());
  ASSERT_GT(server->target().port, 0);
  AttackSize size;
  if (long_tests()) size.time = std::chrono::minutes(5);
  const AttackReport report = attack(server->target(), size);
  const std::string text = report.text();
  std::printf("%s: %s\n", GetParam(), text.c_str());
  EXPECT_GE(static_cast<double>(report.honest_served), 0.99 * static_cast<double>(report.honest)) << text;
  EXPECT_LE(static_cast<double>(report.health_failed), 0.001 * static_cast<double>(report.health.size())) << text;
  if (!kSanitized) {  // sanitizers keep freed memory
    EXPECT_LE(report.most_bytes - report.quiet_bytes, 64'000'000) << text;
  }
  if (!long_tests()) return;
  EXPECT_LT(report.health_at(0.999), 0.1) << text;
  EXPECT_LT(report.health_at(1), 2) << text;
}

INSTANTIATE_TEST_SUITE_P(Servers, Attack, testing::Values("serve", "serve-token", "board", "metrics"),
                         [](const auto& each) {
                           return std::string(each.param).substr(0, 5) + std::to_string(each.index);
                         });

}  // namespace
}  // namespace lockstep
