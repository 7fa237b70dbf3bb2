// Tokenizers compared with the reference implementations, id by id, on 10,000 strings each.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/printable.h"
#include "data/text/bpe_tokenizer.h"
#include "data/tokenizer_reference.h"
#include "data/tokenizer_strings.h"
#include "lockstep/tokenizer.h"

namespace lockstep {
namespace {

constexpr size_t kStrings = 10'000;
constexpr uint64_t kSeed = 20240520;

class TokenizerReference : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { reason_ = ReferenceTokenizers::install(); }
  void SetUp() override {
    if (!reason_.empty()) GTEST_SKIP() << reason_;
  }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = dir_.path() + "/" + name;
    FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return path;
  }

  static void expect_same(const Tokenizer& tokenizer, const std::vector<std::string>& strings, const IdLists& wanted) {
    ASSERT_EQ(wanted.size(), strings.size());
    int wrong = 0;
    for (size_t i = 0; i < strings.size() && wrong < 5; ++i) {
      const std::vector<int32_t> ids = tokenizer.encode(strings[i]);
      if (ids == wanted[i]) continue;
      ++wrong;
      ADD_FAILURE() << "seed " << kSeed << ", string " << i << ": \"" << printable(strings[i], 2000) << "\"\n"
                    << fmt::format("ours      {}\nreference {}", ids, wanted[i]);
    }
  }

  // Changes the description of GPT-2's tokenizer, and compares it with Hugging Face's.
  void compare(const std::function<void(detail::BpeSpec&)>& change) const {
    detail::BpeSpec spec = gpt2().spec();
    change(spec);
    const detail::BpeTokenizer tokenizer(spec);
    const std::string path = write("tokenizer.json", tokenizer.to_json());
    const std::vector<std::string> strings = TokenizerStrings(kSeed).make(kStrings);
    expect_same(tokenizer, strings, ReferenceTokenizers::hugging_face(path, strings));
    const TokenizerPtr read = load_tokenizer(path);
    EXPECT_EQ(read->to_json(), tokenizer.to_json());
  }

  static const detail::BpeTokenizer& gpt2() {
    static const TokenizerPtr tokenizer = load_tokenizer("gpt2");
    return dynamic_cast<const detail::BpeTokenizer&>(*tokenizer);
  }

  const TempDir dir_;

 private:
  static inline std::string reason_;
};

detail::AddedToken added(const std::string& content, int32_t id) { return {.content = content, .id = id}; }

TEST_F(TokenizerReference, Gpt2) {
  compare([](detail::BpeSpec&) {});
}

TEST_F(TokenizerReference, Gpt2AsTiktokenDoes) {
  const std::vector<std::string> strings = TokenizerStrings(kSeed).make(kStrings);
  expect_same(gpt2(), strings, ReferenceTokenizers::tiktoken("gpt2", strings));
}

TEST_F(TokenizerReference, Gpt4AsTiktokenDoes) {
  const std::string path = dir_.path() + "/cl100k.json";
  ReferenceTokenizers::write_encoding("cl100k_base", path);
  const TokenizerPtr tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->vocabulary(), 100277);
  const std::vector<std::string> strings = TokenizerStrings(kSeed).make(kStrings);
  expect_same(*tokenizer, strings, ReferenceTokenizers::tiktoken("cl100k_base", strings));
  expect_same(*tokenizer, strings, ReferenceTokenizers::hugging_face(path, strings));
}

TEST_F(TokenizerReference, WordsOfGpt4) {
  compare([](detail::BpeSpec& spec) {
    spec.rules = {detail::WordRule::gpt4};
    spec.ignore_merges = true;
  });
}

TEST_F(TokenizerReference, WordsOfQwen) {
  compare([](detail::BpeSpec& spec) { spec.rules = {detail::WordRule::qwen}; });
}

TEST_F(TokenizerReference, NormalizationFormC) {
  compare([](detail::BpeSpec& spec) {
    spec.rules = {detail::WordRule::qwen};
    spec.nfc = true;
  });
}

TEST_F(TokenizerReference, SingleDigits) {
  compare([](detail::BpeSpec& spec) { spec.rules = {detail::WordRule::digits, detail::WordRule::gpt2}; });
}

TEST_F(TokenizerReference, SpaceBeforeTheText) {
  compare([](detail::BpeSpec& spec) { spec.add_prefix_space = true; });
}

TEST_F(TokenizerReference, TextThatIsOneWord) {
  compare([](detail::BpeSpec& spec) { spec.rules = {}; });
}

TEST_F(TokenizerReference, AddedTokensThatStripAndStandAlone) {
  compare([](detail::BpeSpec& spec) {
    const auto next = static_cast<int32_t>(spec.tokens.size());
    detail::AddedToken mask = added("<mask>", next), kitn = added("kitn", next + 1), dgog = added("dgog", next + 2);
    mask.special = mask.lstrip = true;
    mask.normalized = false;
    kitn.single_word = true;
    dgog.rstrip = true;
    for (const detail::AddedToken& token : {mask, kitn, dgog}) {
      spec.tokens.push_back(token.content);
      spec.added.push_back(token);
    }
  });
}

TEST_F(TokenizerReference, TrainedTokenizersLoadThere) {
  std::string text;
  for (const std::string& each : TokenizerStrings(kSeed + 1).make(2000)) text += each + "\n";
  const std::string_view view = text;
  const TokenizerPtr tokenizer = train_tokenizer({&view, 1}, 1500);
  const std::string path = write("trained.json", tokenizer->to_json());
  const std::vector<std::string> strings = TokenizerStrings(kSeed).make(kStrings);
  expect_same(*tokenizer, strings, ReferenceTokenizers::hugging_face(path, strings));
}

// Lines of words with single spaces: the reference trains on each line by itself, so words must not span lines.
std::string lines_of_words(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) {
      out += c;
    } else if (!out.empty() && out.back() != ' ' && out.back() != '\n') {
      out += c == '\n' ? '\n' : ' ';
    }
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
  return out;
}

// Merges as the text of their tokens.
std::vector<std::pair<std::string, std::string>> merges_of(const Tokenizer& tokenizer) {
  const detail::BpeSpec& spec = dynamic_cast<const detail::BpeTokenizer&>(tokenizer).spec();
  std::vector<std::pair<std::string, std::string>> all;
  for (const detail::BpeMerge& merge : spec.merges)
    all.emplace_back(spec.tokens[static_cast<size_t>(merge.left)], spec.tokens[static_cast<size_t>(merge.right)]);
  return all;
}

TEST_F(TokenizerReference, TrainingLearnsTheSameMerges) {
  const std::vector<uint8_t> changes = FileSystem::real().read_file(std::string(LOCKSTEP_SOURCE_DIR) + "/CHANGELOG.md");
  const std::string text = lines_of_words({reinterpret_cast<const char*>(changes.data()), changes.size()});
  const std::string_view view = text;
  const TokenizerPtr ours = train_tokenizer({&view, 1}, 30'000);  // learns until every word is a token
  const std::string path = write("start.json", ours->to_json()), learned = dir_.path() + "/learned.json";
  ReferenceTokenizers::train(path, write("text.txt", text), learned);
  const auto merges = merges_of(*ours);
  EXPECT_GT(merges.size(), 1000u);
  EXPECT_EQ(merges, merges_of(*load_tokenizer(learned)));
}

}  // namespace
}  // namespace lockstep
