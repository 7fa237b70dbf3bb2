// Generator: tokens, streaming, stops and compilation.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/printable.h"
#include "base/throws.h"
#include "lockstep/create.h"
#include "lockstep/generate.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/tree.h"
#include "train/generate_text.h"

namespace lockstep {
namespace {

GptConfig tiny_gpt(int64_t vocabulary = 256) {
  GptConfig config{.vocabulary = vocabulary, .context = 32, .layers = 2, .heads = 2, .width = 32};
  return config;
}
GptConfig tiny_llama() {
  GptConfig config = tiny_gpt();
  config.kv_heads = 1;
  config.norm = GptConfig::Norm::rms;
  config.position = GptConfig::Position::rotary;
  config.feed_forward = GptConfig::FeedForward::swiglu;
  config.bias = config.tied = false;
  return config;
}

// Initial weights make almost equal logits; larger ones make distinct texts.
Gpt tiny_params(const GptConfig& config, uint64_t seed = 3) {
  return tree_map([](const Array& a) { return a.rank() == 2 ? a * 6 : a; }, create_gpt(config, random::key(seed)));
}

Generator tiny_generator(const GptConfig& config = tiny_gpt()) {
  return Generator(config, tiny_params(config), byte_tokenizer());
}

// The most probable continuation, computed without a cache.
std::vector<int32_t> continued_without_cache(const GptConfig& config, std::vector<int32_t> window, int64_t tokens) {
  const Gpt params = tiny_params(config);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < tokens; ++i) {
    const auto length = static_cast<int64_t>(window.size());
    const Array logits = apply(config, params, Array::from(window, {1, length}), {});
    out.push_back(argmax(at(at(logits, 0), length - 1)).item<int32_t>());
    window.push_back(out.back());
    if (length == config.context) window.erase(window.begin(), window.end() - config.context / 2);
  }
  return out;
}

// The text of bytes, as a Generator returns it.
std::string text_of_bytes(const std::vector<int32_t>& ids) {
  StreamDecoder decoder(byte_tokenizer());
  std::string out;
  for (const int32_t id : ids) out += decoder.add(id);
  return out + decoder.finish();
}

TEST(Generate, EqualsTheModelWithoutCache) {
  for (const GptConfig& config : {tiny_gpt(), tiny_llama()}) {
    Generator generator(config, tiny_params(config), byte_tokenizer());
    const std::string prompt = "Call me Ishmael";
    const std::vector<int32_t> ids = byte_tokenizer()->encode(prompt);
    // Within the context of 32 tokens, and past it twice.
    for (const int64_t tokens : {1, 5, 17, 18, 60})
      EXPECT_EQ(generator.generate(prompt, {.tokens = tokens, .temperature = 0})[0].text,
                text_of_bytes(continued_without_cache(config, ids, tokens)))
          << tokens;
  }
}

TEST(Generate, OneCompiledStepServesEveryPosition) {
  Generator generator = tiny_generator();
  const GenerateOptions options{.tokens = 100, .temperature = 0.8, .top_k = 20};
  generator.generate("abc", options);
  EXPECT_EQ(generator.compiled_steps(), 1u);
  EXPECT_EQ(generator.compiled_prefills(), 1u);  // 16 tokens: for the prompt, and for half of the context
  generator.generate("a longer prompt", options);
  generator.generate("another seed", {.tokens = 90, .temperature = 0.8, .top_k = 20, .seed = 9});
  EXPECT_EQ(generator.compiled_steps(), 1u);
  EXPECT_EQ(generator.compiled_prefills(), 1u);
  generator.generate(std::string(20, 'x'), options);
  EXPECT_EQ(generator.compiled_steps(), 1u);
  EXPECT_EQ(generator.compiled_prefills(), 2u);
}

TEST(Generate, NewParametersCompileNothing) {
  const GptConfig config = tiny_gpt();
  const auto text = [](Generator& generator) {
    return generator.generate("abc", {.tokens = 20, .temperature = 0})[0].text;
  };
  for (const DType compute : {f32, bf16}) {
    Generator changed(config, tiny_params(config, 3), byte_tokenizer(), {.compute = compute}),
        other(config, tiny_params(config, 4), byte_tokenizer(), {.compute = compute});
    const std::string before = text(changed);
    changed.set_params(tiny_params(config, 4));
    EXPECT_EQ(text(changed), text(other));
    EXPECT_NE(text(changed), before);
    EXPECT_EQ(changed.compiled_steps(), 1u);
    EXPECT_THROWS(changed.set_params(tiny_params(tiny_llama())), Error, "generate");
  }
}

TEST(Generate, SeedsDecide) {
  Generator generator = tiny_generator();
  const auto text = [&](uint64_t seed) { return generator.generate("x", {.tokens = 50, .seed = seed})[0].text; };
  const std::string first = text(1);
  EXPECT_EQ(text(1), first);
  EXPECT_NE(text(2), first);
  EXPECT_EQ(tiny_generator().generate("x", {.tokens = 50, .seed = 1})[0].text, first);
}

TEST(Generate, SamplesDiffer) {
  Generator generator = tiny_generator();
  const std::vector<GeneratedText> three = generator.generate("x", {.tokens = 50, .seed = 1, .samples = 3});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].text, generator.generate("x", {.tokens = 50, .seed = 1})[0].text);
  EXPECT_NE(three[0].text, three[1].text);
  EXPECT_NE(three[1].text, three[2].text);
  for (const GeneratedText& each : three) EXPECT_EQ(each.tokens, 50);
}

