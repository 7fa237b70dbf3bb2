#include <charconv>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/os/environment.h"
#include "base/runtime_parts.h"
#include "cluster/detect.h"
#include "cluster/exit_code.h"
#include "cluster/gpus.h"
#include "cluster/session.h"
#include "comm/tcp/port_range.h"
#include "comm/tcp/record_cipher.h"
#include "comm/world.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace distributed {
namespace {

// A part of the runtime.
struct Initialization {
  // A session leaves them when it is destroyed.
  World& world = World::current();
  detail::DeviceTable& devices = detail::DeviceTable::current();

  std::mutex mutex;
  bool initialized = false;
  int join_code = 0;                 // exit code after a failure to join; 0: the one that asks for a restart
  std::shared_ptr<Session> session;  // null: one process
};
Initialization& state() { return detail::runtime_part<Initialization>(); }

std::shared_ptr<Session> session() { return current_session(); }

// Sets an option from a variable, unless the caller has changed its default.
void take_seconds(const detail::Environment& environment, const char* variable, std::chrono::milliseconds& option,
                  std::chrono::milliseconds otherwise) {
  const auto found = environment.find(variable);
  if (option != otherwise || found == environment.end() || found->second.empty()) return;
  const std::string& text = found->second;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0) || seconds > 1e6)
    throw_error("initialize: {} is \"{}\"; give a positive number of seconds, or unset it", variable, text);
  option = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Options with_variables(Options options, const detail::Environment& environment) {
  const auto text = [&](const char* variable, std::string& option, const char* otherwise) {
    const auto found = environment.find(variable);
    if (option == otherwise && found != environment.end() && !found->second.empty()) option = found->second;
  };
  const Options otherwise;
  text("LOCKSTEP_COLLECTIVES", options.collectives, "auto");
  text("LOCKSTEP_DATA_SECURITY", options.data_security, "auto");
  text("LOCKSTEP_INTERFACE", options.network_interface, "");
  text("LOCKSTEP_DATA_PORTS", options.data_ports, "");
  static_cast<void>(parse_port_range(options.data_ports, "initialize: data_ports"));
  text("LOCKSTEP_TLS_CA", options.tls_ca, "");
  text("LOCKSTEP_TLS_CERTIFICATE", options.tls_certificate, "");
  text("LOCKSTEP_TLS_KEY", options.tls_key, "");
  if (!options.flight_dir) options.flight_dir = environment_variable("LOCKSTEP_FLIGHT_DIR");
  std::string tls;
  text("LOCKSTEP_TLS", tls, "");
  if (!tls.empty() && tls != "on" && tls != "off")
    throw_error("initialize: LOCKSTEP_TLS is \"{}\"; set it to on or off", tls);
  options.tls = options.tls && tls != "off";
  take_seconds(environment, "LOCKSTEP_INITIALIZATION_TIMEOUT", options.initialization_timeout,
               otherwise.initialization_timeout);
  take_seconds(environment, "LOCKSTEP_HEARTBEAT_TIMEOUT", options.heartbeat_timeout, otherwise.heartbeat_timeout);
  take_seconds(environment, "LOCKSTEP_COLLECTIVE_TIMEOUT", options.collective_timeout, otherwise.collective_timeout);
  if (options.collectives == "gloo") options.collectives = "tcp";  // its name in earlier versions
  if (options.collectives != "auto" && options.collectives != "shared" && options.collectives != "tcp" &&
      options.collectives != "mpi")
    throw_error("initialize: collectives is \"{}\"; set it to auto, shared, tcp or mpi", options.collectives);
  if (options.data_security != "auto" && !link_security_from(options.data_security))
    throw_error("initialize: data_security is \"{}\"; set it to auto, encrypted, signed or plain",
                options.data_security);
  for (const auto& [name, value] : {std::pair("initialization_timeout", options.initialization_timeout),
                                    std::pair("heartbeat_timeout", options.heartbeat_timeout),
                                    std::pair("shutdown_timeout", options.shutdown_timeout),
                                    std::pair("first_collective_timeout", options.first_collective_timeout),
                                    std::pair("collective_timeout", options.collective_timeout)})
    if (value <= std::chrono::milliseconds(0))
      throw_error("initialize: {} is {} ms; it must be positive", name, value.count());
  return options;
}

}  // namespace

void initialize(const Options& given) {
  const std::lock_guard lock(state().mutex);
  if (state().initialized) throw_error("initialize: it was already called; call it once per process");
  if (state().devices.used())
    throw_error("initialize: devices are already in use; call it before anything that uses devices or computes");
  const detail::LaunchEnvironment where = detail::read_launch_environment(given);
  const Options options = with_variables(given, where.environment);
  const detail::ClusterInfo info = detail::detect(options, where);
  if (info.process_count > 1) {
    try {
      // Until all processes have registered, nothing of this process has failed: the others have not come.
      state().join_code = 0;
      const auto joining = std::make_shared<Session>(options, info);
      try {
        joining->join(info);
      } catch (...) {
        state().join_code = joining->failure_code();
        throw;
      }
      state().session = joining;
    } catch (const IoError& error) {
      throw CommTimeout(error.what());  // a restart may help
    }
  } else if (!info.local_device_ids.empty()) {
    detail::select_own_gpus(info, 0, 1);
  }
  state().initialized = true;
}

void shutdown() {
  std::shared_ptr<Session> leaving;
  {
    const std::lock_guard lock(state().mutex);
    leaving = std::exchange(state().session, nullptr);
    state().initialized = false;
  }
  if (leaving) leaving->shutdown();
}

bool is_initialized() {
  const std::lock_guard lock(state().mutex);
  return state().initialized;
}

void report_failure(const std::string& message, bool retryable) {
  if (const auto current = session()) current->report_failure(message, retryable);
}

int report_failure(const std::exception& error) {
  if (dynamic_cast<const CommError*>(&error)) {  // caused by another process, which has reported it
    if (const int code = failure_code(); code != 0) return code;
    const std::lock_guard lock(state().mutex);
    return state().join_code != 0 ? state().join_code : retry_code();
  }
  const bool retryable = dynamic_cast<const DeviceLost*>(&error) != nullptr;
  report_failure(error.what(), retryable);
  return retryable ? first_cause_code() : 1;
}

int retry_code() {
  detail::Environment environment;
  for (const char* name : detail::kJaxjobVariables)
    if (const auto value = environment_variable(name)) environment.emplace(name, *value);
  return detail::is_jaxjob_replica(environment) ? kKubeflowRetry : kRetry;
}

int failure_code() {
  const auto current = session();
  return current ? current->failure_code() : 0;
}

void sync(const std::string& name) {
  if (const auto current = session()) current->sync(name);
}

}  // namespace distributed

std::shared_ptr<Session> current_session() {
  distributed::Initialization& state = distributed::state();
  const std::lock_guard lock(state.mutex);
  return state.session;
}

std::string unprotected_data() {
  const auto current = current_session();
  return current ? current->unprotected_data() : "";
}

}  // namespace lockstep
