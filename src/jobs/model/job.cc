#include "jobs/model/job.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace lockstep {
namespace {

// The number that text[from, from + count) spells in decimal; -1 if a character is not a digit.
int digits(std::string_view text, size_t from, size_t count) {
  int value = 0;
  for (size_t i = from; i < from + count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

}  // namespace

std::string pod_name(const Job& job, int index) {
  return fmt::format("{}{}{}", job.name, job.kind == JobKind::jax_job ? "-worker-" : "-", index);
}

std::string pod_name(const Job& job, const Pod& pod) { return pod.name.empty() ? pod_name(job, pod.index) : pod.name; }

std::string time_text(JobTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

JobTime parse_time(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  bool good = text.size() == kForm.size();
  for (size_t i = 0; good && i < kForm.size(); ++i) good = kForm[i] == '0' || text[i] == kForm[i];
  if (good) {
    const std::chrono::year_month_day date(std::chrono::year(digits(text, 0, 4)),
                                           std::chrono::month(static_cast<unsigned>(digits(text, 5, 2))),
                                           std::chrono::day(static_cast<unsigned>(digits(text, 8, 2))));
    const int hour = digits(text, 11, 2), minute = digits(text, 14, 2), second = digits(text, 17, 2);
    const bool clock = hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second < 60;
    if (digits(text, 0, 4) >= 0 && date.ok() && clock)
      return std::chrono::sys_days(date) + std::chrono::seconds(hour * 3600 + minute * 60 + second);
  }
  throw_error("time: \"{}\" is not a valid time; write it as 2024-12-18T16:47:28Z", text);
}

std::string_view name_of(RestartPolicy policy) {
  switch (policy) {
    case RestartPolicy::never:
      return "Never";
    case RestartPolicy::on_failure:
      return "OnFailure";
    case RestartPolicy::always:
      return "Always";
    case RestartPolicy::exit_code:
      return "ExitCode";
  }
  LOCKSTEP_CHECK(false, "restart policy {}", static_cast<int>(policy));
  return {};
}

std::string_view name_of(CleanPodPolicy policy) {
  switch (policy) {
    case CleanPodPolicy::none:
      return "None";
    case CleanPodPolicy::running:
      return "Running";
    case CleanPodPolicy::all:
      return "All";
  }
  LOCKSTEP_CHECK(false, "clean-up policy {}", static_cast<int>(policy));
  return {};
}

std::string_view name_of(PodPhase phase) {
  switch (phase) {
    case PodPhase::pending:
      return "Pending";
    case PodPhase::running:
      return "Running";
    case PodPhase::succeeded:
      return "Succeeded";
    case PodPhase::failed:
      return "Failed";
  }
  LOCKSTEP_CHECK(false, "phase {}", static_cast<int>(phase));
  return {};
}

std::string_view name_of(JobKind kind) { return kind == JobKind::jax_job ? "JAXJob" : "Job"; }

std::string job_state(const Job& job) {
  const auto& conditions = job.status.conditions;
  const auto last = std::find_if(conditions.rbegin(), conditions.rend(), [](const Condition& c) { return c.status; });
  return last == conditions.rend() ? "" : last->type;
}

bool is_finished(const Job& job) {
  return std::ranges::any_of(job.status.conditions, [](const Condition& condition) {
    return condition.status && (condition.type == "Succeeded" || condition.type == "Failed");
  });
}

}  // namespace lockstep
