// A process of a job that computes the same as its peers up to a step, and then runs out of memory.
// Arguments: that process, and the step. Exits with the code of the failure.
#include <lockstep/lockstep.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace lockstep;

namespace {

// Allocates until an allocation fails.
[[noreturn]] void use_all_memory() {
  const rlimit nothing_more = {1, 1};
  ::setrlimit(RLIMIT_AS, &nothing_more);
  for (std::vector<Array> kept;;) kept.push_back(eye(1 << 10));
}

}  // namespace

int main(int, char** argv) {
  try {
    distributed::initialize();
    const int victim = std::atoi(argv[1]), when = std::atoi(argv[2]);
    const NamedSharding cut(make_mesh({"data"}), P("data"));
    const auto total = jit([](const Array& a) { return sum(a); }, {.in_shardings = {cut}});
    const Array x = device_put(ones({2 * device_count()}), cut);
    for (int step = 0;; ++step) {
      if (process_index() == victim && step == when) use_all_memory();
      total(x).item<float>();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return distributed::report_failure(error);
  }
}
