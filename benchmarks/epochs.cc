// Seconds per epoch of MNIST-sized training, for comparison with benchmarks/neighbours/ (JAX, PyTorch).
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
#include <tuple>

#include "flags.h"
#include "timing.h"

namespace lockstep {
namespace {

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
    const auto loss = [&](const std::vector<Array>& params) {
      const Array x = astype(batch.images, f32) * (1 / (255 * 0.3081)) - 0.1307 / 0.3081;
      const auto cast = [&](const Array& p) { return astype(p, compute_); };
      const Array out = model_.logits(tree_map(cast, params), astype(x, compute_), {.training = true});
      return mean(softmax_cross_entropy(astype(out, f32), batch.labels));
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

double measure_fit(const Case& c, const ImageDataset& set) {
  EngineOptions options;
  options.optimizer.kind = optimizer_kind(c.optimizer);
  options.optimizer.schedule.peak = 1e-3;
  options.precision = precision_of(c.precision == "bf16" ? "bfloat16" : "float32");
  Engine engine(find_model(c.model), options);
  Loader loader(set, {.batch_size = c.batch, .seed = 1});
  TrainState state = engine.create_state();
  return best([&] { engine.fit(state, loader, {.steps = state.step + kRows / c.batch}); });
}

// The forms that call a Training, with the data set on the device. Each method measures one form.
class CompiledEpochs {
  std::pair<State, Array> gather_and_step(const State& state, const Data& data, const Array& rows) const {
    return training_.step(state, {take(data.images, rows), take(data.labels, rows)});
  }

  auto compiled_step() const {
    return jit([this](const State& s, const Data& d, const Array& rows) { return gather_and_step(s, d, rows); },
               {.donate = {0}});
  }

 public:
  CompiledEpochs(const Case& c, const ImageDataset& set)
      : case_(c),
        set_(set),
        training_(c),
        data_{Array::from(set.images, {kRows, 28, 28}), Array::from(set.labels, {kRows})},
        order_(
            reshape(slice(random::permutation(random::key(1), kRows), {0}, {batches_ * c.batch}), {batches_, c.batch})),
        state_(training_.start()) {}

  double measure_whole() {
    const auto epoch = jit(
        [&](const State& s, const Data& d, const Array& rows) {
          return scan([&](const State& carry, const Array& batch) { return gather_and_step(carry, d, batch); }, s,
                      rows);
        },
        {.donate = {0}});
    return best([&] {
      std::tie(state_, loss_) = epoch(state_, data_, order_);
      loss_.to_vector<float>();
    });
  }

  double measure_loader() {
    const auto step = jit([&](const State& s, const Data& batch) { return training_.step(s, batch); }, {.donate = {0}});
    const std::vector<int32_t> rows = order_.to_vector<int32_t>();
    std::vector<uint8_t> images(static_cast<size_t>(case_.batch) * 784), labels(static_cast<size_t>(case_.batch));
    return best([&] {
      for (size_t i = 0; i < rows.size(); i += labels.size()) {
        for (size_t k = 0; k < labels.size(); ++k) {
          const auto row = static_cast<size_t>(rows[i + k]);
          std::copy_n(&set_.images[row * 784], 784, &images[k * 784]);
          labels[k] = set_.labels[row];
        }
        const Data batch{Array::from(images, {case_.batch, 28, 28}), Array::from(labels, {case_.batch})};
        std::tie(state_, loss_) = step(state_, batch);
      }
      loss_.item<float>();
    });
  }

  double measure_index() {
    const auto step = compiled_step();
    return best([&] {
      for (int64_t i = 0; i < batches_; ++i) std::tie(state_, loss_) = step(state_, data_, at(order_, i));
      loss_.item<float>();
    });
  }

  double measure_step() {
    const auto step = compiled_step();
    std::vector<Array> rows;
    for (int64_t i = 0; i < batches_; ++i) rows.push_back(at(order_, i));
    double calls = 0;
    const double seconds = best([&] {
      const Clock::time_point begin = Clock::now();
      for (const Array& each : rows) std::tie(state_, loss_) = step(state_, data_, each);
      calls = seconds_since(begin);
      loss_.item<float>();
    });
    fmt::print(stderr, "{}:{} {}: calls took {:.5f} s of the last epoch\n", case_.model, case_.optimizer,
               case_.precision, calls);
    return seconds;
  }

  void print_plan() { fmt::print("{}\n", compiled_step().plan(state_, data_, at(order_, 0))); }

 private:
  const Case& case_;
  const ImageDataset& set_;
  const Training training_;
  const int64_t batches_ = kRows / case_.batch;
  const Data data_;
  const Array order_;  // [batches_, batch]: the rows of each batch
  State state_;
  Array loss_;
};

double measure(const Case& c, const std::string& form, const ImageDataset& set) {
  if (form == "fit") return measure_fit(c, set);
  CompiledEpochs epochs(c, set);
  if (form == "whole") return epochs.measure_whole();
  if (form == "loader") return epochs.measure_loader();
  if (form == "index") return epochs.measure_index();
  return epochs.measure_step();
}

void print_measurements(const Case& c, const std::vector<std::string>& forms, const ImageDataset& set) {
  std::string line = fmt::format(R"({{"model": "{}", "optimizer": "{}", "precision": "{}", "batch": {})", c.model,
                                 c.optimizer, c.precision, c.batch);
  for (const std::string& form : forms) {
    const double seconds = measure(c, form, set);
    line += fmt::format(R"(, "{}": {:.5f}, "{}_examples_per_second": {:.0f})", form, seconds, form,
                        static_cast<double>(kRows / c.batch * c.batch) / seconds);
  }
  fmt::print("{}}}\n", line);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_benchmark(argc, argv,
                       {{"--cases", "mlp1024:sgd,mlp:adam,cnn:adam"},
                        {"--precisions", "f32,bf16"},
                        {"--batches", "128,8192"},
                        {"--forms", "step,index,loader,whole,fit"},
                        {"--plan", "off"}},
                       [](Flags& given) {
                         const ImageDataset set = noise();
                         for (const std::string& both : split_text(given["--cases"], ','))
                           for (const std::string& precision : split_text(given["--precisions"], ','))
                             for (const std::string& batch : split_text(given["--batches"], ',')) {
                               const std::vector<std::string> names = split_text(both, ':');
                               const Case c{names.at(0), names.at(1), precision, std::stoll(batch)};
                               if (given["--plan"] == "on")
                                 CompiledEpochs(c, set).print_plan();
                               else
                                 print_measurements(c, split_text(given["--forms"], ','), set);
                               std::fflush(stdout);
                             }
                       });
}
