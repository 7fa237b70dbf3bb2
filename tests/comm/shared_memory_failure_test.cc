// SharedMemoryComm: ranks that are killed or stopped, keys that are in use, and missing memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <set>

#include "base/os/descriptor.h"
#include "base/throws.h"
#include "comm/shared/rendezvous.h"
#include "comm/shared_memory_ranks.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using conformance::join_shared;
using conformance::Processes;
using conformance::shared_memory_addresses;
using conformance::unique_key;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A counter that children share with their parent.
class SharedCounter {
 public:
  SharedCounter()
      : counter_(new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0)) std::atomic<int>(0)) {}
  ~SharedCounter() { munmap(counter_, sizeof(std::atomic<int>)); }
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  void add() { counter_->fetch_add(1); }
  // Waits until the counter has reached `value`; false after a timeout.
  bool reaches(int value) const {
    const auto deadline = std::chrono::steady_clock::now() + seconds(60);
    while (counter_->load() < value) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      usleep(200);
    }
    return true;
  }

 private:
  std::atomic<int>* counter_;
};

// Whether some process holds shared memory of lockstep with this id (all: empty), open or mapped.
bool is_held(const std::string& id) {
  const auto names_it = [&](const std::string& text) { return text.find("memfd:lockstep-" + id) != text.npos; };
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (names_it(line)) return true;
    for (const auto& file : std::filesystem::directory_iterator(process.path() / "fd", error))
      if (names_it(std::filesystem::read_symlink(file, error).string())) return true;
  }
  return false;
}

// The id of the memory at an address: it is part of its name.
std::string id_of(const std::string& address) {
  const std::string after = address.substr(address.find("lockstep-") + 9);
  return after.substr(0, after.find(' '));
}

// The files of lockstep in /dev/shm.
std::set<std::string> files_in_shared_memory() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/dev/shm", error))
    if (each.path().filename().string().starts_with("lockstep")) names.insert(each.path());
  return names;
}

// Returns the message of the exception that the call throws, which must be an E.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(SharedMemoryFailure, NamesAKilledRank) {
  const std::string key = unique_key();
  SharedCounter joined;
  Processes children(3, [&](int rank) {
    const std::unique_ptr<Comm> comm = join_shared(rank, 3, key);
    comm->barrier();
    joined.add();
    if (rank == 2) pause();  // until it is killed
    const std::string message = message_of<CommAborted>([&] { comm->barrier(); });
    expect_part(message,
                "barrier 2 on \"world\": rank " + std::to_string(rank) + " of 3 stops; first cause: rank 2 (process ");
    expect_part(message, ") is gone");
    message_of<CommAborted>([&] { (void)comm->split({0, 1}, "late"); });
  });
  EXPECT_TRUE(joined.reaches(3));
  children.signal(2, SIGKILL);
  children.wait();
}

TEST(SharedMemoryFailure, NamesARankKilledBeforeASplit) {
  const std::string key = unique_key();
  SharedCounter joined;
  Processes children(2, [&](int rank) {
    const std::unique_ptr<Comm> comm = join_shared(rank, 2, key);
    joined.add();
    if (rank == 0) pause();  // until it is killed
    expect_part(message_of<CommAborted>([&] { (void)comm->split({0, 1}, "pair"); }), "first cause: rank 0 (process ");
  });
  EXPECT_TRUE(joined.reaches(2));
  children.signal(0, SIGKILL);
  children.wait();
}

TEST(SharedMemoryFailure, StoppedRankCausesATimeout) {
  const std::string key = unique_key();
  SharedCounter done;
  Processes children(2, [&](int rank) {
    const std::unique_ptr<Comm> comm = join_shared(rank, 2, key);
    comm->barrier();
    if (rank == 1) raise(SIGSTOP);
    comm->set_timeout(milliseconds(600));
    expect_part(message_of<CommTimeout>([&] { comm->barrier(); }),
                "barrier 2 on \"world\": rank 0 of 2 waited 0.6 s for rank 1; check whether");
    done.add();
  });
  EXPECT_TRUE(done.reaches(1));
  children.signal(1, SIGKILL);
  children.wait();
}

