// Control channels over a mailbox: serialization and failures of the transport. control_test.cc tests the calls.
#include "cluster/mailbox_channel.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "cluster/control_job.h"
#include "cluster/local_mailbox.h"
#include "cluster/message_bytes.h"
#include "cluster/other_version.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

TEST(MessageBytes, RequestsRoundTrip) {
  const Failure failure{2, "n2", 4711, "all_reduce", -1, "out of memory\nat last", false};
  const std::vector<decltype(Request::what)> all = {
      request::Heartbeat{{-1, ~uint64_t{0}, true, "psum"}},
      request::Register{4, "n3", 4711, 5s},
      request::Get{"a/b", false, 3ms},
      request::Set{std::string("k\0y", 3), "", true},
      request::Increment{"n", -2},
      request::List{"a"},
      request::Remove{"a"},
      request::Barrier{"start", 1s, {0, 2, 3}},
      request::Agree{"program", 0xfedcba9876543210, 2s},
      request::Explain{"program", "one\ntwo", "equation"},
      request::Fail{failure, true},
      request::Shutdown{9s},
      request::Leave{},
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string bytes = to_bytes(Request{.process = 3, .incarnation = 99, .what = all[i]});
    const Request back = request_from(bytes);
    EXPECT_EQ(back.process, 3);
    EXPECT_EQ(back.incarnation, 99u);
    EXPECT_EQ(back.what.index(), i);
    EXPECT_EQ(to_bytes(back), bytes);
  }
  const Request back = request_from(to_bytes(Request{.what = request::Fail{failure, true}}));
  EXPECT_EQ(std::get<request::Fail>(back.what).failure, failure);
  EXPECT_TRUE(std::get<request::Fail>(back.what).consequence);
}

TEST(MessageBytes, AnswersRoundTrip) {
  const Answer answer{.call = 5,
                      .outcome = Outcome::failed,
                      .text = "why",
                      .number = -7,
                      .entries = {{"a", "1"}, {"b", ""}},
                      .peers = {{"n0", "", 1}, {"n1", "10.0.0.2", 2}},
                      .failure = Failure{.process = 1, .message = "gone"}};
  const Answer back = answer_from(to_bytes(answer));
  EXPECT_EQ(back.call, answer.call);
  EXPECT_EQ(back.outcome, answer.outcome);
  EXPECT_EQ(back.text, answer.text);
  EXPECT_EQ(back.number, answer.number);
  EXPECT_EQ(back.entries, answer.entries);
  EXPECT_EQ(back.peers, answer.peers);
  EXPECT_EQ(back.failure, answer.failure);
}

TEST(MessageBytes, TruncatedOrExtendedBytesAreRefused) {
  const std::string bytes = to_bytes(Answer{.text = "why", .peers = {{"n0", "", 1}}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROWS(answer_from(bytes.substr(0, size)), CommError,
                  "control plane: received a malformed message; run the same version of lockstep in all processes");
  EXPECT_THROWS(answer_from(bytes + "x"), CommError, "malformed message");
  std::string wrong = bytes;
  wrong[0] ^= 1;  // not a message of lockstep
  EXPECT_THROWS(answer_from(wrong), CommError, "malformed message");
  EXPECT_THROWS(request_from(bytes), CommError, "malformed message");
}

TEST(MessageBytes, MessagesOfOtherVersionsAreRefusedWithBothVersions) {
  const std::string request = to_bytes(Request{}), answer = to_bytes(Answer{});
  EXPECT_EQ(sent_by(kOwnVersion, request), request);
  for (const SentVersion& other : kOtherVersions) {
    EXPECT_THROWS(request_from(sent_by(other, request)), CommError, version_sentence(other, kOwnVersion));
    EXPECT_THROWS(answer_from(sent_by(other, answer)), CommError, version_sentence(kOwnVersion, other));
  }
  // The fields of another version may have any layout.
  EXPECT_THROWS(request_from(sent_by(kOtherVersions[0], message_prefix())), CommError, "this is lockstep ");
  EXPECT_THROWS(request_from(sent_by({1, std::string(101, '9')}, request)), CommError, "malformed message");
  EXPECT_THROWS(request_from(sent_by({1, "\x1b[2J"}, request)), CommError, "this is lockstep \\x1b[2J (protocol 1)");
}

TEST(MessageBytes, NumbersThatDoNotFitAreRefused) {
  const std::string plain = to_bytes(Request{.process = 3, .incarnation = 99, .what = request::List{"a"}});
  const size_t start = message_prefix().size();
  ASSERT_EQ(plain.substr(start, 8), number_bytes(3));
  std::string large = plain;
  large.replace(start, 8, number_bytes(3 + (uint64_t{1} << 32)));
  EXPECT_THROWS(request_from(large), CommError, "malformed message");
  std::string flag = to_bytes(Request{.process = 3, .incarnation = 99, .what = request::Get{"", false, 1ns}});
  flag.replace(flag.size() - 16, 8, number_bytes(2));  // neither true nor false
  EXPECT_THROWS(request_from(flag), CommError, "malformed message");
  // A count that would allocate much more than the message holds.
  std::string many = to_bytes(Request{.process = 3, .incarnation = 99, .what = request::Barrier{"b", 1s, {}}});
  many.replace(many.size() - 8, 8, number_bytes(1000));
  EXPECT_THROWS(request_from(many + std::string(1000, '\0')), CommError, "malformed message");
}

TEST(MailboxChannel, FailedTransportIsUnreachable) {
  const auto mailboxes = LocalMailboxes::create();
  const auto channel = mailbox_channel(mailboxes->open(1));
  EXPECT_EQ(channel->call({}, 1ms).text, "no answer in time");
  mailboxes->fail();
  const Answer answer = channel->call({}, kGenerous);
  EXPECT_EQ(answer.outcome, Outcome::unreachable);
  EXPECT_EQ(answer.text, "the transport failed: the post mailboxes has burnt down");
}

// The text of a mailbox's message: the number of a call, and bytes.
std::string mail(uint64_t call, const std::string& bytes) { return fmt::format("{:016x}{}", call, bytes); }

// Waits for the next message.
std::string receive_mail(Mailbox& mailbox) {
  const auto deadline = std::chrono::steady_clock::now() + kGenerous;
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto message = mailbox.receive()) return message->text;
    std::this_thread::yield();
  }
  return "";
}