TEST(Generate, PiecesAreCharactersAndMakeTheText) {
  Generator generator = tiny_generator();
  std::vector<std::string> joined(2);
  size_t pieces = 0;
  const std::vector<GeneratedText> texts =
      generator.generate("x", {.tokens = 200, .seed = 4, .samples = 2}, [&](int64_t sample, std::string_view piece) {
        EXPECT_TRUE(is_utf8(piece));
        EXPECT_FALSE(piece.empty());
        joined.at(static_cast<size_t>(sample)) += piece;
        ++pieces;
      });
  EXPECT_GT(pieces, 100u);
  EXPECT_EQ(texts[0].text, joined[0]);
  EXPECT_EQ(texts[1].text, joined[1]);
}

TEST(Generate, EndsBeforeAStopString) {
  Generator generator = tiny_generator();
  GenerateOptions options{.tokens = 60, .seed = 2};
  const std::string whole = generator.generate("x", options)[0].text;
  // A string of several characters from the middle.
  size_t begin = whole.size() / 2;
  while ((static_cast<unsigned char>(whole[begin]) & 0xc0) == 0x80) ++begin;
  size_t end = begin + 4;
  while (end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xc0) == 0x80) ++end;
  options.stop = {"never in the text", whole.substr(begin, end - begin)};
  std::string joined;
  const GeneratedText stopped =
      generator.generate("x", options, [&](int64_t, std::string_view piece) { joined += piece; })[0];
  EXPECT_EQ(stopped.text, whole.substr(0, whole.find(options.stop[1])));
  EXPECT_EQ(joined, stopped.text);
  EXPECT_EQ(stopped.end, GeneratedText::End::stop_string);
  EXPECT_LT(stopped.tokens, 60);
}

// A model whose most probable token is always `token`.
Gpt constant_model(const GptConfig& config, int32_t token) {
  Gpt params = tiny_params(config);
  params.norm.scale = zeros({config.width});
  params.norm.bias = ones({config.width});
  params.output = astype(arange(config.vocabulary) == token, f32) * ones({config.width, 1});
  return params;
}

TEST(Generate, EndsAtTheEndOfText) {
  const std::string_view corpus = "the cat and the dog";
  const TokenizerPtr tokenizer = train_tokenizer({&corpus, 1}, 260);
  ASSERT_TRUE(tokenizer->end_of_text());
  GptConfig config = tiny_gpt(tokenizer->vocabulary());
  config.tied = false;
  Generator generator(config, constant_model(config, *tokenizer->end_of_text()), tokenizer);
  const GeneratedText ended = generator.generate("the cat", {.tokens = 9, .temperature = 0})[0];
  EXPECT_EQ(ended.text, "");
  EXPECT_EQ(ended.tokens, 1);
  EXPECT_EQ(ended.end, GeneratedText::End::end_of_text);
  const GeneratedText on = generator.generate("the cat", {.tokens = 9, .temperature = 0, .stop_at_end = false})[0];
  EXPECT_EQ(on.tokens, 9);
  EXPECT_EQ(on.end, GeneratedText::End::tokens);
}

TEST(Generate, IncompleteCharactersBecomeReplacementCharacters) {
  GptConfig config = tiny_gpt();
  config.tied = false;
  Generator generator(config, constant_model(config, 0xc3), byte_tokenizer());
  EXPECT_EQ(generator.generate("x", {.tokens = 2, .temperature = 0})[0].text, "\ufffd\ufffd");
}

