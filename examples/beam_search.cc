// Beam search with a cache of keys and values. A while_loop ends it as soon as all beams have ended. The model is one
// layer of attention with random weights.
#include <lockstep/lockstep.h>

#include <cstdio>

#include "flags.h"

using namespace lockstep;

constexpr int64_t kVocabulary = 12, kWidth = 16, kLength = 32, kEnd = 0;  // kEnd: the token that ends a text

struct Model {
  Array embedding, positions, q, k, v, out;
};

// A beam: its tokens so far, the logarithm of their probability, and the keys and values of their positions.
struct Beam {
  Array tokens, score, ended, keys, values;
};

// The logarithms of the probabilities of the token after position t, and the beam with its keys and values.
std::pair<Array, Beam> next_token(const Model& m, const Beam& beam, const Array& t) {
  Beam out = beam;
  const Array x = take(m.embedding, at(beam.tokens, t)) + at(m.positions, t);
  out.keys = dynamic_update_slice(beam.keys, expand_dims(dot(x, m.k), 0), {t, 0});
  out.values = dynamic_update_slice(beam.values, expand_dims(dot(x, m.v), 0), {t, 0});
  const Array scores = where(arange(kLength) <= t, dot(out.keys, dot(x, m.q)) * 0.25f, -1e9f);
  return {log_softmax(dot(x + dot(softmax(scores), out.values), m.out)), out};
}

std::pair<Array, Beam> search(const Model& m, const Array& first, int64_t beams) {
  struct State {
    Array t;
    Beam beams;
  };
  const auto step = [&](State s) {
    const auto one = [&m](Beam beam, Array t) { return next_token(m, beam, t); };
    auto [log_p, next] = vmap(one, {.in_axes = {0, std::nullopt}})(s.beams, s.t);
    const Array stay = log(one_hot(full({}, kEnd), kVocabulary));  // a beam that has ended stays as it is
    const Array total = expand_dims(next.score, 1) + where(expand_dims(next.ended, 1), stay, log_p);
    const auto [score, best] = top_k(reshape(total, {-1}), beams);  // of beams x tokens
    const Array token = best % kVocabulary;
    next = tree_map([parent = floor_divide(best, kVocabulary)](const Array& a) { return take(a, parent); }, next);
    next.tokens = where(arange(kLength) == s.t + 1, expand_dims(token, 1), next.tokens);
    next.score = score;
    next.ended = token == kEnd;
    return State{s.t + 1, next};
  };
  const auto more = [](State s) { return logical_and(s.t < kLength - 1, logical_not(all(s.beams.ended))); };
  // All beams begin with the same token; only the first one counts.
  const Array start = where(arange(kLength) == 0, first, 0) + zeros({beams, 1}, i32);
  const Array cache = zeros({beams, kLength, kWidth});
  const Beam init{start, where(arange(beams) == 0, 0.f, -1e9f), full({beams}, false), cache, cache};
  const State last = while_loop(more, step, State{0, init});
  return {last.t, last.beams};
}

int main(int argc, char** argv) try {
  const Flags flags(argc, argv, {{"beams", "4"}, {"seed", "1"}});
  std::vector<Array> keys = unstack(random::split(random::key(static_cast<uint64_t>(flags.integer("seed"))), 6));
  const auto weights = [&](int i, const Shape& shape) { return random::normal(keys[static_cast<size_t>(i)], shape); };
  const Shape square_shape{kWidth, kWidth};
  const Model m{weights(0, {kVocabulary, kWidth}), weights(1, {kLength, kWidth}), 0.3f * weights(2, square_shape),
                0.3f * weights(3, square_shape), 0.3f * weights(4, square_shape), 0.3f * weights(5, {kWidth, kVocabulary})};
  const auto run = jit([](Model model, Array first, int64_t beams) { return search(model, first, beams); });
  const auto [rounds, found] = run(m, 3, flags.integer("beams"));
  std::printf("rounds %d, log probability %.4f, tokens", rounds.item<int>(), at(found.score, 0).item<double>());
  for (int token : at(found.tokens, 0).to_vector<int>()) std::printf(" %d", token);
  std::printf("\n");
} catch (const std::exception& e) {
  std::fprintf(stderr, "beam_search: %s\n", e.what());
  return 1;
}
