// Seconds per epoch of MNIST-sized training, for comparison with benchmarks/baselines/ (JAX, PyTorch).
//
//   build/benchmarks/epochs [--platform cpu|cuda] [--cases mlp1024:sgd,mlp:adam,cnn:adam] [--precisions f32,bf16]
//                           [--batches 128,8192] [--forms step,index,loader,whole,fit] [--plan]
//
// Forms. "whole": an epoch in one call, with scan. "step", "index": one call per step, with the data on the device; the
// row numbers of each batch are an array of their own ("step"), or are taken from those of the epoch ("index").
// "loader": one call per step, with a batch of bytes gathered on the host. "fit": the complete trainer. Prints one line
// of JSON per case; --plan prints the instructions of a step instead.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <tuple>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string each; std::getline(in, each, at);) out.push_back(each);
  return out;
}

struct Case {
  std::string model, optimizer, precision;
  int64_t batch = 128;
};

constexpr int64_t kRows = 60000;
constexpr int kEpochs = 5;

// Arbitrary pixels and labels; only their number matters.
ImageDataset noise() {
  ImageDataset set;
  set.count = kRows;
  set.rows = set.cols = 28;
  set.classes = 10;
  set.images.resize(kRows * 784);
  set.labels.resize(kRows);
  uint32_t x = 1;
  for (auto* bytes : {&set.images, &set.labels})
    for (auto& byte : *bytes) {
      x = x * 1664525u + 1013904223u;
      byte = static_cast<uint8_t>(bytes == &set.labels ? (x >> 24) % 10 : x >> 24);
    }
  return set;
}

struct State {
  std::vector<Array> params;
  OptimizerState optimizer;
};
struct Data {
  Array images, labels;
};

class Training {
 public:
  explicit Training(const Case& c) : model_(find_model(c.model)) {
    optimizer_.kind = optimizer_kind(c.optimizer);
    optimizer_.schedule.peak = c.optimizer == "sgd" ? 0.01 : 1e-3;
    compute_ = precision_of(c.precision == "bf16" ? "bfloat16" : "float32").compute;
  }

  State start() const {
    State s;
    s.params = model_.init(random::key(0));
    s.optimizer = create_state(optimizer_, s.params);
    return s;
  }

  std::pair<State, Array> step(const State& state, const Data& batch) const {
    const auto& [images, labels] = batch;
    const auto loss = [&](const std::vector<Array>& params) {
      const Array x = astype(images, f32) * (1 / (255 * 0.3081)) - 0.1307 / 0.3081;
      const auto cast = [&](const Array& p) { return astype(p, compute_); };
      const Array out = model_.logits(tree_map(cast, params), astype(x, compute_), {.training = true});
      return mean(softmax_cross_entropy(astype(out, f32), labels));
    };
    const auto [value, grads] = value_and_grad(loss)(state.params);
    Update next = update(optimizer_, model_.paths, state.params, grads, state.optimizer);
    return {State{std::move(next.params), std::move(next.state)}, value};
  }

 private:
  Model model_;
  Optimizer optimizer_;
  DType compute_ = f32;
};

// The shortest epoch after the first.
template <class Epoch>
double best(const Epoch& epoch) {
  double out = 0;
  for (int i = 0; i < kEpochs; ++i) {
    const Clock::time_point begin = Clock::now();
    epoch();
    const double seconds = seconds_since(begin);
    if (i == 1 || (i > 1 && seconds < out)) out = seconds;
  }
  return out;
}