TEST(Generate, LongPromptsKeepTheirEnd) {
  Generator generator = tiny_generator();
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += static_cast<char>('a' + i % 23);
  for (const int64_t tokens : {1, 40})
    EXPECT_EQ(generator.generate(prompt, {.tokens = tokens, .seed = 5})[0].text,
              generator.generate(prompt.substr(300 - 32), {.tokens = tokens, .seed = 5})[0].text);
}

TEST(Generate, EmptyPromptsBeginAText) {
  Generator generator = tiny_generator();
  EXPECT_EQ(generator.generate("", {.tokens = 20, .temperature = 0})[0].text,
            generator.generate("\n", {.tokens = 20, .temperature = 0})[0].text);
}

TEST(Generate, TokensWithoutTextAreNeverDrawn) {
  // The model has more tokens than the tokenizer, as vocabularies that are rounded up do.
  GptConfig config = tiny_gpt(300);
  config.tied = false;
  Generator generator(config, constant_model(config, 299), byte_tokenizer());
  EXPECT_EQ(generator.generate("x", {.tokens = 20})[0].tokens, 20);
}

TEST(Generate, HalfPrecisionGenerates) {
  for (const DType compute : {bf16, f16}) {
    Generator generator(tiny_gpt(), tiny_params(tiny_gpt()), byte_tokenizer(), {.compute = compute});
    EXPECT_EQ(generator.generate("x", {.tokens = 40})[0].tokens, 40);
  }
}

TEST(Generate, WrongInputIsRejected) {
  Generator generator = tiny_generator();
  EXPECT_THROWS(generator.generate("x", {.tokens = 0}), Error, "generate: 0 tokens are requested; give 1 to ");
  EXPECT_THROWS(generator.generate("x", {.samples = 0}), Error, "generate: 0 samples are requested; give 1 to 4096");
  EXPECT_THROWS(generator.generate("x", {.temperature = -1}), Error, "generate: the temperature is -1");
  EXPECT_THROWS(generator.generate("x", {.stop = {""}}), Error, "generate: the stop string \"\" is empty; give text");
  EXPECT_THROWS(generator.generate("x", {.stop = {"\xff"}}), Error, "is not UTF-8; give text");
  Generator small = tiny_generator(tiny_gpt(100));
  EXPECT_THROWS(small.generate("x"), Error,
                "generate: the prompt has token 120 (\"x\"), but the model has 100 tokens; use the tokenizer of the "
                "model");
  EXPECT_THROWS(Generator(tiny_gpt(), tiny_params(tiny_gpt()), nullptr), Error, "generate: the tokenizer is null");
  EXPECT_THROWS(Generator(tiny_gpt(), tiny_params(tiny_llama()), byte_tokenizer()), Error,
                "generate: the parameter position_embedding does not fit the configuration");
  EXPECT_THROWS(Generator(tiny_gpt(), tiny_params(tiny_gpt()), byte_tokenizer(), {.compute = i32}), Error,
                "generate: the compute type is i32; choose f32, bf16 or f16");
}

TEST(Generate, WeightsThatAreNotFiniteAreReported) {
  Gpt params = tiny_params(tiny_gpt());
  params.norm.scale = full({32}, std::numeric_limits<float>::quiet_NaN());
  Generator generator(tiny_gpt(), params, byte_tokenizer());
  EXPECT_THROWS(generator.generate("xy"), Error,
                "generate: the model computed a value that is not finite for token 2; its weights are damaged");
}

TEST(GeneratedStream, HoldsBackWhatMayBeAStopString) {
  const std::vector<std::string> stop = {"stop", "top!"};
  detail::GeneratedStream stream(byte_tokenizer(), stop);
  std::vector<std::string> pieces;
  for (const char c : std::string_view("a sto, s\xc3\xa4 sstop")) {
    pieces.push_back(stream.add(static_cast<uint8_t>(c)));
    if (stream.stopped()) break;
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", " ", "", "", "", "sto,", " ", "", "", "s\xc3\xa4", " ", "", "s", "",
                                              "", ""}));
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.finish(), "");
  detail::GeneratedStream open(byte_tokenizer(), stop);
  EXPECT_EQ(open.add('s'), "");
  EXPECT_EQ(open.add('t'), "");
  EXPECT_EQ(open.finish(), "st");
  EXPECT_FALSE(open.stopped());
}

}  // namespace
}  // namespace lockstep
