#include <fmt/format.h>

#include <algorithm>

#include "lockstep/distributed.h"
#include "lockstep/loader.h"
#include "train/logging.h"

namespace lockstep {
namespace {

class BatchLogger final : public Logger {
 public:
  explicit BatchLogger(std::FILE* stream) : terminal_(stream) {}

  void begin(const RunInfo& info) override {
    info_ = info;
    sum_ = 0;
    batches_ = 0;
  }
  void batch(const LoaderBatch& batch) override {
    size_ = batch.global_size;
    own_size_ = batch.size;
  }
  void step(int64_t step, const Scalars& scalars) override {
    const int64_t per_epoch = std::max<int64_t>(info_.steps_per_epoch, 1);
    const int64_t epoch = (step - 1) / per_epoch + 1, epochs = (info_.total_steps - 1) / per_epoch + 1;
    const int64_t number = (step - 1) % per_epoch + 1;
    print(fmt::format("epoch: {}/{}, batch: {}/{}, batch size: {}, batch per host size: {}", epoch, epochs, number,
                      per_epoch, size_, own_size_));
    if (const double* loss = detail::find_scalar(scalars, "loss")) sum_ += *loss, ++batches_;
    if (number != per_epoch && step != info_.total_steps) return;
    if (batches_ > 0)
      print(fmt::format("epoch {}/{}, average epoch loss={:.4f}", epoch, epochs, sum_ / static_cast<double>(batches_)));
    sum_ = 0;
    batches_ = 0;
  }
  void evaluation(int64_t, const Scalars&) override {}
  void message(int64_t, const std::string& text, bool alarm) override {
    if (alarm && process_index() == 0) print("alarm: " + text);
  }
  void end(int64_t step, const Scalars&) override {
    print(step < info_.total_steps ? fmt::format("training ended at step {} of {}.", step, info_.total_steps)
                                   : "training completed.");
  }

 private:
  void print(const std::string& text) { terminal_.print(fmt::format("Rank {}: {}\n", process_index(), text)); }

  detail::Terminal terminal_;
  RunInfo info_;
  int64_t size_ = 0, own_size_ = 0;  // of the current batch
  double sum_ = 0;                   // sum of the losses of this epoch's batches
  int64_t batches_ = 0;
};

}  // namespace

std::shared_ptr<Logger> batch_logger(std::FILE* stream) { return std::make_shared<BatchLogger>(stream); }

}  // namespace lockstep
