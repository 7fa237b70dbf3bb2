// MNIST from scratch: an MLP [784, 1024, 1024, 10] trained with plain gradient descent on one device.
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

// Makes a batch from rows of the raw data set, inside the compiled step.
Batch gather(const Images& set, const Array& rows) {
  return {astype(take(set.pixels, rows), f32) / 255.f, one_hot(take(set.labels, rows), 10)};
}

Images upload(ImageDataset set) {  // moves the data into arrays without copying
  return {Array::from(std::move(set.images), {set.count, set.rows * set.cols}),
          Array::from(std::move(set.labels), {set.count})};
}

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"epochs", "10"}, {"data", "mnist"}, {"data-dir", ""}});
  const int epochs = flags.integer("epochs");
  Dataset data = load_dataset(flags.text("data"), {.dir = flags.text("data-dir")});
  const Images train = upload(std::move(data.train)), test = upload(std::move(data.test));
  const int64_t n = train.pixels.shape(0);
  Params params = init_params({train.pixels.shape(1), 1024, 1024, 10}, random::key(0));

  const auto step = jit([](Params p, Images set, Array order, Array start, int64_t size) {
    const Params g = grad(loss)(p, gather(set, dynamic_slice(order, {start}, {size})));
    return tree_map([](Array w, Array dw) { return w - 0.001f * dw; }, p, g);
  }, {.donate = {0}});
  const auto correct = jit([](Params p, Images set, Array start, int64_t size) {
    const Batch batch = gather(set, start + arange(size));
    return sum(argmax(predict(p, batch.image), 1) == argmax(batch.label, 1));
  });
  auto accuracy = [&](const Images& set) {
    const int64_t all = set.labels.size();
    int64_t right = 0;
    for (int64_t at = 0; at < all; at += 1000)
      right += correct(params, set, at, std::min<int64_t>(1000, all - at)).item<int64_t>();
    return static_cast<double>(right) / static_cast<double>(all);
  };

  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    const Array order = random::permutation(random::fold_in(random::key(1), epoch), n);
    for (int64_t at = 0; at < n; at += 128)  // the last batch may be smaller
      params = step(params, train, order, at, std::min<int64_t>(128, n - at));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("Epoch %d in %.2f sec\nTraining set accuracy %.6f\nTest set accuracy %.6f\n", epoch, seconds.count(),
                accuracy(train), accuracy(test));
    std::fflush(stdout);
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "mnist_from_scratch: %s\n", e.what());
  return 1;
}
