// Ring attention: a sequence is cut over devices. Keys and values travel around the ring, and no device ever holds the
// scores of more than two pieces.
#include <lockstep/attention.h>
#include <lockstep/lockstep.h>

#include <cmath>
#include <cstdio>

using namespace lockstep;

constexpr int64_t kDevices = 4, kBatch = 2, kLength = 64, kHeads = 2, kWidth = 16, kPiece = kLength / kDevices;

struct Partial {
  Array sum, weight, highest;  // of the softmax so far: (b, t, h, d), (b, h, t), (b, h, t)
};

// Adds one piece of keys and values to the softmax of the queries, numerically safe.
Partial attend(const Partial& p, const Array& q, const Array& k, const Array& v, const Array& allowed) {
  const Array scores = where(allowed, einsum("bthd,bshd->bhts", q, k) / std::sqrt(static_cast<float>(kWidth)), -1e30f);
  const Array highest = maximum(p.highest, max(scores, -1)), old = exp(p.highest - highest);
  const Array weights = where(allowed, exp(scores - expand_dims(highest, -1)), 0);
  const auto per_query = [](const Array& a) { return expand_dims(swapaxes(a, 1, 2), -1); };  // (b, h, t) to (b, t, h, 1)
  return {p.sum * per_query(old) + einsum("bhts,bshd->bthd", weights, v), p.weight * old + sum(weights, -1), highest};
}

// Per device: q, k and v are pieces of the sequence.
Array ring_attention(const Array& q, const Array& k, const Array& v) {
  const Array own = axis_index("seq");
  const auto round = [&](std::tuple<Partial, Array, Array> carry, Array turn) {
    auto [partial, keys, values] = carry;
    const Array from = (own - turn) % kDevices;  // the device that these keys come from
    const Array row = own * kPiece + expand_dims(arange(kPiece), 1), column = from * kPiece + arange(kPiece);
    partial = attend(partial, q, keys, values, row >= column);
    std::vector<std::pair<int64_t, int64_t>> ring;
    for (int64_t d = 0; d < kDevices; ++d) ring.emplace_back(d, (d + 1) % kDevices);
    return std::pair{std::tuple{partial, ppermute(keys, "seq", ring), ppermute(values, "seq", ring)}, Nothing{}};
  };
  const Shape rows = {kBatch, kHeads, kPiece};
  const Partial nothing = {zeros_like(q), zeros(rows), full(rows, -1e30f)};
  const auto [end, none] = scan(round, std::tuple{nothing, k, v}, arange(kDevices));
  const Partial& done = std::get<0>(end);
  return done.sum / expand_dims(swapaxes(done.weight, 1, 2), -1);
}

int main() {
  set_cpu_devices(kDevices);
  const Mesh mesh = make_mesh({{"seq", kDevices}});
  const auto keys = unstack(random::split(random::key(0), 3));
  const Shape shape = {kBatch, kLength, kHeads, kWidth};
  const Array q = random::normal(keys[0], shape), k = random::normal(keys[1], shape), v = random::normal(keys[2], shape);

  const PartitionSpec cut = P({}, "seq");
  const auto ring = shard_map(ring_attention, {.mesh = mesh, .in_specs = {cut, cut, cut}, .out_specs = {cut}});
  const auto whole = [](Array a, Array b, Array c) { return dot_product_attention(a, b, c, {.causal = true}).first; };
  const auto squares = [](auto f) { return [f](Array a, Array b, Array c) { return sum(square(f(a, b, c))); }; };

  const Array difference = max(abs(jit(ring)(q, k, v) - whole(q, k, v)));
  const auto [dq, dk, dv] = jit(grad<0, 1, 2>(squares(ring)))(q, k, v);
  const auto [eq, ek, ev] = jit(grad<0, 1, 2>(squares(whole)))(q, k, v);
  const Array slopes = maximum(max(abs(dq - eq)), maximum(max(abs(dk - ek)), max(abs(dv - ev))));
  std::printf("%lld devices, %lld tokens: attention differs by %.1e, gradients by %.1e\n", static_cast<long long>(kDevices),
              static_cast<long long>(kLength), difference.item<double>(), slopes.item<double>());
}
