// A recurrent network by scan: a GRU reads a sequence of symbols, then writes it again from memory.
#include <lockstep/lockstep.h>
#include <lockstep/initializers.h>
#include <lockstep/losses.h>

#include <cstdio>

using namespace lockstep;

constexpr int64_t kSymbols = 8, kLength = 6, kUnits = 64, kBatch = 64;

struct Gru {
  Array update, reset, candidate;  // each (symbols + 1 + units, units)
};
struct Net {
  Gru gru;
  Array out;  // (units, symbols)
};
struct Moments {
  Net mean, square;
};

Array cell(const Gru& gru, const Array& h, const Array& x) {
  const Array z = sigmoid(dot(concatenate({x, h}, 1), gru.update));
  const Array r = sigmoid(dot(concatenate({x, h}, 1), gru.reset));
  return (1 - z) * h + z * tanh(dot(concatenate({x, r * h}, 1), gru.candidate));
}

// Logits (length, batch, symbols) of the second half, when the input is only a marker.
Array logits(const Net& net, const Array& symbols) {  // (length, batch)
  const Array shown = one_hot(symbols, kSymbols + 1), marker = one_hot(full({kLength, kBatch}, kSymbols, i32), kSymbols + 1);
  const auto step = [&](Array h, Array x) {
    const Array next = cell(net.gru, h, x);
    return std::pair{next, next};
  };
  const auto [last, hidden] = scan(step, zeros({kBatch, kUnits}), concatenate({shown, marker}, 0));
  return dot(slice(hidden, {kLength, 0, 0}, {2 * kLength, kBatch, kUnits}), net.out);
}

Array loss(const Net& net, const Array& symbols) { return mean(softmax_cross_entropy(logits(net, symbols), symbols)); }

int main() {
  const auto keys = unstack(random::split(random::key(0), 5));
  const Shape gate = {kSymbols + 1 + kUnits, kUnits};
  Net net = {{initializers::glorot_normal(keys[0], gate), initializers::glorot_normal(keys[1], gate),
              initializers::glorot_normal(keys[2], gate)},
             initializers::glorot_normal(keys[3], {kUnits, kSymbols})};
  Moments adam = {tree_map([](Array w) { return zeros_like(w); }, net), tree_map([](Array w) { return zeros_like(w); }, net)};

  const auto step = jit([](Net w, Moments m, Array key, Array t) {
    const Array symbols = random::randint(random::fold_in(key, astype(t, u32)), {kLength, kBatch}, 0, kSymbols);
    const auto [value, g] = value_and_grad(loss)(w, symbols);
    m.mean = tree_map([](Array a, Array d) { return 0.9f * a + 0.1f * d; }, m.mean, g);
    m.square = tree_map([](Array a, Array d) { return 0.999f * a + 0.001f * d * d; }, m.square, g);
    const Array rate = 0.005f * sqrt(1 - pow(Array(0.999f), t)) / (1 - pow(Array(0.9f), t));
    w = tree_map([&](Array p, Array a, Array b) { return p - rate * a / (sqrt(b) + 1e-8f); }, w, m.mean, m.square);
    return std::tuple{w, m, value};
  }, {.donate = {0, 1}});

  for (int t = 1; t <= 1000; ++t) {
    auto [next, moments, value] = step(std::move(net), std::move(adam), keys[4], static_cast<float>(t));
    net = std::move(next), adam = std::move(moments);
    if (t == 1 || t % 200 == 0) std::printf("step %d: loss %.4f\n", t, value.item<float>());
  }
  const Array symbols = random::randint(random::key(7), {kLength, kBatch}, 0, kSymbols);
  const Array right = mean(argmax(logits(net, symbols), -1) == symbols);
  std::printf("accuracy %.3f\n", right.item<float>());
}
