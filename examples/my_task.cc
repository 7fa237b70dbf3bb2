// A task of your own with the whole command line: a small network learns a noisy wave.
//
//   my_task --epochs 20 --hidden 32 --checkpoint-dir run     trains; all flags: my_task --help
//   my_task eval run                                         evaluates what was saved
//   lockstep launch -n 2 -- ./my_task --checkpoint-dir run   trains in two processes
#include <lockstep/lockstep.h>
#include <lockstep/train_main.h>

using namespace lockstep;

namespace {

// Each field is a flag (--hidden), a key of YAML files and a line of the help. Checkpoints store the values.
struct Settings {
  Setting<int64_t> hidden{64, "units of each hidden layer", at_least(1)};
  Setting<int64_t> points{20'000, "training points", at_least(1)};
  Setting<double> noise{0.1, "standard deviation of the noise", at_least(0)};
  Setting<std::string> wave{"sine", "curve to learn", one_of({"sine", "chirp"})};
};

// The model: any struct of layers and arrays.
struct Net {
  nn::Dense first, second, out;
};

Net create(const Array& key, int64_t hidden) {
  const auto [a, b, c] = random::split<3>(key);
  return {nn::dense(a, 1, hidden), nn::dense(b, hidden, hidden), nn::dense(c, hidden, 1)};
}

Array predict(const Net& net, const Array& x) {
  return nn::apply(net.out, tanh(nn::apply(net.second, tanh(nn::apply(net.first, x)))));
}

// What the loss reads of a batch: fields of the data set, one row per example.
struct Points {
  Array x, y;
};

// `count` points of the curve. A real task would read a file here, or return a Source of its own.
SourcePtr draw_points(const Settings& settings, uint64_t seed, int64_t count, double noise) {
  const auto [a, b] = random::split<2>(random::key(seed));
  const Array x = random::uniform(a, {count, 1}, -1, 1);
  const Array curve = *settings.wave == "sine" ? sin(6 * x) : sin(6 * x * x);
  return array_source({{"x", x}, {"y", curve + noise * random::normal(b, {count, 1})}}, settings.wave);
}

Problem make_problem(const Settings& settings) {
  Task task = make_task<Points>(
      "wave", [hidden = *settings.hidden](const Array& key) { return create(key, hidden); },
      [](const Net& net, const Points& batch, const nn::Mode&) -> TaskResult {
        const Array error = predict(net, batch.x) - batch.y;
        return {.loss = square(error), .metrics = {{"abs_error", abs(error)}}};
      });
  return {.task = std::move(task),
          .train = draw_points(settings, 1, settings.points, settings.noise),
          .test = draw_points(settings, 2, 1'000, 0)};
}

}  // namespace

int main(int argc, char** argv) { return train_main(argc, argv, make_problem); }
