// All-reduce between processes of one host, by size: over shared memory, MPI and TCP, the latter two compared with the
// underlying libraries. The columns of a size are measured alternately, so that disturbances affect all of them. A
// round takes as long as its slowest rank. Times are medians over all rounds. Ratios are medians of the ratios of each
// round, because a ratio of two medians would compare rounds with different disturbances. Results are verified before
// they are timed; all columns use the same memory.
//
//   build/benchmarks/comm_ranks [-n 2] [--rounds 41]      # starts its processes itself, with mpirun if available
//
// us: time of one all-reduce. x raw: speed relative to the library itself (MPI_Allreduce, gloo::allreduce). x MPI:
// speed relative to MPI_Allreduce. x TCP: speed relative to plain TCP.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#ifdef LOCKSTEP_WITH_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#endif
#ifdef LOCKSTEP_WITH_MPI
#include <mpi.h>

#include "comm/mpi/mpi.h"
#endif

#include "comm/file_store.h"
#include "comm/shared/shared_memory.h"
#include "comm/tcp/tcp.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSizes[] = {4, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
constexpr double kRoundSeconds = 10e-3,
                 kSizeSeconds = 8;                    // approximate duration of a round, and of all rounds of a size
constexpr auto kPatience = std::chrono::seconds(60);  // deadline of one operation
constexpr unsigned kAllTime = 300;                    // seconds

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An implementation of all-reduce.
struct Column {
  std::string name;
  bool ours = true;
  double latency = 1e-6;  // about
  std::function<void(const float* in, float* out, int64_t count)> sum;
  std::vector<double> times = {};  // by round
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Ranks {
 public:
  Ranks(int rank, int size, const fs::path& folder, bool mpi)
      : rank_(rank), size_(size), folder_(folder), store_(folder / "keys") {
    meet_ = join_shared("meet");
    shared_ = join_shared("column");
    add(*shared_, "shared memory", 1e-6);
    if (mpi) add_mpi();
    for (const LinkSecurity security : {LinkSecurity::plain, LinkSecurity::signature, LinkSecurity::encrypted})
      add_tcp(security);
    add_gloo();
  }

  void run(int rounds) {
    print_head();
    for (const int64_t bytes : kSizes) {
      const auto count = bytes / int64_t{sizeof(float)};
      in_.resize(static_cast<size_t>(count));
      out_.resize(in_.size());
      for (Column& column : columns_) {
        compare(column, count);
        column.times.clear();
      }
      measure(count, std::clamp<int>(static_cast<int>((int64_t{rounds} << 24) / bytes), 5, rounds));
      print_row(bytes);
    }
  }

 private:
  void add(Comm& comm, std::string name, double latency) {
    columns_.push_back(
        {.name = std::move(name), .latency = latency, .sum = [&comm](const float* in, float* out, int64_t count) {
           comm.all_reduce(in, out, count, f32, Reduction::sum);
         }});
  }

  std::unique_ptr<Comm> join_shared(const std::string& key) {
    std::shared_ptr<detail::Segment> memory;
    if (rank_ == 0) {
      memory = create_shared_memory(size_);
      store_.set(key, address_of(*memory));
    } else {
      memory = open_shared_memory(store_.get(key, kPatience));
    }
    return shared_memory_comm({.memory = memory, .rank = rank_, .size = size_, .timeout = kPatience});
  }

  void add_mpi() {
#ifdef LOCKSTEP_WITH_MPI
    mpi_ = mpi_comm({.timeout = kPatience});
    add(*mpi_, "MPI", 1e-6);
    columns_.push_back({.name = "raw MPI", .ours = false, .sum = [](const float* in, float* out, int64_t count) {
                          MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                        }});
#endif
  }

  void add_tcp(LinkSecurity security) {
    tcp_.push_back(tcp_comm({.store = store_,
                             .prefix = fmt::format("tcp {}", name(security)),
                             .rank = rank_,
                             .size = size_,
                             .address = "127.0.0.1",
                             .timeout = kPatience,
                             .security = security}));
    add(*tcp_.back(), security == LinkSecurity::plain ? "TCP" : fmt::format("TCP, {}", name(security)), 40e-6);
  }

  void add_gloo() {
#ifdef LOCKSTEP_WITH_GLOO
    gloo::rendezvous::FileStore raw_store((folder_ / "raw").string());
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    context->connectFullMesh(raw_store, device);
    columns_.push_back(
        {.name = "Gloo", .ours = false, .latency = 40e-6, .sum = [context](const float* in, float* out, int64_t count) {
           gloo::AllreduceOptions options(context);
           options.setInput(const_cast<float*>(in), static_cast<size_t>(count));
           options.setOutput(out, static_cast<size_t>(count));
           options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
           gloo::allreduce(options);
         }});
#endif
  }

  static float value(int rank, int64_t i) { return 1.0f / static_cast<float>(1 + (i + 7 * rank) % 1013); }

  // Ours must equal sums in the order of the ranks bitwise; those of a library must be close, and equal on all ranks.
  void compare(const Column& column, int64_t count) {
    for (int64_t i = 0; i < count; ++i) in_[static_cast<size_t>(i)] = value(rank_, i);
    std::fill(out_.begin(), out_.end(), -1.0f);
    column.sum(in_.data(), out_.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      float expected = value(0, i);
      for (int rank = 1; rank < size_; ++rank) expected += value(rank, i);
      const float got = out_[static_cast<size_t>(i)];
      if (column.ours || size_ == 2 ? got != expected : std::abs(got - expected) > 1e-5f * expected)
        throw Error(fmt::format("{}: element {} of {} is {}, not {}", column.name, i, count, got, expected));
    }
    int64_t part = std::min<int64_t>(count, 1 << 20);
    std::vector<float> all(static_cast<size_t>(part * size_));
    const std::vector<int64_t> counts(static_cast<size_t>(size_), part);
    meet_->all_gather(out_.data(), all.data(), counts, f32);
    for (int rank = 0; rank < size_; ++rank)
      if (std::memcmp(all.data() + rank * part, out_.data(), static_cast<size_t>(part) * sizeof(float)) != 0)
        throw Error(fmt::format("{}: ranks {} and {} have different sums", column.name, rank, rank_));
  }

  // The time of each of `repeat` sums on the slowest rank, after some warm-up calls: the threads of a library have to
  // find their cores again after the previous column.
  double round(const Column& column, int64_t count, int repeat) {
    for (int i = 0; i < std::max(repeat / 4, 1); ++i) column.sum(in_.data(), out_.data(), count);
    meet_->barrier();
    const double begin = seconds_now();
    for (int i = 0; i < repeat; ++i) column.sum(in_.data(), out_.data(), count);
    double time = (seconds_now() - begin) / repeat;
    meet_->all_reduce(&time, &time, 1, f64, Reduction::max);
    return time;
  }

  // The number of sums per round follows from the expected time, not from a measurement, which a disturbance could
  // distort.
  void measure(int64_t count, int rounds) {
    const auto bytes = static_cast<double>(count) * sizeof(float);
    for (const Column& column : columns_) round(column, count, 2);
    const double begin = seconds_now();
    for (int i = 0; i < rounds; ++i) {
      for (Column& column : columns_) {
        const double expected = column.latency + bytes / 4e9;
        column.times.push_back(round(column, count, std::max(static_cast<int>(kRoundSeconds / expected), 2)));
      }
      double spent = seconds_now() - begin;  // all ranks stop in the same round
      meet_->broadcast(&spent, 1, f64, 0);
      if (spent > kSizeSeconds) break;
    }
  }

  const Column* find(const std::string& name) const {
    const auto found = std::ranges::find(columns_, name, &Column::name);
    return found == columns_.end() ? nullptr : &*found;
  }

  // The ratios to print: a title, and the columns whose times are divided.
  struct Ratio {
    std::string name;
    const Column *raw, *ours;

    double median() const {
      std::vector<double> all;
      for (size_t i = 0; i < ours->times.size(); ++i) all.push_back(raw->times[i] / ours->times[i]);
      return lockstep::median(std::move(all));
    }
  };
  std::vector<Ratio> ratios() const {
    std::vector<Ratio> all;
    const auto add = [&](std::string name, const std::string& raw, const std::string& ours) {
      if (find(raw) && find(ours)) all.push_back({std::move(name), find(raw), find(ours)});
    };
    add("shared memory, x MPI", "raw MPI", "shared memory");
    add("MPI, x raw", "raw MPI", "MPI");
    add("TCP, x Gloo", "Gloo", "TCP");
    add("signed, x TCP", "TCP", "TCP, signed");
    add("encrypted, x TCP", "TCP", "TCP, encrypted");
    return all;
  }

  void print_head() const {
    if (rank_ != 0) return;
    std::string names = "| bytes |", line = "| --- |";
    for (const Column& column : columns_) names += fmt::format(" {}, us |", column.name);
    names += " shared memory, GB/s |";
    for (const Ratio& ratio : ratios()) names += fmt::format(" {} |", ratio.name);
    for (size_t i = 0; i < columns_.size() + 1 + ratios().size(); ++i) line += " --- |";
    fmt::print("all-reduce of f32 over {} processes\n\n{}\n{}\n", size_, names, line);
  }

  void print_row(int64_t bytes) const {
    if (rank_ != 0) return;
    std::string row = bytes < 1 << 10   ? fmt::format("| {} |", bytes)
                      : bytes < 1 << 20 ? fmt::format("| {} KiB |", bytes >> 10)
                                        : fmt::format("| {} MiB |", bytes >> 20);
    for (const Column& column : columns_) row += fmt::format(" {:.4g} |", median(column.times) * 1e6);
    row += fmt::format(" {:.3g} |", static_cast<double>(bytes) / median(columns_[0].times) * 1e-9);
    for (const Ratio& ratio : ratios()) row += fmt::format(" {:.2f} |", ratio.median());
    fmt::print("{}\n", row);
    std::fflush(stdout);
  }

  const int rank_, size_;
  const fs::path folder_;
  conformance::FileStore store_;
  std::unique_ptr<Comm> meet_, shared_, mpi_;
  std::vector<std::unique_ptr<Comm>> tcp_;  // plain, signed, encrypted
  std::vector<Column> columns_;
  std::vector<float> in_, out_;
};

struct Arguments {
  int ranks = 2, rounds = 41;
  std::string folder;  // passed to the ranks
  int rank = -1;       // passed to the ranks if mpirun does not set it
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw Error(fmt::format("comm_ranks: {} needs a value", flag));
    const char* value = argv[++i];
    if (flag == "-n")
      arguments.ranks = std::stoi(value);
    else if (flag == "--rounds")
      arguments.rounds = std::stoi(value);
    else if (flag == "--folder")
      arguments.folder = value;
    else if (flag == "--rank")
      arguments.rank = std::stoi(value);
    else
      throw Error(fmt::format("comm_ranks: unknown argument {}; it takes -n and --rounds", flag));
  }
  return arguments;
}

