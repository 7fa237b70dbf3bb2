#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "data/text/token_file.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/text_data.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxContext = 1 << 24;

// The windows of a sequence of tokens: all arithmetic, no data.
class WindowSource : public Source {
 public:
  WindowSource(int64_t tokens, const TokenWindows& windows, std::string name)
      : tokens_(tokens), windows_(windows), name_(std::move(name)) {
    const int64_t context = windows.context;
    if (context < 1 || context > kMaxContext)
      throw_error("tokens: a context of {} tokens; use 1 to {}", context, kMaxContext);
    if (windows.vocabulary < 0 || windows.vocabulary > detail::kMaxTokenVocabulary)
      throw_error("tokens: a vocabulary of {} tokens; use at most {}, or 0 for any", windows.vocabulary,
                  detail::kMaxTokenVocabulary);
    const int64_t least = windows.shuffle_offset ? context + 1 : 2;
    if (tokens < least)
      throw_error("tokens: {} has {} tokens, but {} needs at least {}; give more text{}", name_, tokens,
                  windows.shuffle_offset ? fmt::format("a window of context {}", context) : "a prediction", least,
                  windows.shuffle_offset ? " or a smaller context" : "");
    if (windows.shuffle_offset) {
      count_ = std::max<int64_t>(1, tokens / context - 1);
      offsets_ = tokens - count_ * context;
    } else {
      count_ = (tokens - 1 + context - 1) / context;
    }
  }

  std::string name() const override { return name_; }
  int64_t count() const override { return count_; }
  std::vector<Field> fields() const override {
    return {{"inputs", {i32, {windows_.context}}}, {"targets", {i32, {windows_.context}}}};
  }
  int64_t row(int64_t epoch, int64_t example) const override { return offset_in(epoch) + example * windows_.context; }

 protected:
  const TokenWindows& windows() const { return windows_; }
  int64_t tokens() const { return tokens_; }
  // Whether a window extends past the last token.
  bool has_padding() const { return count_ * windows_.context + 1 > tokens_; }
  int64_t vocabulary() const { return windows_.vocabulary > 0 ? windows_.vocabulary : detail::kMaxTokenVocabulary; }

 private:
  int64_t offset_in(int64_t epoch) const {
    if (offsets_ == 1) return 0;
    Hasher hash;
    hash.add(std::string_view("window offset"));
    hash.add(windows_.seed);
    hash.add(static_cast<uint64_t>(epoch));
    return static_cast<int64_t>(hash.value() % static_cast<uint64_t>(offsets_));
  }

  int64_t tokens_;
  TokenWindows windows_;
  std::string name_;
  int64_t count_ = 0;
  int64_t offsets_ = 1;  // the number of offsets: [0, offsets_)
};

class ResidentTokens final : public WindowSource {
 public:
  ResidentTokens(std::vector<int32_t> tokens, const TokenWindows& windows, std::string name)
      : WindowSource(std::ssize(tokens), windows, std::move(name)) {
    if (std::ssize(tokens) + windows.context >= std::numeric_limits<int32_t>::max())
      throw_error("tokens: {} has {} tokens, too many for 32-bit positions; stream it from a file", this->name(),
                  tokens.size());
    detail::check_ids(tokens, vocabulary(), this->name());
    const Shape shape = {std::ssize(tokens)};
    const bool bytes = std::ranges::all_of(tokens, [](int32_t id) { return id < 256; });
    arrays_["tokens"] = bytes ? Array::from(std::vector<uint8_t>(tokens.begin(), tokens.end()), shape)
                              : Array::from(std::move(tokens), shape);
  }

  const BatchArrays& resident() const override { return arrays_; }

  BatchArrays gather(const BatchArrays& data, const Array& rows) const override {
    const int64_t n = rows.shape(0), context = windows().context;
    const Array positions = expand_dims(rows, 1) + arange(context + 1, i32);  // [n, context + 1]
    const Array ids = astype(take(data.at("tokens"), positions), i32);
    const Array inputs = slice(ids, {0, 0}, {n, context});
    const Array targets = slice(ids, {0, 1}, {n, context + 1});
    if (!has_padding()) return {{"inputs", inputs}, {"targets", targets}};
    const Array exists = positions < Array(static_cast<int32_t>(tokens()));
    return {{"inputs", where(slice(exists, {0, 0}, {n, context}), inputs, Array(int32_t{0}))},
            {"targets", where(slice(exists, {0, 1}, {n, context + 1}), targets, Array(int32_t{-1}))}};
  }

 private:
  BatchArrays arrays_;
};

class StreamedTokens final : public WindowSource {
 public:
  StreamedTokens(std::unique_ptr<detail::TokenFile> file, const TokenWindows& windows, TokenRange range,
                 std::string name)
      : WindowSource(range.end - range.begin, windows, std::move(name)), file_(std::move(file)), begin_(range.begin) {}

  void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const override {
    const size_t context = static_cast<size_t>(windows().context);
    auto* inputs = reinterpret_cast<int32_t*>(buffers[0]);
    auto* targets = reinterpret_cast<int32_t*>(buffers[1]);
    std::vector<int32_t> window(context + 1);
    for (const int64_t row : rows) {
      const size_t present = static_cast<size_t>(std::min(windows().context + 1, tokens() - row));
      file_->read(begin_ + row, std::span(window).first(present), vocabulary());
      std::fill(window.begin() + static_cast<std::ptrdiff_t>(present), window.end(), -1);
      inputs = std::transform(window.begin(), window.end() - 1, inputs, [](int32_t id) { return std::max(id, 0); });
      targets = std::copy(window.begin() + 1, window.end(), targets);
    }
  }

 private:
  std::unique_ptr<detail::TokenFile> file_;
  int64_t begin_;
};

}  // namespace

SourcePtr token_source(std::vector<int32_t> tokens, const TokenWindows& windows, std::string name) {
  return std::make_shared<ResidentTokens>(std::move(tokens), windows, std::move(name));
}

SourcePtr token_file_source(const std::string& path, const TokenWindows& windows, TokenRange range, std::string name) {
  auto file = std::make_unique<detail::TokenFile>(path);
  if (range.end == -1) range.end = file->count();
  if (range.begin < 0 || range.end < range.begin || range.end > file->count())
    throw_error("tokens: the range {} to {} of {}, which has {} tokens; give a range within it", range.begin, range.end,
                path, file->count());
  return std::make_shared<StreamedTokens>(std::move(file), windows, range, name.empty() ? path : std::move(name));
}

}  // namespace lockstep
