// The coordinator's key-value store.
#include <gtest/gtest.h>

#include <limits>

#include "cluster/coordinator_job.h"

namespace lockstep {
namespace {

TEST(Keys, GetWaitsUntilTheKeyIsSet) {
  Job job(Job::patient(2));
  job.register_all();
  const auto first = job.ask(0, request::Get{"a", true, 5s}), other = job.ask(1, request::Get{"b", true, 5s});
  job.pass(4s);
  EXPECT_EQ(job.answer(first), "waiting");
  EXPECT_EQ(job.answer(job.ask(1, request::Set{"a", "value"})), "ok");
  EXPECT_EQ(job.answer(first), "ok: value");
  EXPECT_EQ(job.answer(job.ask(1, request::Get{"a", true, 5s})), "ok: value");
  job.pass(1s);
  EXPECT_EQ(job.answer(other), "timeout: get: no process has set the key \"b\" within 5 s");
}

TEST(Keys, TryGetDoesNotWait) {
  Job job(Job::patient(1));
  job.register_all();
  EXPECT_EQ(job.answer(job.ask(0, request::Get{"a", false})), "absent: get: the key \"a\" is not set");
  job.ask(0, request::Set{"a", "1"});
  EXPECT_EQ(job.answer(job.ask(0, request::Get{"a", false})), "ok: 1");
}

TEST(Keys, CancelledGetIsForgotten) {
  Job job(Job::patient(1));
  job.register_all();
  const auto call = job.ask(0, request::Get{"a", true, 5s});
  job.cancel(call);
  job.pass(10s);
  EXPECT_EQ(job.answer(call), "waiting");
}

TEST(Keys, SetOverwritesOnlyIfRequested) {
  Job job(Job::patient(1));
  job.register_all();
  job.ask(0, request::Set{"a", "1"});
  EXPECT_EQ(job.answer(job.ask(0, request::Set{"a", "2"})),
            "refused: set: the key \"a\" is already set; remove it first, or use overwrite()");
  EXPECT_EQ(job.answer(job.ask(0, request::Get{"a"})), "ok: 1");
  EXPECT_EQ(job.answer(job.ask(0, request::Set{"a", "2", true})), "ok");
  EXPECT_EQ(job.answer(job.ask(0, request::Get{"a"})), "ok: 2");
}

TEST(Keys, IncrementCounts) {
  Job job(Job::patient(1));
  job.register_all();
  const auto waiting = job.ask(0, request::Get{"n", true, 5s});
  EXPECT_EQ(job.full(job.ask(0, request::Increment{"n"})).number, 1);
  EXPECT_EQ(job.answer(waiting), "ok: 1");
  EXPECT_EQ(job.full(job.ask(0, request::Increment{"n", -5})).number, -4);
  job.ask(0, request::Set{"s", "4x"});
  EXPECT_EQ(job.answer(job.ask(0, request::Increment{"s"})),
            "refused: increment: the value of \"s\" is \"4x\", which is not a number");
  job.ask(0, request::Set{"n", std::to_string(std::numeric_limits<int64_t>::max()), true});
  EXPECT_EQ(job.answer(job.ask(0, request::Increment{"n", 2})),
            "refused: increment: \"n\" plus 2 does not fit 64 bits");
}

TEST(Keys, DirectoriesAreListedAndRemoved) {
  Job job(Job::patient(1));
  job.register_all();
  for (const char* key : {"a/2", "a/10", "ab", "a", "b/x/y"}) job.ask(0, request::Set{key, "v"});
  using Entries = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(job.full(job.ask(0, request::List{"a"})).entries, (Entries{{"a/10", "v"}, {"a/2", "v"}}));
  EXPECT_EQ(job.full(job.ask(0, request::List{"a/"})).entries, (Entries{{"a/10", "v"}, {"a/2", "v"}}));
  EXPECT_EQ(job.full(job.ask(0, request::List{"c"})).entries, Entries{});
  EXPECT_EQ(job.full(job.ask(0, request::List{""})).entries.size(), 5u);
  EXPECT_EQ(job.full(job.ask(0, request::Remove{"a"})).number, 3);
  EXPECT_EQ(job.full(job.ask(0, request::Remove{"a"})).number, 0);
  EXPECT_EQ(job.full(job.ask(0, request::List{""})).entries, (Entries{{"ab", "v"}, {"b/x/y", "v"}}));
}

TEST(Keys, LimitsAreEnforced) {
  CoordinatorOptions options = Job::patient(2);
  options.keys = {.key_bytes = 8, .value_bytes = 10, .count = 3, .total_bytes = 30, .list_bytes = 12};
  Job job(options);
  job.register_all();
  struct Row {
    decltype(Request::what) what;
    const char* answer;
  };
  const Row rows[] = {
      {request::Set{"", "v"}, "refused: set: the key is empty"},
      {request::Get{"", false}, "refused: get: the key is empty"},
      {request::Increment{""}, "refused: increment: the key is empty"},
      {request::Remove{""}, "refused: remove: the key is empty"},
      {request::Set{"123456789", "v"}, "refused: set: the key has 9 bytes (\"123456789...\"); at most 8 are allowed"},
      {request::Set{"a\n", "v"}, "refused: set: the key contains a control character"},
      {request::Set{"a", "12345678901"},
       "refused: set: the value of \"a\" has 11 bytes; at most 10 are allowed: use several keys, or a file"},
      {request::Set{"a", "1234567890"}, "ok"},
      {request::Set{"b", "1234567890"}, "ok"},
      {request::List{""},
       "refused: list: the entries below \"\" have more than 12 bytes, the maximum of an answer; get them "
       "one by one"},
      {request::Set{"c", "1234567890"},
       "refused: set: \"c\" does not fit: all keys and values together would have 33 bytes; at "
       "most 30 are allowed: remove some keys"},
      {request::Set{"c", "1"}, "ok"},
      {request::Set{"d", "1"},
       "refused: set: the store has 3 keys, the maximum, so \"d\" cannot be added; remove some keys"},
      {request::Set{"c", "2", true}, "ok"},
      {request::Remove{"a"}, "ok"},
      {request::Set{"d", "1"}, "ok"},
  };
  for (const Row& row : rows) EXPECT_EQ(job.answer(job.ask(0, row.what)), row.answer);
}

TEST(Keys, DefaultLimits) {
  const KeyLimits limits = CoordinatorOptions{}.keys;
  EXPECT_EQ(limits.key_bytes, 1024u);
  EXPECT_EQ(limits.value_bytes, size_t{4} << 20);
}

}  // namespace
}  // namespace lockstep
