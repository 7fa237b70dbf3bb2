#include "cluster/join_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/shared_descriptor.h"
#include "support/variable.h"

namespace lockstep {
namespace {

// Writes to the pipe of a launcher, as another program of this user could.
void write_to(const JoinEventReceiver& receiver, const std::string& text) {
  const Descriptor pipe = open_address(descriptor_address_from(receiver.address()).value(), O_WRONLY | O_NONBLOCK);
  ASSERT_EQ(write(pipe.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(JoinEvents, ArriveInOrder) {
  JoinEventReceiver receiver;
  const ScopedVariable variable(kLauncherVariable, receiver.address());
  EXPECT_TRUE(receiver.receive().empty());
  notify_launcher({.process = 3, .joined = false});
  notify_launcher({.process = 3, .joined = true});
  notify_launcher({.process = 0, .joined = false});
  EXPECT_EQ(receiver.receive(), (std::vector<JoinEvent>{{3, false}, {3, true}, {0, false}}));
  EXPECT_TRUE(receiver.receive().empty());
}

TEST(JoinEvents, AreDroppedWithoutALauncher) {
  std::string address;
  {
    const JoinEventReceiver receiver;
    address = receiver.address();
  }
  for (const std::string& nowhere : {address, std::string(), std::string(200, 'x'), std::string("1:2"),
                                     std::string("lockstep-launch-0123456789abcdef")}) {
    const ScopedVariable variable(kLauncherVariable, nowhere);
    notify_launcher({.process = 0, .joined = true});  // returns immediately
  }
}

TEST(JoinEvents, AreNotWrittenToAnotherFileWithTheSameNumber) {
  std::string address;
  {
    const JoinEventReceiver receiver;
    address = receiver.address();
  }
  const JoinEventReceiver other;
  const std::string numbers = address.substr(0, address.rfind(":pipe"));
  ASSERT_TRUE(other.address().starts_with(numbers)) << other.address();
  const ScopedVariable variable(kLauncherVariable, address);
  notify_launcher({.process = 0, .joined = true});
  pollfd ready = {other.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

TEST(JoinEvents, OtherTextIsDropped) {
  JoinEventReceiver receiver;
  const ScopedVariable variable(kLauncherVariable, receiver.address());
  write_to(receiver, "joined\njoined x\njoined 1 \nleft 2\n\n joined 3\njoined 99999999999\n");
  notify_launcher({.process = 4, .joined = true});
  EXPECT_EQ(receiver.receive(), (std::vector<JoinEvent>{{4, true}}));
  write_to(receiver, std::string(1000, 'x'));
  EXPECT_TRUE(receiver.receive().empty());
  write_to(receiver, "joi");
  EXPECT_TRUE(receiver.receive().empty());
  write_to(receiver, "ned 5\n");
  EXPECT_EQ(receiver.receive(), (std::vector<JoinEvent>{{5, true}}));
}

// A program that writes without end gets the launcher to read once per call.
TEST(JoinEvents, OneReadEndsACall) {
  JoinEventReceiver receiver;
  std::string text;
  while (text.size() < 60'000) text += "joined 1\n";
  write_to(receiver, text);
  EXPECT_EQ(receiver.receive().size(), text.size() / 9);
  pollfd ready = {receiver.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

TEST(JoinEvents, OfAnotherUserDoNotArrive) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  JoinEventReceiver receiver;
  const ScopedVariable variable(kLauncherVariable, receiver.address());
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    notify_launcher({.process = 0, .joined = true});
    const auto address = descriptor_address_from(receiver.address());
    _exit(!open_address(*address, O_WRONLY | O_NONBLOCK) && errno == EACCES ? 0 : 3);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  pollfd ready = {receiver.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

}  // namespace
}  // namespace lockstep
