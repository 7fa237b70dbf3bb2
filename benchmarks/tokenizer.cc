// Tokenizers on one thread, on the speeches of the data set sotu (10.8 MB of English text): MB/s of text. Fetches the
// data set and GPT-2's merges if they are not in the cache.
//
//   build/benchmarks/tokenizer
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "data/text/bpe_tokenizer.h"
#include "data/text/text_documents.h"
#include "lockstep/tokenizer.h"

namespace lockstep {
namespace {

const std::string& english() {
  static const std::string text = [] {
    std::string all;
    for (const detail::TextDocument& document : detail::load_documents("sotu", {})) all += *document.contents;
    return all;
  }();
  return text;
}

void count_bytes(benchmark::State& state, size_t bytes) {
  state.counters["MB/s"] = benchmark::Counter(
      static_cast<double>(bytes) * 1e-6 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

const detail::BpeSpec& gpt2_spec() {
  static const TokenizerPtr tokenizer = load_tokenizer("gpt2");
  return dynamic_cast<const detail::BpeTokenizer&>(*tokenizer).spec();
}

// Text with words that the tokenizer has seen before.
void encode(benchmark::State& state, const Tokenizer& tokenizer) {
  const std::string& text = english();
  std::vector<int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer.append_ids(text, ids);
  }
  count_bytes(state, text.size());
}
void encode_gpt2(benchmark::State& state) { encode(state, detail::BpeTokenizer(gpt2_spec())); }
BENCHMARK(encode_gpt2)->Unit(benchmark::kMillisecond);

void encode_gpt4_words(benchmark::State& state) {
  detail::BpeSpec spec = gpt2_spec();
  spec.rules = {detail::WordRule::gpt4};
  encode(state, detail::BpeTokenizer(spec));
}
BENCHMARK(encode_gpt4_words)->Unit(benchmark::kMillisecond);

void encode_bytes(benchmark::State& state) { encode(state, *byte_tokenizer()); }
BENCHMARK(encode_bytes)->Unit(benchmark::kMillisecond);

void encode_chars(benchmark::State& state) { encode(state, *char_tokenizer(english())); }
BENCHMARK(encode_chars)->Unit(benchmark::kMillisecond);

// A new tokenizer each time: every word has to be merged once.
void encode_gpt2_first_time(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    const detail::BpeTokenizer tokenizer(gpt2_spec());
    state.ResumeTiming();
    benchmark::DoNotOptimize(tokenizer.encode(std::string_view(english()).substr(0, 1'000'000)));
  }
  count_bytes(state, 1'000'000);
}
BENCHMARK(encode_gpt2_first_time)->Unit(benchmark::kMillisecond);

// One word without a place to split it: merges with a heap.
void encode_long_word(benchmark::State& state) {
  const detail::BpeTokenizer tokenizer(gpt2_spec());
  std::string word;
  for (const char c : english())
    if (c >= 'a' && c <= 'z' && word.size() < 1'000'000) word += c;
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(word));
  count_bytes(state, word.size());
}
BENCHMARK(encode_long_word)->Unit(benchmark::kMillisecond);

void decode_gpt2(benchmark::State& state) {
  const detail::BpeTokenizer tokenizer(gpt2_spec());
  const std::vector<int32_t> ids = tokenizer.encode(english());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  count_bytes(state, english().size());
}
BENCHMARK(decode_gpt2)->Unit(benchmark::kMillisecond);

void train_8000(benchmark::State& state) {
  const std::string_view text = english();
  for (auto _ : state) benchmark::DoNotOptimize(train_tokenizer({&text, 1}, 8257));
  count_bytes(state, english().size());
}
BENCHMARK(train_8000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
