// A process of a job that prints the cores to which it and its threads are bound, and how many threads compute:
// "1: cores 8-15, 8 threads".
#include <lockstep/lockstep.h>

#include <cstdio>

#include "lane/cpus.h"
#include "plan/lanes.h"

int main() try {
  using namespace lockstep;
  const std::string before = cpu_list(affinity_cpus());
  distributed::initialize();
  std::string of_thread;
  std::thread([&] { of_thread = cpu_list(affinity_cpus()); }).join();
  const std::string cores = cpu_list(affinity_cpus());
  if (of_thread != cores) throw std::runtime_error("its threads are bound to " + of_thread);
  std::printf("%d: cores %s, %d threads\n", process_index(), cores.c_str(), Lanes::current().host_pool().threads());
  distributed::shutdown();
  if (cpu_list(affinity_cpus()) != before) throw std::runtime_error("it stays bound");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cores: %s\n", error.what());
  return 1;
}
