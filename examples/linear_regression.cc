// Linear regression: fits a line to noisy points by gradient descent.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

struct Line {
  Array weight, bias;
};

Array loss(Line line, Array x, Array y) { return mean(square(line.weight * x + line.bias - y)); }

Line update(Line line, Array x, Array y) {
  return tree_map([](Array p, Array g) { return p - 0.5f * g; }, line, grad(loss)(line, x, y));
}

int main() {
  const auto [points, noise] = random::split<2>(random::key(0));
  const Array x = random::uniform(points, {1000}, -1, 1);
  const Array y = 3 * x + 2 + 0.1f * random::normal(noise, {1000});

  const auto step = jit(update, {.donate = {0}});
  Line line = {0.f, 0.f};
  for (int i = 0; i < 100; ++i) line = step(line, x, y);
  std::printf("weight %.3f (truth 3), bias %.3f (truth 2)\n", line.weight.item<float>(), line.bias.item<float>());
}