double measure(const Case& c, const std::string& form, const ImageDataset& set, bool plan) {
  if (form == "fit") {
    EngineOptions options;
    options.optimizer.kind = optimizer_kind(c.optimizer);
    options.optimizer.schedule.peak = 1e-3;
    options.precision = precision_of(c.precision == "bf16" ? "bfloat16" : "float32");
    Engine engine(find_model(c.model), options);
    Loader loader(set, {.batch_size = c.batch, .seed = 1});
    TrainState state = engine.create_state();
    return best([&] { engine.fit(state, loader, {.steps = state.step + kRows / c.batch}); });
  }
  const Training training(c);
  const int64_t batches = kRows / c.batch;
  const Data data{Array::from(set.images, {kRows, 28, 28}), Array::from(set.labels, {kRows})};
  const Array order =
      reshape(slice(random::permutation(random::key(1), kRows), {0}, {batches * c.batch}), {batches, c.batch});
  State state = training.start();
  Array value;
  const auto one = [&](const State& s, const Data& d, const Array& rows) {
    return training.step(s, {take(d.images, rows), take(d.labels, rows)});
  };
  if (form == "whole") {
    const auto epoch = jit(
        [&](const State& s, const Data& d, const Array& rows) {
          return scan([&](const State& carry, const Array& batch) { return one(carry, d, batch); }, s, rows);
        },
        {.donate = {0}});
    return best([&] {
      std::tie(state, value) = epoch(state, data, order);
      value.to_vector<float>();
    });
  }
  if (form == "loader") {
    const auto step = jit([&](const State& s, const Data& batch) { return training.step(s, batch); }, {.donate = {0}});
    const std::vector<int32_t> rows = order.to_vector<int32_t>();
    std::vector<uint8_t> images(static_cast<size_t>(c.batch) * 784), labels(static_cast<size_t>(c.batch));
    return best([&] {
      for (size_t i = 0; i < rows.size(); i += labels.size()) {
        for (size_t k = 0; k < labels.size(); ++k) {
          const auto row = static_cast<size_t>(rows[i + k]);
          std::copy_n(&set.images[row * 784], 784, &images[k * 784]);
          labels[k] = set.labels[row];
        }
        const Data batch{Array::from(images, {c.batch, 28, 28}), Array::from(labels, {c.batch})};
        std::tie(state, value) = step(state, batch);
      }
      value.item<float>();
    });
  }
  const auto step = jit(one, {.donate = {0}});
  if (form == "index")
    return best([&] {
      for (int64_t i = 0; i < batches; ++i) std::tie(state, value) = step(state, data, at(order, i));
      value.item<float>();
    });
  std::vector<Array> rows;
  for (int64_t i = 0; i < batches; ++i) rows.push_back(at(order, i));
  if (plan) {
    fmt::print("{}\n", step.plan(state, data, rows[0]));
    return 0;
  }
  double calls = 0;
  const double seconds = best([&] {
    const Clock::time_point begin = Clock::now();
    for (const Array& each : rows) std::tie(state, value) = step(state, data, each);
    calls = seconds_since(begin);
    value.item<float>();
  });
  fmt::print(stderr, "{}:{} {}: calls took {:.5f} s of the last epoch\n", c.model, c.optimizer, c.precision, calls);
  return seconds;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  using namespace lockstep;
  std::map<std::string, std::string> given = {{"--platform", "cpu"},
                                              {"--cases", "mlp1024:sgd,mlp:adam,cnn:adam"},
                                              {"--precisions", "f32,bf16"},
                                              {"--batches", "128,8192"},
                                              {"--forms", "step,index,loader,whole,fit"}};
  bool plan = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--plan") {
      plan = true;
    } else if (given.contains(argv[i]) && i + 1 < argc) {
      given[argv[i]] = argv[i + 1];
      ++i;
    } else {
      fmt::print(stderr, "epochs: unknown option {}\n", argv[i]);
      return 2;
    }
  }
  if (given["--platform"] == "cuda") set_platform(Platform::cuda);
  const ImageDataset set = noise();
  for (const std::string& both : split(given["--cases"], ','))
    for (const std::string& precision : split(given["--precisions"], ','))
      for (const std::string& batch : split(given["--batches"], ',')) {
        const std::vector<std::string> names = split(both, ':');
        const Case c{names.at(0), names.at(1), precision, std::stoll(batch)};
        std::string line = fmt::format(R"({{"model": "{}", "optimizer": "{}", "precision": "{}", "batch": {})", c.model,
                                       c.optimizer, c.precision, c.batch);
        for (const std::string& form : split(plan ? "step" : given["--forms"], ',')) {
          const double seconds = measure(c, form, set, plan);
          if (plan) continue;
          line += fmt::format(R"(, "{}": {:.5f}, "{}_examples_per_second": {:.0f})", form, seconds, form,
                              static_cast<double>(kRows / c.batch * c.batch) / seconds);
        }
        if (!plan) fmt::print("{}}}\n", line);
        std::fflush(stdout);
      }
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "epochs: {}\n", e.what());
  return 1;
}
