#include "cluster/messages.h"

#include <fmt/format.h>

#include "cluster/naming.h"

namespace lockstep {

std::string describe(std::chrono::nanoseconds duration) {
  using namespace std::chrono;
  const auto in = [&](auto unit, const char* name) {
    const double count = static_cast<double>(duration.count()) / static_cast<double>(nanoseconds(unit).count());
    return fmt::format("{:.3g} {}", count, name);
  };
  if (duration >= minutes(2)) return in(minutes(1), "min");
  if (duration >= seconds(1)) return in(seconds(1), "s");
  return in(milliseconds(1), "ms");
}

std::string describe(const Failure& failure) {
  std::string out;
  if (failure.process >= 0)
    out = process_label(failure.process, failure.host, failure.pid);
  else if (!failure.host.empty())
    out = fmt::format("host {}", failure.host);
  if (failure.step >= 0) out += fmt::format("{}step {}", out.empty() ? "" : ", ", failure.step);
  if (!failure.operation.empty()) out += fmt::format("{}{}", out.empty() ? "" : ", ", failure.operation);
  return out.empty() ? failure.message : fmt::format("{}: {}", out, failure.message);
}

}  // namespace lockstep
