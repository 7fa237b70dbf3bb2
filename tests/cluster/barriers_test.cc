// The coordinator's barriers and agreements.
#include <gtest/gtest.h>

#include "cluster/coordinator_job.h"

namespace lockstep {
namespace {

TEST(Barriers, CompletesWhenTheLastProcessArrives) {
  Job job(Job::patient(3));
  job.register_all();
  const auto a = job.ask(0, request::Barrier{"x", 5s}), b = job.ask(2, request::Barrier{"x", 5s});
  const auto other = job.ask(1, request::Barrier{"y", 60s});
  EXPECT_EQ(job.answer(a) + job.answer(b), "waitingwaiting");
  const auto c = job.ask(1, request::Barrier{"x", 5s});
  EXPECT_EQ(job.answer(a) + job.answer(b) + job.answer(c), "okokok");
  EXPECT_EQ(job.answer(other), "waiting");
}

TEST(Barriers, NameCanBeUsedAgain) {
  Job job(Job::patient(2));
  job.register_all();
  for (int i = 0; i < 3; ++i) {
    const auto a = job.ask(0, request::Barrier{"x", 5s});
    EXPECT_EQ(job.answer(a), "waiting");
    EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s})), "ok");
    EXPECT_EQ(job.answer(a), "ok");
  }
}

TEST(Barriers, TimeoutOfTheFirstCallerListsTheMissing) {
  Job job(Job::patient(4));
  job.register_all();
  const auto a = job.ask(3, request::Barrier{"x", 5s});
  job.pass(4s);
  const auto b = job.ask(0, request::Barrier{"x", 500s});
  job.pass(1s);
  const std::string message =
      "timeout: barrier \"x\": 2 of 4 processes arrived within 5 s; missing: process 1 (host n1), process 2 (host n2)";
  EXPECT_EQ(job.answer(a), message);
  EXPECT_EQ(job.answer(b), message);
  EXPECT_EQ(job.failure(), "none");
}

TEST(Barriers, LateProcessGetsTheTimeoutMessage) {
  Job job(Job::patient(2));
  job.register_all();
  const auto a = job.ask(0, request::Barrier{"x", 5s});
  job.pass(6s);
  const std::string message =
      "timeout: barrier \"x\": 1 of 2 processes arrived within 5 s; missing: process 1 (host n1)";
  EXPECT_EQ(job.answer(a), message);
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s})), message);
  // Now the name denotes a new barrier.
  const auto b = job.ask(1, request::Barrier{"x", 5s});
  EXPECT_EQ(job.answer(b), "waiting");
  job.ask(0, request::Barrier{"x", 5s});
  EXPECT_EQ(job.answer(b), "ok");
}

TEST(Barriers, RetryAfterTimeoutStartsANewBarrier) {
  Job job(Job::patient(2));
  job.register_all();
  job.ask(0, request::Barrier{"x", 5s});
  job.pass(6s);
  const auto again = job.ask(0, request::Barrier{"x", 5s});
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s})), "ok");
  EXPECT_EQ(job.answer(again), "ok");
}

TEST(Barriers, OnlyParticipantsAreAwaited) {
  Job job(Job::patient(4));
  job.register_all();
  const auto a = job.ask(3, request::Barrier{"x", 5s, {1, 3}});
  EXPECT_EQ(job.answer(job.ask(0, request::Barrier{"x", 5s, {1, 3}})),
            "refused: barrier \"x\": process 0 is not one of the participants 1, 3");
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s, {1, 2}})),
            "refused: barrier \"x\": process 1 gave participants 1, 2, others gave 1, 3; all must give the same");
  EXPECT_EQ(job.answer(job.ask(3, request::Barrier{"x", 5s, {3, 1}})),
            "refused: barrier \"x\": process 3 is already waiting there");
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s, {1, 4}})),
            "refused: barrier \"x\": participant 4 is not a process of this job, which has 4");
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s, {1, -1}})),
            "refused: barrier \"x\": participant -1 is not a process of this job, which has 4");
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s, {1, 1}})),
            "refused: barrier \"x\": participant 1 is named twice");
  EXPECT_EQ(job.answer(a), "waiting");
  EXPECT_EQ(job.answer(job.ask(1, request::Barrier{"x", 5s, {3, 1}})), "ok");
  EXPECT_EQ(job.answer(a), "ok");
}

