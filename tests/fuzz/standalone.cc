// Runs a fuzz target without libFuzzer, in any build: replays its corpus, then runs random mutations of it for some
// seconds. Without coverage feedback it finds less than `./dev fuzz`, but it needs nothing but this program.
//
//   test_fuzz TARGET [SECONDS] [SEED]   the corpus, and mutations
//   test_fuzz TARGET FILE...            these inputs only
//
// After a crash the input is in FUZZ_INPUT (default: fuzz-TARGET.input in the folder for temporary files).
#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

#define FUZZ_TARGET(name) extern "C" int fuzz_##name(const uint8_t* data, size_t size);
#include "fuzz_targets.def"
#undef FUZZ_TARGET

namespace {

using Bytes = std::vector<uint8_t>;
using Target = int (*)(const uint8_t*, size_t);
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxBytes = 8192;
constexpr int kSecondsPerInput = 10;

struct NamedTarget {
  std::string name;
  Target target;
};
const NamedTarget kTargets[] = {
#define FUZZ_TARGET(name) {#name, fuzz_##name},
#include "fuzz_targets.def"
#undef FUZZ_TARGET
};

// The current input, for the signal handler.
struct {
  const uint8_t* data = nullptr;
  size_t size = 0;
  char path[512] = {};
} running;

// Writes the input to a file and re-raises the signal. Async-signal-safe.
void save_input(int signal) {
  const int file = ::open(running.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file >= 0) {
    (void)!::write(file, running.data, running.size);
    ::close(file);
  }
  const char* const texts[] = {"fuzz: the input that ", signal == SIGPROF ? "timed out" : "crashed", " is ",
                               running.path, "\n"};
  for (const char* text : texts) (void)!::write(STDERR_FILENO, text, std::strlen(text));
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "fuzz: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// Reads a libFuzzer dictionary: one quoted string per line, with \xAB for bytes.
std::vector<Bytes> read_dictionary(const std::filesystem::path& path) {
  std::vector<Bytes> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('"'), end = line.rfind('"');
    if (line.starts_with('#') || begin == line.npos || begin == end) continue;
    Bytes word;
    for (size_t i = begin + 1; i < end; ++i) {
      if (line[i] == '\\' && line[i + 1] == 'x') {
        word.push_back(static_cast<uint8_t>(std::stoi(line.substr(i + 2, 2), nullptr, 16)));
        i += 3;
      } else {
        if (line[i] == '\\') ++i;
        word.push_back(static_cast<uint8_t>(line[i]));
      }
    }
    out.push_back(std::move(word));
  }
  return out;
}

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Bytes>& corpus, std::vector<Bytes> words)
      : random_(seed), corpus_(corpus), words_(std::move(words)) {
    for (const char* word : {"0", "-1", "9223372036854775808", "1e999", "null", "\"", "{", "[", "]", "}", "\xff", "%"})
      words_.emplace_back(word, word + std::strlen(word));
  }

  Bytes next() {
    Bytes out = corpus_[below(corpus_.size())];
    for (size_t i = 0, count = 1 + below(6); i < count; ++i) mutate(out);
    if (out.size() > kMaxBytes) out.resize(kMaxBytes);
    return out;
  }

 private:
  size_t below(size_t count) { return count == 0 ? 0 : std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
  static auto at(Bytes& bytes, size_t index) { return bytes.begin() + static_cast<std::ptrdiff_t>(index); }

  // A random, mostly short part of a corpus file.
  Bytes piece() {
    const Bytes& from = corpus_[below(corpus_.size())];
    const size_t begin = below(from.size()), most = below(2) == 0 ? 16 : from.size();
    const size_t length = std::min(from.size() - begin, 1 + below(most));
    return Bytes(from.begin() + static_cast<std::ptrdiff_t>(begin),
                 from.begin() + static_cast<std::ptrdiff_t>(std::min(begin + length, from.size())));
  }

  void mutate(Bytes& bytes) {
    const size_t where = below(bytes.size() + 1), length = std::min(bytes.size() - where, 1 + below(16));
    switch (below(8)) {
      case 0:  // flip a bit
        if (where < bytes.size()) bytes[where] ^= static_cast<uint8_t>(1 << below(8));
        break;
      case 1:  // change a byte
        if (where < bytes.size()) bytes[where] = static_cast<uint8_t>(below(256));
        break;
      case 2:
        bytes.erase(at(bytes, where), at(bytes, where + length));
        break;
      case 3:  // repeat a part
        for (size_t i = 0, times = 1 + below(below(10) == 0 ? 500 : 4); i < times && bytes.size() < kMaxBytes; ++i) {
          const Bytes copy(at(bytes, where), at(bytes, where + length));
          bytes.insert(at(bytes, where), copy.begin(), copy.end());
        }
        break;
      case 4:
      case 5: {
        const Bytes& word = words_[below(words_.size())];
        if (below(2) == 0) bytes.erase(at(bytes, where), at(bytes, where + length));
        bytes.insert(at(bytes, where), word.begin(), word.end());
        break;
      }
      case 6: {
        const Bytes other = piece();
        bytes.insert(at(bytes, where), other.begin(), other.end());
        break;
      }
      default:
        if (below(4) == 0) bytes.resize(where);  // truncate
    }
  }

  std::mt19937_64 random_;
  const std::vector<Bytes>& corpus_;
  std::vector<Bytes> words_;
};

