// The control plane over TLS with certificates on both ends.
#ifdef LOCKSTEP_WITH_GRPC

#include <gtest/gtest.h>

#include "base/throws.h"
#include "cluster/certificates.h"
#include "cluster/control_job.h"
#include "cluster/grpc/client.h"
#include "cluster/grpc/connect_pass.h"
#include "cluster/grpc/server.h"
#include "cluster/own_name.h"
#include "cluster/security.h"
#include "cluster/sockets.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

class ControlTls : public testing::Test {
 protected:
  // Options of a job at a host whose certificate has that name ("DNS:n1").
  ControlJob::Options secured(const std::string& host, const std::string& kind = "IP") {
    return {
        .count = 3, .transport = Transport::network, .host = host, .tls = authority_.issue("node", kind + ":" + host)};
  }
  void expect_joins(const ControlJob::Options& options) {
    ControlJob job(options);
    job.barrier("x");
    job.shutdown();
  }

  const TempDir folder_;
  Authority authority_{folder_.path(), "authority"};
};

TEST_F(ControlTls, ProcessesJoinByIpAddress) { expect_joins(secured("127.0.0.1")); }

TEST_F(ControlTls, ProcessesJoinByName) {
  const std::string name = own_host_name_or_empty();
  if (name.empty()) GTEST_SKIP() << kNoName;
  expect_joins(secured(name, "DNS"));
}

TEST_F(ControlTls, OtherCertificatesAreRefused) {
  ControlJob job(secured("127.0.0.1"));
  Authority other(folder_.path(), "other");
  const TlsFiles foreign = other.issue("stranger", "IP:127.0.0.1");
  const TlsFiles mine = authority_.issue("node2", "IP:127.0.0.1");
  struct Row {
    const char* name;
    TlsFiles tls;
  };
  const Row rows[] = {
      {"of another authority", foreign},
      {"with a certificate of another authority", {mine.ca, foreign.certificate, foreign.key}},
      {"that trusts another authority", {foreign.ca, mine.certificate, mine.key}},
  };
  for (const Row& row : rows) {
    JoinOptions options = job.join_options(1);
    options.tls = row.tls;
    options.initialization_timeout = 500ms;
    SCOPED_TRACE(row.name);
    EXPECT_THROWS(join_control(options), IoError,
                  "register: process 1 cannot reach process 0 (the coordinator at 127.0.0.1:");
    job.barrier("between");
  }
  JoinOptions options = job.join_options(1);
  options.tls = {};
  EXPECT_THROWS(join_control(options), Error,
                "refused this process: TLS is on without certificate files here, but not there; give all processes of "
                "the job the same LOCKSTEP_TLS, tls_ca, tls_certificate and tls_key");
  options.use_tls = false;
  EXPECT_THROWS(join_control(options), Error, "refused this process: TLS is off here, but not there");
  options.tls = mine;
  EXPECT_THROWS(join_control(options), Error, "tls: certificate files are given, but TLS is off");
  job.shutdown();
}

TEST_F(ControlTls, CertificateOfAnotherHostIsRefused) {
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{});
  Lines lines;
  const ControlServer server(
      host, {.address = {"127.0.0.1", 0}, .tls = authority_.issue("elsewhere", "DNS:elsewhere"), .log = lines.log()});
  auto channel = network_channel({.coordinator = {"127.0.0.1", server.port()},
                                  .tls = authority_.issue("node", "IP:127.0.0.1"),
                                  .log = lines.log()});
  EXPECT_THROWS(Control(std::move(channel), {.initialization_timeout = 500ms}), IoError,
                "cannot reach process 0 (the coordinator");
}

TEST_F(ControlTls, FilesMustBeCompleteAndReadable) {
  const TlsFiles files = authority_.issue("node", "IP:127.0.0.1");
  EXPECT_THROWS(read_tls_files({.ca = files.ca, .certificate = files.certificate}), Error,
                "tls: tls_ca is given, tls_certificate given and tls_key missing; give all three, or none");
  EXPECT_THROWS(read_tls_files({files.ca, files.certificate, folder_.path() + "/none"}), IoError, "/none");
  EXPECT_FALSE(read_tls_files({}).any());
  EXPECT_THROWS(read_tls_files({files.key, files.certificate, files.key}), Error,
                "node.key contains no PEM certificate; set tls_ca to the certificate of the authority");
  EXPECT_THROWS(read_tls_files({files.ca, files.key, files.key}), Error,
                "node.key contains no PEM certificate; set tls_certificate to the certificate of this process");
  EXPECT_THROWS(read_tls_files({files.ca, files.certificate, files.ca}), Error,
                "authority.pem contains no PEM private key without a password");
  const TlsFiles other = authority_.issue("other", "IP:127.0.0.1");
  EXPECT_THROWS(read_tls_files({files.ca, files.certificate, other.key}), Error,
                "other.key does not match the certificate ");
}

