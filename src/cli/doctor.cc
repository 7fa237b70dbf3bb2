#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/names.h"
#include "base/os/environment.h"
#include "base/printable.h"
#include "base/terminal_style.h"
#include "cli/command.h"
#include "cli/diagnosis.h"
#include "command/choice_check.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/runtime_flags.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

struct DoctorArguments {
  distributed::Options options;
  double timeout = 3;
  bool json = false, ready = false;
  std::string platform;
  RuntimeFlags runtime;
};

const char* detected_text(const detail::DetectorResult& result) {
  return result.invalid ? "wrong" : result.found ? "yes" : "no";
}

bool is_in_use(const Diagnosis& found, const detail::DetectorResult& result) {
  return found.detection.chosen && found.detection.chosen->method == result.detector;
}

std::string addresses_of(const std::vector<detail::Interface>& interfaces) {
  std::string out;
  for (const detail::Interface& each : interfaces)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", each.name, each.address);
  return out.empty() ? "none" : out;
}

std::string shared_size_text(uint64_t bytes) {
  constexpr uint64_t kMebibyte = 1 << 20;
  return bytes < 10 * kMebibyte ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes / kMebibyte);
}

std::string devices_of(const Diagnosis::Devices& devices) {
  std::string out = fmt::format("{}, {}, {}", counted(devices.cores, "core"), counted(devices.lanes, "lane"),
                                counted(devices.cpu_devices, "CPU device"));
  if (devices.gpus_visible > 0)
    out += fmt::format(", {} visible, using {}", counted(devices.gpus_visible, "GPU"),
                       devices.gpus.empty() ? "none" : fmt::format("GPU {}", fmt::join(devices.gpus, ", ")));
  return out;
}

std::string colored(const std::string& text, Paint paint) {
  return painted(text, paint, terminal_style(STDOUT_FILENO).color);
}

void print_heading(const char* text) { fmt::print("\n{}\n", colored(text, Paint::bold)); }

void print_line(const char* name, const std::string& value) {
  fmt::print("  {:<20}  {}\n", name, printable_lines(value));
}

void print_coordinator(const Diagnosis& found) {
  if (!found.coordinator) return;
  print_heading("coordinator");
  print_line("address", found.detection.chosen->coordinator);
  print_line("resolves to", found.coordinator->addresses.empty()
                                ? "nothing"
                                : fmt::format("{}", fmt::join(found.coordinator->addresses, ", ")));
  print_line("status", found.coordinator->status);
  if (!found.coordinator->own_address.empty()) print_line("reached from", found.coordinator->own_address);
}

// Prints nothing without NVIDIA hardware.
void print_gpus(const GpuReport& report) {
  if (!report.seen) return;
  print_heading("gpus");
  for (const auto& [name, value] : report_lines(report)) print_line(name.c_str(), value);
}

void print_text(const Diagnosis& found) {
  fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
  print_line("built by", fmt::format("{}, {}", found.compiler, found.machine));
  for (const Feature& part : found.parts) print_line(part.name.c_str(), part.used.empty() ? part.why_not : part.used);

  print_heading("launchers");
  for (const detail::DetectorResult& result : found.detection.results)
    fmt::print("{} {:<10}  {:<5}  {}\n", is_in_use(found, result) ? ">" : " ", result.detector, detected_text(result),
               printable_lines(result.reason));

  print_heading("this process");
  if (found.detection.chosen) print_line("identity", to_string(*found.detection.chosen));
  print_line("devices", devices_of(found.devices));
  if (!found.devices.platform.empty()) print_line("platform", found.devices.platform);
  print_line("host", found.full_host_name.empty() ? found.host_name : found.full_host_name);
  print_line("addresses", addresses_of(found.interfaces));
  print_line("shared memory", found.why_no_shared_memory.empty() ? "works" : "does not work: see below");
  print_line("/dev/shm", fmt::format("{} of {} free (for NCCL)", shared_size_text(found.shared_free),
                                     shared_size_text(found.shared_bytes)));
  if (!found.proxies.empty())
    print_line("proxies", fmt::format("{}: not used between processes", fmt::join(found.proxies, ", ")));
  print_gpus(found.gpus);
  print_coordinator(found);

  for (const std::string& note : found.notes)
    fmt::print("\n{} {}\n", colored("note:", Paint::bold_yellow), printable_lines(note));
  if (found.problems.empty()) {
    fmt::print("\n{}{}\n", colored("no problems found", Paint::green),
               found.notes.empty() ? "" : "; see the note above");
    return;
  }
  fmt::print("\n{}\n",
             colored(counted(static_cast<int64_t>(found.problems.size()), "problem") + " found", Paint::bold_red));
  for (const Diagnosis::Problem& problem : found.problems) {
    fmt::print("- {}\n", colored(printable_lines(problem.what), Paint::red));
    if (!problem.remedy.empty()) fmt::print("  {}\n", printable_lines(problem.remedy));
  }
}

using nlohmann::ordered_json;

ordered_json json_of(const detail::ClusterInfo& info) {
  ordered_json out = {{"method", info.method},
                      {"process_id", info.process_id},
                      {"process_count", info.process_count},
                      {"coordinator", info.coordinator},
                      {"bind_address", info.bind_address},
                      {"local_id", nullptr},
                      {"local_count", nullptr},
                      {"local_device_ids", info.local_device_ids},
                      {"mpi", info.mpi}};
  if (info.local_id) out["local_id"] = *info.local_id;
  if (info.local_count) out["local_count"] = *info.local_count;
  return out;
}

