// References and samples of attention.
#include "ops/attention.h"

#include <limits>

#include "rows/rows.h"

namespace lockstep {
namespace {

// The weights of attention, one query at a time.
class PlainAttention {
 public:
  PlainAttention(const RefArrays& in, const AttentionAttrs& attrs) : in_(in), a(attrs), n(types(in)) {}

  int64_t key_head(int64_t h) const { return h / (n.h / n.g); }
  // Elements of an array [b, tokens, heads, features].
  template <class Array>
  static auto elements(Array& x, int64_t b, int64_t token, int64_t head) {
    const Shape& shape = x.shape();
    return x.data.data() + ((b * shape[1] + token) * shape[2] + head) * shape[3];
  }
  const Real* row(int operand, int64_t b, int64_t token, int64_t head) const {
    return elements(in_[static_cast<size_t>(operand)], b, token, head);
  }

  // Calls f(j, score, factor of the dropout) for the keys that a query sees.
  template <class F>
  void for_keys(int64_t b, int64_t h, int64_t i, F&& f) const {
    for (int64_t j = 0; j < n.s; ++j)
      if (sees(b, i, j)) f(j, score(b, h, i, j), dropout_factor(b, h, i, j));
  }
  template <class F>
  void for_queries(F&& f) const {
    for_each_index({n.b, n.h, n.t}, [&](const Dims& at, int64_t) { f(at[0], at[1], at[2]); });
  }

 private:
  static std::vector<Type> types(const RefArrays& in) {
    std::vector<Type> out;
    for (const RefArray& x : in) out.push_back(x.type);
    return out;
  }
  int64_t integer(int operand, int64_t at) const {
    return static_cast<int64_t>(in_[static_cast<size_t>(operand)].data[static_cast<size_t>(at)]);
  }
  bool sees(int64_t b, int64_t i, int64_t j) const {
    const int64_t position = i + a.first[2] + (a.offset >= 0 ? integer(a.offset, 0) : 0);
    if (a.causal && j > position) return false;
    if (a.window > 0 && j <= position - a.window) return false;
    if (a.lengths >= 0 && j >= integer(a.lengths, b)) return false;
    return a.query_segments < 0 || integer(a.query_segments, b * n.t + i) == integer(a.key_segments, b * n.s + j);
  }
  Real score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const Real *q = row(0, b, i, h), *k = row(1, b, j, key_head(h));
    Real sum = 0;
    for (int64_t e = 0; e < n.e; ++e) sum += q[e] * k[e];
    sum *= a.scale;
    return a.softcap > 0 ? a.softcap * std::tanh(sum / a.softcap) : sum;
  }
  Real dropout_factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (a.dropout == 0) return 1;
    const auto word = [](int64_t x) { return static_cast<uint32_t>(x); };
    const auto [k0, k1] = threefry_block(word(integer(a.dropout_key, 0)), word(integer(a.dropout_key, 1)),
                                         word(b + a.first[0]), word(h + a.first[1]));
    const auto [w0, w1] = threefry_block(k0, k1, word(i + a.first[2]), word(j / 4));
    const uint32_t number = ((j % 4 < 2 ? w0 : w1) >> (j % 2 * 16)) & 0xffff;
    return number >= std::lround(a.dropout * 65536) ? 1 / (1 - Real{a.dropout}) : 0;
  }

  const RefArrays& in_;

 public:
  const AttentionAttrs a;
  const AttentionSizes n;
};

void attention_reference(const RefArrays& in, const Attrs& attrs, RefArrays& out) {
  const PlainAttention p(in, attention_attrs(attrs, false));
  p.for_queries([&](int64_t b, int64_t h, int64_t i) {
    Real most = -std::numeric_limits<Real>::infinity(), sum = 0;
    p.for_keys(b, h, i, [&](int64_t, Real score, Real) { most = std::max(most, score); });
    Real* const y = PlainAttention::elements(out[0], b, i, h);
    p.for_keys(b, h, i, [&](int64_t j, Real score, Real factor) {
      const Real weight = std::exp(score - most), *v = p.row(2, b, j, p.key_head(h));
      sum += weight;
      for (int64_t f = 0; f < p.n.f; ++f) y[f] += weight * factor * v[f];
    });
    for (int64_t f = 0; f < p.n.f && sum > 0; ++f) y[f] /= sum;
    out[1].at({b, h, i}) = sum > 0 ? most + std::log(sum) : most;
  });
}

