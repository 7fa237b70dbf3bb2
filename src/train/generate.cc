#include "lockstep/generate.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>

#include "array/lane_memory.h"
#include "base/check.h"
#include "base/printable.h"
#include "lockstep/create.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/tree.h"
#include "train/generate_text.h"
#include "train/gpt_settings.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxSamples = 4096;
constexpr int64_t kSmallestContext = 16;

// Static values of a compiled step: a new value compiles a new version.
struct StepOptions {
  int64_t context = 0;     // length of the cache
  int64_t vocabulary = 0;  // only the tokens below are drawn
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
};

struct SampledStep {
  Array tokens;  // i32 [samples]
  GptCache cache;
};

GptConfig with_context(GptConfig config, int64_t context) {
  config.context = context;
  return config;
}

// `index` is the position of the new token in the whole text, which grows beyond the context.
Array draw_token(const Array& logits, const Array& key, const Array& index, const StepOptions& options) {
  const Array known = slice(logits, {0, 0}, {logits.shape(0), options.vocabulary});
  return sample_tokens(known, random::fold_in(key, index),
                       {.temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p});
}

// Reads one token of each sample and draws the next.
struct DecodeToken {
  GptConfig config;
  nn::Mode mode;

  SampledStep operator()(const Gpt& params, const GptCache& cache, const Array& tokens, const Array& position,
                         const Array& key, const Array& index, const StepOptions& options) const {
    const GptConfig sized = with_context(config, options.context);
    auto [logits, next] = decode(sized, params, expand_dims(tokens, 1), position, cache, mode);
    return {draw_token(squeeze(logits, 1), key, index, options), std::move(next)};
  }
};

// Reads the first `length` of `tokens` [samples, t] and draws the next token.
struct ReadPrompt {
  GptConfig config;
  nn::Mode mode;

  SampledStep operator()(const Gpt& params, const GptCache& cache, const Array& tokens, const Array& length,
                         const Array& key, const Array& index, const StepOptions& options) const {
    const GptConfig sized = with_context(config, options.context);
    auto [logits, next] = prefill(sized, params, tokens, length, cache, mode);
    return {draw_token(logits, key, index, options), std::move(next)};
  }
};

Array scalar_index(int64_t value) { return Array::from(std::vector<int32_t>{static_cast<int32_t>(value)}, {}); }

// The next power of two, at most `limit`.
int64_t padded_length(int64_t length, int64_t limit) {
  const auto rounded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(length, kSmallestContext))));
  return std::min(rounded, limit);
}

}  // namespace

void check(const GenerateOptions& options) {
  check(Sampling{.temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p});
  if (options.tokens < 1 || options.tokens > (int64_t{1} << 30))
    throw_error("generate: {} tokens are requested; give 1 to {}", options.tokens, int64_t{1} << 30);
  if (options.samples < 1 || options.samples > kMaxSamples)
    throw_error("generate: {} samples are requested; give 1 to {}", options.samples, kMaxSamples);
  for (const std::string& stop : options.stop)
    if (stop.empty() || !is_utf8(stop))
      throw_error("generate: the stop string \"{}\" is {}; give text", printable(stop),
                  stop.empty() ? "empty" : "not UTF-8");
}

struct Generator::Impl {
  class Generation;

  Impl(GptConfig model, Gpt weights, TokenizerPtr used_tokenizer, const GeneratorOptions& options)
      : config(std::move(model)),
        tokenizer(std::move(used_tokenizer)),
        compute(options.compute),
        read_prompt(ReadPrompt{config, {.compute = compute}}, {.donate = {1}}),
        decode_token(DecodeToken{config, {.compute = compute}}, {.donate = {1}}) {
    set_params(std::move(weights));
  }

  void set_params(Gpt weights) {
    check_gpt_params("generate", config, weights);
    // Converted once, not in every step.
    if (compute != f32) weights = tree_map([&](const Array& a) { return astype(a, compute); }, std::move(weights));
    params = std::move(weights);
  }
  std::vector<int32_t> prompt_ids(const std::string& prompt) const;

  GptConfig config;
  Gpt params;
  TokenizerPtr tokenizer;
  DType compute;
  Times times;
  Jit<ReadPrompt> read_prompt;
  Jit<DecodeToken> decode_token;
};

// One call of generate(): the state of all samples.
class Generator::Impl::Generation {
 public:
  Generation(Impl& model, const std::vector<int32_t>& prompt, const GenerateOptions& options, const OnText& on_text)
      : model_(model),
        params_(model.params),
        options_(options),
        on_text_(on_text),
        key_(random::key(options.seed)),
        history_(static_cast<size_t>(options.samples), prompt),
        texts_(history_.size()) {
    const GptConfig& gpt = model.config;
    const int64_t context = padded_length(static_cast<int64_t>(prompt.size()) + options.tokens, gpt.context);
    step_ = {.context = context,
             .vocabulary = std::min(gpt.vocabulary, model.tokenizer->vocabulary()),
             .temperature = options.temperature,
             .top_k = options.temperature == 0 ? 0 : options.top_k,
             .top_p = options.temperature == 0 ? 1 : options.top_p};
    cache_ = create_cache(with_context(gpt, context), options.samples, model.compute);
    if (params_.position_embedding && context < gpt.context)
      params_.position_embedding = slice(*params_.position_embedding, {0}, {context});
    for (size_t i = 0; i < history_.size(); ++i) streams_.emplace_back(model.tokenizer, options.stop);
  }

