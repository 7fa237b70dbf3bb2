#include "train/generate_text.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

// The length of the longest end of `text` that is the begin of `stop`.
size_t begun_length(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size()); n > 0; --n)
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  return 0;
}

}  // namespace

std::string GeneratedStream::release(const std::string& piece, bool last) {
  if (stopped_) return {};
  held_ += piece;
  size_t found = std::string::npos, begun = 0;
  for (const std::string& stop : stop_) {
    found = std::min(found, held_.find(stop));
    begun = std::max(begun, begun_length(held_, stop));
  }
  stopped_ = found != std::string::npos;
  const size_t certain = stopped_ ? found : last ? held_.size() : held_.size() - begun;
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

}  // namespace lockstep::detail