class Run {
 public:
  explicit Run(const NamedTarget& named) : target_(named.target) {
    const char* const wanted = std::getenv("FUZZ_INPUT");
    const std::string path =
        wanted ? wanted : (std::filesystem::temp_directory_path() / ("fuzz-" + named.name + ".input")).string();
    std::strncpy(running.path, path.c_str(), sizeof running.path - 1);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF}) std::signal(signal, save_input);
  }

  void input(const Bytes& bytes) {
    // A separate allocation, so that a sanitizer detects reads beyond its end.
    const Bytes copy(bytes);
    running.data = copy.data();
    running.size = copy.size();
    limit_time(kSecondsPerInput);
    target_(copy.data(), copy.size());
    limit_time(0);
    ++count_;
  }
  int64_t count() const { return count_; }

 private:
  // CPU time, so that a busy machine causes no timeout.
  static void limit_time(int seconds) {
    const itimerval limit = {.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
  }

  const Target target_;
  int64_t count_ = 0;
};

int usage() {
  std::fprintf(stderr, "usage: test_fuzz TARGET [SECONDS] [SEED], or test_fuzz TARGET FILE...; targets:");
  for (const NamedTarget& each : kTargets) std::fprintf(stderr, " %s", each.name.c_str());
  std::fprintf(stderr, "\n");
  return 2;
}

bool is_number(const std::string& text) { return !text.empty() && std::ranges::all_of(text, ::isdigit); }

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto named =
      std::ranges::find_if(kTargets, [&](const NamedTarget& each) { return !words.empty() && each.name == words[0]; });
  if (named == std::end(kTargets)) return usage();
  Run run(*named);
  if (words.size() > 1 && !is_number(words[1])) {
    for (size_t i = 1; i < words.size(); ++i) run.input(read(words[i]));
    return 0;
  }
  const auto until = Clock::now() + std::chrono::seconds(words.size() > 1 ? std::stoi(words[1]) : 2);
  const uint64_t seed = words.size() > 2 ? std::stoull(words[2]) : std::random_device{}();
  const std::filesystem::path folder = FUZZ_FOLDER;
  std::vector<Bytes> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "corpus" / named->name))
    corpus.push_back(read(entry.path()));
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz: the corpus of %s is empty; add files to tests/fuzz/corpus/%s\n", named->name.c_str(),
                 named->name.c_str());
    return 1;
  }
  std::ranges::sort(corpus);  // the order of a folder is arbitrary, but the seed must determine a run
  std::printf("fuzz: %s, seed %llu\n", named->name.c_str(), static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  run.input({});
  for (const Bytes& bytes : corpus) run.input(bytes);
  Mutator mutator(seed, corpus, read_dictionary(folder / "dictionaries" / (named->name + ".dict")));
  while (Clock::now() < until) run.input(mutator.next());
  std::printf("fuzz: %s, %lld inputs\n", named->name.c_str(), static_cast<long long>(run.count()));
  return 0;
}
