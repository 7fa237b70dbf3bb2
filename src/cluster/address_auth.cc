#include "cluster/address_auth.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cluster/address.h"
#include "cluster/token.h"
#include "cluster/variables.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFresh(1);  // how long a lookup result is cached
constexpr std::chrono::milliseconds kLookupTimeout(5000);
constexpr size_t kMaxLookups = 16;    // concurrent; others start with the client's next attempt
constexpr size_t kMaxMembers = 4;     // remembered incarnations of a process
constexpr size_t kMaxRefused = 1000;  // remembered addresses, each of which is logged once

// Strips the prefix of an IPv4 address on a dual-stack socket: "::ffff:10.0.0.7".
std::string plain_ip(const std::string& ip) {
  constexpr std::string_view kMapped = "::ffff:";
  return ip.starts_with(kMapped) && ip.find('.') != ip.npos ? ip.substr(kMapped.size()) : ip;
}

bool has(const std::vector<std::string>& ips, const std::string& ip) { return std::ranges::find(ips, ip) != ips.end(); }

}  // namespace

std::vector<std::string> kubeflow_replica_names(const detail::ClusterInfo& info,
                                                const detail::Environment& environment) {
  constexpr std::string_view kFirst = "-worker-0";
  const auto is_set = [&](const char* name) { return detail::find_variable(environment, name) != nullptr; };
  if (info.method != "jaxjob" || !is_set("KUBERNETES_SERVICE_HOST") || !is_set("COORDINATOR_PORT")) return {};
  const std::string host = info.coordinator.substr(0, info.coordinator.rfind(':'));
  const std::string first = host.substr(0, host.find('.')), domain = host.substr(first.size());
  if (!first.ends_with(kFirst) || first.size() == kFirst.size()) return {};
  std::vector<std::string> names;
  for (int r = 0; r < info.process_count; ++r)
    names.push_back(fmt::format("{}{}{}", first.substr(0, first.size() - 1), r, domain));
  return names;
}

Admission find_admission(const std::string& token, const detail::ClusterInfo& info,
                         const detail::Environment& environment, const LogLine& log) {
  const std::string* const insecure = detail::find_variable(environment, "LOCKSTEP_INSECURE");
  const bool decided = !token.empty() || detail::find_variable(environment, "LOCKSTEP_TOKEN") ||
                       detail::find_variable(environment, "LOCKSTEP_TOKEN_FILE") || (insecure && *insecure == "1");
  if (!decided)
    if (std::vector<std::string> names = kubeflow_replica_names(info, environment); !names.empty()) {
      if (info.process_id == 0)
        log(fmt::format(
            "token: this JAXJob has none; the coordinator accepts each process only from the address of its replica's "
            "name ({}, ...), which keeps other pods out, but connections are not encrypted; for encryption, set "
            "LOCKSTEP_TOKEN from a Secret",
            names.back()));
      return {.replica_names = std::move(names)};
    }
  return {.token = find_token(token, environment, log)};
}

ReplicaAddresses::Verdict ReplicaAddresses::judge(const Request& request, const std::string& address, Time now) {
  const std::string ip = plain_ip(address);
  if (request.process < 1 || !is_process(request.process)) return Verdict::refused;
  Process& process = processes_[static_cast<size_t>(request.process)];
  if (!std::holds_alternative<request::Register>(request.what)) {
    const auto member = std::ranges::find(process.members, request.incarnation, &Member::incarnation);
    return member != process.members.end() && member->address == ip ? Verdict::admitted : Verdict::refused;
  }
  if (!process.learned || now - *process.learned > kFresh) return Verdict::look_up;
  if (!has(process.addresses, ip)) return Verdict::mismatch;
  std::erase_if(process.members, [&](const Member& each) { return each.incarnation == request.incarnation; });
  if (process.members.size() == kMaxMembers) process.members.erase(process.members.begin());
  process.members.push_back({request.incarnation, ip});
  return Verdict::admitted;
}

void ReplicaAddresses::learn(int process, std::vector<std::string> addresses, Time now) {
  Process& of = processes_[static_cast<size_t>(process)];
  for (std::string& each : addresses) each = plain_ip(each);
  of.addresses = std::move(addresses);
  of.learned = now;
}

const std::vector<std::string>& ReplicaAddresses::known(int process) const {
  return processes_[static_cast<size_t>(process)].addresses;
}

struct AddressAuth::State {
  State(std::vector<std::string> names, Resolve resolver, LogLine line)
      : resolve(std::move(resolver)), log(std::move(line)), addresses(std::move(names)) {}

  const Resolve resolve;
  const LogLine log;
  std::mutex mutex;
  ReplicaAddresses addresses;
  std::set<int> lookups;  // in flight
  std::set<std::string> refused;
};

AddressAuth::AddressAuth(std::vector<std::string> names, Resolve resolve, LogLine log)
    : state_(std::make_shared<State>(std::move(names), std::move(resolve), std::move(log))) {}

std::optional<AddressAuth::Refusal> AddressAuth::refusal(const Request& request, const std::string& address) {
  using Verdict = ReplicaAddresses::Verdict;
  Refusal out;
  {
    const std::lock_guard lock(state_->mutex);
    switch (state_->addresses.judge(request, address, Clock::now())) {
      case Verdict::admitted:
        return std::nullopt;
      case Verdict::look_up:
        look_up(request.process);
        return Refusal{fmt::format("the coordinator is looking up {}, the name of process {}",
                                   state_->addresses.name(request.process), request.process),
                       true};
      case Verdict::mismatch: {
        const std::string& name = state_->addresses.name(request.process);
        const std::vector<std::string>& known = state_->addresses.known(request.process);
        if (known.empty()) return Refusal{fmt::format("{} does not resolve yet at the coordinator", name), true};
        out = {fmt::format("process {} must connect from {}, which resolves to {}, but it connected from {}; if the "
                           "network translates addresses (NAT), give the job a token",
                           request.process, name, fmt::join(known, ", "), address),
               true};
        break;
      }
      case Verdict::refused:
        out = {state_->addresses.is_process(request.process)
                   ? fmt::format("no process {} has registered with the coordinator from {}", request.process, address)
                   : fmt::format("the job has {} processes, numbered from 0; it has no process {}",
                                 state_->addresses.size(), request.process)};
        break;
    }
  }
  log_refusal(address, out.why);
  return out;
}

// REQUIRES: state_->mutex is held.
void AddressAuth::look_up(int process) try {
  if (state_->lookups.size() >= kMaxLookups || !state_->lookups.insert(process).second) return;
  std::thread([state = state_, process, name = state_->addresses.name(process)] {
    std::vector<std::string> found;
    try {
      found = state->resolve(name);
    } catch (const std::exception&) {  // it does not resolve yet
    }
    const std::lock_guard lock(state->mutex);
    state->addresses.learn(process, std::move(found), Clock::now());
    state->lookups.erase(process);
  }).detach();
} catch (const std::system_error&) {  // no thread available; the client's next attempt retries
  state_->lookups.erase(process);
}

void AddressAuth::log_refusal(const std::string& address, const std::string& text) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->refused.size() >= kMaxRefused || !state_->refused.insert(address).second) return;
  }
  state_->log(fmt::format("the coordinator refused a call from {}: {} (logged once per address)", address, text));
}

AddressAuth::Resolve system_resolver() {
  return [](const std::string& name) { return detail::resolve(name, kLookupTimeout); };
}

}  // namespace lockstep