  std::vector<GeneratedText> run() {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    const Clock::time_point begin = Clock::now();
    Clock::time_point first = begin;
    Array sampled = prefill_last(step_.context);
    for (int64_t i = 0; i < options_.tokens && running() > 0; ++i) {
      // The next step starts before this token is on the host, unless it has to read the tokens again.
      detail::ArrayReadback readback(sampled);
      const bool more = i + 1 < options_.tokens, full = position_ == step_.context;
      if (more && !full) sampled = advance(sampled);
      consume(readback.wait());
      if (i == 0) first = Clock::now();
      if (more && full && running() > 0) sampled = prefill_last(std::max<int64_t>(step_.context / 2, 1));
    }
    for (size_t i = 0; i < texts_.size(); ++i)
      if (!streams_[i].stopped()) emit(i, streams_[i].finish());
    model_.times = {.first_seconds = seconds(first - begin),
                    .other_seconds = seconds(Clock::now() - first),
                    .samples = options_.samples};
    for (const GeneratedText& text : texts_) model_.times.tokens += text.tokens;
    return std::move(texts_);
  }

 private:
  int64_t running() const { return std::count(ended_.begin(), ended_.end(), false); }

  // Reads the last `most` tokens of every sample into the cache. Returns the tokens after them.
  Array prefill_last(int64_t most) {
    const auto total = static_cast<int64_t>(history_[0].size()), length = std::min(total, most);
    const int64_t padded = padded_length(length, step_.context);
    std::vector<int32_t> tokens(static_cast<size_t>(options_.samples * padded));
    for (size_t i = 0; i < history_.size(); ++i)
      std::copy(history_[i].end() - length, history_[i].end(), tokens.begin() + static_cast<int64_t>(i) * padded);
    SampledStep next = model_.read_prompt(params_, std::exchange(cache_, {}),
                                          Array::from(std::move(tokens), {options_.samples, padded}),
                                          scalar_index(length), key_, scalar_index(total), step_);
    cache_ = std::move(next.cache);
    position_ = length;
    index_ = total;
    return next.tokens;
  }

  // Reads the drawn tokens. Returns the ones after them.
  Array advance(const Array& tokens) {
    ++index_;
    SampledStep next = model_.decode_token(params_, std::exchange(cache_, {}), tokens, scalar_index(position_++), key_,
                                           scalar_index(index_), step_);
    cache_ = std::move(next.cache);
    return next.tokens;
  }

  void consume(const std::vector<double>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto token = static_cast<int32_t>(tokens[i]);
      if (token < 0)
        throw_error(
            "generate: the model computed a value that is not finite for token {}; its weights are damaged, training "
            "diverged, or the precision is too low: use another checkpoint, or float32",
            history_[i].size());
      history_[i].push_back(token);
      if (ended_[i]) continue;
      ++texts_[i].tokens;
      if (options_.stop_at_end && model_.tokenizer->end_of_text() == token) {
        ended_[i] = true;
        texts_[i].end = GeneratedText::End::end_of_text;
        continue;
      }
      emit(i, streams_[i].add(token));
      if (!streams_[i].stopped()) continue;
      ended_[i] = true;
      texts_[i].end = GeneratedText::End::stop_string;
    }
  }

  void emit(size_t sample, const std::string& piece) {
    if (piece.empty()) return;
    texts_[sample].text += piece;
    if (on_text_) on_text_(static_cast<int64_t>(sample), piece);
  }

  Impl& model_;
  Gpt params_;  // with the positions of the cache only
  const GenerateOptions& options_;
  const OnText& on_text_;
  Array key_;
  StepOptions step_;
  GptCache cache_;
  int64_t position_ = 0;                       // of the next token in the cache
  int64_t index_ = 0;                          // of the last drawn token in the whole text
  std::vector<std::vector<int32_t>> history_;  // prompt and text of each sample
  std::vector<GeneratedText> texts_;
  std::vector<detail::GeneratedStream> streams_;
  std::vector<bool> ended_ = std::vector<bool>(texts_.size());
};

std::vector<int32_t> Generator::Impl::prompt_ids(const std::string& prompt) const {
  std::vector<int32_t> ids = tokenizer->encode(prompt, {.use_template = true});
  if (ids.empty()) {
    if (const std::optional<int32_t> end = tokenizer->end_of_text())
      ids = {*end};
    else if (const std::optional<int32_t> newline = tokenizer->id_of("\n"))
      ids = {*newline};
    else
      ids = {0};
  }
  for (const int32_t id : ids)
    if (id >= config.vocabulary)
      throw_error(
          "generate: the prompt has token {} (\"{}\"), but the model has {} tokens; use the tokenizer of the model", id,
          printable(tokenizer->token_bytes(id)), config.vocabulary);
  const auto most = static_cast<size_t>(config.context);
  if (ids.size() > most) ids.erase(ids.begin(), ids.end() - static_cast<int64_t>(most));
  return ids;
}

Generator::Generator(GptConfig config, Gpt params, TokenizerPtr tokenizer, GeneratorOptions options) {
  check(config);
  if (!tokenizer) throw_error("generate: the tokenizer is null; load the one that the model was trained with");
  if (options.compute != f32 && options.compute != bf16 && options.compute != f16)
    throw_error("generate: the compute type is {}; choose f32, bf16 or f16", name(options.compute));
  config.dropout = 0;
  impl_ = std::make_unique<Impl>(std::move(config), std::move(params), std::move(tokenizer), options);
}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

std::vector<GeneratedText> Generator::generate(const std::string& prompt, const GenerateOptions& options,
                                               const OnText& on_text) {
  check(options);
  return Impl::Generation(*impl_, impl_->prompt_ids(prompt), options, on_text).run();
}

void Generator::set_params(Gpt params) { impl_->set_params(std::move(params)); }

const Generator::Times& Generator::times() const { return impl_->times; }
size_t Generator::compiled_steps() const { return impl_->decode_token.compiled(); }
size_t Generator::compiled_prefills() const { return impl_->read_prompt.compiled(); }

}  // namespace lockstep