// Runs operations of all kinds and sizes, and splits, until one throws.
void work_until_failure(Comm& comm, unsigned seed) {
  std::mt19937 random(seed);
  const int n = comm.size();
  const auto size = static_cast<size_t>(n);
  std::vector<float> in(200000 * size), out(200000 * size);
  std::vector<int> all(size);
  for (int i = 0; i < n; ++i) all[static_cast<size_t>(i)] = i;
  for (;;) {
    const int64_t count = random() % 2 == 0 ? random() % 100 : random() % 200000;
    const std::vector<int64_t> counts(size, count);
    switch (random() % 7) {
      case 0:
        comm.all_reduce(in.data(), out.data(), count, f32, Reduction::sum);
        break;
      case 1:
        comm.reduce_scatter(in.data(), out.data(), counts, f32, Reduction::sum);
        break;
      case 2:
        comm.all_gather(in.data(), out.data(), counts, f32);
        break;
      case 3:
        comm.all_to_all(in.data(), out.data(), counts, counts, f32);
        break;
      case 4:
        comm.broadcast(out.data(), count, f32, 1);
        break;
      case 5: {
        std::vector<float> more(static_cast<size_t>(count));
        Work first = comm.start_all_reduce(in.data(), out.data(), count, f32, Reduction::sum);
        Work second = comm.start_all_reduce(in.data(), more.data(), count, f32, Reduction::max);
        second.wait();
        first.wait();
        break;
      }
      default:
        comm.split(all, "again")->barrier();
    }
  }
}

TEST(SharedMemoryFailure, KillingAnyRankAtAnyMomentHangsNoOther) {
  std::mt19937 random(11);
  for (int round = 0; round < 25; ++round) {
    const std::string key = unique_key();
    const int victim = static_cast<int>(random() % 4);
    SharedCounter joined;
    Processes children(4, [&, round](int rank) {
      const std::unique_ptr<Comm> comm = join_shared(rank, 4, key);
      joined.add();
      const std::string message =
          message_of<CommAborted>([&] { work_until_failure(*comm, static_cast<unsigned>(round)); });
      expect_part(message, "(process ");
      expect_part(message, "is gone");
    });
    EXPECT_TRUE(joined.reaches(4));
    usleep(static_cast<useconds_t>(random() % 30000));
    children.signal(victim, SIGKILL);
    children.wait();
    if (HasFailure()) break;
  }
}

// A rank is killed while others join: the others fail, and nothing is left behind.
TEST(SharedMemoryFailure, NamesARankKilledDuringTheJoin) {
  const std::string key = unique_key();
  {
    Processes children(3, [&](int rank) {
      if (rank == 2) return;  // never comes
      expect_part(message_of<CommAborted>([&] { (void)join_shared(rank, 3, key); }),
                  "join 0 on \"world\": rank 1 of 3 stops; first cause: rank 0 (process ");
    });
    const auto deadline = std::chrono::steady_clock::now() + seconds(60);
    const std::string id = id_of(shared_memory_addresses.get(key, seconds(60)));
    // Both ranks have mapped the segment: kill its creator.
    for (int maps = 0; maps < 2 && std::chrono::steady_clock::now() < deadline; usleep(1000)) {
      maps = 0;
      for (const int rank : {0, 1}) {
        std::ifstream list("/proc/" + std::to_string(children.pid(rank)) + "/maps");
        for (std::string line; std::getline(list, line);)
          if (line.find(id) != line.npos) {
            ++maps;
            break;
          }
      }
    }
    children.signal(0, SIGKILL);
    children.wait();
  }
  EXPECT_FALSE(is_held(id_of(shared_memory_addresses.get(key, seconds(60)))));
}

