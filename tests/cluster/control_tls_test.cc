// The control plane over TLS: both ends show a certificate.
#ifdef LOCKSTEP_WITH_GRPC

#include <gtest/gtest.h>

#include "base/throws.h"
#include "cluster/certificates.h"
#include "cluster/control_job.h"
#include "cluster/grpc/client.h"
#include "cluster/grpc/server.h"
#include "cluster/own_name.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

class ControlTls : public testing::Test {
 protected:
  // At a host that the certificate is of ("DNS:n1").
  ControlJob::Options secured(const std::string& host, const std::string& kind = "IP") {
    return {
        .count = 3, .transport = Transport::network, .host = host, .tls = authority_.issue("node", kind + ":" + host)};
  }
  void expect_meeting(const ControlJob::Options& options) {
    ControlJob job(options);
    job.barrier("x");
    job.shutdown();
  }

  const TempDir folder_;
  Authority authority_{folder_.path(), "authority"};
};

TEST_F(ControlTls, ProcessesMeetByNumber) { expect_meeting(secured("127.0.0.1")); }

TEST_F(ControlTls, ProcessesMeetByName) {
  const std::string name = own_resolvable_name();
  if (name.empty()) GTEST_SKIP() << kNoName;
  expect_meeting(secured(name, "DNS"));
}

TEST_F(ControlTls, OthersStayOutside) {
  ControlJob job(secured("127.0.0.1"));
  Authority other(folder_.path(), "other");
  const TlsFiles foreign = other.issue("stranger", "IP:127.0.0.1");
  const TlsFiles mine = authority_.issue("node2", "IP:127.0.0.1");
  struct Row {
    const char* name;
    TlsFiles tls;
  };
  const Row rows[] = {
      {"without TLS", {}},
      {"of another authority", foreign},
      {"with a certificate of another authority", {mine.ca, foreign.certificate, foreign.key}},
      {"that trusts another authority", {foreign.ca, mine.certificate, mine.key}},
  };
  for (const Row& row : rows) {
    JoinOptions options = job.join_options(1);
    options.tls = row.tls;
    options.initialization_timeout = 500ms;
    SCOPED_TRACE(row.name);
    EXPECT_THROWS(join_control(options), IoError, "register: process 1 cannot reach the coordinator at 127.0.0.1:");
    job.barrier("between");
  }
  job.shutdown();
}

TEST_F(ControlTls, CertificateOfAnotherHostIsRefused) {
  const auto host = std::make_shared<CoordinatorHost>(CoordinatorOptions{.version = LOCKSTEP_VERSION});
  Lines lines;
  const ControlServer server(
      host, {.address = {"127.0.0.1", 0}, .tls = authority_.issue("elsewhere", "DNS:elsewhere"), .log = lines.log()});
  auto channel = network_channel({.coordinator = {"127.0.0.1", server.port()},
                                  .tls = authority_.issue("node", "IP:127.0.0.1"),
                                  .log = lines.log()});
  EXPECT_THROWS(Control(std::move(channel), {.initialization_timeout = 500ms}), IoError,
                "cannot reach the coordinator");
}

TEST_F(ControlTls, FilesAreAllOrNoneAndReadable) {
  const TlsFiles files = authority_.issue("node", "IP:127.0.0.1");
  EXPECT_THROWS(read_tls_files({.ca = files.ca, .certificate = files.certificate}), Error,
                "tls: tls_ca is given, tls_certificate given and tls_key missing; give all three, or none");
  EXPECT_THROWS(read_tls_files({files.ca, files.certificate, folder_.path() + "/none"}), IoError, "/none");
  EXPECT_FALSE(read_tls_files({}).any());
  EXPECT_THROWS(join_control({.process_count = 2,
                              .coordinator = {"127.0.0.1", 0},
                              .tls = {files.key, files.key, files.ca},
                              .initialization_timeout = 500ms}),
                IoError, "check that tls_ca, tls_certificate and tls_key are PEM and belong together");
}

}  // namespace
}  // namespace lockstep

#endif