TEST(MailboxChannel, RequestsThatCannotBeReadAreRefused) {
  const auto mailboxes = LocalMailboxes::create();
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{.heartbeat_timeout = kGenerous});
  const auto serving = coordinator_mailbox_channel(host, mailboxes->open(0));
  const auto own = mailboxes->open(1);
  own->send(0, mail(7, sent_by(kOtherVersions[0], to_bytes(Request{}))));
  const std::string versions = receive_mail(*own);
  EXPECT_EQ(versions.substr(0, 16), "0000000000000007");
  EXPECT_EQ(answer_from(versions.substr(16)).outcome, Outcome::refused);
  EXPECT_EQ(answer_from(versions.substr(16)).text, version_sentence(kOtherVersions[0], kOwnVersion));
  own->send(0, mail(8, "x"));
  EXPECT_NE(answer_from(receive_mail(*own).substr(16)).text.find("malformed message"), std::string::npos);
  // The coordinator still answers.
  const auto worker = mailbox_channel(mailboxes->open(2));
  EXPECT_EQ(worker->call({.what = request::Register{.process_count = 1, .timeout = kGenerous}}, kGenerous).outcome,
            Outcome::ok);
}

TEST(MailboxChannel, AnswersOfOtherVersionsAreRefusedWithBothVersions) {
  const auto mailboxes = LocalMailboxes::create();
  const auto coordinator = mailboxes->open(0);
  const auto worker = mailbox_channel(mailboxes->open(1));
  auto answer = std::async(std::launch::async, [&] { return worker->call({}, kGenerous); });
  const std::string call = receive_mail(*coordinator).substr(0, 16);
  coordinator->send(1, call + sent_by(kOtherVersions[0], to_bytes(Answer{})));
  const Answer refused = answer.get();
  EXPECT_EQ(refused.outcome, Outcome::refused);
  EXPECT_EQ(refused.text, "coordinator at rank 0: " + version_sentence(kOwnVersion, kOtherVersions[0]));
}

TEST(MailboxChannel, ExitingCoordinatorAnswersTheNextHeartbeat) {
  const auto mailboxes = LocalMailboxes::create();
  const auto host =
      std::make_shared<CoordinatorHost>(CoordinatorOptions{.process_count = 2, .heartbeat_timeout = kGenerous});
  auto serving = coordinator_mailbox_channel(host, mailboxes->open(0));
  const auto worker = mailbox_channel(mailboxes->open(1));
  const Answer reported = first_heartbeat_while_exiting(*host, *worker, [&] { serving.reset(); });
  EXPECT_EQ(reported.outcome, Outcome::failed);
  EXPECT_EQ(reported.text, "process 0, coordinator: process 0 has exited");
}

TEST(MailboxChannel, ProcessesFailWithTheTransport) {
  const auto mailboxes = LocalMailboxes::create();
  ControlJob job({.count = 2, .transport = Transport::mailbox, .heartbeat_timeout = 200ms, .mailboxes = mailboxes});
  ReportedFailure first(job[0]), second(job[1]);
  mailboxes->fail();
  EXPECT_NE(first.wait().message.find(
                "process 0 lost its connection to the other processes: the post mailboxes has burnt down"),
            std::string::npos);
  EXPECT_NE(second.wait().message.find("lost: no answer for 200 ms"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
