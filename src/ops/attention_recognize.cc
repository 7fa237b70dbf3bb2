// Recognizes attention that is written with simpler rows:
//
//   scores  = einsum "bthe,bshe->bhts" q k      any letters in any order
//   masked  = select visible (scores * scale) -inf
//   weights = exp (masked - max masked) / sum
//   y       = einsum "bhts,bshf->bthf" weights v
//
// Letters as in AttentionSizes. A dimension of the weights is s, which the last product sums over; t, or another dimension
// of queries only, which queries that share a key have; or a batch dimension of q, k and v, the last of which is taken for
// the heads. The search goes from the last product to the first.
#include <cmath>

#include "ops/attention.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_array.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "program/definitions.h"

namespace lockstep {
namespace {

// Scores from here on down count as hidden: e^x is 0 if a visible score is only 200 higher. It includes the lowest
// number of f16.
constexpr double kHiddenScore = -30000;

bool has_letter(const std::string& term, char letter) { return term.find(letter) != std::string::npos; }

// The letters of `term` that are not in `other`.
std::string letters_without(const std::string& term, const std::string& other) {
  std::string out;
  for (const char letter : term)
    if (!has_letter(other, letter)) out += letter;
  return out;
}

// An einsum with its operands in the order that the names say.
struct NamedProduct {
  std::string left, right, out;
  ValueId left_id, right_id, out_id;

  NamedProduct(const Eqn& eqn, bool swapped) {
    const Rule rule = parse_rule(eqn.attrs.get<std::string>("spec"));
    left = rule.in[swapped], right = rule.in[!swapped], out = rule.out[0];
    left_id = eqn.in[swapped], right_id = eqn.in[!swapped], out_id = eqn.out[0];
  }
};

// Which keys a query sees: query i those from i - before to i + after.
class VisibleKeys {
 public:
  std::optional<double> before, after;

  // Adds that `condition` must be at least 0, for an array of this shape whose dimensions t and s are those of queries
  // and keys; t = -1: not known yet. Returns whether that can be expressed.
  bool add(const AffineArray& condition, const Shape& shape, int64_t& t, int64_t s) {
    double least = condition.constant;
    for (size_t d = 0; d < shape.size(); ++d)
      least += std::min(0.0, condition.steps[d] * static_cast<double>(shape[d] - 1));
    if (least >= 0) return true;
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto dim = static_cast<int64_t>(d);
      if (condition.steps[d] == 0 || dim == s || dim == t) continue;
      if (t >= 0) return false;
      t = dim;
    }
    if (t < 0) return false;
    const double query = condition.steps[static_cast<size_t>(t)], key = condition.steps[static_cast<size_t>(s)];
    if (query + key != 0 || std::abs(key) != 1) return false;
    std::optional<double>& limit = key < 0 ? after : before;
    limit = std::min(limit.value_or(condition.constant), condition.constant);
    return true;
  }

  // Sets the attributes. Returns whether they can express it and every query sees a key: the row gives queries without
  // keys 0, a softmax does not.
  bool write(AttentionAttrs& attrs, int64_t queries, int64_t keys) const {
    const auto first = static_cast<int64_t>(after.value_or(0));
    attrs.causal = after.has_value();
    attrs.first = {0, 0, first};
    if (first < 0) return false;
    if (!before) return true;
    attrs.window = first + static_cast<int64_t>(*before) + 1;
    return attrs.window > 0 && queries - 1 + first - attrs.window < keys - 1;
  }
};

class AttentionMatch {
 public:
  AttentionMatch(const Recognition& r, bool swapped) : r_(r), y_(r.eqn, swapped) {}

  Value run() {
    const std::string summed = letters_without(y_.left, y_.out), features = letters_without(y_.right, y_.left);
    if (summed.size() != 1 || features.size() != 1 || !has_letter(y_.right, summed[0])) return {};
    s_ = static_cast<int64_t>(y_.left.find(summed[0]));
    ValueId masked = 0;
    if (!read_softmax(y_.left_id, masked) || !read_scores(masked)) return {};
    if (!read_dimensions() || !r_.definitions.only_leads_to(scores_->out_id, y_.left_id)) return {};
    return write();
  }

