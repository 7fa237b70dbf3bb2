#include "passes/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "ops/ops.h"
#include "passes/costly.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

bool is_all_reduce(const Eqn& eqn) { return eqn.op == &lane_all_reduce_op; }
bool is_all_gather(const Eqn& eqn) { return eqn.op == &lane_all_gather_op; }
bool is_reduce_scatter(const Eqn& eqn) { return eqn.op == &lane_reduce_scatter_op; }

// Puts off small elementwise equations on the results of all-reduces, and brings forward those that make operands, so
// that more all-reduces are ready before the first is needed. Nothing else moves.
class Order {
 public:
  explicit Order(const Program& p)
      : p_(p),
        maker_(p.types.size(), p.eqns.size()),
        uses_(p.types.size(), 0),
        users_(p.eqns.size()),
        early_(p.eqns.size(), false),
        late_(p.eqns.size(), false),
        with_(p.eqns.size()) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = i;
      for (ValueId id : p.eqns[i].in) {
        ++uses_[id];
        if (maker_[id] < p.eqns.size()) users_[maker_[id]].push_back(i);
      }
    }
    for (ValueId id : p.outputs) ++uses_[id];
    std::iota(with_.begin(), with_.end(), size_t{0});
  }

  std::vector<size_t> operator()() {
    bring_forward();
    put_off();
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // What was put off stands before the equation it goes with, and what was brought forward after.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return with_[a] < with_[b]; });
    return order;
  }

 private:
  bool is_free(size_t i) const { return lockstep::is_free(p_.eqns[i]); }

  // Does the result take the place of an operand that nothing else needs?
  bool replaces_operand(size_t i) const {
    const Eqn& eqn = p_.eqns[i];
    return std::any_of(eqn.in.begin(), eqn.in.end(), [&](ValueId id) {
      return uses_[id] == 1 && maker_[id] < p_.eqns.size() && !is_free(maker_[id]) &&
             p_.types[id].bytes() >= p_.types[eqn.out[0]].bytes();
    });
  }

  bool is_small(size_t i) const {
    return std::all_of(p_.eqns[i].in.begin(), p_.eqns[i].in.end(),
                       [&](ValueId id) { return p_.types[id].bytes() <= kSmallBytes; });
  }

  void bring_forward() {
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      const bool makes_operand = std::any_of(users_[i].begin(), users_[i].end(),
                                             [&](size_t user) { return is_all_reduce(p_.eqns[user]) || early_[user]; });
      early_[i] = makes_operand && (is_free(i) || (p_.eqns[i].op->loop && replaces_operand(i)));
    }
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      if (!early_[i]) continue;
      with_[i] = 0;
      for (ValueId id : p_.eqns[i].in)
        if (maker_[id] < p_.eqns.size()) with_[i] = std::max(with_[i], with_[maker_[id]]);
    }
    // Views and constants come no earlier than they are needed.
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      if (!early_[i] || !is_free(i)) continue;
      with_[i] = i;
      for (size_t user : users_[i]) with_[i] = std::min(with_[i], with_[user]);
    }
  }

  void put_off() {
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      if (early_[i] || !(eqn.op->loop || eqn.op->view) || !is_small(i)) continue;
      late_[i] = std::any_of(eqn.in.begin(), eqn.in.end(), [&](ValueId id) {
        return maker_[id] < p_.eqns.size() && (is_all_reduce(p_.eqns[maker_[id]]) || late_[maker_[id]]);
      });
    }
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      if (!late_[i]) continue;
      if (std::any_of(users_[i].begin(), users_[i].end(), [&](size_t user) { return early_[user]; })) continue;
      with_[i] = p_.eqns.size();
      for (size_t user : users_[i]) with_[i] = std::min(with_[i], with_[user]);
    }
  }

  const Program& p_;
  std::vector<size_t> maker_;               // by value: its equation, or how many there are
  std::vector<size_t> uses_;                // by value
  std::vector<std::vector<size_t>> users_;  // by equation
  std::vector<bool> early_, late_;          // by equation
  std::vector<size_t> with_;                // by equation: the one it goes with
};

