#include "jobs/signals.h"

#include <fcntl.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "base/check.h"

namespace lockstep {
namespace {

std::atomic<int> writer = -1;

void on_signal(int signal) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = ::write(writer.load(), &byte, 1);
  errno = error;
}

}  // namespace

SignalPipe::SignalPipe(const std::vector<int>& signals) {
  LOCKSTEP_CHECK(writer.load() < 0, "a SignalPipe exists already");
  pipe_ = make_pipe(O_NONBLOCK);
  writer = pipe_.writer.get();
  for (const int signal : signals) {
    struct sigaction old = {}, own = {};
    ::sigaction(signal, nullptr, &old);
    const bool ignored = !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_IGN;
    if (ignored && signal != SIGCHLD) continue;  // with SIGCHLD ignored, the kernel would reap children
    own.sa_handler = on_signal;
    own.sa_flags = SA_RESTART;
    ::sigaction(signal, &own, nullptr);
    previous_.emplace_back(signal, old);
  }
}

SignalPipe::~SignalPipe() {
  for (const auto& [signal, action] : previous_) ::sigaction(signal, &action, nullptr);
  writer = -1;
}

std::vector<int> SignalPipe::take() {
  std::vector<int> out;
  std::array<unsigned char, 256> bytes;
  for (ssize_t n; (n = ::read(pipe_.reader.get(), bytes.data(), bytes.size())) > 0;)
    out.insert(out.end(), bytes.begin(), bytes.begin() + n);
  return out;
}

}  // namespace lockstep
