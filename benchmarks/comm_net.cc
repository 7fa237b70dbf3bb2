// A sum over two ranks with the backends between hosts, against the library under each, in turn. ratio: its time over
// ours.
//
//   benchmarks/comm_net                        # Gloo over loopback, ranks are threads
//   mpirun -n 2 benchmarks/comm_net            # MPI, ranks are processes
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#ifdef LOCKSTEP_WITH_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include "comm/gloo/gloo.h"
#endif
#ifdef LOCKSTEP_WITH_MPI
#include <mpi.h>

#include "comm/mpi/mpi.h"
#endif

#include "lockstep/error.h"

namespace lockstep {
namespace {

[[maybe_unused]] double seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

[[maybe_unused]] int repeats(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>((int64_t{32} << 20) / bytes, 4, 1000));
}

[[maybe_unused]] void report(benchmark::State& state, std::vector<double>& ours, std::vector<double>& raw) {
  const double our_time = median(ours), raw_time = median(raw);
  state.counters["us"] = our_time * 1e6;
  state.counters["raw_us"] = raw_time * 1e6;
  state.counters["GB/s"] = static_cast<double>(state.range(0)) / our_time * 1e-9;
  state.counters["ratio"] = raw_time / our_time;
}

#ifdef LOCKSTEP_WITH_GLOO

class LocalStore final : public KeyStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    if (!values_.emplace(key, value).second) throw Error("set already: " + key);
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.count(key) > 0; })) throw CommTimeout("no " + key);
    return values_.at(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

void gloo_all_reduce(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  const auto count = static_cast<size_t>(bytes) / sizeof(float);
  const int repeat = repeats(bytes);
  LocalStore store;
  gloo::rendezvous::HashStore raw_store;
  std::vector<double> ours, raw;
  const auto iterations = static_cast<int>(state.max_iterations);
  const auto rank_main = [&](int rank) {
    const std::unique_ptr<Comm> comm = gloo_comm({.store = store, .rank = rank, .size = 2, .address = "127.0.0.1"});
    gloo::transport::tcp::attr attributes("127.0.0.1");
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    context->connectFullMesh(raw_store, device);
    std::vector<float> in(count, 1.0f), out(count);
    const auto timed = [&](std::vector<double>& times, const std::function<void()>& f) {
      for (int i = 0; i < 2; ++i) f();
      comm->barrier();
      const double time = seconds([&] {
        for (int i = 0; i < repeat; ++i) f();
      });
      if (rank == 0) times.push_back(time / repeat);
    };
    for (int i = 0; i < iterations; ++i) {
      timed(ours, [&] { comm->all_reduce(in.data(), out.data(), static_cast<int64_t>(count), f32, Reduction::sum); });
      timed(raw, [&] {
        gloo::AllreduceOptions options(context);
        options.setInput(in.data(), count);
        options.setOutput(out.data(), count);
        options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
      });
    }
    comm->barrier();
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  size_t next = 0;
  for (auto _ : state) state.SetIterationTime(ours[next++]);
  report(state, ours, raw);
}

#endif

#ifdef LOCKSTEP_WITH_MPI

void mpi_all_reduce(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  const auto count = static_cast<size_t>(bytes) / sizeof(float);
  const int repeat = repeats(bytes);
  const std::unique_ptr<Comm> comm = mpi_comm();
  std::vector<float> in(count, 1.0f), out(count);
  std::vector<double> ours, raw;
  const auto timed = [&](std::vector<double>& times, const std::function<void()>& f) {
    for (int i = 0; i < 2; ++i) f();
    comm->barrier();
    times.push_back(seconds([&] {
                      for (int i = 0; i < repeat; ++i) f();
                    }) /
                    repeat);
  };
  for (auto _ : state) {
    timed(ours, [&] { comm->all_reduce(in.data(), out.data(), static_cast<int64_t>(count), f32, Reduction::sum); });
    timed(raw,
          [&] { MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    state.SetIterationTime(ours.back());
  }
  comm->barrier();
  report(state, ours, raw);
}

#endif

// Under mpirun MPI, else Gloo.
[[maybe_unused]] const bool registered = [] {
  [[maybe_unused]] const auto sizes = [](benchmark::internal::Benchmark* one) {
    for (const int64_t bytes : {4, 256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20})
      one->Arg(bytes);
    one->UseManualTime()->Iterations(11)->Unit(benchmark::kMicrosecond);
  };
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = std::getenv("PMI_RANK");
  if (rank) {
#ifdef LOCKSTEP_WITH_MPI
    sizes(benchmark::RegisterBenchmark("mpi_all_reduce", mpi_all_reduce));
#endif
    if (std::string(rank) != "0" && !std::freopen("/dev/null", "w", stdout)) std::abort();
    return true;
  }
#ifdef LOCKSTEP_WITH_GLOO
  sizes(benchmark::RegisterBenchmark("gloo_all_reduce", gloo_all_reduce));
#endif
  return true;
}();

}  // namespace
}  // namespace lockstep
