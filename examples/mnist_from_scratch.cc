// MNIST from scratch: an MLP [784, 1024, 1024, 10] trained with plain gradient descent on one device.
//
//   mnist_from_scratch [--epochs N] [--data mnist|fashion-mnist|synthetic] [--data-dir D]
#include <lockstep/lockstep.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

using namespace lockstep;

struct Layer {
  Array w, b;
};
using Params = std::vector<Layer>;
struct Images {
  Array pixels, labels;  // u8 [n, 784], u8 [n]: the raw data set; batches are gathered inside the compiled step
};
struct Batch {
  Array image, label;  // f32 [b, 784], one-hot f32 [b, 10]
};

Params init_params(const std::vector<int64_t>& sizes, Array key, float scale = 0.1f) {
  Params params;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const Array w_key = random::fold_in(key, 2 * i), b_key = random::fold_in(key, 2 * i + 1);
    params.push_back(
        {scale * random::normal(w_key, {sizes[i], sizes[i + 1]}), scale * random::normal(b_key, {sizes[i + 1]})});
  }
  return params;
}

Array predict(const Params& params, Array x) {
  for (size_t i = 0; i + 1 < params.size(); ++i) x = tanh(dot(x, params[i].w) + params[i].b);
  return log_softmax(dot(x, params.back().w) + params.back().b);
}

Array loss(const Params& p, const Batch& b) { return -mean(sum(predict(p, b.image) * b.label, 1)); }

Batch gather(const Images& set, const Array& rows) {
  return {astype(take(set.pixels, rows, 0), f32) / 255.f, one_hot(take(set.labels, rows, 0), 10)};
}

Images upload(const ImageDataset& set) {
  return {Array::from(set.images, {set.count, set.rows * set.cols}), Array::from(set.labels, {set.count})};
}

int main(int argc, char** argv) try {
  int epochs = 10;
  std::string name = "mnist", dir;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--epochs"))
      epochs = std::stoi(argv[i + 1]);
    else if (!std::strcmp(argv[i], "--data"))
      name = argv[i + 1];
    else if (!std::strcmp(argv[i], "--data-dir"))
      dir = argv[i + 1];
    else
      throw Error(std::string("mnist_from_scratch: no flag ") + argv[i] +
                  "; there are --epochs, --data and --data-dir");
  }
  const Dataset data = load_dataset(name, {.dir = dir});
  const Images train = upload(data.train), test = upload(data.test);
  Params params = init_params({data.train.rows * data.train.cols, 1024, 1024, 10}, random::key(0));

  const auto step = jit(
      [](Params p, Images set, Array order, Array start, int64_t size) {
        const Batch batch = gather(set, dynamic_slice(order, {start}, {size}));
        const Params g = grad(loss)(p, batch);
        return tree_map([](Array w, Array dw) { return w - 0.001f * dw; }, p, g);
      },
      {.donate = {0}});
  const auto correct = jit([](Params p, Images set, Array start, int64_t size) {
    const Batch batch = gather(set, start + arange(size));
    return sum(argmax(predict(p, batch.image), 1) == argmax(batch.label, 1));
  });
  auto accuracy = [&](const Images& set) {
    int64_t right = 0, n = set.labels.size();
    for (int64_t at = 0; at < n; at += 1000)
      right += correct(params, set, at, std::min<int64_t>(1000, n - at)).item<int64_t>();
    return static_cast<double>(right) / static_cast<double>(n);
  };
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    const Array order = random::permutation(random::fold_in(random::key(1), epoch), data.train.count);
    for (int64_t at = 0; at < data.train.count; at += 128)
      params = step(params, train, order, at, std::min<int64_t>(128, data.train.count - at));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("Epoch %d in %.2f sec\nTraining set accuracy %.6f\nTest set accuracy %.6f\n", epoch, seconds.count(),
                accuracy(train), accuracy(test));
    std::fflush(stdout);
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