Program in_order(const Program& p, const std::vector<size_t>& order) {
  Program out{p.types, p.inputs, {}, p.outputs};
  for (size_t i : order) out.eqns.push_back(p.eqns[i]);
  return out;
}

// An order of equations that are in an order already.
std::vector<size_t> after(const std::vector<size_t>& first, const std::vector<size_t>& then) {
  std::vector<size_t> out;
  for (size_t i : then) out.push_back(first[i]);
  return out;
}

// Moves gathers up to where they are to begin, and scatters to where their operands are there, with the views and
// constants that make their operands.
class Prefetch {
 public:
  Prefetch(const Program& p, size_t depth)
      : p_(p), costly_(p), depth_(depth), maker_(p.types.size(), p.eqns.size()), used_(p.eqns.size(), p.eqns.size()) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = i;
      for (ValueId id : p.eqns[i].in)
        if (maker_[id] < p.eqns.size()) used_[maker_[id]] = std::min(used_[maker_[id]], i);
    }
  }

  std::vector<size_t> operator()() {
    std::vector<size_t> to(p_.eqns.size());  // the place it moves to, or its own
    std::iota(to.begin(), to.end(), size_t{0});
    std::vector<bool> moves(p_.eqns.size(), false);
    size_t after = 0;  // gathers stay in the order in which they are needed
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      if (depth_ == 0 || !(is_all_gather(eqn) || is_reduce_scatter(eqn))) continue;
      chain_.clear();
      size_t target = ready(i);
      if (is_all_gather(eqn)) target = std::max({target, after, costly_.before(used_[i], depth_)});
      chain_.push_back(i);
      for (size_t link : chain_) {
        if (target > link) continue;  // it stands before already
        to[link] = std::min(to[link], target);
        moves[link] = true;
      }
      if (is_all_gather(eqn)) after = moves[i] ? to[i] : i + 1;
    }
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // What moves to a place stands before the equation of that place.
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::pair(to[a], !moves[a]) < std::pair(to[b], !moves[b]); });
    return order;
  }

 private:
  // Where all operands are there, if what costs nothing comes along; that goes to chain_.
  size_t ready(size_t i) {
    size_t out = 0;
    for (ValueId id : p_.eqns[i].in) {
      const size_t from = maker_[id];
      if (from == p_.eqns.size()) continue;
      if (is_free(p_.eqns[from])) {
        out = std::max(out, ready(from));
        chain_.push_back(from);
      } else {
        out = std::max(out, from + 1);
      }
    }
    return out;
  }

  const Program& p_;
  Costly costly_;
  size_t depth_;
  std::vector<size_t> maker_;  // by value: its equation, or how many there are
  std::vector<size_t> used_;   // by equation: the first that uses its result, or how many there are
  std::vector<size_t> chain_;
};

class Decider {
 public:
  Decider(const Program& p, const ScheduleOptions& options)
      : p_(p), options_(options), ready_(p.eqns.size(), 0), used_(p.eqns.size(), p.eqns.size()) {
    find_windows();
  }