// Kills all ranks at random moments of the rendezvous. The first round measures how long it takes.
TEST(SharedMemoryFailure, KillingAllRanksDuringTheJoinLeavesNothingBehind) {
  using Clock = std::chrono::steady_clock;
  const std::set<std::string> before = files_in_shared_memory();
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  Clock::duration join_time = seconds(1);
  for (int round = 0; round < 40; ++round) {
    const std::string key = unique_key();
    SharedCounter started, joined;
    Processes children(2, [&](int rank) {
      started.add();
      const std::unique_ptr<Comm> comm = join_shared(rank, 2, key);
      joined.add();
      pause();  // until it is killed
    });
    ASSERT_TRUE(started.reaches(1));
    const auto begin = Clock::now();
    if (round == 0) {
      ASSERT_TRUE(joined.reaches(2));
      join_time = Clock::now() - begin;
    } else {
      const auto moment = begin + join_time * (random() % 1000) / 1000;
      while (Clock::now() < moment) continue;
    }
    for (const int rank : {0, 1}) children.signal(rank, SIGKILL);
    children.wait();
  }
  EXPECT_EQ(files_in_shared_memory(), before);
}

TEST(SharedMemoryFailure, NoticesACreatorThatWasKilledBeforeItJoined) {
  const std::string key = unique_key();
  SharedCounter opened;
  Processes children(2, [&](int rank) {
    const std::shared_ptr<detail::Segment> memory = conformance::memory_of(rank, 2, key);
    opened.add();
    if (rank == 0) pause();  // until it is killed
    expect_part(message_of<CommAborted>([&] { (void)shared_memory_comm({.memory = memory, .rank = 1, .size = 2}); }),
                "join 0 on \"world\": rank 1 of 2 stops; first cause: rank 0 (process ");
  });
  EXPECT_TRUE(opened.reaches(2));
  children.signal(0, SIGKILL);
  children.wait();
}

// Another user who knows the address gets no memory, and there is no socket by which to ask for it.
TEST(SharedMemoryFailure, OtherUsersCannotOpenTheMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::shared_ptr<detail::Segment> memory = create_shared_memory(2);
  const std::string address = address_of(*memory);
  Processes stranger(1, [&](int) {
    EXPECT_EQ(setresuid(65534, 65534, 65534), 0);
    EXPECT_THROWS(open_shared_memory(address), IoError,
                  ": Permission denied; run the processes of a host as one user and in one container, or use");
  });
  stranger.wait();
  EXPECT_NE(open_shared_memory(address), nullptr);
}

// The kernel allows root more than other users, so these ranks are not root.
TEST(SharedMemoryFailure, ProcessesOfOneUserShareMemory) {
  const Pipe pipe = make_pipe();
  Processes children(2, [&](int rank) {
    if (geteuid() == 0) {
      EXPECT_EQ(setresuid(65534, 65534, 65534), 0);
      EXPECT_EQ(prctl(PR_SET_DUMPABLE, 1), 0);  // as in a program that this user starts
    }
    std::shared_ptr<detail::Segment> memory;
    char address[256] = {};
    if (rank == 0) {
      memory = create_shared_memory(2);
      address_of(*memory).copy(address, sizeof address - 1);
      EXPECT_EQ(write(pipe.writer.get(), address, sizeof address), ssize_t{sizeof address});
    } else {
      EXPECT_EQ(read(pipe.reader.get(), address, sizeof address), ssize_t{sizeof address});
      memory = open_shared_memory(address);
    }
    const std::unique_ptr<Comm> comm = shared_memory_comm({.memory = memory, .rank = rank, .size = 2});
    comm->barrier();
    comm->split({0, 1}, "pair")->barrier();
  });
  children.wait();
}

TEST(SharedMemoryFailure, MissingMemoryIsReportedAndLeavesNothingBehind) {
  const std::string key = unique_key();
  EXPECT_THROWS(join_shared(0, 2, key, int64_t{1} << 46), IoError,
                "shared memory: \"world\" needs 1.34e+08 MiB, but only ");
  EXPECT_THROWS(join_shared(0, 2, key, int64_t{1} << 46), IoError, "raise the memory limit of the container");
  Processes limited(1, [&](int) {
    const rlimit limit{4096, 4096};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THROWS(join_shared(0, 2, key), IoError, "the file size limit is 0.00391 MiB; raise `ulimit -f`");
  });
  limited.wait();
}

