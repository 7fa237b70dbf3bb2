#include "jobs/model/reconcile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jobs/model/state_text.h"

namespace lockstep {
namespace {

// One call of reconcile(): the job, its state, its pods and the time; then the expected state and decision, in the
// notation of state_text.h.
struct Transition {
  const char *about, *spec, *before, *pods;
  int now;
  const char *after, *decision;
};

// A call that does not change the state.
constexpr Transition unchanged(const char* about, const char* spec, const char* state, const char* pods, int now,
                               const char* decision) {
  return {about, spec, state, pods, now, state, decision};
}

// One replica of a running job fails at second 9: the job fails, and the other replica is stopped.
constexpr Transition fails(const char* about, const char* spec, const char* pods) {
  return {about, spec, "Created Running started=0", pods, 9, "Created !Running Failed failed=1 started=0 completed=9",
          "stop"};
}

// One replica of a running job fails at second 9: the other is stopped, and the job restarts after the first backoff.
constexpr Transition restarts(const char* about, const char* spec, const char* pods) {
  return {about, spec, "Created Running started=0",
          pods,  9,    "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10",
          "stop"};
}

const Transition kTable[] = {
    // Start.
    {"a new job starts", "", "", "", 0, "Created started=0", "start"},
    {"a job of one replica starts", "replicas=1", "", "", 3, "Created started=3", "start"},
    {"a created job starts", "", "Created", "", 5, "Created started=5", "start"},
    unchanged("the start time does not change", "", "Created started=0", "", 5, "start"),
    unchanged("pending replicas are not started again", "", "Created started=0", "P P", 1, ""),
    unchanged("an interrupted start continues", "", "Created started=0", "P -", 1, "start"),
    {"an interrupted start continues while one replica runs", "", "Created started=0", "R -", 1,
     "Created Running active=1 started=0", "start"},
    {"a missing last replica is started", "replicas=3", "Created started=0", "R R -", 1,
     "Created Running active=2 started=0", "start"},

    // Running.
    {"one running replica makes the job Running", "", "Created started=0", "R P", 2,
     "Created Running active=1 started=0", ""},
    {"all replicas run", "", "Created started=0", "R R", 2, "Created Running active=2 started=0", ""},
    {"the job stays Running", "", "Created Running active=1 started=0", "R R", 9, "Created Running active=2 started=0",
     ""},
    {"one replica succeeded", "", "Created Running active=2 started=0", "S R", 9,
     "Created Running active=1 succeeded=1 started=0", ""},
    {"one replica succeeded, the other is pending", "", "Created started=0", "S P", 9, "Created succeeded=1 started=0",
     ""},
    {"Running replaces Restarting after a restart", "OnFailure",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=4", "R R", 9,
     "Created Running active=2 started=0 restarts=1 attempt=1 before=1 next=4", ""},

    // Success.
    {"all replicas succeeded", "", "Created Running active=2 started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},
    {"succeeds without having been seen running", "", "Created started=0", "S S", 9,
     "Created Succeeded succeeded=2 started=0 completed=9", ""},
    {"succeeds under policy Always", "Always", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},
    {"succeeds after a restart", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1", "S S", 9,
     "Created !Restarting Succeeded succeeded=2 started=0 completed=9 restarts=1 attempt=1", ""},
    {"success wins over the deadline", "deadline=9", "Created Running started=0", "S S", 20,
     "Created !Running Succeeded succeeded=2 started=0 completed=20", ""},
    {"success wins over suspend", "suspend", "Created Running started=0", "S S", 20,
     "Created !Running Succeeded succeeded=2 started=0 completed=20", ""},
    unchanged("Succeeded is final", "", "Created !Running Succeeded succeeded=2 started=0 completed=9", "S S", 99, ""),
    unchanged("Succeeded is final without pods", "", "Created !Running Succeeded succeeded=2 started=0 completed=9", "",
              99, ""),
    unchanged("Succeeded is final when suspended later", "suspend",
              "Created !Running Succeeded succeeded=2 started=0 completed=9", "S S", 99, ""),

    // Failure without restart.
    {"policy Never", "Never", "Created Running active=2 started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"policy Never, all replicas failed", "Never", "Created Running active=2 started=0", "F1 F1", 9,
     "Created !Running Failed failed=2 started=0 completed=9", ""},
    {"policy Never ignores retryable codes", "Never", "Created Running started=0", "F137 S", 9,
     "Created !Running Failed succeeded=1 failed=1 started=0 completed=9", ""},
    fails("policy Never, a lost replica", "Never", "L R"),
    {"fails before it ran", "Never", "Created started=0", "F127 P", 1, "Created Failed failed=1 started=0 completed=1",
     "stop"},
    unchanged("Failed is final", "OnFailure", "Created !Running Failed failed=1 started=0 completed=9", "F1 F143", 11,
              ""),
    unchanged("running replicas of a failed job are stopped", "Never",
              "Created !Running Failed failed=1 started=0 completed=9", "F1 R", 11, "stop"),
    unchanged("a late success does not change Failed", "Never",
              "Created !Running Failed failed=1 started=0 completed=9", "S S", 11, ""),
    unchanged("suspend does not change Failed", "Never suspend",
              "Created !Running Failed failed=1 started=0 completed=9", "", 11, ""),

    // Restarts.
    {"policy OnFailure", "OnFailure", "Created Running active=2 started=0", "F1 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"policy Always", "Always", "Created Running active=2 started=0", "R F1", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"two failures at once are one restart", "OnFailure", "Created Running active=2 started=0", "F1 F75", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"a succeeded replica runs again", "OnFailure", "Created Running started=0", "S F1", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "wake=10"},
    {"a pending replica is stopped", "OnFailure", "Created started=0", "F1 P", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"lost replicas", "OnFailure", "Created Running started=0", "L L", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"no start while a replica of the previous attempt runs", "OnFailure",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 R", 30,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    unchanged("no start while a replica of the previous attempt is pending", "OnFailure",
              "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 P", 30, "stop"),
    unchanged("no start during the backoff", "OnFailure",
              "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 F143", 9, "wake=10"),
    unchanged("starts after the backoff", "OnFailure",
              "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 F143", 10, "start"),
    unchanged("starts after the backoff without old pods", "OnFailure",
              "Created Restarting started=0 restarts=1 attempt=1 next=10", "", 10, "start"),
    {"failures of the previous attempt do not count", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1",
     "R R | F1 F143", 30, "Created Running active=2 started=0 restarts=1 attempt=1", ""},
    {"successes of the previous attempt do not count", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1",
     "R S | S S", 30, "Created Running active=1 succeeded=1 started=0 restarts=1 attempt=1", ""},
    {"the second backoff is 2 s", "OnFailure", "Created Running started=0 restarts=1 attempt=1 before=1", "F1 R", 50,
     "Created Restarting active=1 started=0 restarts=2 attempt=2 before=2 next=52", "stop"},
    {"the sixth backoff is 32 s", "OnFailure", "Created Running started=0 restarts=5 attempt=5", "F1 F1", 50,
     "Created Restarting started=0 restarts=6 attempt=6 before=2 next=82", "wake=82"},
    {"the seventh backoff is 60 s", "OnFailure", "Created Running started=0 restarts=6 attempt=6", "F1 F1", 50,
     "Created Restarting started=0 restarts=7 attempt=7 before=2 next=110", "wake=110"},
    {"the backoff after a thousand restarts is 60 s", "OnFailure",
     "Created Running started=0 restarts=1000 attempt=1000", "F1 F1", 50,
     "Created Restarting started=0 restarts=1001 attempt=1001 before=2 next=110", "wake=110"},
    {"a failure before it ran again restarts it", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1",
     "F1 P", 50, "Created Restarting started=0 restarts=2 attempt=2 before=1 next=52", "stop"},
    {"a clock that was set back does not prolong the backoff", "OnFailure",
     "Created Restarting started=0 restarts=1 attempt=1 next=9999", "", 50,
     "Created Restarting started=0 restarts=1 attempt=1 next=110", "wake=110"},

    // A taken port does not count as a failure of the job.
    {"a taken port begins a new attempt", "Never backoff=0", "Created started=0", "T P", 1,
     "Created started=0 attempt=1 taken=1", "stop"},
    {"a taken port while another replica runs", "ExitCode", "Created started=0", "T R", 1,
     "Created active=1 started=0 attempt=1 taken=1", "stop"},
    unchanged("starts without backoff after a taken port", "Never", "Created started=0 attempt=1 taken=1",
              "- - | T F143", 1, "start"),
    {"a taken port of a Running job", "Never", "Created Running active=1 started=0", "T F75", 9,
     "Created Running started=0 attempt=1 taken=1", "start"},
    {"a taken port of a Restarting job", "OnFailure",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "T P", 12,
     "Created Restarting started=0 restarts=1 attempt=2 before=1 taken=1 next=10", "stop"},
    {"a taken port of an Indexed Job", "batch Never backoff=0", "Created started=0", "T P", 1,
     "Created started=0 attempt=1 taken=1", "stop"},
    {"suspend wins over a taken port", "Never suspend", "Created started=0", "T P", 1,
     "Created Suspended started=0 attempt=1 before=1", "stop"},
    {"the deadline wins over a taken port", "Never deadline=9", "Created started=0", "T P", 9,
     "Created Failed failed=1 started=0 completed=9", "stop"},
    {"the eleventh taken port is a failure", "Never", "Created started=0 attempt=10 taken=10", "T P", 9,
     "Created Failed failed=1 started=0 completed=9 attempt=10 taken=10", "stop"},
    {"the eleventh taken port follows the policy", "OnFailure", "Created started=0 attempt=10 taken=10", "T T", 9,
     "Created Restarting started=0 restarts=1 attempt=11 before=2 taken=10 next=10", "wake=10"},

    // Exit codes.
    fails("code 1 is final", "ExitCode", "F1 R"),
    fails("code 127 is final", "ExitCode", "F127 R"),
    restarts("code 128 is retried", "ExitCode", "F128 R"),
    restarts("code 137 (SIGKILL) is retried", "ExitCode", "F137 R"),
    {"code 138 (kKubeflowRetry) is retried", "ExitCode", "Created Running started=0", "F138 F138", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    fails("code 75 is final, as in the operator", "ExitCode", "F75 R"),
    restarts("OnFailure retries any code", "OnFailure", "F75 R"),
    restarts("Always retries any code", "Always", "F1 R"),
    fails("Never retries no code", "Never", "F138 R"),
    restarts("ExitCode retries a lost replica", "ExitCode", "L R"),
    {"one final code is enough to fail", "ExitCode", "Created Running started=0", "F137 F2", 9,
     "Created !Running Failed failed=2 started=0 completed=9", ""},

    // backoffLimit.
    fails("backoffLimit 0 allows no restart", "OnFailure backoff=0", "F1 R"),
    {"one restart is left", "OnFailure backoff=2", "Created Running started=0 restarts=1 attempt=1", "F1 F1", 9,
     "Created Restarting started=0 restarts=2 attempt=2 before=2 next=11", "wake=11"},
    {"no restart is left", "OnFailure backoff=2", "Created Running started=0 restarts=2 attempt=2", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9 restarts=2 attempt=2", "stop"},
    {"suspensions do not count as restarts", "OnFailure backoff=1", "Created Running started=0 attempt=5", "F1 F1", 9,
     "Created Restarting started=0 restarts=1 attempt=6 before=2 next=10", "wake=10"},

    // activeDeadlineSeconds.
    {"wakes at the deadline", "deadline=60", "Created started=0", "R R", 9, "Created Running active=2 started=0",
     "wake=60"},
    {"one second before the deadline", "deadline=60", "Created Running started=0", "R R", 59,
     "Created Running active=2 started=0", "wake=60"},
    {"fails at the deadline", "deadline=60", "Created Running active=2 started=0", "R R", 60,
     "Created !Running Failed started=0 completed=60", "stop"},
    {"a pending job fails at the deadline", "deadline=60", "Created started=0", "P P", 61,
     "Created Failed started=0 completed=61", "stop"},
    {"a restart does not move the deadline", "OnFailure deadline=60",
     "Created Restarting started=0 restarts=1 attempt=1 next=62", "", 60,
     "Created !Restarting Failed started=0 completed=60 restarts=1 attempt=1", ""},
    {"wakes at the end of the backoff before the deadline", "OnFailure deadline=60", "Created Running started=0",
     "F1 F1", 9, "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"wakes at the deadline before the end of the backoff", "OnFailure deadline=10",
     "Created Running started=0 restarts=3 attempt=3", "F1 F1", 9,
     "Created Restarting started=0 restarts=4 attempt=4 before=2 next=17", "wake=10"},
    {"the deadline wins over a failure", "OnFailure deadline=60", "Created Running started=0", "F1 R", 60,
     "Created !Running Failed failed=1 started=0 completed=60", "stop"},
    unchanged("the deadline does not apply while suspended", "suspend deadline=60",
              "Created Suspended started=0 attempt=1", "", 999, ""),

    // Suspend and resume.
    {"created suspended", "suspend", "", "", 0, "Created Suspended", ""},
    unchanged("stays suspended", "suspend", "Created Suspended", "", 500, ""),
    {"the start time is the time of the resumption", "deadline=60", "Created Suspended", "", 500,
     "Created !Suspended started=500", "start wake=560"},
    {"suspended while running", "suspend", "Created Running active=2 started=0", "R R", 9,
     "Created !Running Suspended started=0 attempt=1", "stop"},
    unchanged("suspended: stops until all replicas have ended", "suspend",
              "Created !Running Suspended started=0 attempt=1", "- - | F143 R", 12, "stop"),
    unchanged("suspended: nothing left to stop", "suspend", "Created !Running Suspended started=0 attempt=1",
              "- - | F143 F143", 12, ""),
    {"suspended while pending", "suspend", "Created started=0", "P P", 9, "Created Suspended started=0 attempt=1",
     "stop"},
    {"suspended while restarting", "OnFailure suspend",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 R", 9,
     "Created !Restarting Suspended started=0 restarts=1 attempt=1 before=1", "stop"},
    {"a failure of a suspended job does not restart it", "OnFailure suspend", "Created Running started=0", "F1 R", 9,
     "Created !Running Suspended started=0 attempt=1 before=1", "stop"},
    {"resumed", "", "Created !Running Suspended started=0 attempt=1", "- - | F143 F143", 40,
     "Created !Running !Suspended started=40 attempt=1", "start"},
    {"resumed while an old replica still runs", "", "Created !Running Suspended started=0 attempt=1", "- - | F143 R",
     40, "Created !Running !Suspended active=1 started=40 attempt=1", "stop"},
    {"resumed and running", "", "Created !Running !Suspended started=40 attempt=1", "R R | F143 F143", 41,
     "Created !Suspended Running active=2 started=40 attempt=1", ""},
    {"resuming restarts the deadline", "deadline=60", "Created !Running Suspended started=0 attempt=1", "", 500,
     "Created !Running !Suspended started=500 attempt=1", "start wake=560"},

    // After the end: cleanPodPolicy and ttlSecondsAfterFinished.
    unchanged("None keeps logs", "clean=None", "Created Succeeded succeeded=2 completed=9", "S S", 10, ""),
    unchanged("Running keeps logs and stops running replicas", "clean=Running", "Created Failed failed=1 completed=9",
              "F1 R", 10, "stop"),
    {"All deletes logs", "clean=All", "Created Running active=2 started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", "clean"},
    {"All deletes nothing while a replica runs", "clean=All", "Created Running active=2 started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    unchanged("logs are deleted once", "clean=All", "Created Succeeded succeeded=2 completed=9", "", 10, ""),
    {"wakes when the TTL ends", "ttl=30", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", "wake=39"},
    unchanged("one second before the TTL ends", "ttl=30", "Created Succeeded completed=9", "S S", 38, "wake=39"),
    unchanged("removed when the TTL ends", "ttl=30", "Created Succeeded completed=9", "S S", 39, "remove"),
    unchanged("a failed job is removed too", "ttl=30", "Created Failed completed=9", "", 50, "remove"),
    fails("not removed while a replica runs", "ttl=0", "F1 R"),
    {"TTL 0 removes the job immediately", "ttl=0 clean=All", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", "clean remove"},
    unchanged("the deadline does not apply to a finished job", "ttl=30 deadline=20",
              "Created Succeeded started=0 completed=9", "", 25, "wake=39"),

    // Indexed Jobs.
    {"pending replicas are active", "batch", "Created started=0", "P P", 1, "Created active=2 started=0", ""},
    {"completed indexes as ranges", "batch replicas=6", "Created Running started=0", "S S S R S R", 5,
     "Created Running active=2 succeeded=4 started=0 indexes=0-2,4", ""},
    {"two consecutive indexes are not a range", "batch replicas=4", "Created Running started=0", "R S S R", 5,
     "Created Running active=2 succeeded=2 started=0 indexes=1,2", ""},
    restarts("restarts under policy Never", "batch Never backoff=6", "F1 R"),
    fails("fails at backoffLimit", "batch Never backoff=0", "F1 R"),
    {"an Indexed Job fails at the deadline", "batch deadline=9", "Created Running started=0", "R R", 9,
     "Created !Running Failed started=0 completed=9", "stop"},
    {"an Indexed Job succeeds", "batch", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9 indexes=0,1", ""},
    {"an Indexed Job is suspended", "batch suspend", "Created Running started=0", "R R", 9,
     "Created !Running Suspended started=0 attempt=1", "stop"},
};

Job job_in_state(const char* spec, const char* state) {
  Job job = job_of(spec);
  job.status = state_of(state, job.kind);
  return job;
}

TEST(Reconcile, TransitionsMatchTheTable) {
  static_assert(std::size(kTable) >= 100);
  for (const Transition& row : kTable) {
    SCOPED_TRACE(fmt::format("{}: {} / {} / {}", row.about, row.spec, row.before, row.pods));
    Job job = job_in_state(row.spec, row.before);
    const std::vector<Pod> pods = pods_of(row.pods, job.status.attempt);
    const JobStatus before = job.status;
    const int64_t version = job.version;
    const Decision decision = reconcile(job, pods, at(row.now));
    EXPECT_EQ(state_text(job.status), row.after);
    EXPECT_EQ(decision_text(decision), row.decision);
    EXPECT_EQ(job.version, version + (job.status == before ? 0 : 1));
  }
}

TEST(Reconcile, ASecondCallChangesNothing) {
  for (const Transition& row : kTable) {
    SCOPED_TRACE(fmt::format("{}: {} / {} / {}", row.about, row.spec, row.before, row.pods));
    Job job = job_in_state(row.spec, row.before);
    const std::vector<Pod> pods = pods_of(row.pods, job.status.attempt);
    const Decision first = reconcile(job, pods, at(row.now));
    const JobStatus status = job.status;
    const int64_t version = job.version;
    const Decision second = reconcile(job, pods, at(row.now));
    EXPECT_EQ(state_text(job.status), state_text(status));
    EXPECT_TRUE(job.status == status);
    EXPECT_EQ(job.version, version);
    EXPECT_EQ(decision_text(second), decision_text(first));
    EXPECT_TRUE(second.events.empty());
  }
}

// One call of reconcile() and the events it must return.
struct ExpectedEvents {
  const char *spec, *before, *pods;
  int now;
  std::vector<std::string> events;
};

const ExpectedEvents kEventsTable[] = {
    {"", "", "", 0, {"Normal jaxjob/mnist JAXJobCreated JAXJob mnist is created."}},
    {"", "Created", "R P", 0, {"Normal jaxjob/mnist JAXJobRunning JAXJob kubeflow/mnist is running."}},
    {"", "Created", "S S", 0, {"Normal jaxjob/mnist JAXJobSucceeded JAXJob kubeflow/mnist successfully completed."}},
    {"OnFailure",
     "Created",
     "F1 R",
     0,
     {"Warning jaxjob/mnist JAXJobRestarting JAXJob mnist is restarting because 1 Worker replica(s) failed."}},
    {"OnFailure",
     "Created Restarting restarts=1 attempt=1",
     "F1 F1",
     0,
     {"Warning jaxjob/mnist JAXJobRestarting JAXJob mnist is restarting because 2 Worker replica(s) failed."}},
    {"Never", "Created", "T R", 0, {"Warning jaxjob/mnist PortTaken JAXJob mnist is restarting with another port."}},
    {"batch", "Created", "T R", 0, {"Warning job/mnist PortTaken Job mnist is restarting with another port."}},
    {"Never",
     "Created",
     "F1 F1",
     0,
     {"Warning jaxjob/mnist JAXJobFailed JAXJob mnist is failed because 2 Worker replica(s) failed."}},
    {"OnFailure backoff=0",
     "Created",
     "F1 R",
     0,
     {"Warning jaxjob/mnist JAXJobFailed Job mnist has failed because it has reached the specified backoff limit"}},
    {"deadline=5",
     "Created started=0",
     "R R",
     5,
     {"Warning jaxjob/mnist JAXJobFailed Job mnist has failed because it was active longer than specified deadline"}},
    {"suspend",
     "",
     "",
     0,
     {"Normal jaxjob/mnist JAXJobCreated JAXJob mnist is created.",
      "Normal jaxjob/mnist JAXJobSuspended JAXJob mnist is suspended."}},
    {"suspend", "Created Running", "R R", 0, {"Normal jaxjob/mnist JAXJobSuspended JAXJob mnist is suspended."}},
    {"", "Created Suspended", "", 0, {"Normal jaxjob/mnist JAXJobResumed JAXJob mnist is resumed."}},
    {"batch", "", "", 0, {"Normal job/mnist JobCreated Job mnist is created."}},
    {"batch", "Created", "S S", 0, {"Normal job/mnist CompletionsReached Reached expected number of succeeded pods"}},
    {"batch backoff=0",
     "Created",
     "F1 R",
     0,
     {"Warning job/mnist BackoffLimitExceeded Job has reached the specified backoff limit"}},
    {"batch deadline=5",
     "Created started=0",
     "R R",
     5,
     {"Warning job/mnist DeadlineExceeded Job was active longer than specified deadline"}},
    {"batch suspend", "Created", "", 0, {"Normal job/mnist JobSuspended Job suspended"}},
    {"batch", "Created Suspended", "", 0, {"Normal job/mnist JobResumed Job resumed"}},
};

TEST(Reconcile, EventsAndConditionsHaveTheOperatorsTexts) {
  for (const ExpectedEvents& row : kEventsTable) {
    SCOPED_TRACE(fmt::format("{} / {} / {}", row.spec, row.before, row.pods));
    Job job = job_in_state(row.spec, row.before);
    const Decision decision = reconcile(job, pods_of(row.pods, job.status.attempt), at(row.now));
    std::vector<std::string> events;
    for (const JobEvent& event : decision.events) {
      EXPECT_EQ(event.time, at(row.now));
      events.push_back(std::string(event.warning ? "Warning " : "Normal ") + event.object + " " + event.reason + " " +
                       event.message);
    }
    EXPECT_EQ(events, row.events);
    // The last condition has the same text as the event; a condition that was true already keeps its text.
    const Condition& last = job.status.conditions.back();
    if (last.updated == at(row.now) && !last.message.empty()) {
      EXPECT_EQ(last.message, decision.events.back().message);
      EXPECT_EQ(last.reason, decision.events.back().reason);
    }
  }
}

Condition condition(const char* type, bool status, const char* reason, int second) {
  return {type, status, reason, "", at(second), at(second)};
}

// The status after setting these conditions in order.
JobStatus status_after(std::initializer_list<Condition> conditions) {
  JobStatus status;
  for (const Condition& each : conditions) set_condition(status, each);
  return status;
}

TEST(Conditions, SettingTheSameStatusAndReasonChangesNothing) {
  const JobStatus status = status_after(
      {condition("Running", true, "A", 1), condition("Suspended", false, "B", 2), condition("Running", true, "A", 9)});
  EXPECT_EQ(state_text(status), "Running !Suspended");
  EXPECT_EQ(status.conditions[0].updated, at(1));
}

TEST(Conditions, AChangedConditionMovesToTheEnd) {
  const JobStatus status = status_after(
      {condition("Running", true, "A", 1), condition("Suspended", false, "B", 2), condition("Running", false, "A", 3)});
  EXPECT_EQ(state_text(status), "!Suspended !Running");
}

TEST(Conditions, TheTransitionTimeChangesOnlyWithTheStatus) {
  JobStatus status = status_after({condition("Suspended", true, "A", 1), condition("Suspended", true, "B", 5)});
  EXPECT_EQ(status.conditions[0], (Condition{"Suspended", true, "B", "", at(5), at(1)}));
  set_condition(status, condition("Suspended", false, "B", 7));
  EXPECT_EQ(status.conditions[0], (Condition{"Suspended", false, "B", "", at(7), at(7)}));
}

TEST(Conditions, RunningAndRestartingReplaceEachOther) {
  JobStatus status = status_after({condition("Running", true, "A", 1), condition("Restarting", true, "B", 2)});
  EXPECT_EQ(state_text(status), "Restarting");
  set_condition(status, condition("Running", true, "A", 3));
  EXPECT_EQ(state_text(status), "Running");
}

TEST(Conditions, SucceededAndFailedEndRunningAndKeepItsTimes) {
  for (const char* end : {"Succeeded", "Failed"}) {
    const JobStatus status = status_after({condition("Running", true, "A", 1), condition(end, true, "B", 2)});
    EXPECT_EQ(state_text(status), std::string("!Running ") + end);
    EXPECT_EQ(status.conditions[0], (Condition{"Running", false, "A", "", at(1), at(1)}));
  }
}

TEST(Conditions, FailedIsFinal) {
  JobStatus status = status_after({condition("Failed", true, "A", 1)});
  for (const char* type : {"Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed"})
    set_condition(status, condition(type, true, "B", 2));
  EXPECT_EQ(state_text(status), "Failed");
  EXPECT_EQ(status.conditions[0].reason, "A");
}

TEST(JobState, IsTheLastConditionThatIsTrue) {
  Job job;
  EXPECT_EQ(job_state(job), "");
  EXPECT_FALSE(is_finished(job));
  job.status = state_of("Created Running", job.kind);
  EXPECT_EQ(job_state(job), "Running");
  EXPECT_FALSE(is_finished(job));
  job.status = state_of("Created !Running !Suspended", job.kind);
  EXPECT_EQ(job_state(job), "Created");
  for (const char* end : {"Succeeded", "Failed"}) {
    job.status = state_of(std::string("Created !Running ") + end, job.kind);
    EXPECT_EQ(job_state(job), end);
    EXPECT_TRUE(is_finished(job));
  }
}

TEST(PodName, DependsOnTheKind) {
  EXPECT_EQ(pod_name(job_of(""), 3), "mnist-worker-3");
  EXPECT_EQ(pod_name(job_of("batch"), 3), "mnist-3");
}

}  // namespace
}  // namespace lockstep