  // Gathers and scatters that there is something to do behind.
  std::vector<Flight> flights() const {
    std::vector<Flight> out;
    const Costly costly(p_);
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const bool scatter = is_reduce_scatter(p_.eqns[i]);
      if (options_.prefetch == 0 || !(scatter || is_all_gather(p_.eqns[i]))) continue;
      const size_t done = scatter ? std::min(used_[i], costly.after(i, options_.prefetch, p_.eqns.size())) : used_[i];
      if (done > i && computes_between(i, done)) out.push_back({i, done});
    }
    return out;
  }

  std::vector<Bucket> buckets() {
    std::vector<size_t> order;
    for (size_t i = 0; i < p_.eqns.size(); ++i)
      if (is_all_reduce(p_.eqns[i])) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ready_[a] < ready_[b]; });
    for (size_t i : order) add(i);
    std::vector<Bucket> out;
    for (const Filling& filling : fillings_) out.push_back(filling.bucket);
    std::stable_sort(out.begin(), out.end(), [](const Bucket& a, const Bucket& b) { return a.start < b.start; });
    for (Bucket& bucket : out)
      if (!computes_between(bucket.start, bucket.done)) bucket.done = bucket.start;
    return out;
  }

 private:
  struct Filling {
    Bucket bucket;
    int64_t bytes = 0;
  };

  // Between which equations each all-reduce may stand.
  void find_windows() {
    std::vector<size_t> maker(p_.types.size(), p_.eqns.size());
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      for (ValueId id : p_.eqns[i].out) maker[id] = i;
      for (ValueId id : p_.eqns[i].in) {
        const size_t from = maker[id];
        if (from == p_.eqns.size()) continue;
        ready_[i] = std::max(ready_[i], from + 1);
        // An all-reduce of this one's result may move up to it, so this one must not move down.
        used_[from] = std::min(used_[from], is_all_reduce(p_.eqns[i]) ? from : i);
      }
    }
  }

  void add(size_t i) {
    const Eqn& eqn = p_.eqns[i];
    int64_t bytes = 0;
    for (ValueId id : eqn.in) bytes += p_.types[id].bytes();
    const Filling alone{{{i}, ready_[i], used_[i]}, bytes};
    const std::pair key{eqn.attrs.get<std::string>("axes"), eqn.attrs.get<std::string>("kind")};
    if (const auto at = open_.find(key); at != open_.end()) {
      Filling& filling = fillings_[at->second];
      // Operands come as they become ready, so the bucket is ready when the last is.
      if (filling.bytes + bytes <= options_.bucket_bytes && ready_[i] <= std::min(filling.bucket.done, used_[i])) {
        filling.bucket.members.push_back(i);
        filling.bucket.start = ready_[i];
        filling.bucket.done = std::min(filling.bucket.done, used_[i]);
        filling.bytes += bytes;
        return;
      }
    }
    // One too large for any bucket leaves room in the one that is open.
    if (bytes <= options_.bucket_bytes) open_[key] = fillings_.size();
    fillings_.push_back(alone);
  }

  // Is there anything to do meanwhile?
  bool computes_between(size_t begin, size_t end) const {
    return std::any_of(p_.eqns.begin() + static_cast<std::ptrdiff_t>(begin),
                       p_.eqns.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Eqn& eqn) { return !eqn.op->meets && !is_free(eqn); });
  }

  const Program& p_;
  const ScheduleOptions& options_;
  std::vector<size_t> ready_, used_;  // by equation: the first before which it may stand, and the last
  std::vector<Filling> fillings_;
  std::map<std::pair<std::string, std::string>, size_t> open_;  // by axes and kind: the bucket being filled
};

// The two steps of a gather or scatter.
std::pair<const Op*, const Op*> steps_of(const Eqn& eqn) {
  LOCKSTEP_CHECK(is_all_gather(eqn) || is_reduce_scatter(eqn), "{} is no gather or scatter", eqn.op->name);
  if (is_all_gather(eqn)) return {&lane_all_gather_start_op, &lane_all_gather_done_op};
  return {&lane_reduce_scatter_start_op, &lane_reduce_scatter_done_op};
}

// Writes one lane's program with its collectives where the schedule has them.
class Applier {
 public:
  Applier(const Program& p, const Schedule& schedule)
      : p_(p), schedule_(schedule), map_(p.types.size()), started_(schedule.buckets.size()) {}

  Program operator()() {
    std::vector<bool> moves(p_.eqns.size(), false);
    for (const Bucket& bucket : schedule_.buckets)
      for (size_t i : bucket.members) {
        LOCKSTEP_CHECK(i < p_.eqns.size() && is_all_reduce(p_.eqns[i]), "equation {} is no all-reduce", i);
        moves[i] = true;
      }
    for (ValueId id : p_.inputs) map_[id] = b_.input(p_.types[id]);
    for (size_t i = 0; i <= p_.eqns.size(); ++i) {
      begin(i);
      finish(i);
      land(i);
      if (i == p_.eqns.size() || moves[i]) continue;
      if (aloft_ < schedule_.flights.size() && schedule_.flights[aloft_].place == i)
        take_off(p_.eqns[i]);
      else
        b_.copy(p_, p_.eqns[i], map_);
    }
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(map_[id]);
    return b_.take(outputs);
  }

