// The text of one sample while it is generated: decodes tokens, and ends at a stop string. Belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/tokenizer.h"

namespace lockstep::detail {

class GeneratedStream {
 public:
  // REQUIRES: stop strings are not empty, valid UTF-8, and outlive the stream.
  GeneratedStream(TokenizerPtr tokenizer, std::span<const std::string> stop)
      : decoder_(std::move(tokenizer)), stop_(stop) {}

  // Adds a token. Returns the characters that are now certain: those of complete UTF-8 that cannot be the begin of a
  // stop string. REQUIRES: !stopped().
  std::string add(int32_t token) { return release(decoder_.add(token), false); }
  // The rest of the text.
  std::string finish() { return release(decoder_.finish(), true); }
  // Whether the text has reached a stop string.
  bool stopped() const { return stopped_; }

 private:
  std::string release(const std::string& piece, bool last);

  StreamDecoder decoder_;
  std::span<const std::string> stop_;
  std::string held_;  // may be the begin of a stop string
  bool stopped_ = false;
};

}  // namespace lockstep::detail
