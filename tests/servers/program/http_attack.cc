// http_attack SERVER SECONDS: attacks a server as tests/servers/attack_test.cc does, and prints what honest clients saw.
// SERVER is serve, serve-token, board or metrics. Not run by ctest.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "servers/attacked_servers.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: http_attack serve|serve-token|board|metrics SECONDS\n");
    return 2;
  }
  testing::InitGoogleTest();
  const auto server = lockstep::start_attacked(argv[1]);
  if (!server) return 2;
  lockstep::AttackSize size;
  size.time = std::chrono::seconds(std::atoi(argv[2]));
  std::printf("%s: %s\n", argv[1], lockstep::attack(server->target(), size).text().c_str());
  return 0;
}
