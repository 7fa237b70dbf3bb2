// A mixture of experts over devices: every device holds one expert and some of the tokens. all_to_all sends each token to
// the expert that its router chose, and brings the result back.
#include <lockstep/lockstep.h>

#include <cstdio>

using namespace lockstep;

constexpr int64_t kExperts = 8, kTokens = 16, kWidth = 32, kCapacity = 8;  // tokens of a device, and places for them per expert

struct Layer {
  Array router;    // (width, experts), the same on every device
  Array up, down;  // (experts, width, 4 width) and back: one expert a device
};

// The tokens' places: dispatch (tokens, experts, capacity) is 1 where a token goes. What does not fit is dropped.
Array places(const Array& chosen) {
  const Array to = one_hot(chosen, kExperts);  // (tokens, experts)
  const Array place = sum(to * (cumsum(to, 0) - 1), 1);
  return einsum("te,tc->tec", to, one_hot(astype(place, i32), kCapacity));
}

// Per device: x (tokens, width).
Array mixture(const Layer& layer, const Array& x) {
  const Array probability = softmax(dot(x, layer.router), -1);
  const auto [weight, choice] = top_k(probability, 1);
  const Array dispatch = places(squeeze(choice, -1));
  const Array sent = all_to_all(einsum("tec,td->ecd", dispatch, x), "expert", 0, 0, true);  // from every device: (devices, capacity, width)
  const Array hidden = relu(dot(reshape(sent, {-1, kWidth}), squeeze(layer.up, 0)));
  const Array done = reshape(dot(hidden, squeeze(layer.down, 0)), {kExperts, kCapacity, kWidth});
  const Array back = all_to_all(done, "expert", 0, 0, true);
  return x + weight * einsum("tec,ecd->td", dispatch, back);
}

// The same by computing every expert for every token, for a batch that fits everywhere.
Array all_experts(const Layer& layer, const Array& x) {
  const Array probability = softmax(dot(x, layer.router), -1);
  const Array best = one_hot(argmax(probability, -1), kExperts) * probability;
  const Array hidden = relu(einsum("td,edf->tef", x, layer.up));
  return x + einsum("te,tef,efd->td", {best, hidden, layer.down});
}

int main() {
  set_cpu_devices(kExperts);
  const Mesh mesh = make_mesh({{"expert", kExperts}});
  const auto keys = unstack(random::split(random::key(0), 4));
  Layer layer = {random::normal(keys[0], {kWidth, kExperts}) / 2, random::normal(keys[1], {kExperts, kWidth, 4 * kWidth}) / 6,
                 random::normal(keys[2], {kExperts, 4 * kWidth, kWidth}) / 11};
  const Array x = random::normal(keys[3], {kExperts * kTokens, kWidth});

  const auto routed = shard_map(
      [](Array router, Array up, Array down, Array tokens) { return mixture({router, up, down}, tokens); },
      {.mesh = mesh, .in_specs = {P(), P("expert"), P("expert"), P("expert")}, .out_specs = {P("expert")}});
  const auto loss = [&](auto f) { return [&, f](Layer l) { return mean(square(f(l) - 1)); }; };
  const auto by_routing = loss([&](Layer l) { return routed(l.router, l.up, l.down, x); });
  const auto by_all = loss([&](Layer l) { return all_experts(l, x); });

  const auto [value, g] = jit(value_and_grad(by_routing))(layer);
  const auto [wanted, h] = jit(value_and_grad(by_all))(layer);
  std::printf("%lld experts: loss %.6f (all experts: %.6f), gradients differ by %.1e\n", static_cast<long long>(kExperts),
              value.item<double>(), wanted.item<double>(),
              maximum(max(abs(g.router - h.router)), max(abs(g.up - h.up))).item<double>());
}
