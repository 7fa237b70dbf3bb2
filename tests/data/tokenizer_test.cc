#include "lockstep/tokenizer.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/throws.h"
#include "data/text/bpe_tokenizer.h"
#include "data/text/unicode_nfc.h"
#include "data/tokenizer_strings.h"

namespace lockstep {
namespace {

std::string random_bytes(std::mt19937_64& random, size_t most) {
  std::string text(std::uniform_int_distribution<size_t>(0, most)(random), '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// A tokenizer that has learned from this repository's text.
TokenizerPtr small_tokenizer() {
  static const TokenizerPtr tokenizer = [] {
    std::string text;
    for (const std::string& each : TokenizerStrings(1).make(3000)) text += each;
    const std::string_view view = text;
    return train_tokenizer({&view, 1}, 1000, "small");
  }();
  return tokenizer;
}

TokenizerPtr changed(const std::function<void(detail::BpeSpec&)>& change) {
  detail::BpeSpec spec = dynamic_cast<const detail::BpeTokenizer&>(*small_tokenizer()).spec();
  change(spec);
  return std::make_shared<const detail::BpeTokenizer>(std::move(spec));
}

std::vector<TokenizerPtr> byte_level_tokenizers() {
  return {byte_tokenizer(), small_tokenizer(),
          changed([](detail::BpeSpec& spec) { spec.rules = {detail::WordRule::gpt4}; }),
          changed([](detail::BpeSpec& spec) {
            spec.rules = {detail::WordRule::digits, detail::WordRule::gpt2};
          }),
          changed([](detail::BpeSpec& spec) { spec.rules = {}; })};
}

TEST(Tokenizer, RoundTripKeepsAllBytes) {
  for (const TokenizerPtr& tokenizer : byte_level_tokenizers()) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 1000; ++i) {
      const std::string text = random_bytes(random, 200);
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << tokenizer->name() << ", string " << i;
    }
    for (const std::string& text : TokenizerStrings(3).make(1000))
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << tokenizer->name();
  }
}

TEST(Tokenizer, LongWordsMergeLikeShortOnes) {
  // Words of up to 48 bytes are merged by another algorithm. The cut at 48 is inside of a run of equal bytes, so the
  // result is known: the ids of the run are those of a shorter run, repeated.
  const TokenizerPtr tokenizer = changed([](detail::BpeSpec& spec) {
    spec.merges = {{0, 0, 256}, {256, 256, 257}, {257, 257, 258}};
    spec.tokens.resize(259);
    spec.tokens[256] = "!!", spec.tokens[257] = "!!!!", spec.tokens[258] = "!!!!!!!!";
    spec.added = {};
  });
  EXPECT_EQ(tokenizer->encode(std::string(47, '!')), (std::vector<int32_t>{258, 258, 258, 258, 258, 257, 256, 0}));
  EXPECT_EQ(tokenizer->encode(std::string(55, '!')), (std::vector<int32_t>{258, 258, 258, 258, 258, 258, 257, 256, 0}));
}

TEST(Tokenizer, SpecialTokensCanBePlainText) {
  const TokenizerPtr tokenizer = small_tokenizer();
  const int32_t end = tokenizer->end_of_text().value();
  EXPECT_EQ(end, tokenizer->vocabulary() - 1);
  EXPECT_EQ(tokenizer->encode("<|endoftext|>"), std::vector<int32_t>{end});
  const std::vector<int32_t> plain = tokenizer->encode("<|endoftext|>", {.special_tokens = false});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(tokenizer->decode(plain), "<|endoftext|>");
}

TEST(Tokenizer, TemplateIsAddedOnRequest) {
  const TokenizerPtr tokenizer = changed([](detail::BpeSpec& spec) { spec.prefix = {999}; });
  const std::vector<int32_t> plain = tokenizer->encode("a");
  EXPECT_EQ(tokenizer->encode("a", {.use_template = true}), (std::vector<int32_t>{999, plain[0]}));
  EXPECT_EQ(tokenizer_from_json(tokenizer->to_json(), "again")->encode("", {.use_template = true}),
            std::vector<int32_t>{999});
}

TEST(Tokenizer, EmptyTextHasNoTokens) {
  for (const TokenizerPtr& tokenizer : byte_level_tokenizers()) {
    EXPECT_TRUE(tokenizer->encode("").empty());
    EXPECT_EQ(tokenizer->decode({}), "");
    EXPECT_EQ(tokenizer->safe_cut(""), 0u);
  }
}

TEST(Tokenizer, CutsDoNotChangeTheIds) {
  const std::vector<std::string> strings = TokenizerStrings(5).make(500);
  std::string text;
  for (const std::string& each : strings) text += each;
  std::vector<TokenizerPtr> tokenizers = byte_level_tokenizers();
  tokenizers.push_back(char_tokenizer(text));
  tokenizers.push_back(changed([](detail::BpeSpec& spec) { spec.nfc = true; }));
  for (const TokenizerPtr& tokenizer : tokenizers) {
    int cuts = 0;
    for (size_t i = 0; i + 1 < strings.size(); ++i) {
      const size_t cut = tokenizer->safe_cut(strings[i]);
      ASSERT_LE(cut, strings[i].size());
      const std::string whole = strings[i] + strings[i + 1];
      std::vector<int32_t> ids;
      tokenizer->append_ids(std::string_view(whole).substr(0, cut), ids);
      tokenizer->append_ids(std::string_view(whole).substr(cut), ids);
      ASSERT_EQ(ids, tokenizer->encode(whole)) << tokenizer->to_json().substr(0, 900) << "string " << i;
      if (cut > 0) ++cuts;
    }
    const bool is_one_word = tokenizer->safe_cut("one two three") == 0;
    EXPECT_GE(cuts, is_one_word ? 0 : 50) << tokenizer->name();
  }
}

TEST(Tokenizer, TokenizersThatStripOrAddSpacesAreNotCut) {
  EXPECT_GT(small_tokenizer()->safe_cut("one two"), 0u);
  EXPECT_EQ(changed([](detail::BpeSpec& spec) { spec.add_prefix_space = true; })->safe_cut("one two"), 0u);
  EXPECT_EQ(changed([](detail::BpeSpec& spec) { spec.added[0].rstrip = true; })->safe_cut("one two"), 0u);
  const auto token_with_space = [](detail::BpeSpec& spec) { spec.added[0].content = spec.tokens.back() = "one two"; };
  EXPECT_EQ(changed(token_with_space)->safe_cut("one two"), 0u);
}

TEST(Tokenizer, ThreadsGetTheSameIds) {
  const std::vector<std::string> strings = TokenizerStrings(9).make(500);
  const TokenizerPtr tokenizer = small_tokenizer();
  std::vector<std::vector<std::vector<int32_t>>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids)
    threads.emplace_back([&] {
      for (const std::string& text : strings) mine.push_back(tokenizer->encode(text));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : ids) EXPECT_EQ(mine, ids[0]);
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreErrors) {
  const int32_t ids[] = {1, 1000};
  EXPECT_THROWS(
      small_tokenizer()->decode(ids), Error,
      "tokenizer small: token 1000 is not in its vocabulary of 1000; use the tokenizer that wrote the tokens");
  const int32_t negative[] = {-1};
  EXPECT_THROWS(byte_tokenizer()->decode(negative), Error, "tokenizer bytes: token -1 is not in its vocabulary of 256");
  EXPECT_THROWS(char_tokenizer("ab")->decode(ids), Error, "tokenizer chars: token 1000 is not in its vocabulary of 2");
}

TEST(ByteTokenizer, IdsAreBytes) {
  EXPECT_EQ(byte_tokenizer()->name(), "bytes");
  EXPECT_EQ(byte_tokenizer()->vocabulary(), 256);
  EXPECT_EQ(byte_tokenizer()->encode("a\xff"), (std::vector<int32_t>{97, 255}));
  EXPECT_EQ(byte_tokenizer()->end_of_text(), std::nullopt);
  EXPECT_EQ(tokenizer_from_json(byte_tokenizer()->to_json(), "file")->name(), "bytes");
}

TEST(CharTokenizer, IdsFollowTheOrderOfCodePoints) {
  const TokenizerPtr tokenizer = char_tokenizer("b\xc3\xa9 a\xf0\x9f\x98\x80 bb");
  EXPECT_EQ(tokenizer->name(), "chars");
  EXPECT_EQ(tokenizer->vocabulary(), 5);
  EXPECT_EQ(tokenizer->encode(" ab\xc3\xa9\xf0\x9f\x98\x80"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(tokenizer->id_of("\xc3\xa9"), 3);
  EXPECT_EQ(tokenizer->id_of("x"), std::nullopt);
  const TokenizerPtr again = tokenizer_from_json(tokenizer->to_json(), "file");
  EXPECT_EQ(again->name(), "chars");
  EXPECT_EQ(again->encode("a b"), tokenizer->encode("a b"));
  EXPECT_EQ(again->to_json(), tokenizer->to_json());
}

TEST(CharTokenizer, UnknownCharactersAndOtherEncodingsAreErrors) {
  const TokenizerPtr tokenizer = char_tokenizer("abc");
  std::vector<int32_t> ids = {7};
  EXPECT_THROWS(
      tokenizer->append_ids("ab\xc3\xa9", ids), Error,
      "tokenizer chars: the character U+00E9 \"\xc3\xa9\" at byte 2 of the text is not one of the 3 characters");
  EXPECT_EQ(ids, std::vector<int32_t>{7});
  EXPECT_THROWS(tokenizer->encode("a\xff"), Error, "tokenizer chars: byte 1 of the text, 0xff, is not UTF-8");
  EXPECT_THROWS(char_tokenizer("a\xe9z"), Error, "tokenizer chars: byte 1 of the text, 0xe9, is not UTF-8");
  EXPECT_THROWS(char_tokenizer(""), Error, "tokenizer chars: the text is empty");
  EXPECT_THROWS(tokenizer_from_json(R"({"lockstep_tokenizer": "chars", "characters": "ba"})", "f.json"), Error,
                "tokenizer f.json: its characters are not in the order of their code points");
  EXPECT_THROWS(tokenizer_from_json(R"({"lockstep_tokenizer": "chars"})", "f.json"), Error,
                "tokenizer f.json: it has no string \"characters\"");
  EXPECT_THROWS(tokenizer_from_json(R"({"lockstep_tokenizer": "words"})", "f.json"), Error,
                "tokenizer f.json: \"lockstep_tokenizer\" is \"words\"; supported are bytes and chars");
}

TEST(StreamDecoder, PrintsCompleteCharactersOnly) {
  StreamDecoder decoder(byte_tokenizer());
  std::vector<std::string> pieces;
  for (const unsigned char byte : std::string("a\xc3\xa9\xf0\x9f\x98\x80z")) pieces.push_back(decoder.add(byte));
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "\xc3\xa9", "", "", "", "\xf0\x9f\x98\x80", "z"}));
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, BytesThatAreNotUtf8BecomeReplacements) {
  constexpr const char* kReplaced = "\xef\xbf\xbd";
  StreamDecoder decoder(byte_tokenizer());
  EXPECT_EQ(decoder.add(0xff), kReplaced);
  EXPECT_EQ(decoder.add(0xe2), "");
  EXPECT_EQ(decoder.add('a'), std::string(kReplaced) + "a");
  EXPECT_EQ(decoder.add(0xed), "");
  EXPECT_EQ(decoder.add(0xa0), std::string(kReplaced) + kReplaced);  // a surrogate
  EXPECT_EQ(decoder.add(0xf0), "");
  EXPECT_EQ(decoder.add(0x9f), "");
  EXPECT_EQ(decoder.finish(), kReplaced);
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_THROWS(decoder.add(256), Error, "token 256 is not in its vocabulary");
}

TEST(StreamDecoder, ConcatenatedPiecesAreTheText) {
  const TokenizerPtr tokenizer = small_tokenizer();
  for (const std::string& text : TokenizerStrings(11).make(500)) {
    StreamDecoder decoder(tokenizer);
    std::string out;
    for (const int32_t id : tokenizer->encode(text)) out += decoder.add(id);
    ASSERT_EQ(out + decoder.finish(), text);
  }
}

TEST(TrainTokenizer, MergesTheMostFrequentPairFirst) {
  const std::string_view texts[] = {"low low low low low", "lower lower newest newest newest newest newest newest"};
  const TokenizerPtr tokenizer = train_tokenizer(texts, 262);
  EXPECT_EQ(tokenizer->vocabulary(), 262);
  std::vector<std::string> learned;
  for (int32_t id = 256; id < 261; ++id) learned.emplace_back(tokenizer->token_bytes(id));
  // "we" is in lower and newest, 8 times; "lo", "ow" and " l" 7 and 6 times, and so on.
  EXPECT_EQ(learned[0], "we");
  EXPECT_EQ(train_tokenizer(texts, 262)->to_json(), tokenizer->to_json());
}

TEST(TrainTokenizer, EndsWhenThereIsNothingToMerge) {
  const std::string_view text = "aa aa";
  const TokenizerPtr tokenizer = train_tokenizer({&text, 1}, 1000);
  EXPECT_EQ(tokenizer->vocabulary(), 259);  // bytes, "aa", " aa" and the end of the text
  EXPECT_EQ(tokenizer->encode("aa aa"), (std::vector<int32_t>{256, 257}));
}

TEST(TrainTokenizer, RunsOfOneByteAreCountedOnce) {
  const std::string_view text = "aaaaaaaa aaaaaaa aaaa";
  const TokenizerPtr tokenizer = train_tokenizer({&text, 1}, 300);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(tokenizer->encode("aaaaaaaa").size(), 1u);
}

TEST(TrainTokenizer, ImpossibleRequestsAreErrors) {
  const std::string_view text = "a", empty = "";
  EXPECT_THROWS(train_tokenizer({&text, 1}, 256), Error, "train tokenizer: the vocabulary is 256");
  EXPECT_THROWS(train_tokenizer({&text, 1}, int64_t{1} << 40), Error, "at most 1048576");
  EXPECT_THROWS(train_tokenizer({&empty, 1}, 300), Error, "train tokenizer: the texts are empty");
  EXPECT_THROWS(train_tokenizer({}, 300), Error, "train tokenizer: the texts are empty");
}

TEST(Nfc, ComposesAndReorders) {
  EXPECT_EQ(detail::to_nfc("e\xcc\x81"), "\xc3\xa9");                                 // e, acute
  EXPECT_EQ(detail::to_nfc("a\xcc\x81\xcc\xa3"), "\xe1\xba\xa1\xcc\x81");             // the dot below goes first
  EXPECT_EQ(detail::to_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), "\xed\x95\x9c");  // Hangul
  EXPECT_EQ(detail::to_nfc("\xe2\x84\xab"), "\xc3\x85");                              // the unit Angstrom
  EXPECT_EQ(detail::to_nfc("\xff"
                           "e\xcc\x81\xc3"),
            "\xff\xc3\xa9\xc3");  // other bytes stay
}

}  // namespace
}  // namespace lockstep
