#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "jobs/model/object.h"
#include "jobs/model/reconcile.h"
#include "jobs/model/state_text.h"

namespace lockstep {
namespace {

// A simulated runner. It carries out decisions late, partly or not at all, and its replicas end at random.
class RandomWalk {
 public:
  explicit RandomWalk(uint32_t seed) : random_(seed) { begin(); }

  void step() {
    switch (below(10)) {
      case 0:
        now_ += below(100) == 0 ? 100'000 : below(70);
        break;
      case 1:
        now_ -= below(50) == 0 ? below(100) : 0;
        break;
      case 2:
        if (below(4) == 0) job_.spec.suspend = !job_.spec.suspend;
        break;
      case 3:
        job_ = job_from_json(job_to_json(job_));
        break;  // the runner restarted
      case 4:
      case 5:
        change_pod();
        break;
      default:
        act();
        break;
    }
    reconcile_and_check();
  }

  std::map<std::string, int> seen;

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }

  void begin() {
    const char* const specs[] = {"Never replicas=3",
                                 "OnFailure replicas=3",
                                 "OnFailure replicas=2 backoff=2 ttl=50",
                                 "Always replicas=4 deadline=400 clean=All ttl=0",
                                 "ExitCode replicas=3 clean=Running ttl=20",
                                 "OnFailure replicas=1 suspend",
                                 "batch Never replicas=3 backoff=6",
                                 "batch OnFailure replicas=4 deadline=300 ttl=9"};
    job_ = job_of(specs[below(8)]);
    pods_.clear();
    decision_ = {};
    age_ = 0;
  }

  void change_pod() {
    if (pods_.empty()) return;
    Pod& pod = pods_[static_cast<size_t>(below(static_cast<int>(pods_.size())))];
    if (pod.phase == PodPhase::pending) {
      pod.phase = PodPhase::running;
    } else if (pod.phase == PodPhase::running) {
      const int fate = below(15);
      pod.phase = fate < 8 ? PodPhase::succeeded : PodPhase::failed;
      const int codes[] = {1, 138, 137};
      if (fate < 8) pod.exit_code = 0;
      if (fate >= 8 && fate < 11) pod.exit_code = codes[fate - 8];
      if (fate == 11) pod.reason = "Lost";
      if (fate >= 12) pod.exit_code = 1, pod.reason = kPortTaken;
    }
  }

  void act() {
    if (decision_.stop) {
      for (Pod& pod : pods_)
        if ((pod.phase == PodPhase::running || pod.phase == PodPhase::pending) && below(2) == 0)
          pod.phase = PodPhase::failed, pod.exit_code = 143;
      if (below(2) == 0) std::erase_if(pods_, [](const Pod& pod) { return pod.exit_code == 143; });
    }
    if (decision_.start) {
      for (int index = 0; index < job_.spec.replicas; ++index) {
        const auto same = [&](const Pod& pod) { return pod.index == index && pod.attempt == job_.status.attempt; };
        if (std::ranges::none_of(pods_, same) && below(4) != 0) {
          Pod pod;
          pod.index = index;
          pod.attempt = job_.status.attempt;
          pods_.push_back(pod);
        }
      }
    }
    if (decision_.clean) pods_.clear();
    if (decision_.remove || ++age_ > 300) begin();
  }

  void reconcile_and_check() {
    const Job before = job_;
    decision_ = reconcile(job_, pods_, at(now_));
    check(before.status, job_.status);
    ++seen[job_state(job_)];
    if (job_.status.restarts > before.status.restarts) ++seen["restart"];
    if (job_.status.taken_ports > before.status.taken_ports) ++seen["taken port"];
    if (decision_.remove) ++seen["remove"];
    const JobStatus status = job_.status;
    const Decision again = reconcile(job_, pods_, at(now_));
    EXPECT_TRUE(job_.status == status);
    EXPECT_EQ(decision_text(again), decision_text(decision_));
    EXPECT_TRUE(again.events.empty());
  }

  const Condition* find(const JobStatus& status, const char* type) {
    const auto found = std::ranges::find(status.conditions, type, &Condition::type);
    return found == status.conditions.end() ? nullptr : &*found;
  }
  bool is_true(const JobStatus& status, const char* type) {
    const Condition* condition = find(status, type);
    return condition && condition->status;
  }

