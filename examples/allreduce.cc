// The sum of a one from every device, on every device.
#include <lockstep/lockstep.h>

#include <cstdio>

#include "flags.h"

using namespace lockstep;

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"devices", ""}});  // not given: as the environment says, else one
  if (!flags.text("devices").empty()) set_cpu_devices(flags.integer("devices"));
  distributed::initialize();  // alone, unless the environment says otherwise
  std::printf("Total devices: %d  |  Devices per task: %d\n", device_count(), local_device_count());

  // Each device holds one element of x, and all of them hold the same y.
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
