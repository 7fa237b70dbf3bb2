// Joins the processes that its launcher has started.
#include <lockstep/devices.h>
#include <lockstep/distributed.h>

#include <cstdio>

int main() try {
  lockstep::distributed::initialize();
  std::printf("joined %d processes\n", lockstep::process_count());
  lockstep::distributed::shutdown();
} catch (const std::exception& error) {
  std::fprintf(stderr, "consumer: %s\n", error.what());
  return 1;
}