// Records the network traffic of a job of two that joins, exchanges a value and shuts down.
std::string bytes_on_the_wire(bool use_tls, std::vector<std::string>* logged = nullptr) {
  ControlJob job({.transport = Transport::network, .use_tls = use_tls, .not_started = 1});
  TcpRelay wire(job.port());
  JoinOptions far = job.join_options(1);
  far.coordinator.port = wire.port();
  const auto worker = join_control(far);
  job.wait();
  worker->set("key of the test", "value of the test");
  EXPECT_EQ(job[0].get("key of the test", kGenerous), "value of the test");
  on_all(2, [&](int i) { (i == 0 ? job[0] : *worker).shutdown(kGenerous); });
  if (logged) *logged = job.lines.take();
  return wire.recorded();
}

TEST(DerivedTls, IsOnByDefaultAndHidesTokenAndMessages) {
  const std::string bytes = bytes_on_the_wire(true);
  EXPECT_NE(bytes.find("CONNECT lockstep/tls/"), bytes.npos);
  for (const std::string& secret : {kTestToken, std::string("value of the test"), std::string("PRI * HTTP/2.0"),
                                    make_security({.token = kTestToken}).call_secret})
    EXPECT_EQ(bytes.find(secret), bytes.npos) << secret;
}

TEST(DerivedTls, CanBeSwitchedOffWithAWarning) {
  std::vector<std::string> logged;
  const std::string bytes = bytes_on_the_wire(false, &logged);
  EXPECT_NE(bytes.find("value of the test"), bytes.npos);
  EXPECT_EQ(bytes.find(kTestToken), bytes.npos) << "the token itself never crosses the network";
  EXPECT_EQ(logged, std::vector<std::string>{
                        "tls: off; the control plane is not encrypted, and is reachable from this machine only"});
}

TEST(DerivedTls, IsTheSameForTheSameTokenOnly) {
  const Security one = make_security({.token = kTestToken}), same = make_security({.token = kTestToken}),
                 other = make_security({.token = kTestToken + "x"});
  EXPECT_EQ(one.pass_key, same.pass_key);
  EXPECT_EQ(one.call_secret, same.call_secret);
  EXPECT_NE(one.tls.key, same.tls.key) << "every process has a key of its own";
  EXPECT_NE(one.pass_key, other.pass_key);
  EXPECT_NE(one.call_secret, other.call_secret);
  EXPECT_NE(one.pass_key, one.call_secret);
  EXPECT_EQ(make_security({}).kind, Security::Kind::plain) << "without a token there is no secret to derive keys from";
}

std::string answer_to(TestSocket& socket, const std::string& argument) {
  EXPECT_TRUE(socket.send("CONNECT " + argument + " HTTP/1.0\r\n\r\n"));
  char answer[256] = {};
  EXPECT_GT(::recv(socket.fd(), answer, sizeof(answer) - 1, 0), 0);
  return std::string(answer).substr(0, std::string_view(answer).find("\r\n"));
}

// A CONNECT request can be read on the network. It is valid for one connection, and does not reveal the keys.
TEST(DerivedTls, RecordedConnectRequestsAreUseless) {
  ControlJob job({.transport = Transport::network});
  const std::string argument =
      connect_argument(make_security({.token = kTestToken}), ask_challenge("127.0.0.1", job.port(), kGenerous));
  TestSocket socket, replayed;
  ASSERT_TRUE(socket.connect(job.port()));
  EXPECT_EQ(answer_to(socket, argument), "HTTP/1.0 200 OK");
  socket.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_TRUE(socket.wait_closed(60'000));
  ASSERT_TRUE(replayed.connect(job.port()));
  EXPECT_EQ(answer_to(replayed, argument), "HTTP/1.0 401 Unauthorized");
  EXPECT_TRUE(replayed.wait_closed(60'000));
  ControlJob other({.transport = Transport::network});
  TestSocket elsewhere;
  ASSERT_TRUE(elsewhere.connect(other.port()));
  EXPECT_EQ(answer_to(elsewhere, argument), "HTTP/1.0 401 Unauthorized");
  other.barrier("x");
  other.shutdown();
  job.barrier("x");
  job.shutdown();
}

}  // namespace
}  // namespace lockstep

#endif
