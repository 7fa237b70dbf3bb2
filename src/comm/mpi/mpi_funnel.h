// MpiFunnel: a thread that calls MPI for others, where MPI allows calls only from the one that has initialized it.
// Waits without a pause for a moment after each call, then sleeps. Safe from any thread.
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

  // Calls f() there and returns what it returned. REQUIRES: f throws nothing and does not call this.
  template <class F>
  int run(F&& f) {
    using Body = std::remove_reference_t<F>;
    return run([](void* body) { return static_cast<int>((*static_cast<Body*>(body))()); }, &f);
  }

 private:
  enum class State { idle, asked, answered, stop };
  using Function = int (*)(void* body);

  int run(Function function, void* body);
  void work();
  // Whether the state was left in time, without sleeping.
  bool leaves(State state) const;
  void change(State state, std::condition_variable& whose);

  std::mutex turn_;   // of those who ask
  std::mutex mutex_;  // held when the state changes
  std::condition_variable asked_, answered_;
  std::atomic<State> state_{State::idle};
  Function function_ = nullptr;
  void* body_ = nullptr;
  int result_ = 0;
  std::thread thread_;
};

}  // namespace lockstep
