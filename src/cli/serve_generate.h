// GenerateService: answers POST /generate of `lockstep serve`. One text is generated at a time; others wait in a bounded
// queue. Safe from any thread.
#pragma once

#include <atomic>

#include "cli/work_queue.h"
#include "http/metrics_text.h"
#include "http/server.h"
#include "lockstep/generate.h"

namespace lockstep::cli {

class GenerateService {
 public:
  static constexpr size_t kMaxBody = size_t{1} << 20, kMostWaiting = 16;

  GenerateService(Generator generator, TokenizerPtr tokenizer);

  // Throws Error for a wrong request.
  void answer(const http::Request& request, http::Reply& reply);
  void add_metrics(http::MetricsText& out) const;

 private:
  void generate(const std::string& prompt, const GenerateOptions& options, http::Reply& reply);

  Generator generator_;
  const TokenizerPtr tokenizer_;
  std::atomic<double> seconds_ = 1;  // of the last text
  WorkQueue queue_;                  // the last member: its thread uses the others
};

}  // namespace lockstep::cli