  void check(const JobStatus& before, const JobStatus& after) {
    for (const char* end : {"Failed", "Succeeded"}) {
      if (is_true(before, end)) {
        EXPECT_TRUE(after == before) << end;
      }
    }
    EXPECT_FALSE(is_true(after, "Running") && is_true(after, "Restarting"));
    EXPECT_FALSE(is_true(after, "Failed") && is_true(after, "Succeeded"));
    if (is_finished(job_)) {
      EXPECT_FALSE(is_true(after, "Running") || is_true(after, "Restarting"));
      EXPECT_TRUE(after.completed.has_value());
      EXPECT_EQ(after.active, 0);
      EXPECT_FALSE(decision_.start);
    } else {
      EXPECT_FALSE(after.completed.has_value());
      EXPECT_FALSE(decision_.clean || decision_.remove);
    }
    EXPECT_TRUE(!before.completed || after.completed == before.completed);
    EXPECT_GE(std::min({after.active, after.succeeded, after.failed}), 0);
    EXPECT_LE(after.active + after.succeeded + after.failed, job_.spec.replicas);
    EXPECT_GE(after.restarts, before.restarts);
    EXPECT_LE(after.restarts - before.restarts + after.taken_ports - before.taken_ports,
              after.attempt - before.attempt);
    EXPECT_LE(after.taken_ports, 10);
    EXPECT_LE(after.attempt - before.attempt, 1);
    EXPECT_GE(after.failed_before, before.failed_before);
    if (job_.spec.backoff_limit) {
      EXPECT_LE(after.restarts, *job_.spec.backoff_limit);
    }
    check_transition_times(before, after);
    check_decision(after);
  }

  void check_transition_times(const JobStatus& before, const JobStatus& after) {
    std::map<std::string, int> types;
    for (const Condition& condition : after.conditions) {
      EXPECT_EQ(++types[condition.type], 1) << condition.type;
      const Condition* old = find(before, condition.type.c_str());
      if (old && old->transitioned != condition.transitioned) {
        EXPECT_NE(old->status, condition.status);
      }
    }
    EXPECT_TRUE(types.contains("Created"));
  }

  void check_decision(const JobStatus& after) {
    const auto alive = [](const Pod& pod) { return pod.phase == PodPhase::pending || pod.phase == PodPhase::running; };
    const bool old_alive =
        std::ranges::any_of(pods_, [&](const Pod& pod) { return pod.attempt < after.attempt && alive(pod); });
    const bool any_alive = std::ranges::any_of(pods_, alive);
    EXPECT_FALSE(decision_.start && old_alive);
    EXPECT_FALSE(decision_.start && decision_.stop);
    EXPECT_FALSE(decision_.start && job_.spec.suspend);
    EXPECT_FALSE(decision_.stop && !any_alive);
    EXPECT_FALSE((decision_.remove || decision_.clean) && any_alive);
    if (old_alive) {
      EXPECT_TRUE(decision_.stop);
    }
    if (job_.spec.suspend && any_alive && !is_finished(job_)) {
      EXPECT_TRUE(decision_.stop);
    }
    if (decision_.wake) {
      EXPECT_GT(*decision_.wake, at(now_));
    }
    // An active job always has something to wait for; otherwise it would hang.
    if (!is_finished(job_) && !job_.spec.suspend) {
      EXPECT_TRUE(any_alive || decision_.start || decision_.wake);
    }
  }

  std::mt19937 random_;
  Job job_;
  std::vector<Pod> pods_;
  Decision decision_;
  int64_t now_ = 0;
  int age_ = 0;
};

TEST(Reconcile, InvariantsHoldOnARandomWalk) {
  RandomWalk walk(20260101);
  for (int i = 0; i < 20'000 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("event " + std::to_string(i));
    walk.step();
  }
  // The walk visited every state.
  for (const char* what :
       {"Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed", "restart", "taken port", "remove"})
    EXPECT_GT(walk.seen[what], 20) << what;
}

}  // namespace
}  // namespace lockstep
