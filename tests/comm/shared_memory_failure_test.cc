// SharedMemoryComm: ranks that are killed or stopped, keys that are in use, and missing memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <set>

#include "base/throws.h"
#include "comm/shared/rendezvous.h"
#include "comm/shared_memory_ranks.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using conformance::join_shared;
using conformance::Processes;
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

// Whether a process listens for the ranks of a group with this key.
bool listens(const std::string& key) {
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);)
    if (line.ends_with(" @" + detail::segment_name(key))) return true;
  return false;
}

bool listens_eventually(const std::string& key) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (!listens(key) && std::chrono::steady_clock::now() < deadline) usleep(1000);
  return listens(key);
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
    // Both ranks have mapped the segment: kill its creator.
    for (int maps = 0; maps < 2 && std::chrono::steady_clock::now() < deadline; usleep(1000)) {
      maps = 0;
      for (const int rank : {0, 1}) {
        std::FILE* list = std::fopen(("/proc/" + std::to_string(children.pid(rank)) + "/maps").c_str(), "r");
        if (!list) continue;
        char line[512];
        while (std::fgets(line, sizeof line, list))
          if (std::string(line).find(detail::segment_name(key)) != std::string::npos) {
            ++maps;
            break;
          }
        std::fclose(list);
      }
    }
    children.signal(0, SIGKILL);
    children.wait();
  }
  EXPECT_FALSE(listens(key));
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
    EXPECT_FALSE(listens(key)) << "round " << round << ", seed " << kSeed;
  }
  EXPECT_EQ(files_in_shared_memory(), before);
}

TEST(SharedMemoryFailure, KeyIsFreeAgainAfterItsCreatorWasKilled) {
  const std::string key = unique_key();
  {
    Processes killed(1, [&](int) { (void)join_shared(0, 2, key); });
    ASSERT_TRUE(listens_eventually(key));
    killed.signal(0, SIGKILL);
    killed.wait();
  }
  // A rank that joins before rank 0 waits for the new rank 0.
  std::unique_ptr<Comm> second;
  std::thread early([&] { second = join_shared(1, 2, key); });
  const std::unique_ptr<Comm> first = join_shared(0, 2, key);
  early.join();
  std::thread other([&] { second->barrier(); });
  first->barrier();
  other.join();
  EXPECT_FALSE(listens(key));
}

TEST(SharedMemoryFailure, OnlyProcessesOfTheSameUserReceiveTheMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string key = unique_key();
  std::unique_ptr<Comm> first;
  std::thread creator([&] { first = join_shared(0, 2, key); });
  ASSERT_TRUE(listens_eventually(key));
  std::string own = detail::segment_name(key);
  // The other user knows the name of the socket, which contains the uid of this one.
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    own.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + own.size());
    if (connect(client, reinterpret_cast<const sockaddr*>(&address), size) != 0) _exit(3);
    char byte = 0;
    _exit(read(client, &byte, 1) == 0 ? 0 : 4);  // closed, without a byte
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const std::unique_ptr<Comm> second = join_shared(1, 2, key);
  creator.join();
  EXPECT_FALSE(listens(key));
}

TEST(SharedMemoryFailure, RejectsASocketOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string key = unique_key(), name = detail::segment_name(key);
  SharedCounter ready;
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener, 4) != 0) _exit(3);
    ready.add();
    pause();
  }
  ASSERT_TRUE(ready.reaches(1));
  EXPECT_THROWS(join_shared(1, 2, key), Error, "of user 65534 owns the socket of \"world\", expected user 0");
  EXPECT_THROWS(join_shared(0, 2, key), Error,
                "process " + std::to_string(child) + " is already rank 0 of a group with this key");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(SharedMemoryFailure, MissingMemoryIsReportedAndLeavesNothingBehind) {
  const std::string key = unique_key();
  EXPECT_THROWS(join_shared(0, 2, key, int64_t{1} << 46), IoError,
                "shared memory: \"world\" needs 1.34e+08 MiB, but only ");
  EXPECT_THROWS(join_shared(0, 2, key, int64_t{1} << 46), IoError, "raise the memory limit of the container");
  EXPECT_FALSE(listens(key));
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
  const std::string key = unique_key();
  EXPECT_THROWS(shared_memory_comm({.key = key, .rank = 0, .size = 3, .timeout = milliseconds(50)}), CommTimeout,
                "join 0 on \"world\": rank 0 of 3 waited 0.05 s for ranks 1, 2; check whether");
  EXPECT_THROWS(shared_memory_comm({.key = key, .rank = 2, .size = 3, .timeout = milliseconds(50)}), CommTimeout,
                "join 0 on \"world\": rank 2 of 3 waited 0.05 s for rank 0; check whether");
  EXPECT_FALSE(listens(key));
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

  const std::string again = unique_key();
  std::unique_ptr<Comm> first, second;
  std::thread zero([&] { first = join_shared(0, 3, again); }), one([&] { second = join_shared(1, 3, again); });
  ASSERT_TRUE(listens_eventually(again));
  EXPECT_THROWS(join_shared(0, 3, again), Error,
                "is already rank 0 of a group with this key; use a different key for every run");
  // The second rank 0 was rejected, and the group still completes.
  const std::unique_ptr<Comm> third = join_shared(2, 3, again);
  zero.join();
  one.join();
  EXPECT_TRUE(first && second);
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