pid_t start(const std::vector<std::string>& words) {
  std::vector<char*> raw;
  for (const std::string& word : words) raw.push_back(const_cast<char*>(word.c_str()));
  raw.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  execvp(raw[0], raw.data());
  _exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Starts the ranks and waits for them. Ranks that hang are ended by an alarm signal.
int start_ranks(const Arguments& arguments) {
  std::string pattern = (fs::temp_directory_path() / "lockstep_ranks_XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw Error("comm_ranks: cannot create a temporary folder");
  fs::create_directory(fs::path(pattern) / "keys");
  fs::create_directory(fs::path(pattern) / "raw");
  const std::vector<std::string> rank = {
      "/proc/self/exe", "-n",   std::to_string(arguments.ranks), "--rounds", std::to_string(arguments.rounds),
      "--folder",       pattern};
  int result = 127;
#ifdef LOCKSTEP_WITH_MPI
  for (const char* name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(name, "1", 0);
  // Not bound to cores, because Gloo has its own thread besides the calling one.
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(arguments.ranks), "--bind-to", "none"};
  words.push_back(fs::read_symlink("/proc/self/exe").string());
  words.insert(words.end(), rank.begin() + 1, rank.end());
  result = wait_for(start(words));
#endif
  if (result == 127) {
    fmt::print("mpirun is not installed, or this build has no MPI: the MPI columns are omitted\n\n");
    std::fflush(stdout);
    std::vector<pid_t> children;
    for (int i = 0; i < arguments.ranks; ++i) {
      std::vector<std::string> one = rank;
      one.insert(one.end(), {"--rank", std::to_string(i)});
      children.push_back(start(one));
    }
    result = 0;
    for (const pid_t child : children) result = std::max(result, wait_for(child));
  }
  fs::remove_all(pattern);
  return result;
}

int be_rank(const Arguments& arguments) {
  alarm(kAllTime);
  int rank = arguments.rank, size = arguments.ranks;
  const bool mpi = rank < 0;
#ifdef LOCKSTEP_WITH_MPI
  if (mpi) {
    rank = mpi_rank().rank;
    size = mpi_rank().size;
  }
#endif
  Ranks(rank, size, arguments.folder, mpi).run(arguments.rounds);
#ifdef LOCKSTEP_WITH_MPI
  if (mpi) mpi_finalize();
#endif
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  const lockstep::Arguments arguments = lockstep::parse(argc, argv);
  return arguments.folder.empty() ? lockstep::start_ranks(arguments) : lockstep::be_rank(arguments);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
