// Using the trainer from your own program: a model as a plain struct, an Engine, checkpoints and a log.
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstdio>

#include "flags.h"

using namespace lockstep;

// The parameters of a model can be any tree of arrays.
struct Net {
  nn::Conv2d conv;
  nn::LayerNorm norm;
  nn::Dense hidden, out;
};

Net init_net(const Array& key) {
  const auto [a, b, c] = random::split<3>(key);
  return {nn::conv2d(a, 3, 1, 16), nn::layer_norm(16), nn::dense(b, 14 * 14 * 16, 64), nn::dense(c, 64, 10)};
}

// images [n, 28, 28] -> logits [n, 10].
Array predict(const Net& net, const Array& images, const nn::Mode& mode) {
  Array x = nn::apply(net.conv, reshape(images, {-1, 28, 28, 1}));
  x = max_pool(gelu(nn::apply(net.norm, x)));
  x = silu(nn::apply(net.hidden, nn::flatten(x)));
  return nn::apply(net.out, nn::dropout(mode, 0, x, 0.1));
}

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"steps", "400"}, {"devices", "8"}, {"data", "mnist"}, {"data-dir", ""}, {"dir", ""}});
  const int64_t steps = flags.integer("steps");
  set_cpu_devices(flags.integer("devices"));
  Dataset data = load_dataset(flags.text("data"), {.dir = flags.text("data-dir")});

  Engine engine(make_model("net", init_net, predict),
                {.optimizer = {.kind = Optimizer::Kind::adamw,
                               .schedule = {.kind = Schedule::Kind::warmup_cosine, .peak = 2e-3, .warmup_steps = 20,
                                            .total_steps = steps},
                               .weight_decay = 1e-2, .clip_norm = 1},
                 .checkpoint_dir = flags.text("dir"),
                 .loggers = {console_logger()}});
  std::printf("%s", engine.describe().c_str());

  Loader train(std::move(data.train), {.batch_size = 128, .seed = 1});
  const SourcePtr test = image_source(std::move(data.test));
  TrainState state = engine.restore_or_create(flags.text("dir").empty() ? "none" : "auto");
  const FitResult result = engine.fit(state, train, {.steps = steps, .eval_every = 200, .test = test});
  for (const auto& [name, value] : result.metrics)
    if (name == "test_accuracy") std::printf("test accuracy %.4f after %lld steps\n", value, (long long)state.step);
  return result.alarms.empty() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_engine: %s\n", error.what());
  return 1;
}