TEST(Barriers, LongNameIsRefused) {
  Job job(Job::patient(1));
  job.register_all();
  const auto call = job.ask(0, request::Barrier{std::string(1025, 'x'), 5s});
  EXPECT_NE(job.answer(call).find("the name has 1025 bytes; at most 1024 are allowed"), std::string::npos);
}

TEST(Barriers, ProcessWithBrokenConnectionCountsAsNotArrived) {
  Job job(Job::patient(2));
  job.register_all();
  const auto gone = job.ask(0, request::Barrier{"x", 5s});
  job.cancel(gone);
  const auto a = job.ask(1, request::Barrier{"x", 9s});
  EXPECT_EQ(job.answer(a), "waiting");
  job.pass(9s);
  EXPECT_EQ(job.answer(a), "timeout: barrier \"x\": 1 of 2 processes arrived within 9 s; missing: process 0 (host n0)");
}

TEST(Agree, EqualHashesNeedNoTexts) {
  Job job(Job::patient(3));
  job.register_all();
  const auto a = job.ask(0, request::Agree{"p", 7, 5s}), b = job.ask(1, request::Agree{"p", 7, 5s});
  EXPECT_EQ(job.answer(a), "waiting");
  const auto c = job.ask(2, request::Agree{"p", 7, 5s});
  EXPECT_EQ(job.answer(a) + job.answer(b) + job.answer(c), "okokok");
}

TEST(Agree, FirstDifferentLineIsReported) {
  struct Row {
    const char *first, *second, *message;
  };
  const Row rows[] = {
      {"x\ny\nz", "x\nq\nz",
       "differ at equation 2:\n  process 0: y\n  process 2: q\nall processes must make the same calls in the same "
       "order"},
      {"x\ny\n", "x\n",
       "differ at equation 2:\n  process 0: y\n  process 2: (end of text)\nall processes must make the "
       "same calls in the same order"},
      {"", "x",
       "differ at equation 1:\n  process 0: (end of text)\n  process 2: x\nall processes must make the "
       "same calls in the same order"},
      {"x", "x\n", "differ, although their texts are equal; all processes must make the same calls in the same order"},
  };
  for (const Row& row : rows) {
    Job job(Job::patient(3));
    job.register_all();
    const auto a = job.ask(0, request::Agree{"p", 7, 5s}), b = job.ask(1, request::Agree{"p", 7, 5s});
    const auto c = job.ask(2, request::Agree{"p", 8, 5s});
    // Only the two processes that are asked send their texts.
    EXPECT_EQ(job.answer(a) + job.answer(b) + job.answer(c), "text_requestedwaitingtext_requested");
    const auto d = job.ask(0, request::Explain{"p", row.first, "equation"});
    EXPECT_EQ(job.answer(d), "waiting");
    const auto e = job.ask(2, request::Explain{"p", row.second, "equation"});
    const std::string message =
        std::string("refused: agree \"p\": process 0 (host n0) and process 2 (host n2) ") + row.message;
    for (auto call : {b, d, e}) EXPECT_EQ(job.answer(call), message);
    EXPECT_EQ(job.failure(), "none");
  }
}

TEST(Agree, LongLinesAreCut) {
  Job job(Job::patient(2));
  job.register_all();
  job.ask(0, request::Agree{"p", 1, 5s});
  job.ask(1, request::Agree{"p", 2, 5s});
  job.ask(0, request::Explain{"p", std::string(1000, 'x'), ""});
  const std::string message = job.answer(job.ask(1, request::Explain{"p", "y", ""}));
  EXPECT_NE(message.find("differ at line 1:\n  process 0: " + std::string(300, 'x') + "...\n"), std::string::npos)
      << message;
}

