// `lockstep data tokenize` and `lockstep data train-tokenizer`.
#include "data/text/tokenizer_files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/faulty_files.h"
#include "base/text_bytes.h"
#include "base/throws.h"
#include "data/text/token_file.h"
#include "data/tokenizer_strings.h"
#include "support/program.h"

namespace lockstep::detail {
namespace {

class TokenizerFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    FileSystem::real().write(path(name), text_bytes(text));
    return path(name);
  }
  std::vector<std::string> names() const { return FileSystem::real().list(dir_.path()); }

  std::vector<int32_t> ids_of(const std::string& name) const {
    const TokenFile file(path(name));
    std::vector<int32_t> ids(static_cast<size_t>(file.count()));
    file.read(0, ids, kMaxTokenVocabulary);
    return ids;
  }

  // English text of several pieces.
  static const std::string& english() {
    static const std::string text = [] {
      std::string all;
      for (const std::string& each : TokenizerStrings(1).make(30'000))
        if (each.find('\0') == each.npos) all += each + "\n";
      return all;
    }();
    return text;
  }

  const TempDir dir_;
};

TEST_F(TokenizerFiles, FlatFilesHave16BitIds) {
  write("a.txt", "ab\n");
  const ProcessResult result =
      run_lockstep({"data", "tokenize", path("a.txt"), "--tokenizer", "bytes", "-o", path("a.bin")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path("a.bin"));
  EXPECT_EQ(bytes, (std::vector<uint8_t>{'a', 0, 'b', 0, '\n', 0}));
  EXPECT_NE(result.output.find("0.00 MB of text, 1 file: 3 tokens of 256 in "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("           3 tokens in " + path("a.bin") + "\n"), std::string::npos) << result.output;
  EXPECT_EQ(names(), (std::vector<std::string>{"a.bin", "a.tokenizer.json", "a.txt"}));
}

TEST_F(TokenizerFiles, FilesOfLlmcHaveAHeader) {
  write("a.txt", "ab");
  const ProcessResult result = run_lockstep(
      {"data", "tokenize", path("a.txt"), "--tokenizer", "bytes", "--format", "llmc", "-o", path("a.bin")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path("a.bin"));
  ASSERT_EQ(bytes.size(), 1024u + 4u);
  int32_t header[3];
  std::memcpy(header, bytes.data(), sizeof(header));
  EXPECT_EQ(header[0], 20240520);
  EXPECT_EQ(header[1], 1);
  EXPECT_EQ(header[2], 2);
  EXPECT_EQ(ids_of("a.bin"), (std::vector<int32_t>{'a', 'b'}));
}

TEST_F(TokenizerFiles, LargeVocabulariesHave32BitIds) {
  auto json = nlohmann::json::parse(byte_tokenizer()->to_json());
  json = nlohmann::json::parse(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"a": 70000, "b": 1}, "merges": []}})");
  write("t.json", json.dump());
  write("a.txt", "ab");
  const Words start = {"data", "tokenize", path("a.txt"), "--tokenizer", path("t.json"), "-o", path("a.bin")};
  EXPECT_EQ(run_lockstep(start).exit_code, 0);
  EXPECT_EQ(ids_of("a.bin"), (std::vector<int32_t>{70000, 1}));
  const ProcessResult flat = run_lockstep(start + Words{"--format", "nanogpt"});
  EXPECT_EQ(flat.exit_code, 1);
  EXPECT_EQ(flat.output, "lockstep: tokenize: the tokenizer " + path("t.json") +
                             " has 70001 tokens, but files of nanoGPT have 16-bit ids, at most 65536; use the format "
                             "llmc\n");
}

TEST_F(TokenizerFiles, ValidationSetIsTheEndOfTheText) {
  write("text.txt", english());
  const ProcessResult result = run_lockstep({"data", "tokenize", path("text.txt"), "--tokenizer", "chars", "-o",
                                             path("train.bin"), "--validation", "0.25", "--threads", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const TokenizerPtr tokenizer = load_tokenizer(path("train.tokenizer.json"));
  const std::string train = tokenizer->decode(ids_of("train.bin")), rest = tokenizer->decode(ids_of("val.bin"));
  EXPECT_TRUE(train + rest == english());
  const auto share = static_cast<double>(rest.size()) / static_cast<double>(english().size());
  EXPECT_NEAR(share, 0.25, 1e-4);
}

TEST_F(TokenizerFiles, ValidationFilesAreNamedAfterTheOutput) {
  EXPECT_EQ(validation_path("train.bin"), "val.bin");
  EXPECT_EQ(validation_path("a/train.bin"), "a/val.bin");
  EXPECT_EQ(validation_path("a/books.bin"), "a/books_val.bin");
  EXPECT_EQ(validation_path("books"), "books_val");
}

TEST_F(TokenizerFiles, DocumentsAreSeparated) {
  write("a.txt", "a");
  write("b.txt", "b");
  const std::string_view text = "ab";
  const TokenizerPtr tokenizer = train_tokenizer({&text, 1}, 257);
  const TextDocuments documents = gather_documents({path("a.txt"), path("b.txt"), dir_.path()}, {});
  ASSERT_EQ(documents.size(), 4u);
  EXPECT_EQ(tokenize_documents(documents, *tokenizer, {.output = path("ids.bin")}).tokens, 7);
  EXPECT_EQ(tokenizer->decode(ids_of("ids.bin")), "a<|endoftext|>b<|endoftext|>a<|endoftext|>b");
}

TEST_F(TokenizerFiles, IdsDoNotDependOnThreads) {
  write("text.txt", english());
  const TextDocuments documents = gather_documents({path("text.txt")}, {});
  const TokenizerPtr tokenizer = train_on_documents(documents, 600, "small");
  tokenize_documents(documents, *tokenizer, {.output = path("one.bin"), .threads = 1});
  tokenize_documents(documents, *tokenizer, {.output = path("four.bin"), .threads = 4});
  EXPECT_EQ(FileSystem::real().read_file(path("one.bin")), FileSystem::real().read_file(path("four.bin")));
  EXPECT_EQ(ids_of("one.bin"), tokenizer->encode(english()));
}

TEST_F(TokenizerFiles, TrainedTokenizerEncodesTheText) {
  write("text.txt", english());
  const ProcessResult result =
      run_lockstep({"data", "train-tokenizer", path("text.txt"), "--vocabulary", "500", "-o", path("tokenizer.json")});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find(": 500 tokens in "), std::string::npos) << result.output;
  const TokenizerPtr tokenizer = load_tokenizer(path("tokenizer.json"));
  EXPECT_EQ(tokenizer->vocabulary(), 500);
  const std::string_view view = english();
  EXPECT_EQ(tokenizer->to_json(), train_tokenizer({&view, 1}, 500)->to_json());
}

TEST_F(TokenizerFiles, TooLittleTextGivesASmallerVocabulary) {
  write("a.txt", "aa aa");
  const ProcessResult result =
      run_lockstep({"data", "train-tokenizer", path("a.txt"), "--vocabulary", "500", "-o", path("t.json")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("the text has only 259 tokens; more text is needed for a vocabulary of 500"),
            std::string::npos)
      << result.output;
}

TEST_F(TokenizerFiles, WrongInputsAreErrors) {
  const auto run = [&](const std::string& input, const Words& more = {}) {
    return run_lockstep(Words{"data", "tokenize", input, "--tokenizer", "bytes", "-o", path("x.bin")} + more).output;
  };
  write("empty.txt", "");
  write("binary.txt", std::string("a\0b", 3));
  write("a.txt", "a");
  EXPECT_NE(run(path("missing.txt")).find("missing.txt: No such file"), std::string::npos);
  EXPECT_NE(run(path("empty.txt")).find("empty.txt is empty"), std::string::npos);
  EXPECT_NE(run(path("binary.txt")).find("byte 0x00 at position 1"), std::string::npos);
  EXPECT_NE(run(path("a.txt"), {"--validation", "1.5"}).find("the share of the validation set is 1.5"),
            std::string::npos);
  EXPECT_NE(run(path("a.txt"), {"--validation", "0.5"}).find("x.bin would have no tokens"), std::string::npos);
  expect_usage_error({"data", "train-tokenizer", "a", "--vocabulary", "256", "-o", "b"},
                     "data train-tokenizer: --vocabulary: \"256\" is not a whole number from 257 to 1048576; see "
                     "`lockstep data train-tokenizer --help`");
  EXPECT_EQ(names(), (std::vector<std::string>{"a.txt", "binary.txt", "empty.txt"}));
}

TEST_F(TokenizerFiles, FailedWritesLeaveNoFiles) {
  write("a.txt", "a b c d");
  const TextDocuments documents = gather_documents({path("a.txt")}, {});
  for (const TokenFormat format : {TokenFormat::flat, TokenFormat::header})
    for (const char* operation : {"create", "write", "sync", "rename"}) {
      FaultyFiles files;
      files.fail(operation, ENOSPC);
      const TokenizeOptions options{.output = path("train.bin"), .format = format, .validation = 0.5};
      EXPECT_THROWS(tokenize_documents(documents, *byte_tokenizer(), options, files), IoError, "No space left");
      EXPECT_EQ(names(), std::vector<std::string>{"a.txt"}) << operation;
    }
}

}  // namespace
}  // namespace lockstep::detail