TEST(SharedMemoryFailure, MissingMemoryForASplitFailsAllMembers) {
  const std::string key = unique_key();
  Processes children(2, [&](int rank) {
    const std::unique_ptr<Comm> comm = join_shared(rank, 2, key);
    comm->barrier();
    if (rank == 0) {
      const rlimit limit{4096, 4096};
      EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      expect_part(message_of<IoError>([&] { (void)comm->split({0, 1}, "pair"); }), "shared memory: \"pair\" needs");
    } else {
      expect_part(message_of<CommAborted>([&] {
                    (void)comm->split({0, 1}, "pair");
                  }),
                  "first cause: rank 0: shared memory: \"pair\" needs");
    }
  });
  children.wait();
}

TEST(SharedMemoryFailure, JoinTimeoutNamesMissingRanksAndLeavesNothingBehind) {
  std::string id;
  {
    const std::shared_ptr<detail::Segment> memory = create_shared_memory(3);
    id = id_of(address_of(*memory));
    EXPECT_TRUE(is_held(id));
    EXPECT_THROWS(shared_memory_comm({.memory = memory, .rank = 0, .size = 3, .timeout = milliseconds(50)}),
                  CommTimeout, "join 0 on \"world\": rank 0 of 3 waited 0.05 s for ranks 1, 2; check whether");
  }
  const std::shared_ptr<detail::Segment> other = create_shared_memory(3);
  EXPECT_THROWS(shared_memory_comm({.memory = other, .rank = 2, .size = 3, .timeout = milliseconds(50)}), CommTimeout,
                "join 0 on \"world\": rank 2 of 3 waited 0.05 s for ranks 0, 1; check whether");
  EXPECT_FALSE(is_held(id));
}

TEST(SharedMemoryFailure, InconsistentRanksAreRejected) {
  const std::string key = unique_key();
  std::thread creator([&] {
    EXPECT_THROWS(join_shared(0, 3, key), Error,
                  "has 3 ranks according to rank 0 and 4 according to rank 1; give all ranks the same size");
  });
  EXPECT_THROWS(join_shared(1, 4, key), Error,
                "shared memory: \"world\" has 3 ranks according to rank 0 and 4 according to rank 1; give all ranks "
                "the same size");
  creator.join();
}

TEST(SharedMemoryFailure, DuplicateRankIsRejected) {
  const std::string key = unique_key();
  std::atomic<int> refused = 0, joined = 0;
  const auto join_as = [&](int rank) {
    try {
      const std::unique_ptr<Comm> comm = join_shared(rank, 3, key);
      ++joined;
      comm->barrier();
    } catch (const Error& error) {
      expect_part(error.what(), "shared memory: rank 1 of \"world\" is already in use; start each rank once");
      ++refused;
    }
  };
  std::thread zero(join_as, 0), one(join_as, 1), other(join_as, 1);
  while (refused == 0) std::this_thread::yield();
  join_as(2);
  zero.join();
  one.join();
  other.join();
  EXPECT_EQ(joined, 3);
  EXPECT_EQ(refused, 1);
}

TEST(SharedMemoryGeometry, MustFitTheSegment) {
  const detail::SegmentGeometry right = detail::SegmentGeometry::of(4, 0);
  EXPECT_TRUE(right.fits(right.total_bytes()));
  EXPECT_FALSE(right.fits(right.total_bytes() - 4096));
  const auto differs = [&](const auto& change) {
    detail::SegmentGeometry wrong = right;
    change(wrong);
    EXPECT_FALSE(wrong.fits(right.total_bytes()));
  };
  for (const int size : {-1, 0, 3, 5, 1 << 30}) differs([&](detail::SegmentGeometry& g) { g.size = size; });
  for (const int64_t number : {int64_t{-8}, int64_t{0}, int64_t{1} << 62}) {
    differs([&](detail::SegmentGeometry& g) { g.slots = number; });
    differs([&](detail::SegmentGeometry& g) { g.slot_bytes = number; });
  }
}

}  // namespace
}  // namespace lockstep