TEST(Agree, LongLinesAreShownWhereTheyDiffer) {
  Job job(Job::patient(2));
  job.register_all();
  job.ask(0, request::Agree{"p", 1, 5s});
  job.ask(1, request::Agree{"p", 2, 5s});
  const std::string same(1000, 'x');
  job.ask(0, request::Explain{"p", same + "a" + same, ""});
  const std::string message = job.answer(job.ask(1, request::Explain{"p", same + "b", ""}));
  EXPECT_NE(message.find("  process 0: ..." + std::string(150, 'x') + "a" + std::string(149, 'x') + "...\n"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("  process 1: ..." + std::string(150, 'x') + "b\n"), std::string::npos) << message;
}

TEST(Agree, DifferingProcessesAreCounted) {
  Job job(Job::patient(4));
  job.register_all();
  for (int i = 0; i < 4; ++i) job.ask(i, request::Agree{"p", static_cast<uint64_t>(i / 2), 5s});
  job.ask(0, request::Explain{"p", "a", "line"});
  EXPECT_EQ(job.answer(job.ask(2, request::Explain{"p", "b", "line"})),
            "refused: agree \"p\": process 0 (host n0) and process 2 (host n2) differ (2 of 4 processes differ from "
            "process 0) at line 1:\n  process 0: a\n  process 2: b\nall processes must make the same calls in the same "
            "order");
}

TEST(Agree, WaitForTextsHasATimeout) {
  Job job(Job::patient(3));
  job.register_all();
  job.ask(0, request::Agree{"p", 7, 5s});
  const auto b = job.ask(1, request::Agree{"p", 7, 5s});
  job.ask(2, request::Agree{"p", 8, 5s});
  const auto d = job.ask(0, request::Explain{"p", "x", "line"});
  job.pass(5s);
  const std::string message =
      "refused: agree \"p\": process 0 (host n0) and process 2 (host n2) differ; all processes must make the same "
      "calls in the same order";
  EXPECT_EQ(job.answer(b), message);
  EXPECT_EQ(job.answer(d), message);
}

TEST(Agree, TimeoutListsTheMissing) {
  Job job(Job::patient(2));
  job.register_all();
  const auto a = job.ask(0, request::Agree{"p", 7, 5s});
  job.pass(5s);
  EXPECT_EQ(job.answer(a), "timeout: agree \"p\": 1 of 2 processes arrived within 5 s; missing: process 1 (host n1)");
}

TEST(Agree, UnrequestedTextsAreRefused) {
  Job job(Job::patient(3));
  job.register_all();
  EXPECT_EQ(job.answer(job.ask(1, request::Explain{"p", "x", ""})),
            "refused: agree \"p\": process 1 was not asked for its text");
  for (int i = 0; i < 3; ++i) job.ask(i, request::Agree{"p", i == 2 ? 1u : 0u, 5s});
  EXPECT_EQ(job.answer(job.ask(1, request::Explain{"p", "x", ""})),
            "refused: agree \"p\": process 1 was not asked for its text");
  job.ask(0, request::Explain{"p", "x", ""});
  EXPECT_EQ(job.answer(job.ask(0, request::Explain{"p", "x", ""})),
            "refused: agree \"p\": process 0 was not asked for its text");
}

TEST(Agree, BarrierOfTheSameNameIsSeparate) {
  Job job(Job::patient(2));
  job.register_all();
  const auto a = job.ask(0, request::Agree{"p", 7, 5s}), b = job.ask(1, request::Barrier{"p", 5s});
  EXPECT_EQ(job.answer(a) + job.answer(b), "waitingwaiting");
}

}  // namespace
}  // namespace lockstep
