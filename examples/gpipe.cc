// Pipeline parallelism by ppermute: every device holds one layer. Microbatches enter at the first device, move on by one
// device a round, and leave at the last. The gradient runs the same pipeline backwards.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

constexpr int64_t kStages = 4, kMicrobatches = 8, kRows = 16, kWidth = 32;

struct Layer {
  Array w, b;  // of one stage; stacked: a leading axis of stages
};

Array apply(const Layer& layer, const Array& x) { return tanh(dot(x, layer.w) + layer.b); }

// Per device: `layers` holds this stage's layer. x (microbatches, rows, width) is the same on every device.
Array pipeline(const Layer& layers, const Array& x) {
  const Layer own = tree_map([](Array a) { return squeeze(a, 0); }, layers);
  const Array stage = axis_index("stage");
  std::vector<std::pair<int64_t, int64_t>> next;
  for (int64_t s = 0; s + 1 < kStages; ++s) next.emplace_back(s, s + 1);

  const auto round = [&](Array arrived, Array t) {
    const Array fresh = dynamic_slice(x, {minimum(t, kMicrobatches - 1), 0, 0}, {1, kRows, kWidth});
    const Array y = apply(own, where(stage == 0, squeeze(fresh, 0), arrived));
    return std::pair{ppermute(y, "stage", next), y};
  };
  const auto [last, all] = scan(round, zeros({kRows, kWidth}), arange(kMicrobatches + kStages - 1));
  // What the last stage computed from round stages - 1 on; the sum brings it to every device.
  const Array results = slice(all, {kStages - 1, 0, 0}, {kMicrobatches + kStages - 1, kRows, kWidth});
  return psum(where(stage == kStages - 1, results, 0), "stage");
}

int main() {
  set_cpu_devices(kStages);
  const Mesh mesh = make_mesh({{"stage", kStages}});
  const auto keys = unstack(random::split(random::key(0), 3));
  const Layer layers = {random::normal(keys[0], {kStages, kWidth, kWidth}) / 6, zeros({kStages, kWidth})};
  const Array x = random::normal(keys[1], {kMicrobatches, kRows, kWidth});
  const Array target = random::normal(keys[2], {kMicrobatches, kRows, kWidth});

  const auto piped = shard_map(pipeline, {.mesh = mesh, .in_specs = {P("stage"), P()}, .out_specs = {P()}});
  const auto in_turn = [](Layer all, Array in) {
    for (int64_t s = 0; s < kStages; ++s) in = apply(tree_map([s](Array a) { return at(a, s); }, all), in);
    return in;
  };
  const auto loss_of = [&](auto f) { return [&, f](Layer all) { return mean(square(f(all, x) - target)); }; };

  const auto [loss, slopes] = jit(value_and_grad(loss_of(piped)))(layers);
  const auto [wanted, wanted_slopes] = jit(value_and_grad(loss_of(in_turn)))(layers);
  std::printf("%lld stages, %lld microbatches: loss %.6f (one device: %.6f), gradients differ by %.1e\n",
              static_cast<long long>(kStages), static_cast<long long>(kMicrobatches), loss.item<double>(),
              wanted.item<double>(), max(abs(slopes.w - wanted_slopes.w)).item<double>());
}
