#include "passes/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "ops/lane_ops.h"
#include "passes/eqn_cost.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

// Moves small elementwise equations on the results of all-reduces down, and those that produce operands up, so that
// more all-reduces are ready before the first result is needed. Nothing else moves.
class AllReduceOrder {
 public:
  explicit AllReduceOrder(const Program& p)
      : p_(p),
        maker_(p.types.size(), p.eqns.size()),
        uses_(p.types.size(), 0),
        users_(p.eqns.size()),
        early_(p.eqns.size(), false),
        late_(p.eqns.size(), false),
        position_(p.eqns.size()) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = i;
      for (ValueId id : p.eqns[i].in) {
        ++uses_[id];
        if (maker_[id] < p.eqns.size()) users_[maker_[id]].push_back(i);
      }
    }
    for (ValueId id : p.outputs) ++uses_[id];
    std::iota(position_.begin(), position_.end(), size_t{0});
  }

  std::vector<size_t> operator()() {
    move_up();
    move_down();
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Stable: an equation moved down comes before the one it is placed with, an equation moved up after it.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return position_[a] < position_[b]; });
    return order;
  }

 private:
  bool is_free(size_t i) const { return lockstep::is_free(p_.eqns[i]); }

  // Whether the result can replace an operand that nothing else uses.
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

  void move_up() {
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      const bool makes_operand = std::any_of(users_[i].begin(), users_[i].end(),
                                             [&](size_t user) { return is_all_reduce(p_.eqns[user]) || early_[user]; });
      early_[i] = makes_operand && (is_free(i) || (p_.eqns[i].op->loop && replaces_operand(i)));
    }
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      if (!early_[i]) continue;
      position_[i] = 0;
      for (ValueId id : p_.eqns[i].in)
        if (maker_[id] < p_.eqns.size()) position_[i] = std::max(position_[i], position_[maker_[id]]);
    }
    // Views and constants come no earlier than needed.
    for (size_t i = p_.eqns.size(); i-- > 0;) {
      if (!early_[i] || !is_free(i)) continue;
      position_[i] = i;
      for (size_t user : users_[i]) position_[i] = std::min(position_[i], position_[user]);
    }
  }

  void move_down() {
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
      position_[i] = p_.eqns.size();
      for (size_t user : users_[i]) position_[i] = std::min(position_[i], position_[user]);
    }
  }

  const Program& p_;
  std::vector<size_t> maker_;               // by value: its equation; eqns.size() for inputs
  std::vector<size_t> uses_;                // by value
  std::vector<std::vector<size_t>> users_;  // by equation
  std::vector<bool> early_, late_;          // by equation
  std::vector<size_t> position_;            // by equation: the one it is placed with
};

Program in_order(const Program& p, const std::vector<size_t>& order) {
  Program out{p.types, p.inputs, {}, p.outputs};
  for (size_t i : order) out.eqns.push_back(p.eqns[i]);
  return out;
}

// Composes two orders: `then` reorders what `first` has ordered.
std::vector<size_t> compose(const std::vector<size_t>& first, const std::vector<size_t>& then) {
  std::vector<size_t> out;
  for (size_t i : then) out.push_back(first[i]);
  return out;
}

// Moves gathers up to where they start, and scatters to where their operands are ready, together with the views and
// constants that produce their operands.
class Prefetch {
 public:
  Prefetch(const Program& p, size_t depth)
      : p_(p),
        expensive_(p),
        depth_(depth),
        maker_(p.types.size(), p.eqns.size()),
        used_(p.eqns.size(), p.eqns.size()) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = i;
      for (ValueId id : p.eqns[i].in)
        if (maker_[id] < p.eqns.size()) used_[maker_[id]] = std::min(used_[maker_[id]], i);
    }
  }

  std::vector<size_t> operator()() {
    std::vector<size_t> to(p_.eqns.size());  // the position it moves to, or its own
    std::iota(to.begin(), to.end(), size_t{0});
    std::vector<bool> moves(p_.eqns.size(), false);
    size_t after = 0;  // gathers keep the order in which they are needed
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const Eqn& eqn = p_.eqns[i];
      if (depth_ == 0 || !(is_all_gather(eqn) || is_reduce_scatter(eqn))) continue;
      chain_.clear();
      size_t target = ready(i);
      if (is_all_gather(eqn)) target = std::max({target, after, expensive_.n_before(used_[i], depth_)});
      chain_.push_back(i);
      for (size_t link : chain_) {
        if (target > link) continue;  // it is before that already
        to[link] = std::min(to[link], target);
        moves[link] = true;
      }
      if (is_all_gather(eqn)) after = moves[i] ? to[i] : i + 1;
    }
    std::vector<size_t> order(p_.eqns.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Moved equations come before the equation at their target position.
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::pair(to[a], !moves[a]) < std::pair(to[b], !moves[b]); });
    return order;
  }

 private:
  // The position where all operands are ready if free equations move along; adds those to chain_.
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
  ExpensiveEqns expensive_;
  size_t depth_;
  std::vector<size_t> maker_;  // by value: its equation; eqns.size() for inputs
  std::vector<size_t> used_;   // by equation: the first that uses its result; eqns.size() if none
  std::vector<size_t> chain_;
};