 private:
  // ---- reading the program

  const Type& type(ValueId id) const { return r_.definitions.program().types[id]; }
  // The equation of this program that defines a value, if its row is `op`.
  const Eqn* definition(ValueId id, const Op& op) const {
    const Eqn* eqn = DefinedValue{&r_.definitions, id}.eqn();
    return eqn && eqn->op == &op ? eqn : nullptr;
  }
  DefinedValue value(ValueId id) const { return r_.definitions.value(id); }

  // The value before conversions between floating types.
  ValueId uncast(ValueId id) const {
    for (const Eqn* eqn = definition(id, cast_op); eqn && is_floating(type(eqn->in[0]).dtype);
         eqn = definition(id, cast_op))
      id = eqn->in[0];
    return id;
  }

  // Whether `id` is reduce[axes=[s]] of `of`, repeated along s.
  bool is_repeated_reduction(ValueId id, const Op& reduce, ValueId of) const {
    const Shape shape = type(of).shape;
    Dims at = counting(0, static_cast<int64_t>(shape.size()));  // by dimension of `id`: that of `shape`, or -1
    for (;;) {
      if (const Eqn* cast = definition(id, cast_op)) {
        if (!is_floating(type(cast->in[0]).dtype)) return false;
        id = cast->in[0];
      } else if (const Eqn* stop = definition(id, stop_gradient_op)) {
        id = stop->in[0];
      } else if (const Eqn* finite = definition(id, select_op)) {  // a maximum, or 0 if that is infinite
        const Eqn* test = definition(finite->in[0], is_finite_op);
        if (!test || test->in[0] != finite->in[1]) return false;
        id = finite->in[1];
      } else if (const Eqn* spread = definition(id, broadcast_op)) {
        Dims before;
        for (const int64_t d : spread->attrs.ints("dims")) before.push_back(at[static_cast<size_t>(d)]);
        at = std::move(before);
        id = spread->in[0];
      } else if (const Eqn* view = definition(id, reshape_op)) {
        if (!undo_reshape(type(view->in[0]).shape, type(id).shape, at)) return false;
        id = view->in[0];
      } else {
        break;
      }
    }
    const Eqn* eqn = definition(id, reduce);
    if (!eqn || eqn->attrs.ints("axes") != Dims{s_} || unstopped(eqn->in[0]) != of) return false;
    Dims kept = counting(0, static_cast<int64_t>(shape.size()));
    kept.erase(kept.begin() + s_);
    for (size_t i = 0; i < kept.size(); ++i)
      if (at[i] != kept[i] && shape[static_cast<size_t>(kept[i])] != 1) return false;
    return true;
  }
  ValueId unstopped(ValueId id) const {
    id = uncast(id);
    const Eqn* stop = definition(id, stop_gradient_op);
    return stop ? uncast(stop->in[0]) : id;
  }

