// What a run prints before its first step: its data, model, devices, length, optimizer, and where it is saved; and what
// it is doing until then. startup_text() is pure. The rest is used by the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/live_line.h"
#include "lockstep/engine.h"
#include "train/config.h"

namespace lockstep {

struct StartupFacts {
  std::string dataset = {};  // empty: unknown, as in a user's program
  int64_t train = 0, validation = 0, test = 0;
  std::string example = {};  // what an example is if it is not obvious: "28 x 28", "64 tokens"
  std::string model = {};
  int64_t parameters = 0;

  int64_t devices = 1, processes = 1, threads = 1;  // threads: of this process
  std::string gpu = {};                             // its name; empty: the CPU
  int64_t gpus = 0;                                 // of this process
  std::vector<std::pair<std::string, int64_t>> mesh = {};
  int64_t rules = 0, zero = 0;

  int64_t steps = 0, first_step = 0, steps_per_epoch = 1, batch_size = 0, accumulate = 1;
  std::string optimizer = {}, schedule = {}, precision = {};
  double learning_rate = 0;
  uint64_t seed = 0;
  std::string checkpoint_dir = {}, log_dir = {};
  bool no_save = false;  // the user wants to keep nothing
};

// The facts of a run that starts at a state. REQUIRES: devices are initialized.
StartupFacts startup_facts(const TrainConfig& config, const Problem& problem, const Engine& engine, const Loader& train,
                           int64_t steps, int64_t first_step);

// Six lines, without the newline of the last one:
//
//   data       mnist: 60,000 training and 10,000 test examples of 28 x 28
//   model      mlp, 235,146 parameters
//   devices    8 virtual devices on the CPU (2 threads), data parallel
//   training   938 steps: 2 epochs of 469 steps, batch size 128
//   optimizer  adamw, learning rate 0.001 (cosine), float32, seed 0
//   saved in   run
//
// Text that needs more than `columns` continues on another line, between words. 0: no limit.
std::string startup_text(const StartupFacts& facts, size_t columns, bool color);

// Prints the text to standard error, as its terminal allows.
void print_startup(const StartupFacts& facts);

// A part of the start that may take long, such as "reading mnist". It is shown on a terminal while it lasts. Elsewhere a
// line reports it if it took two seconds.
class StartActivity {
 public:
  explicit StartActivity(std::string text);
  ~StartActivity();
  StartActivity(const StartActivity&) = delete;
  StartActivity& operator=(const StartActivity&) = delete;

 private:
  std::string text_;
  Activity activity_;
};

}  // namespace lockstep