class CollectiveScheduler {
 public:
  CollectiveScheduler(const Program& p, const CollectiveScheduleOptions& options)
      : p_(p), options_(options), ready_(p.eqns.size(), 0), used_(p.eqns.size(), p.eqns.size()) {
    find_windows();
  }

  // The gathers and scatters that can overlap with computation.
  std::vector<AsyncCollective> async() const {
    std::vector<AsyncCollective> out;
    const ExpensiveEqns expensive(p_);
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      const bool scatter = is_reduce_scatter(p_.eqns[i]);
      if (options_.prefetch == 0 || !(scatter || is_all_gather(p_.eqns[i]))) continue;
      const size_t done =
          scatter ? std::min(used_[i], expensive.n_after(i, options_.prefetch, p_.eqns.size())) : used_[i];
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
    for (const OpenBucket& open : buckets_) out.push_back(open.bucket);
    std::stable_sort(out.begin(), out.end(), [](const Bucket& a, const Bucket& b) { return a.start < b.start; });
    for (Bucket& bucket : out)
      if (!computes_between(bucket.start, bucket.done)) bucket.done = bucket.start;
    return out;
  }

 private:
  struct OpenBucket {
    Bucket bucket;
    int64_t bytes = 0;
  };

  // Finds the positions between which each all-reduce may be placed.
  void find_windows() {
    std::vector<size_t> maker(p_.types.size(), p_.eqns.size());
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      for (ValueId id : p_.eqns[i].out) maker[id] = i;
      for (ValueId id : p_.eqns[i].in) {
        const size_t from = maker[id];
        if (from == p_.eqns.size()) continue;
        ready_[i] = std::max(ready_[i], from + 1);
        // An all-reduce of this result may move up to it, so this equation must not move down.
        used_[from] = std::min(used_[from], is_all_reduce(p_.eqns[i]) ? from : i);
      }
    }
  }

  void add(size_t i) {
    const Eqn& eqn = p_.eqns[i];
    int64_t bytes = 0;
    for (ValueId id : eqn.in) bytes += p_.types[id].bytes();
    const OpenBucket single{{{i}, ready_[i], used_[i]}, bytes};
    const std::pair key{eqn.attrs.get<std::string>("axes"), eqn.attrs.get<std::string>("kind")};
    if (const auto at = open_.find(key); at != open_.end()) {
      OpenBucket& open = buckets_[at->second];
      // Members are added in the order in which they become ready, so the bucket is ready when the last one is.
      if (open.bytes + bytes <= options_.bucket_bytes && ready_[i] <= std::min(open.bucket.done, used_[i])) {
        open.bucket.members.push_back(i);
        open.bucket.start = ready_[i];
        open.bucket.done = std::min(open.bucket.done, used_[i]);
        open.bytes += bytes;
        return;
      }
    }
    // An operand too large for any bucket does not close the open one.
    if (bytes <= options_.bucket_bytes) open_[key] = buckets_.size();
    buckets_.push_back(single);
  }

  // Whether there is computation to overlap with.
  bool computes_between(size_t begin, size_t end) const {
    return std::any_of(p_.eqns.begin() + static_cast<std::ptrdiff_t>(begin),
                       p_.eqns.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Eqn& eqn) { return !eqn.op->is_collective() && !is_free(eqn); });
  }

  const Program& p_;
  const CollectiveScheduleOptions& options_;
  std::vector<size_t> ready_, used_;  // by equation: first and last position it may move to
  std::vector<OpenBucket> buckets_;
  std::map<std::pair<std::string, std::string>, size_t> open_;  // by axes and kind: the bucket being filled
};

// The collective that an equation does, which can be asynchronous.
const LaneCollective& asynchronous(const Eqn& eqn) {
  const LaneCollective* collective = eqn.op->collective;
  LOCKSTEP_CHECK(collective && collective->whole == eqn.op && collective->start, "{} cannot be asynchronous",
                 eqn.op->name);
  return *collective;
}

// Writes one lane's program with its collectives at the positions of the schedule.
class ScheduleWriter {
 public:
  ScheduleWriter(const Program& p, const CollectiveSchedule& schedule)
      : p_(p), schedule_(schedule), map_(p.types.size()), started_(schedule.buckets.size()) {}

