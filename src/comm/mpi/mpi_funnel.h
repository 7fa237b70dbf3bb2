// MpiFunnel: a thread that calls MPI on behalf of other threads, for MPI libraries that allow calls only from the
// thread that initialized them (MPI_THREAD_FUNNELED). After each call it spins for a moment, then sleeps. Safe from any
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <type_traits>

namespace lockstep {

class MpiFunnel {
 public:
  MpiFunnel();
  ~MpiFunnel();
  MpiFunnel(const MpiFunnel&) = delete;
  MpiFunnel& operator=(const MpiFunnel&) = delete;

  // Calls f() on the funnel thread and returns its result. REQUIRES: f does not throw and does not call run().
  template <class F>
  int run(F&& f) {
    using Body = std::remove_reference_t<F>;
    return run([](void* body) { return static_cast<int>((*static_cast<Body*>(body))()); }, &f);
  }

 private:
  enum class State { idle, requested, completed, stop };
  using Function = int (*)(void* body);

  int run(Function function, void* body);
  void work();
  // Spins while the state is `state`, for a short time. Returns whether it has changed.
  bool spin_while(State state) const;
  void change(State state, std::condition_variable& waiter);

  std::mutex turn_;   // held by the thread whose call runs
  std::mutex mutex_;  // held when the state changes
  std::condition_variable requested_, completed_;
  std::atomic<State> state_{State::idle};
  Function function_ = nullptr;
  void* body_ = nullptr;
  int result_ = 0;
  std::thread thread_;
};

}  // namespace lockstep
