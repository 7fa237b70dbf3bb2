// Draws shardings on the terminal, and one of them as an SVG file with --svg FILE.
#include <lockstep/devices.h>
#include <lockstep/visualize.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>

#include "flags.h"

using namespace lockstep;

void draw(const char* title, const NamedSharding& sharding, const Shape& shape) {
  std::printf("%s: %s as %s over %s\n%s\n", title, to_string(shape).c_str(), to_string(sharding.spec()).c_str(),
              to_string(sharding.mesh()).c_str(),
              visualize_sharding(sharding, shape, {.color = isatty(STDOUT_FILENO) == 1}).c_str());
}

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"devices", "8"}, {"svg", ""}});
  set_cpu_devices(flags.integer("devices"));
  const int half = device_count() % 2 == 0 ? 2 : 1;
  const Mesh line = make_mesh({"data"}), grid = make_mesh({{"data", -1}, {"model", half}});
  const Shape batch{128, 784};

  draw("rows sharded, like a batch", {line, P("data")}, batch);
  draw("replicated, like parameters", {line, P()}, batch);
  draw("rows and columns sharded", {grid, P("data", "model")}, batch);
  draw("columns sharded and replicated over data", {grid, P({}, "model")}, batch);
  draw("uneven shards", {line, P("data")}, {97});

  if (const std::string file = flags.text("svg"); !file.empty()) {
    std::ofstream out(file);
    out << sharding_svg({grid, P("data", "model")}, batch);
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
    std::printf("wrote %s\n", file.c_str());
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "visualize: %s\n", e.what());
  return 1;
}
