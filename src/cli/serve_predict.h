// PredictService: answers POST /predict of `lockstep serve`. Safe from any thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/predict_inputs.h"
#include "cli/serve_batches.h"
#include "cli/stored_run.h"
#include "cli/work_queue.h"
#include "http/metrics_text.h"
#include "http/server.h"

namespace lockstep::cli {

class PredictService {
 public:
  // Limits of an image. Images of more than kQuickPixels are decoded one at a time and wait in a bounded queue.
  static constexpr int64_t kMostPixels = int64_t{1} << 24, kQuickPixels = int64_t{1} << 20;
  static constexpr size_t kMostWaitingImages = 16;

  PredictService(const StoredModel& model, const BatchLimits& limits);

  // Throws Error for a wrong request.
  void answer(const http::Request& request, http::Reply& reply);
  void add_metrics(http::MetricsText& out) const { batches_.add_metrics(out); }

 private:
  using SharedReply = std::shared_ptr<http::Reply>;

  void answer_image(const http::Request& request, http::Reply& reply, int64_t top);
  std::vector<float> pixels_of(const std::string& file) const;
  void submit(std::vector<float> values, int64_t top, const SharedReply& reply);
  void respond(const PredictionBatches::Result& result, int64_t top, http::Reply& reply) const;

  const StoredModel& model_;
  const ImageForm form_;
  PredictionBatches batches_;
  WorkQueue images_;
};

}  // namespace lockstep::cli
