// A deep equilibrium layer: the output z is the fixed point z = layer(z). while_loop finds it, and its gradient comes
// from the implicit function theorem, without storing the iterations.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

struct Params {
  Array weights, bias;
};

Array layer(Params p, Array z) { return tanh(dot(p.weights, z) + p.bias); }

// Applies f until the result changes by less than 1e-6, but not more than 1000 times.
template <class F>
Array iterate(const F& f, const Array& start) {
  struct State {
    Array round, before, now;
  };
  const auto changes = [](State s) { return logical_and(s.round < 1000, max(abs(s.now - s.before)) > 1e-6f); };
  const auto step = [&f](State s) { return State{s.round + 1, s.now, f(s.now)}; };
  return while_loop(changes, step, State{0, start, f(start)}).now;
}

Array fixed_point(Params p) {
  return iterate([p](Array z) { return layer(p, z); }, zeros_like(p.bias));
}

// If z = layer(p, z), then dz = A dp + B dz with A = dlayer/dp and B = dlayer/dz, so dz = (1 - B)^-1 A dp. The
// gradient for a cotangent c of z is A^T u, where u = c + B^T u is a fixed point, too.
Params implicit_gradient(std::pair<Params, Array> kept, Array cotangent) {
  const auto& [p, z] = kept;
  const auto pullback = vjp(layer, p, z).second;
  const Array u = iterate([&](Array v) { return cotangent + std::get<1>(pullback(v)); }, cotangent);
  return std::get<0>(pullback(u));
}

Array loss(Params p) {
  const auto forward = [](Params q) {
    const Array z = fixed_point(q);
    return std::pair{z, std::pair{q, z}};  // the result, and what the gradient needs
  };
  return sum(square(custom_vjp(fixed_point, forward, implicit_gradient)(p) - 0.5f));
}

// The same with 200 iterations, differentiated through each of them.
Array unrolled_loss(Params p) {
  const auto step = [p](Array, Array z) { return layer(p, z); };
  return sum(square(fori_loop(0, 200, step, zeros_like(p.bias)) - 0.5f));
}

int main() {
  const auto [kw, kb] = random::split<2>(random::key(0));
  Params p{0.1f * random::normal(kw, {8, 8}), random::normal(kb, {8})};
  const Params implicit = jit(grad(loss))(p), unrolled = jit(grad(unrolled_loss))(p);
  const Array difference = maximum(max(abs(implicit.weights - unrolled.weights)), max(abs(implicit.bias - unrolled.bias)));
  std::printf("largest difference from the unrolled gradient %.2g\n", difference.item<double>());

  const auto step = jit([](Params q) {
    return tree_map([](Array v, Array g) { return v - 0.02f * g; }, q, grad(loss)(q));
  });
  std::printf("loss %.4f", loss(p).item<double>());
  for (int i = 0; i < 100; ++i) p = step(p);
  std::printf(", after 100 steps %.4f\n", loss(p).item<double>());
}
