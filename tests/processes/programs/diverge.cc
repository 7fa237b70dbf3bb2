// A process of a job that computes the same as its peers up to a step, and then diverges.
// Arguments: the process that diverges, and the step. Exits with code 1 and the error.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <cstdlib>

using namespace lockstep;

int main(int, char** argv) {
  int step = 0;
  try {
    distributed::initialize();
    const int victim = std::atoi(argv[1]), when = std::atoi(argv[2]);
    const Mesh mesh = make_mesh({"data"});
    const NamedSharding cut(mesh, P("data"));
    const auto total = jit([](const Array& a) { return sum(a); }, {.in_shardings = {cut}});
    const auto other = jit([](const Array& a) { return sum(a * a); }, {.in_shardings = {cut}});
    const auto another = jit([](const Array& a) { return sum(2.f * a); }, {.in_shardings = {cut}});
    const Array x = device_put(ones({2 * device_count()}), cut);
    for (; step < when; ++step) total(x).item<float>();
    const Array last = process_index() == victim ? other(x) : another(x);
    last.item<float>();
    distributed::shutdown();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\nat step %d\n", error.what(), step);
    distributed::report_failure(error.what());
    return 1;
  }
}