void attention_grad_reference(const RefArrays& in, const Attrs& attrs, RefArrays& out) {
  const PlainAttention p(in, attention_attrs(attrs, true));
  p.for_queries([&](int64_t b, int64_t h, int64_t i) {
    const Real *q = p.row(0, b, i, h), *y = p.row(3, b, i, h), *dy = p.row(5, b, i, h), lse = in[4].at({b, h, i});
    Real delta = p.a.dlse >= 0 ? -in[static_cast<size_t>(p.a.dlse)].at({b, h, i}) : 0;
    for (int64_t f = 0; f < p.n.f; ++f) delta += dy[f] * y[f];
    p.for_keys(b, h, i, [&](int64_t j, Real score, Real factor) {
      const int64_t g = p.key_head(h);
      const Real *k = p.row(1, b, j, g), *v = p.row(2, b, j, g), weight = std::exp(score - lse);
      Real *dq = PlainAttention::elements(out[0], b, i, h), *dk = PlainAttention::elements(out[1], b, j, g),
           *dv = PlainAttention::elements(out[2], b, j, g), dweight = 0;
      for (int64_t f = 0; f < p.n.f; ++f) {
        dweight += factor * dy[f] * v[f];
        dv[f] += weight * factor * dy[f];
      }
      Real dscore = weight * (dweight - delta) * p.a.scale;
      if (p.a.softcap > 0) dscore *= 1 - score * score / (Real{p.a.softcap} * p.a.softcap);
      for (int64_t e = 0; e < p.n.e; ++e) {
        dq[e] += dscore * k[e];
        dk[e] += dscore * q[e];
      }
    });
  });
}

// b, t, h, e, s, g, f as in AttentionSizes.
struct AttentionCase {
  DType dtype;
  int64_t b, t, h, e, s, g, f;
  AttentionAttrs attrs = {};
  std::string extras = "";
};

std::vector<AttentionCase> attention_cases() {
  const AttentionAttrs causal{.causal = true, .scale = 0.5}, window{.causal = true, .window = 3, .scale = 0.4};
  return {
      {f32, 2, 3, 2, 4, 5, 2, 3},
      {f64, 1, 5, 2, 3, 5, 2, 3, causal},
      {f32, 2, 4, 6, 2, 6, 2, 5, window, "offset"},
      {f32, 3, 4, 2, 3, 6, 1, 3, {.scale = 0.3}, "lengths"},
      {f64, 2, 5, 4, 2, 6, 2, 2, {.window = 2}, "segments"},
      {f32, 1, 6, 3, 4, 6, 3, 4, {.causal = true, .scale = 0.5, .softcap = 2}},
      {f32, 2, 3, 4, 3, 4, 2, 2, {.causal = true, .scale = 0.5, .softcap = 3}, "offset,lengths,segments"},
      {bf16, 2, 4, 2, 3, 5, 1, 2, causal},
      {f16, 1, 5, 2, 4, 4, 2, 4},
      {f32, 1, 2, 2, 3, 0, 1, 3},
      {f32, 0, 2, 2, 3, 4, 2, 3, causal, "lengths"},
      {f32, 2, 0, 2, 3, 4, 2, 3},
      // Extents that divide by 2, 3 and 4.
      {f32, 12, 2, 12, 1, 2, 12, 1},
      {f32, 2, 12, 2, 1, 2, 2, 1},
      {f32, 12, 2, 12, 2, 2, 12, 2},
      {f32, 2, 12, 2, 2, 2, 2, 2},
      {f32, 12, 2, 24, 1, 3, 12, 1, causal, "offset"},
      {f32, 12, 2, 12, 1, 2, 12, 1, {}, "lengths"},
      {f32, 2, 12, 2, 1, 2, 2, 1, {}, "lengths"},
      {f32, 12, 2, 12, 1, 2, 12, 1, {}, "segments"},
      {f32, 2, 12, 2, 1, 2, 2, 1, {}, "segments"},
      {f32, 12, 2, 12, 1, 3, 12, 1, window, "offset,lengths,segments"},
      // More than a batch of examples could have, because those would not have the dropout of the examples alone.
      {f32, 4, 13, 8, 5, 6, 4, 3, {.causal = true, .dropout = 0.3}, "dropout_key"},
      {bf16, 3, 11, 8, 8, 9, 8, 5, {.dropout = 0.5}, "lengths,dropout_key"},
      // Several tiles.
      {f32, 1, 129, 2, 32, 129, 1, 32, {.causal = true, .scale = 0.2}},
      {f32, 2, 17, 4, 80, 600, 2, 64, {.window = 100, .scale = 0.1}, "lengths"},
      {f64, 1, 70, 1, 5, 530, 1, 3, {.softcap = 5}, "segments"},
      {bf16, 1, 1000, 1, 64, 1000, 1, 64, {.causal = true, .scale = 0.1}},
      {f16, 1, 150, 2, 128, 300, 1, 128, {.scale = 0.1, .dropout = 0.1}, "dropout_key"},
      {f32, 1, 1, 8, 256, 300, 2, 256, {.causal = true, .scale = 0.0625}, "offset"},
  };
}

