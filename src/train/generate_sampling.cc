#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/generate.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

// The index of a draw from softmax(scores) in each row, by the Gumbel-max method. The noise of a row does not depend on
// the number of rows: random numbers are functions of the position in the array.
Array draw_columns(const Array& key, const Array& scores) {
  return argmax(random::gumbel(key, scores.shape()) + scores, 1);
}

// Replaces the scores of tokens outside the nucleus by -inf. `sorted` is in descending order. A token belongs to it if
// the ones before it have a probability below top_p.
Array keep_nucleus(const Array& sorted, double top_p) {
  const Array probability = softmax(sorted, 1);
  const Array before = cumsum(probability, 1) - probability;
  // The first token always stays: `before` may be rounded to a value above 0 for it.
  const Array first = arange(sorted.shape(1)) == 0;
  const Array kept = logical_or(before < static_cast<float>(top_p), first);
  return where(kept, sorted, -std::numeric_limits<float>::infinity());
}

}  // namespace

void check(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    throw_error("generate: the temperature is {}; give a number of at least 0", sampling.temperature);
  if (sampling.top_k < 0) throw_error("generate: top_k is {}; give at least 1, or 0 for all tokens", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    throw_error("generate: top_p is {}; give a number above 0 and up to 1", sampling.top_p);
}

Array sample_tokens(const Operand& logits, const Operand& key, const Sampling& sampling) {
  check(sampling);
  if (logits.rank() != 2 || logits.shape(1) == 0)
    throw_error("sample_tokens: the logits are {}; give [samples, vocabulary]", to_string(logits.type()));
  const Array scores = astype(logits, f32);
  const Array finite = all(isfinite(scores), 1);
  const int64_t vocabulary = logits.shape(1);
  const int64_t k = sampling.top_k > 0 ? std::min(sampling.top_k, vocabulary) : vocabulary;
  Array token;
  if (sampling.temperature == 0 || k == 1) {
    token = argmax(scores, 1);
  } else {
    // Subtracting the maximum first keeps the quotient finite for any temperature.
    const Array scaled =
        (scores - max(scores, 1, {.keepdims = true})) / std::max(static_cast<float>(sampling.temperature), 1e-30f);
    if (k == vocabulary && sampling.top_p == 1) {
      token = draw_columns(key, scaled);
    } else {
      auto [sorted, ids] = top_k(scaled, k);
      if (sampling.top_p < 1) sorted = keep_nucleus(sorted, sampling.top_p);
      const Array column = draw_columns(key, sorted);
      token = squeeze(take_along_axis(ids, expand_dims(column, 1), 1), 1);
    }
  }
  return where(finite, token, -1);
}

}  // namespace lockstep
