// All-reduces a 1 from every device.
#include <lockstep/lockstep.h>

#include <cstdio>

#include "flags.h"

using namespace lockstep;

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"devices", ""}});  // default: given by the environment, else 1
  if (!flags.text("devices").empty()) set_cpu_devices(flags.integer("devices"));
  distributed::initialize();  // a single process, unless the environment describes a cluster
  std::printf("Total devices: %d  |  Devices per task: %d\n", device_count(), local_device_count());

  // x has one element on each device; y is replicated.
  const Array x = ones({device_count()});
  const auto all_reduce = shard_map([](Array piece) { return psum(piece, "i"); },
                                    {.mesh = make_mesh({"i"}), .in_specs = {P("i")}, .out_specs = {P()}});
  const Array y = all_reduce(x);
  std::printf("Process %d has y=[%g.]\n", process_index(), y.item<double>());
  distributed::shutdown();
} catch (const std::exception& e) {
  std::fprintf(stderr, "allreduce: %s\n", e.what());
  return 1;
}
