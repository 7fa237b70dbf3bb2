// Sums a 1 of every process that its launcher has started.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

int main() try {
  distributed::initialize();
  const auto all_reduce = shard_map([](Array piece) { return psum(piece, "i"); },
                                    {.mesh = make_mesh({"i"}), .in_specs = {P("i")}, .out_specs = {P()}});
  std::printf("sum %g of %d processes\n", all_reduce(ones({device_count()})).item<double>(), process_count());
  distributed::shutdown();
} catch (const std::exception& error) {
  std::fprintf(stderr, "consumer: %s\n", error.what());
  return 1;
}
