#include "cluster/join_events.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/variable.h"

namespace lockstep {
namespace {

TEST(JoinEvents, ArriveInOrder) {
  JoinEventReceiver receiver;
  const ScopedVariable variable(kLauncherVariable, receiver.name());
  EXPECT_TRUE(receiver.receive().empty());
  notify_launcher({.process = 3, .joined = false});
  notify_launcher({.process = 3, .joined = true});
  notify_launcher({.process = 0, .joined = false});
  EXPECT_EQ(receiver.receive(), (std::vector<JoinEvent>{{3, false}, {3, true}, {0, false}}));
  EXPECT_TRUE(receiver.receive().empty());
}

TEST(JoinEvents, AreDroppedWithoutALauncher) {
  std::string name;
  {
    const JoinEventReceiver receiver;
    name = receiver.name();
  }
  for (const std::string& nowhere : {name, std::string(), std::string(200, 'x')}) {
    const ScopedVariable variable(kLauncherVariable, nowhere);
    notify_launcher({.process = 0, .joined = true});  // returns immediately
  }
}

TEST(JoinEvents, OfAnotherUserAreDropped) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  JoinEventReceiver receiver;
  const ScopedVariable variable(kLauncherVariable, receiver.name());
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    notify_launcher({.process = 0, .joined = true});
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  pollfd ready = {receiver.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 60'000), 1);
  EXPECT_TRUE(receiver.receive().empty());
}

}  // namespace
}  // namespace lockstep