Sample attention_sample(const AttentionCase& c, bool gradient) {
  const DType sums = c.dtype == f64 ? f64 : f32;
  Sample out{{{{c.dtype, {c.b, c.t, c.h, c.e}}}, {{c.dtype, {c.b, c.s, c.g, c.e}}}, {{c.dtype, {c.b, c.s, c.g, c.f}}}}};
  const auto add = [&](Type type, Domain domain = {}) { out.in.push_back({std::move(type), domain}); };
  std::string extras = c.extras;
  if (gradient) {
    add({c.dtype, {c.b, c.t, c.h, c.f}});
    add({sums, {c.b, c.h, c.t}}, {Domain::real, 1, 3});
    add({c.dtype, {c.b, c.t, c.h, c.f}});
    if (extras.empty() && c.e % 2 == 1) {
      add({sums, {c.b, c.h, c.t}});
      extras = "dlse";
    }
  }
  const auto has = [&](const char* extra) { return extras.find(extra) != std::string::npos; };
  const auto keys = static_cast<double>(c.s);
  if (has("offset")) add({i32, {}}, {Domain::real, 1, keys / 2});
  if (has("lengths")) add({i32, {c.b}}, {Domain::real, 0, keys});
  if (has("segments")) add({i32, {c.b, c.t}}, {Domain::ties}), add({i32, {c.b, c.s}}, {Domain::ties});
  if (has("dropout_key")) add({u32, {2}}, {Domain::real, 0, 4294967295.0});
  out.attrs = {{"causal", c.attrs.causal},
               {"window", c.attrs.window},
               {"scale", c.attrs.scale},
               {"softcap", c.attrs.softcap},
               {"dropout", c.attrs.dropout},
               {"first", Dims(c.attrs.first.begin(), c.attrs.first.end())},
               {"extras", extras}};
  return out;
}

}  // namespace

void add_attention_rows(std::vector<Row>& out) {
  Row forward{&attention_op, attention_reference, {}}, backward{&attention_grad_op, attention_grad_reference, {}};
  for (const AttentionCase& c : attention_cases()) {
    forward.samples.push_back(attention_sample(c, false));
    // Every choice of operands is batched, so there must not be too many.
    if (c.extras != "offset,lengths,segments") backward.samples.push_back(attention_sample(c, true));
  }
  out.push_back(std::move(forward));
  out.push_back(std::move(backward));
}

}  // namespace lockstep