ordered_json json_of(const GpuReport& report) {
  ordered_json libraries = ordered_json::object(), gpus = ordered_json::array();
  for (const GpuLibrary& each : report.libraries) libraries[each.name] = each.file;
  for (const Gpu& each : report.gpus)
    gpus.push_back({{"name", each.name},
                    {"memory", each.memory},
                    {"free", each.free},
                    {"compute_capability", fmt::format("{}.{}", each.major, each.minor)},
                    {"multiprocessors", each.processors},
                    {"reason", each.why_not}});
  return {{"built_in", report.built_in}, {"hardware", report.seen}, {"driver", report.driver},
          {"runtime", report.runtime},   {"libraries", libraries},  {"gpus", gpus},
          {"reason", report.why_not}};
}

void print_json(const Diagnosis& found) {
  ordered_json parts, results = ordered_json::array(), interfaces = ordered_json::array(),
                      problems = ordered_json::array();
  for (const Feature& part : found.parts) parts[part.name] = part.used;
  for (const detail::DetectorResult& result : found.detection.results)
    results.push_back({{"name", result.detector},
                       {"detected", detected_text(result)},
                       {"in_use", is_in_use(found, result)},
                       {"reason", result.reason}});
  for (const detail::Interface& each : found.interfaces)
    interfaces.push_back({{"name", each.name}, {"address", each.address}});
  for (const Diagnosis::Problem& problem : found.problems)
    problems.push_back({{"problem", problem.what}, {"remedy", problem.remedy}});
  ordered_json out = {
      {"version", LOCKSTEP_VERSION},
      {"compiler", found.compiler},
      {"machine", found.machine},
      {"parts", parts},
      {"launchers", results},
      {"process", nullptr},
      {"devices",
       {{"cores", found.devices.cores},
        {"lanes", found.devices.lanes},
        {"cpu_devices", found.devices.cpu_devices},
        {"gpus_visible", found.devices.gpus_visible},
        {"gpus", found.devices.gpus},
        {"platform", found.devices.platform}}},
      {"cuda", json_of(found.gpus)},
      {"host", {{"name", found.host_name}, {"full_name", found.full_host_name}, {"interfaces", interfaces}}},
      {"shared_memory",
       {{"bytes", found.shared_bytes}, {"free", found.shared_free}, {"reason", found.why_no_shared_memory}}},
      {"proxies", found.proxies},
      {"coordinator", nullptr},
      {"notes", found.notes},
      {"problems", problems},
      {"ok", found.problems.empty()}};
  if (found.detection.chosen) out["process"] = json_of(*found.detection.chosen);
  if (found.coordinator)
    out["coordinator"] = {{"address", found.detection.chosen->coordinator},
                          {"addresses", found.coordinator->addresses},
                          {"status", found.coordinator->status},
                          {"own_address", found.coordinator->own_address}};
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

// Prints whether process 0 of the job listens and is reachable from here. For the readiness probe of a pod.
int check_ready(const distributed::Options& options, std::chrono::milliseconds timeout) {
  const detail::ClusterInfo info = detail::detect(options, detail::read_launch_environment());
  if (info.process_count == 1 || info.coordinator.empty()) {
    fmt::print("ready: no coordinator is needed\n");
    return kDone;
  }
  const detail::Address at = detail::parse_address(info.coordinator, "coordinator");
  std::string why;
  for (const std::string& number : detail::resolve(at.host, timeout)) {
    const detail::PortProbe probe = detail::probe_port(number, at.port, timeout);
    if (probe.result == detail::PortProbe::Result::answered) {
      fmt::print("ready: the coordinator {} is reachable\n", printable(info.coordinator));
      return kDone;
    }
    why = probe.detail;
  }
  fmt::print("not ready: the coordinator {} is not reachable: {}\n", printable(info.coordinator), printable(why));
  return kFailed;
}

int run(const DoctorArguments& arguments) {
  export_flags(arguments.runtime);
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout * 1000));
  distributed::Options options = arguments.options;
  if (options.network_interface.empty())
    options.network_interface = environment_variable("LOCKSTEP_INTERFACE").value_or("");
  if (arguments.ready) return check_ready(options, timeout);
  const Diagnosis found = diagnose(options, detail::read_launch_environment(), timeout, arguments.platform);
  if (arguments.json)
    print_json(found);
  else
    print_text(found);
  return found.problems.empty() ? kDone : kFailed;
}

}  // namespace

void add_doctor_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("doctor", "show the detected rank, devices and coordinator, and how to fix problems");
  auto arguments = std::make_shared<DoctorArguments>();
  command
      ->add_option("--method", arguments->options.cluster_detection_method,
                   "use only this launcher's environment variables (default: the first launcher detected)")
      ->check(one_of(detail::detector_names()));
  command
      ->add_option("--interface", arguments->options.network_interface,
                   "network interfaces to use, such as eth0, 'ib*' or '^docker*' (default: all)")
      ->type_name("PATTERN");
  const auto seconds = [](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return *end == '\0' && value >= 0.001 && value <= 3600 ? "" : "\"" + text + "\" is not a time from 0.001 to 3600 s";
  };
  command
      ->add_option("--timeout", arguments->timeout,
                   "longest wait for name servers and for the coordinator, each (default: 3)")
      ->check(seconds, "")
      ->type_name("SECONDS");
  add_platform_flag(*command, arguments->platform, "device type to check (default: $LOCKSTEP_PLATFORM, else auto)");
  command->add_flag("--json", arguments->json, "print JSON");
  command->add_flag("--ready", arguments->ready,
                    "check only whether process 0 of the job is reachable, for the readiness probe of a pod");
  add_runtime_flags(*command, arguments->runtime, {SettingGroup::process});
  add_footer(*command,
             "Exit codes:\n"
             "  0  no problems found; with --ready: process 0 is reachable\n"
             "  1  problems found, whose fixes are printed last; with --ready: process 0 is not reachable");
  add_examples(*command, {"lockstep doctor", "srun lockstep doctor --method slurm"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