 private:
  void begin(size_t place) {
    for (; next_ < schedule_.buckets.size() && schedule_.buckets[next_].start == place; ++next_) {
      const Bucket& bucket = schedule_.buckets[next_];
      Values in;
      for (size_t i : bucket.members)
        for (ValueId id : p_.eqns[i].in) in.push_back(map_[id]);
      Attrs attrs = p_.eqns[bucket.members[0]].attrs;
      if (bucket.done == bucket.start) {
        define(bucket, b_.emit(lane_all_reduce_op, in, std::move(attrs)));
      } else {
        attrs.set("id", static_cast<int64_t>(next_));
        started_[next_] = b_.emit(lane_all_reduce_start_op, in, std::move(attrs));
      }
    }
  }

  void finish(size_t place) {
    for (size_t k = 0; k < next_; ++k) {
      const Bucket& bucket = schedule_.buckets[k];
      if (bucket.done != place || bucket.start == place) continue;
      define(bucket, b_.emit(lane_all_reduce_done_op, started_[k], {{"id", static_cast<int64_t>(k)}}));
    }
  }

  // Pairs of flights are numbered after those of buckets.
  int64_t id_of(size_t flight) const { return static_cast<int64_t>(schedule_.buckets.size() + flight); }

  // What is under way stands for the result until it is there: nobody asks for it before.
  void take_off(const Eqn& eqn) {
    Attrs attrs = eqn.attrs;
    attrs.set("id", id_of(aloft_++));
    map_[eqn.out[0]] = b_.emit(*steps_of(eqn).first, Values{map_[eqn.in[0]]}, std::move(attrs))[0];
  }

  void land(size_t place) {
    for (size_t k = 0; k < aloft_; ++k) {
      if (schedule_.flights[k].done != place) continue;
      const Eqn& eqn = p_.eqns[schedule_.flights[k].place];
      Value& result = map_[eqn.out[0]];
      result = b_.emit(*steps_of(eqn).second, Values{map_[eqn.in[0]], result}, {{"id", id_of(k)}})[0];
    }
  }

  void define(const Bucket& bucket, const Values& results) {
    size_t k = 0;
    for (size_t i : bucket.members)
      for (ValueId id : p_.eqns[i].out) map_[id] = results[k++];
  }

  const Program& p_;
  const Schedule& schedule_;
  Builder b_;
  Values map_;
  std::vector<Values> started_;  // by bucket: what is under way
  size_t next_ = 0;              // the bucket to begin
  size_t aloft_ = 0;             // flights that have begun
};

}  // namespace

Schedule decide(const Program& lane0, const ScheduleOptions& options) {
  Schedule schedule;
  schedule.again = decide_again(lane0, options.regather);
  Program whole = gather_again(lane0, schedule.again);
  schedule.pieces = decide_pieces(whole, options.pieces);
  whole = in_pieces(whole, schedule.pieces);
  schedule.order = settled(whole, options.settle);
  schedule.order = after(schedule.order, Order(in_order(whole, schedule.order))());
  schedule.order = after(schedule.order, Prefetch(in_order(whole, schedule.order), options.prefetch)());
  const Program p = in_order(whole, schedule.order);
  Decider decider(p, options);
  schedule.buckets = decider.buckets();
  schedule.flights = decider.flights();
  return schedule;
}

Program apply(const Program& lane, const Schedule& schedule) {
  const Program whole = in_pieces(gather_again(lane, schedule.again), schedule.pieces);
  LOCKSTEP_CHECK(whole.eqns.size() == schedule.order.size(), "a schedule of {} equations for a program of {}",
                 schedule.order.size(), whole.eqns.size());
  const Program p = in_order(whole, schedule.order);
  return checked(Applier(p, schedule)());
}

}  // namespace lockstep
