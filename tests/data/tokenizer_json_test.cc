// tokenizer.json, and vocab.json with merges.txt: what is read, and which mistakes are found.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/throws.h"
#include "data/text/bpe_tokenizer.h"
#include "lockstep/tokenizer.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// A small tokenizer.json with the letters a to d, a space, and two merges.
Json small_json() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 7, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "unk_token": null,
      "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "Ġ": 4, "ab": 5, "Ġab": 6},
      "merges": ["a b", "Ġ ab"]}})");
}

TokenizerPtr read(const Json& json) { return tokenizer_from_json(json.dump(), "t.json"); }

void expect_error(const std::function<void(Json&)>& change, const std::string& message) {
  Json json = small_json();
  change(json);
  EXPECT_THROWS(read(json), Error, "tokenizer t.json: " + message);
}

void write_text(const std::string& path, const std::string& text) {
  FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(TokenizerJson, MergesAreStringsOrPairs) {
  Json json = small_json();
  const TokenizerPtr strings = read(json);
  json["model"]["merges"] = Json::parse(R"([["a", "b"], ["Ġ", "ab"]])");
  const TokenizerPtr pairs = read(json);
  for (const TokenizerPtr& tokenizer : {strings, pairs}) {
    EXPECT_EQ(tokenizer->name(), "t.json");
    EXPECT_EQ(tokenizer->vocabulary(), 8);
    EXPECT_EQ(tokenizer->encode("ab ab<s>c d"), (std::vector<int32_t>{5, 6, 7, 2, 4, 3}));
  }
  EXPECT_EQ(strings->to_json(), pairs->to_json());
}

TEST(TokenizerJson, WhatIsWrittenReadsBackTheSame) {
  Json json = small_json();
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = Json::parse(R"x({"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": true},
    {"type": "Split", "behavior": "Isolated", "invert": false,
     "pattern": {"Regex": "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})x");
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
     "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}}]})");
  json["model"]["unk_token"] = "d";
  json["model"]["fuse_unk"] = true;
  json["model"]["ignore_merges"] = true;
  const TokenizerPtr tokenizer = read(json);
  const auto& spec = dynamic_cast<const detail::BpeTokenizer&>(*tokenizer).spec();
  EXPECT_EQ(spec.rules, (std::vector{detail::WordRule::digits, detail::WordRule::gpt4}));
  EXPECT_EQ(spec.prefix, std::vector<int32_t>{7});
  EXPECT_TRUE(spec.nfc && spec.ignore_merges && spec.fuse_unknown);
  const TokenizerPtr again = tokenizer_from_json(tokenizer->to_json(), "t.json");
  EXPECT_EQ(dynamic_cast<const detail::BpeTokenizer&>(*again).spec(), spec);
}

TEST(TokenizerJson, UnknownBytesBecomeTheUnknownToken) {
  Json json = small_json();
  EXPECT_THROWS(read(json)->encode("axe"), Error,
                "tokenizer t.json: it has no token for the byte 0x78 of the text, and no token for unknown bytes");
  json["model"]["unk_token"] = "<s>";
  EXPECT_EQ(read(json)->encode("axyb"), (std::vector<int32_t>{0, 7, 7, 1}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(read(json)->encode("axyb"), (std::vector<int32_t>{0, 7, 1}));
}

TEST(TokenizerJson, TokensOutsideTheAlphabetAreText) {
  Json json = small_json();
  json["model"]["vocab"]["日"] = 9;  // 8 has no token
  const TokenizerPtr tokenizer = read(json);
  EXPECT_EQ(tokenizer->vocabulary(), 10);
  EXPECT_EQ(tokenizer->token_bytes(9), "日");
  EXPECT_EQ(tokenizer->token_bytes(8), "");
}

TEST(TokenizerJson, DamagedFilesAreErrors) {
  const std::string text = small_json().dump();
  EXPECT_THROWS(tokenizer_from_json("", "t.json"), JsonSyntaxError, "tokenizer t.json: not JSON");
  for (size_t size = 0; size < text.size(); size += 7)
    EXPECT_THROW(tokenizer_from_json(text.substr(0, size), "t.json"), JsonSyntaxError) << size;
  EXPECT_THROWS(tokenizer_from_json("[]", "t.json"), Error, "tokenizer t.json: the JSON text is not an object");
  EXPECT_THROWS(tokenizer_from_json("{}", "t.json"), Error, "tokenizer t.json: it has no model");
}

TEST(TokenizerJson, InconsistentVocabulariesAreErrors) {
  expect_error([](Json& j) { j["model"]["vocab"]["b"] = 0; }, "the tokens \"a\" and \"b\" have the same id 0");
  expect_error([](Json& j) { j["model"]["vocab"]["b"] = -1; },
               "the id of \"b\" is -1; it must be a whole number from 0 to 1048575");
  expect_error([](Json& j) { j["model"]["vocab"]["b"] = 1'000'000'000'000; }, "the id of \"b\" is 1000000000000");
  expect_error([](Json& j) { j["model"]["vocab"]["b"] = "1"; }, "the id of \"b\" is \"1\"");
  expect_error([](Json& j) { j["model"]["vocab"]["b"] = 1.5; }, "the id of \"b\" is 1.5");
  expect_error([](Json& j) { j["model"]["vocab"] = Json::object(); }, "the vocabulary is not an object with token: id");
  expect_error([](Json& j) { j["model"]["merges"][1] = "x ab"; },
               "merge 2 (\"x\" and \"ab\") names \"x\", which is not in the vocabulary");
  expect_error([](Json& j) { j["model"]["merges"][1] = "ab c"; },
               "merge 2 (\"ab\" and \"c\") makes \"abc\", which is not in the vocabulary");
  expect_error([](Json& j) { j["model"]["merges"][0] = "ab"; },
               "merge 1 is \"ab\"; a merge is two tokens with a space between them");
  expect_error([](Json& j) { j["model"]["merges"][0] = {"a", "b", "c"}; }, "merge 1 is [\"a\",\"b\",\"c\"]");
  expect_error([](Json& j) { j["model"]["merges"] = 3; }, "merges is 3; it must be a list");
  expect_error([](Json& j) { j["model"]["unk_token"] = "<unk>"; }, "its unk_token \"<unk>\" is not in the vocabulary");
  const std::string twice = R"({"model": {"vocab": {"a": 0, "a": 1}}})";
  EXPECT_THROWS(tokenizer_from_json(twice, "t.json"), Error, "the key \"a\" occurs twice");
}

TEST(TokenizerJson, InconsistentAddedTokensAreErrors) {
  const auto added = [](Json& j) -> Json& { return j["added_tokens"][0]; };
  expect_error([&](Json& j) { added(j)["id"] = 2; }, "the tokens \"c\" and \"<s>\" have the same id 2");
  expect_error([&](Json& j) { added(j)["id"] = 1 << 20; }, "the id of \"<s>\" is 1048576");
  expect_error([&](Json& j) { added(j)["content"] = ""; }, "an added token with the id 7 is empty");
  expect_error([&](Json& j) { added(j)["content"] = "ab"; },
               "the added token \"ab\" has the id 7, but the vocabulary gives it 5");
  expect_error([&](Json& j) { added(j)["lstrip"] = "yes"; }, "lstrip is \"yes\"; it must be true or false");
  expect_error([&](Json& j) { j["added_tokens"].push_back(added(j)); }, "the token \"<s>\" is added twice");
  expect_error([&](Json& j) { added(j) = 3; }, "an added token is 3; it must be an object");
}

TEST(TokenizerJson, OtherKindsOfTokenizersAreErrors) {
  expect_error([](Json& j) { j["model"]["type"] = "WordPiece"; }, "its model is WordPiece; only byte-level BPE");
  expect_error([](Json& j) { j["model"]["type"] = "Unigram"; }, "its model is Unigram; only byte-level BPE");
  expect_error([](Json& j) { j["model"]["dropout"] = 0.1; }, "its dropout of merges is 0.1; only 0 is supported");
  expect_error([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "its end_of_word_suffix is \"</w>\"");
  expect_error([](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }, "its normalizer is Lowercase; only NFC");
  expect_error([](Json& j) { j["pre_tokenizer"] = nullptr; }, "its pre_tokenizer does not end with ByteLevel");
  expect_error([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "its pre_tokenizer has a step");
  expect_error(
      [](Json& j) {
        j["pre_tokenizer"] = Json::parse(R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "\\d+"}})");
      },
      "its pre_tokenizer splits words by the regular expression \\d+, which is unknown; known are those of GPT-2");
  expect_error(
      [](Json& j) {
        j["pre_tokenizer"] =
            Json::parse(R"({"type": "Split", "behavior": "MergedWithNext", "pattern": {"Regex": "\\d+"}})");
      },
      "its pre_tokenizer has a Split with the behavior MergedWithNext; only Isolated is supported");
  expect_error(
      [](Json& j) {
        j["post_processor"] = {{"type", "Magic"}};
      },
      "its post_processor is {\"type\":\"Magic\"}");
  expect_error(
      [](Json& j) {
        j["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 7}}, {"sep", {"</s>", 99}}};
      },
      "its post_processor names the id 99 of \"</s>\", but the vocabulary has 8 ids");
}

class TokenizerFolder : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  const TempDir dir_;
};

TEST_F(TokenizerFolder, VocabularyAndMergesAreRead) {
  write_text(path("vocab.json"), R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  write_text(path("merges.txt"), "#version: 0.2\r\na b\r\n\n");
  const TokenizerPtr tokenizer = load_tokenizer(dir_.path());
  EXPECT_EQ(tokenizer->encode("aba<|endoftext|>"), (std::vector<int32_t>{2, 0, 3}));
  EXPECT_EQ(tokenizer->end_of_text(), 3);
}

TEST_F(TokenizerFolder, MistakesInMergesNameTheLine) {
  write_text(path("vocab.json"), R"({"a": 0, "b": 1, "ab": 2})");
  write_text(path("merges.txt"), "#version: 0.2\na b\na c\n");
  EXPECT_THROWS(load_tokenizer(dir_.path()), Error,
                path("merges.txt") + ", line 3: tokenizer " + path("vocab.json") +
                    ": merge 2 (\"a\" and \"c\") names \"c\", which is not in the vocabulary");
  write_text(path("merges.txt"), "a b c\n");
  EXPECT_THROWS(load_tokenizer(dir_.path()), Error, path("merges.txt") + ", line 1:");
}

TEST_F(TokenizerFolder, TokenizerJsonGoesFirst) {
  write_text(path("vocab.json"), "not JSON");
  write_text(path("merges.txt"), "");
  write_text(path("tokenizer.json"), small_json().dump());
  EXPECT_EQ(load_tokenizer(dir_.path())->vocabulary(), 8);
  EXPECT_EQ(load_tokenizer(path("tokenizer.json"))->vocabulary(), 8);
}

TEST_F(TokenizerFolder, MissingFilesAreErrors) {
  EXPECT_THROWS(load_tokenizer(dir_.path()), Error, "the folder has neither tokenizer.json nor vocab.json");
  EXPECT_THROWS(load_tokenizer("gpt3"), Error, "tokenizer: \"gpt3\" is unknown; give bytes, chars, gpt2");
  EXPECT_THROWS(load_tokenizer("chars"), Error, "tokenizer chars: the text is empty");
}

TEST_F(TokenizerFolder, WrittenTokenizersLoad) {
  for (const TokenizerPtr& tokenizer : {byte_tokenizer(), char_tokenizer("xyz"), read(small_json())}) {
    write_text(path("t.json"), tokenizer->to_json());
    EXPECT_EQ(load_tokenizer(path("t.json"))->to_json(), tokenizer->to_json());
  }
}

}  // namespace
}  // namespace lockstep
