#include "cluster/launcher_news.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/variable.h"

namespace lockstep {
namespace {

TEST(LauncherNews, ArriveInOrder) {
  LauncherInbox inbox;
  const ScopedVariable variable(kLauncherVariable, inbox.name());
  EXPECT_TRUE(inbox.take().empty());
  tell_launcher({.process = 3, .joined = false});
  tell_launcher({.process = 3, .joined = true});
  tell_launcher({.process = 0, .joined = false});
  EXPECT_EQ(inbox.take(), (std::vector<JoinNews>{{3, false}, {3, true}, {0, false}}));
  EXPECT_TRUE(inbox.take().empty());
}

TEST(LauncherNews, AreNotSentWhereNobodyListens) {
  std::string name;
  {
    const LauncherInbox inbox;
    name = inbox.name();
  }
  for (const std::string& nowhere : {name, std::string(), std::string(200, 'x')}) {
    const ScopedVariable variable(kLauncherVariable, nowhere);
    tell_launcher({.process = 0, .joined = true});  // returns at once
  }
}

TEST(LauncherNews, OfAnotherUserAreDropped) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  LauncherInbox inbox;
  const ScopedVariable variable(kLauncherVariable, inbox.name());
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    tell_launcher({.process = 0, .joined = true});
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  pollfd ready = {inbox.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 60'000), 1);
  EXPECT_TRUE(inbox.take().empty());
}

}  // namespace
}  // namespace lockstep
