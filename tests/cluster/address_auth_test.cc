// Authentication of processes by the addresses of their replicas' names.
#include "cluster/address_auth.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "base/check.h"
#include "base/throws.h"
#include "cluster/control_job.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Verdict = ReplicaAddresses::Verdict;
using Time = ReplicaAddresses::Time;

const detail::Environment kReplica = {{"COORDINATOR_ADDRESS", "mnist-worker-0"},
                                      {"COORDINATOR_PORT", "6666"},
                                      {"NUM_PROCESSES", "3"},
                                      {"PROCESS_ID", "1"},
                                      {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};

detail::ClusterInfo info_of(const detail::Environment& environment) {
  return detail::detect({}, {.environment = environment, .host_name = "mnist-worker-1", .full_host_name = ""});
}

std::vector<std::string> names_of(const detail::Environment& environment) {
  return kubeflow_replica_names(info_of(environment), environment);
}

detail::Environment with(const std::string& name, const std::string& value) {
  detail::Environment out = kReplica;
  out[name] = value;
  return out;
}

Request register_process(int process, uint64_t incarnation) {
  return {.process = process, .incarnation = incarnation, .what = request::Register{.process_count = 3}};
}
Request beat(int process, uint64_t incarnation) {
  return {.process = process, .incarnation = incarnation, .what = request::Heartbeat{}};
}

TEST(AddressAuth, ReplicasOfAJaxJobInKubernetesHaveNames) {
  EXPECT_EQ(names_of(kReplica), (std::vector<std::string>{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2"}));
  EXPECT_EQ(names_of(with("COORDINATOR_ADDRESS", "a-worker-0.team.svc")),
            (std::vector<std::string>{"a-worker-0.team.svc", "a-worker-1.team.svc", "a-worker-2.team.svc"}));
}

TEST(AddressAuth, OtherProcessesHaveNoReplicaNames) {
  for (const char* variable : {"KUBERNETES_SERVICE_HOST", "COORDINATOR_PORT"})
    EXPECT_TRUE(names_of(with(variable, "")).empty()) << variable;
  for (const char* address : {"127.0.0.1", "-worker-0", "mnist-worker-1", "mnist"})
    EXPECT_TRUE(names_of(with("COORDINATOR_ADDRESS", address)).empty()) << address;
  detail::Environment launched = kReplica;  // `lockstep launch` inside a replica
  launched.insert(
      {{"LOCKSTEP_COORDINATOR", "127.0.0.1:1"}, {"LOCKSTEP_NUM_PROCESSES", "3"}, {"LOCKSTEP_PROCESS_ID", "1"}});
  EXPECT_TRUE(names_of(launched).empty());
}

TEST(AddressAuth, IsUsedOnlyWithoutATokenAndWithoutOptingOut) {
  Lines lines;
  const auto find = [&](const std::string& option, const detail::Environment& environment) {
    return find_admission(option, info_of(environment), environment, lines.log());
  };
  EXPECT_EQ(find(kTestToken, kReplica).token, kTestToken);
  EXPECT_EQ(find("", with("LOCKSTEP_TOKEN", kTestToken)).token, kTestToken);
  EXPECT_TRUE(find("", with("LOCKSTEP_TOKEN", kTestToken)).replica_names.empty());
  EXPECT_TRUE(find("", with("LOCKSTEP_INSECURE", "1")).replica_names.empty());
  EXPECT_THROWS(find("", with("LOCKSTEP_TOKEN", "short")), Error, "token: LOCKSTEP_TOKEN has 5 characters");
  EXPECT_THROWS(find("", with("KUBERNETES_SERVICE_HOST", "")), Error, "token: none is set");
  lines.take();

  EXPECT_EQ(find("", kReplica).replica_names.size(), 3u);
  EXPECT_TRUE(lines.take().empty()) << "only process 0 logs it";
  EXPECT_EQ(find("", with("PROCESS_ID", "0")).replica_names.size(), 3u);
  const std::vector<std::string> logged = lines.take();
  ASSERT_EQ(logged.size(), 1u);
  for (const char* part :
       {"token: this JAXJob has none", "mnist-worker-2", "not encrypted", "set LOCKSTEP_TOKEN from a Secret"})
    EXPECT_NE(logged[0].find(part), std::string::npos) << logged[0];
}

TEST(AddressAuth, ProcessRegistersOnlyFromTheAddressOfItsName) {
  ReplicaAddresses addresses({"j-worker-0", "j-worker-1", "j-worker-2"});
  const Time now = Time() + 1h;
  EXPECT_EQ(addresses.judge(register_process(1, 7), "10.0.0.1", now), Verdict::look_up);
  addresses.learn(1, {}, now);  // the name does not resolve yet
  EXPECT_EQ(addresses.judge(register_process(1, 7), "10.0.0.1", now), Verdict::mismatch);
  EXPECT_EQ(addresses.judge(register_process(1, 7), "10.0.0.1", now + 2s), Verdict::look_up) << "the result is old";
  addresses.learn(1, {"fd00::1", "10.0.0.1"}, now + 2s);
  EXPECT_EQ(addresses.judge(register_process(1, 7), "10.0.0.9", now + 2s), Verdict::mismatch);
  EXPECT_EQ(addresses.judge(register_process(1, 7), "10.0.0.1", now + 2s), Verdict::admitted);
  EXPECT_EQ(addresses.judge(register_process(1, 7), "::ffff:10.0.0.1", now + 2s), Verdict::admitted);
  EXPECT_EQ(addresses.judge(register_process(1, 7), "fd00::1", now + 2s), Verdict::admitted);
  EXPECT_EQ(addresses.judge(register_process(2, 8), "10.0.0.1", now + 2s), Verdict::look_up)
      << "another process, another name";
}

TEST(AddressAuth, RequestsOfProcessZeroAndUnknownIdsAreRefused) {
  ReplicaAddresses addresses({"j-worker-0", "j-worker-1"});
  for (const int process : {0, -1, 2})
    for (const Request& request : {register_process(process, 7), beat(process, 7)})
      EXPECT_EQ(addresses.judge(request, "127.0.0.1", Time() + 1h), Verdict::refused) << process;
}

TEST(AddressAuth, LaterCallsMustComeFromTheRegisteredAddress) {
  ReplicaAddresses addresses({"j-worker-0", "j-worker-1"});
  const Time now = Time() + 1h;
  EXPECT_EQ(addresses.judge(beat(1, 7), "10.0.0.1", now), Verdict::refused) << "it has not registered";
  addresses.learn(1, {"10.0.0.1", "10.0.0.2"}, now);
  EXPECT_EQ(addresses.judge(register_process(1, 7), "10.0.0.1", now), Verdict::admitted);
  EXPECT_EQ(addresses.judge(beat(1, 7), "10.0.0.1", now + 1h), Verdict::admitted);
  EXPECT_EQ(addresses.judge(beat(1, 7), "10.0.0.2", now), Verdict::refused) << "another address of the name";
  EXPECT_EQ(addresses.judge(beat(1, 8), "10.0.0.1", now), Verdict::refused) << "another incarnation";
  // The pod is replaced. The old process can still make calls from its own address.
  addresses.learn(1, {"10.0.0.3"}, now + 2s);
  EXPECT_EQ(addresses.judge(register_process(1, 8), "10.0.0.3", now + 2s), Verdict::admitted);
  EXPECT_EQ(addresses.judge(beat(1, 8), "10.0.0.3", now + 2s), Verdict::admitted);
  EXPECT_EQ(addresses.judge(beat(1, 7), "10.0.0.1", now + 2s), Verdict::admitted);
  EXPECT_EQ(addresses.judge(beat(1, 7), "10.0.0.3", now + 2s), Verdict::refused);
}

// Retries a registration as a client does, until the lookup is done. Returns why it is refused; empty: accepted.
std::string register_until_looked_up(AddressAuth& auth, int process, const std::string& address) {
  const auto deadline = std::chrono::steady_clock::now() + kGenerous;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto refusal = auth.refusal(register_process(process, 7), address);
    if (!refusal) return "";
    EXPECT_TRUE(refusal->try_again);
    if (refusal->why.find("is looking up") == std::string::npos) return refusal->why;
    std::this_thread::yield();
  }
  return "nothing happens";
}

TEST(AddressAuth, ResolvesNamesAndLogsRefusedAddressesOnce) {
  Lines lines;
  std::atomic<int> asked = 0;
  AddressAuth auth(
      {"j-worker-0", "j-worker-1", "j-worker-2"},
      [&](const std::string& name) -> std::vector<std::string> {
        ++asked;
        if (name == "j-worker-2") throw IoError("resolve j-worker-2: no such name");
        return {"10.0.0.1"};
      },
      lines.log());
  EXPECT_EQ(register_until_looked_up(auth, 1, "10.0.0.1"), "");
  EXPECT_EQ(register_until_looked_up(auth, 2, "10.0.0.2"), "j-worker-2 does not resolve yet at the coordinator");
  EXPECT_TRUE(lines.take().empty());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(register_until_looked_up(auth, 1, "10.0.0.66"),
              "process 1 must connect from j-worker-1, which resolves to 10.0.0.1, but it connected from 10.0.0.66; if "
              "the network translates addresses (NAT), give the job a token");
  const auto refusal = auth.refusal(beat(1, 7), "10.0.0.77");
  ASSERT_TRUE(refusal);
  EXPECT_FALSE(refusal->try_again);
  EXPECT_EQ(refusal->why, "no process 1 has registered with the coordinator from 10.0.0.77");
  // Such as a replica that was added to a running job.
  const auto added = auth.refusal(register_process(3, 7), "10.0.0.78");
  ASSERT_TRUE(added);
  EXPECT_FALSE(added->try_again);
  EXPECT_EQ(added->why, "the job has 3 processes, numbered from 0; it has no process 3");
  const std::vector<std::string> logged = lines.take();
  ASSERT_EQ(logged.size(), 3u);
  EXPECT_TRUE(logged[0].starts_with("the coordinator refused a call from 10.0.0.66: ")) << logged[0];
  EXPECT_TRUE(logged[1].starts_with("the coordinator refused a call from 10.0.0.77: ")) << logged[1];
}

#ifdef LOCKSTEP_WITH_GRPC

// Process `id` of a job of two without a token, whose replicas have these names.
JoinOptions by_address(int id, const std::vector<std::string>& names, int port, Lines& lines) {
  return {.process_id = id,
          .process_count = 2,
          .coordinator = {"127.0.0.1", port},
          .replica_names = names,
          .initialization_timeout = kGenerous,
          .heartbeat_timeout = kGenerous,
          .log = lines.log()};
}

TEST(AddressAuth, ProcessesJoinWithoutAToken) {
  Lines lines;
  const std::vector<std::string> names = {"127.0.0.1", "127.0.0.1"};
  std::promise<int> listening;
  JoinOptions first = by_address(0, names, 0, lines);
  first.on_listening = [&](int port) { listening.set_value(port); };
  auto other = std::async(std::launch::async,
                          [&] { return join_control(by_address(1, names, listening.get_future().get(), lines)); });
  const auto control = join_control(first);
  const auto second = other.get();
  second->set("key", "value");
  EXPECT_EQ(control->get("key", kGenerous), "value");
  on_all(2, [&](int i) { (i ? second : control)->shutdown(kGenerous); });
  EXPECT_TRUE(lines.take().empty());
}

TEST(AddressAuth, ProcessFromAnotherAddressCannotJoin) {
  Lines lines;
  const std::vector<std::string> names = {"127.0.0.1", "127.0.0.2"};
  std::promise<int> listening;
  JoinOptions first = by_address(0, names, 0, lines);
  first.on_listening = [&](int port) { listening.set_value(port); };
  first.initialization_timeout = 6s;  // longer than the stranger's, which must see the look-up end
  auto coordinator = std::async(std::launch::async, [&] {
    EXPECT_THROWS(join_control(first), IoError, "1 of 2 processes have registered; missing: process 1");
  });
  JoinOptions stranger = by_address(1, names, listening.get_future().get(), lines);
  stranger.initialization_timeout = 4s;
  EXPECT_THROWS(join_control(stranger), IoError,
                "process 1 must connect from 127.0.0.2, which resolves to 127.0.0.2, but it connected from 127.0.0.1");
  coordinator.get();
  int logged = 0;
  for (const std::string& line : lines.take())
    logged += line.starts_with("the coordinator refused a call from 127.0.0.1: ");
  EXPECT_EQ(logged, 1);
}

// A controller restarts a dead process before its failure is detected: the old coordinator still listens.
TEST(RestartsIndividually, ProcessWaitsForTheNextCoordinator) {
  ControlJob before({.count = 2, .transport = Transport::network});
  const int port = before.port();
  JoinOptions again = before.join_options(1);
  EXPECT_THROWS(join_control(again), Error, "that id is in use by a running process");  // no controller restarts it
  again.restarts_individually = true;
  auto restarted = std::async(std::launch::async, [&] {
    std::unique_ptr<Control> joined;
    EXPECT_NO_THROW(joined = join_control(again));
    return joined;
  });
  EXPECT_EQ(restarted.wait_for(300ms), std::future_status::timeout);
  before.drop(1);
  before.drop(0);

  JoinOptions first = again;
  first.process_id = 0;
  first.coordinator = {"127.0.0.1", port};
  const auto control = join_control(first);
  const auto second = restarted.get();
  on_all(2, [&](int i) { (i ? second : control)->shutdown(kGenerous); });
}

#endif

}  // namespace
}  // namespace lockstep