  // `at` of the reshape's result to that of its operand, if only dimensions of extent 1 come or go.
  static bool undo_reshape(const Shape& from, const Shape& to, Dims& at) {
    Dims before(from.size(), -1);
    size_t j = 0;
    const auto skip_ones = [&] {
      while (j < to.size() && to[j] == 1) ++j;
    };
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == 1) continue;
      skip_ones();
      if (j == to.size() || to[j] != from[i]) return false;
      before[i] = at[j++];
    }
    skip_ones();
    at = std::move(before);
    return j == to.size();
  }

  // The weights: exp(x - max x) / sum.
  bool read_softmax(ValueId weights, ValueId& x) {
    weights = uncast(weights);
    while (const Eqn* view = definition(weights, reshape_op)) {
      if (!read_reshape(type(view->in[0]).shape, type(weights).shape)) return false;
      weights = uncast(view->in[0]);
    }
    const Eqn* quotient = definition(weights, div_op);
    if (!quotient) return false;
    const ValueId power = uncast(quotient->in[0]);
    const Eqn* exponential = definition(power, exp_op);
    if (!exponential || !is_repeated_reduction(quotient->in[1], reduce_sum_op, power)) return false;
    const Eqn* difference = definition(uncast(exponential->in[0]), sub_op);
    if (!difference) return false;
    x = uncast(difference->in[0]);
    return is_repeated_reduction(difference->in[1], reduce_max_op, x);
  }

  // From the operand of the softmax to the product of queries and keys.
  bool read_scores(ValueId x) {
    for (;;) {
      x = uncast(x);
      const Eqn* eqn = DefinedValue{&r_.definitions, x}.eqn();
      if (!eqn) return false;
      if (eqn->op == &einsum_op) {
        scores_.emplace(*eqn, false);
        if (has_letter(scores_->left, scores_->out[static_cast<size_t>(s_)])) scores_.emplace(*eqn, true);
        attrs_.scale = attrs_.softcap > 0 ? factor_ * attrs_.softcap : factor_;
        return std::isfinite(attrs_.scale);
      }
      const std::optional<size_t> next = read_step(*eqn);
      if (!next) return false;
      x = eqn->in[*next];
    }
  }

  // An equation between the product and the softmax. Returns the number of the operand that leads to the product.
  std::optional<size_t> read_step(const Eqn& eqn) {
    if (eqn.op == &select_op) return read_selection(eqn);
    if (eqn.op == &reshape_op) return read_reshape(type(eqn.in[0]).shape, type(eqn.out[0]).shape);
    if (eqn.op == &mul_op || eqn.op == &div_op) {
      for (const size_t i : {1, 0}) {
        const std::optional<double> constant = read_constant(value(eqn.in[i]));
        if (!constant || (i == 0 && eqn.op == &div_op)) continue;
        factor_ = eqn.op == &mul_op ? factor_ * *constant : factor_ / *constant;
        return 1 - i;
      }
    } else if (eqn.op == &add_op || eqn.op == &sub_op) {
      for (const size_t i : {1, 0})
        if ((i == 1 || eqn.op == &add_op) && read_bias(value(eqn.in[i]), eqn.op == &add_op ? 1 : -1)) return 1 - i;
    } else if (eqn.op == &tanh_op && attrs_.softcap == 0 && factor_ > 0 && std::isfinite(factor_)) {
      attrs_.softcap = factor_;
      factor_ = 1;
      return 0;
    }
    return {};
  }

  // Whether a score that was replaced by `score` here is hidden.
  bool hides(double score) const { return attrs_.softcap == 0 && score * factor_ <= kHiddenScore; }

  // select[visible, scores, hidden] or select[hidden, ...].
  std::optional<size_t> read_selection(const Eqn& eqn) {
    for (const size_t other : {2, 1}) {
      const std::optional<double> constant = read_constant(value(eqn.in[other]));
      if (!constant || !hides(*constant)) continue;
      const std::optional<ChoiceArray> mask = read_choice(value(eqn.in[0]));
      if (!mask || !add_mask(*mask, other == 2 ? 1 : 0)) return {};
      return 3 - other;
    }
    return {};
  }

  // A bias of 0 where keys are visible.
  bool read_bias(const DefinedValue& bias, double sign) {
    const std::optional<ChoiceArray> choice = read_choice(bias);
    if (!choice || !(choice->yes == 0 ? hides(sign * choice->no) : choice->no == 0 && hides(sign * choice->yes)))
      return false;
    return add_mask(*choice, 0);
  }

  // Keys are visible where `mask` is `visible`.
  bool add_mask(const ChoiceArray& mask, double visible) {
    if (mask.yes == mask.no || mask.where.empty()) return mask.yes == visible;
    std::vector<AffineArray> conditions = mask.where;
    if (mask.yes != visible) {
      if (mask.no != visible || conditions.size() != 1) return false;
      AffineArray& only = conditions[0];  // not a >= 0: -a - 1 >= 0
      only.constant = -only.constant - 1;
      for (double& step : only.steps) step = -step;
    }
    for (const AffineArray& condition : conditions)
      if (!visible_.add(condition, shape_, t_, s_)) return false;
    return true;
  }

  // Batch dimensions are merged or split before queries and keys.
  std::optional<size_t> read_reshape(const Shape& before, const Shape& after) {
    const size_t rank = after.size();
    if (before.size() < 2 || s_ != static_cast<int64_t>(rank) - 1 || !(t_ == -1 || t_ == s_ - 1)) return {};
    if (before.back() != after.back() || before[before.size() - 2] != after[rank - 2]) return {};
    s_ = static_cast<int64_t>(before.size()) - 1;
    t_ = s_ - 1;
    merged_ = true;
    shape_ = before;
    return 0;
  }

  // ---- which dimension is what

  bool read_dimensions() {
    const std::string queries = letters_without(scores_->left, scores_->out),
                      keys = letters_without(scores_->right, scores_->out);
    if (queries.size() != 1 || queries != keys) return false;
    const char s = scores_->out[static_cast<size_t>(s_)];
    if (has_letter(scores_->left, s) || !has_letter(scores_->right, s)) return false;
    if (merged_ ? !read_merged() : !read_letters()) return false;
    const auto extent_of = [&](const NamedProduct& product, const std::string& letters) {
      int64_t n = 1;
      for (const char letter : letters)
        n *= has_letter(product.left, letter) ? type(product.left_id).shape[product.left.find(letter)]
                                              : type(product.right_id).shape[product.right.find(letter)];
      return n;
    };
    b_ = extent_of(*scores_, in_scores_.batch), g_ = extent_of(*scores_, in_scores_.heads);
    m_ = extent_of(*scores_, in_scores_.sharing), n_t_ = extent_of(*scores_, in_scores_.t);
    n_s_ = extent_of(*scores_, in_scores_.s), e_ = extent_of(*scores_, queries);
    f_ = extent_of(y_, letters_without(y_.right, y_.left));
    return b_ * g_ * m_ * n_t_ * n_s_ * e_ * f_ > 0 && visible_.write(attrs_, n_t_, n_s_);
  }

  // The letters of a product by role.
  struct Roles {
    std::string batch, heads, sharing, t, s;
  };

  bool read_merged() {
    const auto roles = [](const std::string& term) {
      const size_t n = term.size();
      return Roles{term.substr(0, n - 2), "", "", term.substr(n - 2, 1), term.substr(n - 1)};
    };
    in_scores_ = roles(scores_->out), in_y_ = roles(y_.left);
    for (const char letter : in_scores_.batch)
      if (!has_letter(scores_->left, letter) || !has_letter(scores_->right, letter)) return false;
    for (const char letter : in_y_.batch)
      if (!has_letter(y_.right, letter) || !has_letter(y_.out, letter)) return false;
    return !has_letter(scores_->right, in_scores_.t[0]) && !has_letter(y_.right, in_y_.t[0]);
  }

  bool read_letters() {
    std::vector<size_t> batch, free;
    for (size_t d = 0; d < y_.left.size(); ++d) {
      if (static_cast<int64_t>(d) == s_) continue;
      const char letter = scores_->out[d];
      if (!has_letter(scores_->left, letter)) return false;
      const bool of_keys = has_letter(scores_->right, letter);
      if (of_keys != has_letter(y_.right, y_.left[d])) return false;
      (of_keys ? batch : free).push_back(d);
    }
    if (free.empty()) return false;
    if (t_ < 0) t_ = static_cast<int64_t>(free.back());
    const auto add = [&](std::string Roles::*role, size_t d) {
      in_scores_.*role += scores_->out[d];
      in_y_.*role += y_.left[d];
    };
    bool found = false;
    for (const size_t d : free) {
      found |= static_cast<int64_t>(d) == t_;
      add(static_cast<int64_t>(d) == t_ ? &Roles::t : &Roles::sharing, d);
    }
    if (!found) return false;
    add(&Roles::s, static_cast<size_t>(s_));
    // One batch dimension: the heads if q is [t, h, e].
    const bool heads =
        batch.size() > 1 || (batch.size() == 1 && free.size() == 1 &&
                             scores_->left.find(scores_->out[batch[0]]) > scores_->left.find(in_scores_.t));
    for (size_t i = 0; i < batch.size(); ++i)
      add(heads && i + 1 == batch.size() ? &Roles::heads : &Roles::batch, batch[i]);
    return true;
  }

  // ---- writing the row

  Value written(ValueId id) const { return r_.map[id]; }

  // An operand with its letters in this order, in another shape.
  static Value arranged(Value x, const std::string& term, const std::string& order, Shape shape) {
    Dims permutation;
    for (const char letter : order) permutation.push_back(static_cast<int64_t>(term.find(letter)));
    return reshape(transpose(x, permutation), std::move(shape));
  }

  // The row takes one type. Queries and keys that were widened are taken as they were; otherwise the wider type.
  Values operands() const {
    ValueId q = scores_->left_id, k = scores_->right_id;
    const ValueId v = y_.right_id;
    const DType narrow = type(v).dtype;
    if (type(q).dtype != narrow && type(uncast(q)).dtype == narrow && type(uncast(k)).dtype == narrow)
      q = uncast(q), k = uncast(k);
    const DType of_q = type(q).dtype;
    const DType wide = of_q == narrow                     ? of_q
                       : size_of(of_q) == size_of(narrow) ? DType::f32
                       : size_of(of_q) > size_of(narrow)  ? of_q
                                                          : narrow;
    return {cast(written(q), wide), cast(written(k), wide), cast(written(v), wide)};
  }

  Value write() const {
    if (!is_floating(type(scores_->out_id).dtype) || !is_floating(type(y_.out_id).dtype)) return {};
    const std::string e = letters_without(scores_->left, scores_->out), f = letters_without(y_.right, y_.left);
    const Values in = operands();
    const Roles &a = in_scores_, &b = in_y_;
    const Value q = arranged(in[0], scores_->left, a.batch + a.t + a.heads + a.sharing + e, {b_, n_t_, g_ * m_, e_}),
                k = arranged(in[1], scores_->right, a.batch + a.s + a.heads + e, {b_, n_s_, g_, e_}),
                v = arranged(in[2], y_.right, b.batch + b.s + b.heads + f, {b_, n_s_, g_, f_});
    const Value y = cast(attention(q, k, v, attrs_)[0], type(y_.out_id).dtype);
    const std::string order = b.batch + b.t + b.heads + b.sharing + f;
    Shape split;
    for (const char letter : order) split.push_back(type(y_.out_id).shape[y_.out.find(letter)]);
    const Value result = arranged(reshape(y, split), order, y_.out, type(y_.out_id).shape);
    return result.type() == type(y_.out_id) ? result : Value();
  }

  const Recognition& r_;
  const NamedProduct y_;                // weights, values
  std::optional<NamedProduct> scores_;  // queries, keys
  AttentionAttrs attrs_;
  VisibleKeys visible_;
  double factor_ = 1;                     // of the value reached so far
  int64_t s_ = 0, t_ = -1;                // dimensions of the value reached so far; t = -1: not known yet
  Shape shape_ = type(y_.left_id).shape;  // of the value reached so far
  bool merged_ = false;                   // batch dimensions are merged or split between the products
  Roles in_scores_, in_y_;
  int64_t b_ = 1, g_ = 1, m_ = 1, n_t_ = 1, n_s_ = 1, e_ = 1, f_ = 1;
};

// Whether an operand is a quotient of an exponential. Simplification may remove views and conversions.
bool may_have_weights(const Recognition& r) {
  const auto origin = [&](ValueId id) {
    const Eqn* eqn = DefinedValue{&r.definitions, id}.eqn();
    while (eqn && (eqn->op->view || eqn->op == &cast_op || eqn->op == &pvary_op))
      eqn = DefinedValue{&r.definitions, eqn->in[0]}.eqn();
    return eqn;
  };
  for (const ValueId id : r.eqn.in) {
    const Eqn* quotient = origin(id);
    if (!quotient || quotient->op != &div_op) continue;
    const Eqn* power = origin(quotient->in[0]);
    if (power && power->op == &exp_op) return true;
  }
  return false;
}

}  // namespace

Value recognize_attention(const Recognition& r) {
  if (r.eqn.op != &einsum_op) return {};
  if (r.map.empty()) return may_have_weights(r) ? Value(&r.builder, 0) : Value();
  for (const bool swapped : {false, true})
    if (const Value found = AttentionMatch(r, swapped).run()) return found;
  return {};
}

}  // namespace lockstep