  Program operator()() {
    std::vector<bool> moves(p_.eqns.size(), false);
    for (const Bucket& bucket : schedule_.buckets)
      for (size_t i : bucket.members) {
        LOCKSTEP_CHECK(i < p_.eqns.size() && is_all_reduce(p_.eqns[i]), "equation {} is not an all-reduce", i);
        moves[i] = true;
      }
    for (ValueId id : p_.inputs) map_[id] = b_.input(p_.types[id]);
    for (size_t i = 0; i <= p_.eqns.size(); ++i) {
      start_buckets(i);
      finish_buckets(i);
      finish_async(i);
      if (i == p_.eqns.size() || moves[i]) continue;
      if (async_started_ < schedule_.async.size() && schedule_.async[async_started_].start == i)
        start_async(p_.eqns[i]);
      else
        b_.copy(p_, p_.eqns[i], map_);
    }
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(map_[id]);
    return b_.take(outputs);
  }

 private:
  void start_buckets(size_t position) {
    for (; next_ < schedule_.buckets.size() && schedule_.buckets[next_].start == position; ++next_) {
      const Bucket& bucket = schedule_.buckets[next_];
      Values in;
      for (size_t i : bucket.members)
        for (ValueId id : p_.eqns[i].in) in.push_back(map_[id]);
      const Eqn& first = p_.eqns[bucket.members[0]];
      Attrs attrs = first.attrs;
      if (bucket.done == bucket.start) {
        define(bucket, b_.emit(*first.op, in, std::move(attrs)));
      } else {
        attrs.set("id", static_cast<int64_t>(next_));
        started_[next_] = b_.emit(*asynchronous(first).start, in, std::move(attrs));
      }
    }
  }

  void finish_buckets(size_t position) {
    for (size_t k = 0; k < next_; ++k) {
      const Bucket& bucket = schedule_.buckets[k];
      if (bucket.done != position || bucket.start == position) continue;
      const Op& done = *asynchronous(p_.eqns[bucket.members[0]]).done;
      define(bucket, b_.emit(done, started_[k], {{"id", static_cast<int64_t>(k)}}));
    }
  }

  // The ids of asynchronous gathers and scatters follow those of buckets.
  int64_t id_of(size_t async) const { return static_cast<int64_t>(schedule_.buckets.size() + async); }

  // Until it is done, the started operation represents the result; no equation uses it before.
  void start_async(const Eqn& eqn) {
    Attrs attrs = eqn.attrs;
    attrs.set("id", id_of(async_started_++));
    map_[eqn.out[0]] = b_.emit(*asynchronous(eqn).start, Values{map_[eqn.in[0]]}, std::move(attrs))[0];
  }

  void finish_async(size_t position) {
    for (size_t k = 0; k < async_started_; ++k) {
      if (schedule_.async[k].done != position) continue;
      const Eqn& eqn = p_.eqns[schedule_.async[k].start];
      Value& result = map_[eqn.out[0]];
      result = b_.emit(*asynchronous(eqn).done, Values{map_[eqn.in[0]], result}, {{"id", id_of(k)}})[0];
    }
  }

  void define(const Bucket& bucket, const Values& results) {
    size_t k = 0;
    for (size_t i : bucket.members)
      for (ValueId id : p_.eqns[i].out) map_[id] = results[k++];
  }

  const Program& p_;
  const CollectiveSchedule& schedule_;
  Builder b_;
  Values map_;
  std::vector<Values> started_;  // by bucket: results of the start op
  size_t next_ = 0;              // the next bucket to start
  size_t async_started_ = 0;     // number of asynchronous collectives started
};

}  // namespace

CollectiveSchedule schedule_collectives(const Program& lane0, const CollectiveScheduleOptions& options) {
  CollectiveSchedule schedule;
  schedule.regathers = choose_regathers(lane0, options.regather);
  Program expanded = apply_regathers(lane0, schedule.regathers);
  schedule.chunks = choose_chunks(expanded, options.chunks);
  expanded = apply_chunks(expanded, schedule.chunks);
  schedule.order = order_updates_early(expanded, options.early_updates);
  schedule.order = compose(schedule.order, AllReduceOrder(in_order(expanded, schedule.order))());
  schedule.order = compose(schedule.order, Prefetch(in_order(expanded, schedule.order), options.prefetch)());
  const Program p = in_order(expanded, schedule.order);
  CollectiveScheduler scheduler(p, options);
  schedule.buckets = scheduler.buckets();
  schedule.async = scheduler.async();
  return schedule;
}

Program apply_schedule(const Program& lane, const CollectiveSchedule& schedule) {
  const Program expanded = apply_chunks(apply_regathers(lane, schedule.regathers), schedule.chunks);
  LOCKSTEP_CHECK(expanded.eqns.size() == schedule.order.size(),
                 "a schedule of {} equations was applied to a program of {}", schedule.order.size(),
                 expanded.eqns.size());
  const Program p = in_order(expanded, schedule.order);
  return checked(ScheduleWriter(p, schedule)());
}

}  // namespace lockstep
