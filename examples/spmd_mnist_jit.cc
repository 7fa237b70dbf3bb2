// MNIST on many devices with jit and NamedSharding: the batch is sharded, the parameters are replicated.
#include <lockstep/lockstep.h>

#include <chrono>
#include <cstdio>

#include "flags.h"

using namespace lockstep;
struct Layer { Array w, b; };
using Params = std::vector<Layer>;
struct Images { Array pixels, labels; };  // u8 [n, 784] and u8 [n]: the raw data set
struct Batch { Array image, label; };     // f32 [b, 784] and one-hot f32 [b, 10]

Params init_params(const std::vector<int64_t>& sizes, const Array& key) {
  Params params;
  for (size_t i = 0; i + 1 < sizes.size(); ++i)
    params.push_back({0.1f * random::normal(random::fold_in(key, 2 * i), {sizes[i], sizes[i + 1]}),
                      0.1f * random::normal(random::fold_in(key, 2 * i + 1), {sizes[i + 1]})});
  return params;
}

Array predict(const Params& params, Array x) {
  for (size_t i = 0; i + 1 < params.size(); ++i) x = tanh(dot(x, params[i].w) + params[i].b);
  return log_softmax(dot(x, params.back().w) + params.back().b);
}
Array loss(const Params& p, const Batch& b) { return -mean(sum(predict(p, b.image) * b.label, 1)); }

Images upload(ImageDataset set) {
  return {Array::from(std::move(set.images), {set.count, set.rows * set.cols}),
          Array::from(std::move(set.labels), {set.count})};
}
Batch gather(const Images& set, const Array& rows) {
  return {astype(take(set.pixels, rows), f32) / 255.f, one_hot(take(set.labels, rows), 10)};
}

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // line-buffered, so that logs show each line immediately
  const Flags flags(argc, argv, {{"epochs", "10"}, {"devices", "8"}, {"data", "mnist"}, {"data-dir", ""}});
  const int epochs = flags.integer("epochs");
  set_cpu_devices(flags.integer("devices"));
  distributed::initialize();  // a single process, unless the environment describes a cluster
  Dataset data = load_dataset(flags.text("data"), {.dir = flags.text("data-dir")});
  const Images train = upload(std::move(data.train)), test = upload(std::move(data.test));
  const int64_t n = train.labels.size();

  const Mesh mesh = make_mesh({"data"});               // a one-dimensional mesh of all devices
  const NamedSharding data_sharding(mesh, P("data"));  // rows are sharded, features are not
  const NamedSharding replicated(mesh, P());           // complete on every device
  Params params = device_put(init_params({train.pixels.shape(1), 1024, 1024, 10}, random::key(0)), replicated);

  const auto fetch = jit([](Images set, Array order, Array start, int64_t size) {
    return gather(set, dynamic_slice(order, {start}, {size}));
  }, {.out_shardings = {data_sharding}});  // each process gathers its own rows
  // Values under jit are global: the mean in the loss is over the global batch, on any number of devices, even with
  // uneven shards. So the step does not depend on the number of devices, and no collective has to be written.
  const auto step = jit([](Params p, Batch b) {
    return tree_map([](Array w, Array dw) { return w - 0.001f * dw; }, p, grad(loss)(p, b));
  }, {.donate = {0}, .in_shardings = {replicated, data_sharding}, .out_shardings = {replicated}});
  const auto correct = jit([](Params p, Images set, Array start, int64_t size) {
    const Batch b = gather(set, start + arange(size));
    return sum(argmax(predict(p, b.image), 1) == argmax(b.label, 1));
  });
  auto accuracy = [&](const Images& set) {
    double right = 0;
    for (int64_t i = 0, count = set.labels.size(); i < count; i += 1000)
      right += correct(params, set, i, std::min<int64_t>(1000, count - i)).item<double>();
    return right / static_cast<double>(set.labels.size());
  };
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    const Array order = random::permutation(random::fold_in(random::key(1), epoch), n);
    for (int64_t i = 0; i < n; i += 128)  // the last batch may be smaller
      params = step(params, fetch(train, order, i, std::min<int64_t>(128, n - i)));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("Epoch %d in %.2f sec\nTraining set accuracy %.6f\nTest set accuracy %.6f\n", epoch, seconds.count(),
                accuracy(train), accuracy(test));
  }
  distributed::shutdown();
} catch (const std::exception& e) { return std::fprintf(stderr, "spmd_mnist_jit: %s\n", e.what()), distributed::report_failure(e); }
