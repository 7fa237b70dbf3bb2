// From the start of a process to its first finished training step, and the peak memory of a longer run; mlp1024 on
// MNIST from the cache. Each run is a new process.
//
//   build/benchmarks/startup [runs]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "support/models.h"
#include "timing.h"

namespace lockstep {
namespace {

struct Images {
  Array pixels, labels;
};

Images upload(ImageDataset set) {
  return {Array::from(std::move(set.images), {set.count, 784}), Array::from(std::move(set.labels), {set.count})};
}

// The work of the child process: load the data set, initialize the parameters, run `steps` steps.
void train(int steps) {
  Dataset data = load_dataset("mnist");
  const Images set = upload(std::move(data.train)), test = upload(std::move(data.test));
  models::Params params = models::init("mlp1024", 0);
  const auto step = jit(
      [](models::Params p, Images images, Array start) {
        const Array rows = start + arange(128);
        const models::Batch batch{astype(take(images.pixels, rows), f32) / 255.f, take(images.labels, rows)};
        const models::Params g = grad(models::loss)(p, batch);
        return tree_map([](const Array& w, const Array& dw) { return w - 0.001f * dw; }, p, g);
      },
      {.donate = {0}});
  for (int i = 0; i < steps; ++i) params = step(params, set, i * 128 % 59000);
}

struct Run {
  double seconds;
  double peak_mb;
};

Run spawn(const char* self, int steps) {
  const Clock::time_point begin = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, "--child", std::to_string(steps).c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error("startup: the child failed");
  return {seconds_since(begin), static_cast<double>(usage.ru_maxrss) * 1024 / 1e6};
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  using namespace lockstep;
  if (argc == 3 && std::string(argv[1]) == "--child") {
    train(std::stoi(argv[2]));
    return 0;
  }
  const int runs = argc > 1 ? std::stoi(argv[1]) : 11;
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(spawn("/proc/self/exe", 1).seconds);
  std::sort(times.begin(), times.end());
  fmt::print("start to first finished step: median {:.0f} ms, minimum {:.0f} ms\n", times[times.size() / 2] * 1e3,
             times[0] * 1e3);
  const double parameters = 1863690 * 4 / 1e6, activations = 128 * (784 + 1024 + 1024 + 10) * 4 / 1e6, data = 54.95;
  const double sum = parameters + activations + data, peak = spawn("/proc/self/exe", 469).peak_mb;
  fmt::print(
      "peak memory of an epoch: {:.1f} MB; parameters {:.1f} + activations of a batch {:.1f} + raw data {:.1f} = "
      "{:.1f} MB; ratio {:.2f}\n",
      peak, parameters, activations, data, sum, peak / sum);
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
