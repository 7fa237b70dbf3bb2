#include "jobs/model/reconcile.h"

#include <gtest/gtest.h>

#include "job_model/state_text.h"

namespace lockstep {
namespace {

// One call: what the job is, its state, its replicas and the second; the state after it and what is to be done.
struct Row {
  const char *about, *spec, *before, *pods;
  int now;
  const char *after, *decision;
};

const Row kTable[] = {
    // How it begins.
    {"a new job starts", "", "", "", 0, "Created started=0", "start"},
    {"one replica too", "replicas=1", "", "", 3, "Created started=3", "start"},
    {"a created one starts", "", "Created", "", 5, "Created started=5", "start"},
    {"the start time stays", "", "Created started=0", "", 5, "Created started=0", "start"},
    {"replicas that wait", "", "Created started=0", "P P", 1, "Created started=0", ""},
    {"a start that was cut short goes on", "", "Created started=0", "P -", 1, "Created started=0", "start"},
    {"also beside one that runs", "", "Created started=0", "R -", 1, "Created Running active=1 started=0", "start"},
    {"the last one is missing", "replicas=3", "Created started=0", "R R -", 1, "Created Running active=2 started=0",
     "start"},

    // How it runs.
    {"one runs", "", "Created started=0", "R P", 2, "Created Running active=1 started=0", ""},
    {"all run", "", "Created started=0", "R R", 2, "Created Running active=2 started=0", ""},
    {"running goes on", "", "Created Running active=1 started=0", "R R", 9, "Created Running active=2 started=0", ""},
    {"one is done", "", "Created Running active=2 started=0", "S R", 9,
     "Created Running active=1 succeeded=1 started=0", ""},
    {"one is done, the other waits", "", "Created started=0", "S P", 9, "Created succeeded=1 started=0", ""},
    {"a running set after a restart is no longer restarting", "OnFailure",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=4", "R R", 9,
     "Created Running active=2 started=0 restarts=1 attempt=1 before=1 next=4", ""},

    // How it ends well.
    {"all are done", "", "Created Running active=2 started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},
    {"so fast that nobody saw it run", "", "Created started=0", "S S", 9,
     "Created Succeeded succeeded=2 started=0 completed=9", ""},
    {"whatever the policy", "Always", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},
    {"after a restart", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1", "S S", 9,
     "Created !Restarting Succeeded succeeded=2 started=0 completed=9 restarts=1 attempt=1", ""},
    {"a success at the deadline is one", "deadline=9", "Created Running started=0", "S S", 20,
     "Created !Running Succeeded succeeded=2 started=0 completed=20", ""},
    {"a success while it is to be suspended is one", "suspend", "Created Running started=0", "S S", 20,
     "Created !Running Succeeded succeeded=2 started=0 completed=20", ""},
    {"it stays", "", "Created !Running Succeeded succeeded=2 started=0 completed=9", "S S", 99,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},
    {"also when its replicas are gone", "", "Created !Running Succeeded succeeded=2 started=0 completed=9", "", 99,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},
    {"and when it is suspended later", "suspend", "Created !Running Succeeded succeeded=2 started=0 completed=9", "S S",
     99, "Created !Running Succeeded succeeded=2 started=0 completed=9", ""},

    // How it fails for ever.
    {"policy Never", "Never", "Created Running active=2 started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"policy Never, all at once", "Never", "Created Running active=2 started=0", "F1 F1", 9,
     "Created !Running Failed failed=2 started=0 completed=9", ""},
    {"policy Never, a code to try again", "Never", "Created Running started=0", "F137 S", 9,
     "Created !Running Failed succeeded=1 failed=1 started=0 completed=9", ""},
    {"policy Never, a lost one", "Never", "Created Running started=0", "L R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"before it ran", "Never", "Created started=0", "F127 P", 1, "Created Failed failed=1 started=0 completed=1",
     "stop"},
    {"nothing changes after it", "OnFailure", "Created !Running Failed failed=1 started=0 completed=9", "F1 F143", 11,
     "Created !Running Failed failed=1 started=0 completed=9", ""},
    {"those that still run are stopped again", "Never", "Created !Running Failed failed=1 started=0 completed=9",
     "F1 R", 11, "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"a late success changes nothing", "Never", "Created !Running Failed failed=1 started=0 completed=9", "S S", 11,
     "Created !Running Failed failed=1 started=0 completed=9", ""},
    {"nor does a suspension", "Never suspend", "Created !Running Failed failed=1 started=0 completed=9", "", 11,
     "Created !Running Failed failed=1 started=0 completed=9", ""},

    // How it is restarted.
    {"policy OnFailure", "OnFailure", "Created Running active=2 started=0", "F1 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"policy Always", "Always", "Created Running active=2 started=0", "R F1", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"two at once are one restart", "OnFailure", "Created Running active=2 started=0", "F1 F75", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"one that was done does it again", "OnFailure", "Created Running started=0", "S F1", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "wake=10"},
    {"one that waits is forgotten", "OnFailure", "Created started=0", "F1 P", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"a lost one", "OnFailure", "Created Running started=0", "L L", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"no start while an old one runs", "OnFailure",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 R", 30,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"nor while an old one waits", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10",
     "- - | F1 P", 30, "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"nor before the pause is over", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10",
     "- - | F1 F143", 9, "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "wake=10"},
    {"but then", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 F143", 10,
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "start"},
    {"also when the old ones are forgotten", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1 next=10",
     "", 10, "Created Restarting started=0 restarts=1 attempt=1 next=10", "start"},
    {"what the old ones did is no failure of the new", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1",
     "R R | F1 F143", 30, "Created Running active=2 started=0 restarts=1 attempt=1", ""},
    {"nor a success", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1", "R S | S S", 30,
     "Created Running active=1 succeeded=1 started=0 restarts=1 attempt=1", ""},
    {"the second pause is twice as long", "OnFailure", "Created Running started=0 restarts=1 attempt=1 before=1",
     "F1 R", 50, "Created Restarting active=1 started=0 restarts=2 attempt=2 before=2 next=52", "stop"},
    {"the sixth is 32 s", "OnFailure", "Created Running started=0 restarts=5 attempt=5", "F1 F1", 50,
     "Created Restarting started=0 restarts=6 attempt=6 before=2 next=82", "wake=82"},
    {"no pause is longer than 60 s", "OnFailure", "Created Running started=0 restarts=6 attempt=6", "F1 F1", 50,
     "Created Restarting started=0 restarts=7 attempt=7 before=2 next=110", "wake=110"},
    {"not after a thousand either", "OnFailure", "Created Running started=0 restarts=1000 attempt=1000", "F1 F1", 50,
     "Created Restarting started=0 restarts=1001 attempt=1001 before=2 next=110", "wake=110"},
    {"a failure before it ran again", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1", "F1 P", 50,
     "Created Restarting started=0 restarts=2 attempt=2 before=1 next=52", "stop"},
    {"a clock that was set back", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1 next=9999", "", 50,
     "Created Restarting started=0 restarts=1 attempt=1 next=110", "wake=110"},

    // A taken port is no failure of the job.
    {"a taken port", "Never backoff=0", "Created started=0", "T P", 1, "Created started=0 attempt=1 taken=1", "stop"},
    {"while another one runs", "ExitCode", "Created started=0", "T R", 1,
     "Created active=1 started=0 attempt=1 taken=1", "stop"},
    {"the next start is at once", "Never", "Created started=0 attempt=1 taken=1", "- - | T F143", 1,
     "Created started=0 attempt=1 taken=1", "start"},
    {"also of a job that shows that it runs", "Never", "Created Running active=1 started=0", "T F75", 9,
     "Created Running started=0 attempt=1 taken=1", "start"},
    {"of a restarted one", "OnFailure", "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "T P", 12,
     "Created Restarting started=0 restarts=1 attempt=2 before=1 taken=1 next=10", "stop"},
    {"of an Indexed Job", "batch Never backoff=0", "Created started=0", "T P", 1, "Created started=0 attempt=1 taken=1",
     "stop"},
    {"not when it is suspended", "Never suspend", "Created started=0", "T P", 1,
     "Created Suspended started=0 attempt=1 before=1", "stop"},
    {"not at the deadline", "Never deadline=9", "Created started=0", "T P", 9,
     "Created Failed failed=1 started=0 completed=9", "stop"},
    {"not for ever", "Never", "Created started=0 attempt=10 taken=10", "T P", 9,
     "Created Failed failed=1 started=0 completed=9 attempt=10 taken=10", "stop"},
    {"then the policy is asked", "OnFailure", "Created started=0 attempt=10 taken=10", "T T", 9,
     "Created Restarting started=0 restarts=1 attempt=11 before=2 taken=10 next=10", "wake=10"},

    // By their codes.
    {"code 1 is final", "ExitCode", "Created Running started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"code 127 is final", "ExitCode", "Created Running started=0", "F127 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"code 128 is tried again", "ExitCode", "Created Running started=0", "F128 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"code 137, a kill, is tried again", "ExitCode", "Created Running started=0", "F137 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"code 138, our own, is tried again", "ExitCode", "Created Running started=0", "F138 F138", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"code 75 is final, as for the operator", "ExitCode", "Created Running started=0", "F75 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"any code is tried again by OnFailure", "OnFailure", "Created Running started=0", "F75 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"any code is tried again by Always", "Always", "Created Running started=0", "F1 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"no code is tried again by Never", "Never", "Created Running started=0", "F138 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"a lost one is tried again", "ExitCode", "Created Running started=0", "L R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"one final code is enough", "ExitCode", "Created Running started=0", "F137 F2", 9,
     "Created !Running Failed failed=2 started=0 completed=9", ""},

    // The limit of restarts.
    {"no restart at all", "OnFailure backoff=0", "Created Running started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"one is left", "OnFailure backoff=2", "Created Running started=0 restarts=1 attempt=1", "F1 F1", 9,
     "Created Restarting started=0 restarts=2 attempt=2 before=2 next=11", "wake=11"},
    {"none is left", "OnFailure backoff=2", "Created Running started=0 restarts=2 attempt=2", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9 restarts=2 attempt=2", "stop"},
    {"suspensions do not count", "OnFailure backoff=1", "Created Running started=0 attempt=5", "F1 F1", 9,
     "Created Restarting started=0 restarts=1 attempt=6 before=2 next=10", "wake=10"},

    // The deadline.
    {"it is woken for it", "deadline=60", "Created started=0", "R R", 9, "Created Running active=2 started=0",
     "wake=60"},
    {"one second before it", "deadline=60", "Created Running started=0", "R R", 59,
     "Created Running active=2 started=0", "wake=60"},
    {"it has come", "deadline=60", "Created Running active=2 started=0", "R R", 60,
     "Created !Running Failed started=0 completed=60", "stop"},
    {"for one that waits too", "deadline=60", "Created started=0", "P P", 61, "Created Failed started=0 completed=61",
     "stop"},
    {"a restart does not move it", "OnFailure deadline=60", "Created Restarting started=0 restarts=1 attempt=1 next=62",
     "", 60, "Created !Restarting Failed started=0 completed=60 restarts=1 attempt=1", ""},
    {"the pause may be over before", "OnFailure deadline=60", "Created Running started=0", "F1 F1", 9,
     "Created Restarting started=0 restarts=1 attempt=1 before=2 next=10", "wake=10"},
    {"or after", "OnFailure deadline=10", "Created Running started=0 restarts=3 attempt=3", "F1 F1", 9,
     "Created Restarting started=0 restarts=4 attempt=4 before=2 next=17", "wake=10"},
    {"it comes before a failure", "OnFailure deadline=60", "Created Running started=0", "F1 R", 60,
     "Created !Running Failed failed=1 started=0 completed=60", "stop"},
    {"it does not count while suspended", "suspend deadline=60", "Created Suspended started=0 attempt=1", "", 999,
     "Created Suspended started=0 attempt=1", ""},

    // Suspended and resumed.
    {"created suspended", "suspend", "", "", 0, "Created Suspended", ""},
    {"it stays so", "suspend", "Created Suspended", "", 500, "Created Suspended", ""},
    {"its start time is that of the resumption", "deadline=60", "Created Suspended", "", 500,
     "Created !Suspended started=500", "start wake=560"},
    {"suspended while it runs", "suspend", "Created Running active=2 started=0", "R R", 9,
     "Created !Running Suspended started=0 attempt=1", "stop"},
    {"until all are gone", "suspend", "Created !Running Suspended started=0 attempt=1", "- - | F143 R", 12,
     "Created !Running Suspended started=0 attempt=1", "stop"},
    {"then it waits", "suspend", "Created !Running Suspended started=0 attempt=1", "- - | F143 F143", 12,
     "Created !Running Suspended started=0 attempt=1", ""},
    {"suspended while it waits", "suspend", "Created started=0", "P P", 9, "Created Suspended started=0 attempt=1",
     "stop"},
    {"suspended while it restarts", "OnFailure suspend",
     "Created Restarting started=0 restarts=1 attempt=1 before=1 next=10", "- - | F1 R", 9,
     "Created !Restarting Suspended started=0 restarts=1 attempt=1 before=1", "stop"},
    {"a failure meanwhile is no restart", "OnFailure suspend", "Created Running started=0", "F1 R", 9,
     "Created !Running Suspended started=0 attempt=1 before=1", "stop"},
    {"resumed", "", "Created !Running Suspended started=0 attempt=1", "- - | F143 F143", 40,
     "Created !Running !Suspended started=40 attempt=1", "start"},
    {"resumed while an old one still runs", "", "Created !Running Suspended started=0 attempt=1", "- - | F143 R", 40,
     "Created !Running !Suspended active=1 started=40 attempt=1", "stop"},
    {"resumed and running", "", "Created !Running !Suspended started=40 attempt=1", "R R | F143 F143", 41,
     "Created !Suspended Running active=2 started=40 attempt=1", ""},
    {"resumed, it has its whole time", "deadline=60", "Created !Running Suspended started=0 attempt=1", "", 500,
     "Created !Running !Suspended started=500 attempt=1", "start wake=560"},

    // After the end.
    {"logs stay", "clean=None", "Created Succeeded succeeded=2 completed=9", "S S", 10,
     "Created Succeeded succeeded=2 completed=9", ""},
    {"logs stay, what runs does not", "clean=Running", "Created Failed failed=1 completed=9", "F1 R", 10,
     "Created Failed failed=1 completed=9", "stop"},
    {"all goes", "clean=All", "Created Running active=2 started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", "clean"},
    {"but not before it has ended", "clean=All", "Created Running active=2 started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"once", "clean=All", "Created Succeeded succeeded=2 completed=9", "", 10,
     "Created Succeeded succeeded=2 completed=9", ""},
    {"it is woken for its removal", "ttl=30", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", "wake=39"},
    {"one second before it", "ttl=30", "Created Succeeded completed=9", "S S", 38, "Created Succeeded completed=9",
     "wake=39"},
    {"it is removed", "ttl=30", "Created Succeeded completed=9", "S S", 39, "Created Succeeded completed=9", "remove"},
    {"a failed one too", "ttl=30", "Created Failed completed=9", "", 50, "Created Failed completed=9", "remove"},
    {"but nothing that runs", "ttl=0", "Created Running started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"at once", "ttl=0 clean=All", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9", "clean remove"},
    {"the deadline is over with the end", "ttl=30 deadline=20", "Created Succeeded started=0 completed=9", "", 25,
     "Created Succeeded started=0 completed=9", "wake=39"},

    // An Indexed Job.
    {"one that waits is active", "batch", "Created started=0", "P P", 1, "Created active=2 started=0", ""},
    {"it knows which are done", "batch replicas=6", "Created Running started=0", "S S S R S R", 5,
     "Created Running active=2 succeeded=4 started=0 indexes=0-2,4", ""},
    {"two in a row are no range", "batch replicas=4", "Created Running started=0", "R S S R", 5,
     "Created Running active=2 succeeded=2 started=0 indexes=1,2", ""},
    {"its policy does not forbid restarts", "batch Never backoff=6", "Created Running started=0", "F1 R", 9,
     "Created Restarting active=1 started=0 restarts=1 attempt=1 before=1 next=10", "stop"},
    {"its limit does", "batch Never backoff=0", "Created Running started=0", "F1 R", 9,
     "Created !Running Failed failed=1 started=0 completed=9", "stop"},
    {"its deadline too", "batch deadline=9", "Created Running started=0", "R R", 9,
     "Created !Running Failed started=0 completed=9", "stop"},
    {"it succeeds", "batch", "Created Running started=0", "S S", 9,
     "Created !Running Succeeded succeeded=2 started=0 completed=9 indexes=0,1", ""},
    {"it is suspended", "batch suspend", "Created Running started=0", "R R", 9,
     "Created !Running Suspended started=0 attempt=1", "stop"},
};

TEST(Reconcile, EveryTransitionIsAsTheTableSays) {
  static_assert(std::size(kTable) >= 100);
  for (const Row& row : kTable) {
    SCOPED_TRACE(std::string(row.about) + ": " + row.spec + " / " + row.before + " / " + row.pods);
    Job job = job_of(row.spec);
    job.status = state_of(row.before, job.kind);
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
  for (const Row& row : kTable) {
    SCOPED_TRACE(std::string(row.about) + ": " + row.spec + " / " + row.before + " / " + row.pods);
    Job job = job_of(row.spec);
    job.status = state_of(row.before, job.kind);
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

// What one call says: the events of it.
struct Saying {
  const char *spec, *before, *pods;
  int now;
  std::vector<std::string> events;
};

TEST(Reconcile, EventsAndConditionsHaveTheWordsOfTheOriginal) {
  const std::vector<Saying> table = {
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
      {"Never", "Created", "T R", 0, {"Warning jaxjob/mnist PortTaken JAXJob mnist starts again with another port."}},
      {"batch", "Created", "T R", 0, {"Warning job/mnist PortTaken Job mnist starts again with another port."}},
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
  for (const Saying& row : table) {
    SCOPED_TRACE(std::string(row.spec) + " / " + row.before + " / " + row.pods);
    Job job = job_of(row.spec);
    job.status = state_of(row.before, job.kind);
    const Decision decision = reconcile(job, pods_of(row.pods, job.status.attempt), at(row.now));
    std::vector<std::string> events;
    for (const JobEvent& event : decision.events) {
      EXPECT_EQ(event.time, at(row.now));
      events.push_back(std::string(event.warning ? "Warning " : "Normal ") + event.object + " " + event.reason + " " +
                       event.message);
    }
    EXPECT_EQ(events, row.events);
    // The condition set last says the same; one that was true already keeps its words.
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

TEST(Conditions, TheSameStatusAndReasonIsNoChange) {
  JobStatus status;
  set_condition(status, condition("Running", true, "A", 1));
  set_condition(status, condition("Suspended", false, "B", 2));
  set_condition(status, condition("Running", true, "A", 9));
  EXPECT_EQ(state_text(status), "Running !Suspended");
  EXPECT_EQ(status.conditions[0].updated, at(1));
}

TEST(Conditions, OneThatIsSetMovesToTheEnd) {
  JobStatus status;
  set_condition(status, condition("Running", true, "A", 1));
  set_condition(status, condition("Suspended", false, "B", 2));
  set_condition(status, condition("Running", false, "A", 3));
  EXPECT_EQ(state_text(status), "!Suspended !Running");
}

TEST(Conditions, TheTransitionTimeMovesWithTheStatusOnly) {
  JobStatus status;
  set_condition(status, condition("Suspended", true, "A", 1));
  set_condition(status, condition("Suspended", true, "B", 5));
  EXPECT_EQ(status.conditions[0], (Condition{"Suspended", true, "B", "", at(5), at(1)}));
  set_condition(status, condition("Suspended", false, "B", 7));
  EXPECT_EQ(status.conditions[0], (Condition{"Suspended", false, "B", "", at(7), at(7)}));
}

TEST(Conditions, RunningAndRestartingReplaceEachOther) {
  JobStatus status;
  set_condition(status, condition("Running", true, "A", 1));
  set_condition(status, condition("Restarting", true, "B", 2));
  EXPECT_EQ(state_text(status), "Restarting");
  set_condition(status, condition("Running", true, "A", 3));
  EXPECT_EQ(state_text(status), "Running");
}

TEST(Conditions, TheEndEndsRunningAndKeepsItsTimes) {
  for (const char* end : {"Succeeded", "Failed"}) {
    JobStatus status;
    set_condition(status, condition("Running", true, "A", 1));
    set_condition(status, condition(end, true, "B", 2));
    EXPECT_EQ(state_text(status), std::string("!Running ") + end);
    EXPECT_EQ(status.conditions[0], (Condition{"Running", false, "A", "", at(1), at(1)}));
  }
}

TEST(Conditions, NothingIsSetAfterFailed) {
  JobStatus status;
  set_condition(status, condition("Failed", true, "A", 1));
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
