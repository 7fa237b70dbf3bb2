#include "data/text/text_documents.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <filesystem>
#include <random>

#include "base/text_bytes.h"
#include "base/throws.h"
#include "data/text/text_encode.h"

namespace lockstep::detail {
namespace {

std::vector<TextPiece> pieces_of(const TextDocuments& documents) {
  std::vector<TextPiece> out;
  TextPieces pieces(documents, FileSystem::real());
  for (TextPiece piece; pieces.next(piece);) out.push_back(piece);
  return out;
}

TextDocument document(std::string text) {
  const int64_t size = std::ssize(text);
  return {"memory", size, std::make_shared<const std::string>(std::move(text))};
}

class TextFiles : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    const std::string path = dir_.path() + "/" + name;
    FileSystem::real().make_dirs(parent_dir(path));
    FileSystem::real().write(path, text_bytes(text));
    return path;
  }

  const TempDir dir_;
};

TEST_F(TextFiles, FoldersAreReadInSortedOrder) {
  for (const char* name : {"b.txt", "a/z.md", "a/b/c.txt", "a.txt", "a-b/x.txt"}) put(name, name);
  for (const char* name : {"a/code.py", "noname", ".hidden.txt", ".git/x.txt", "a/empty.txt"})
    put(name, std::string(name).find("empty") == std::string::npos ? "x" : "");
  std::filesystem::create_directory_symlink("..", dir_.path() + "/a/loop");
  std::filesystem::create_symlink("nowhere", dir_.path() + "/a/broken.txt");
  std::string names;
  for (const TextDocument& each : find_documents(dir_.path())) names += each.name.substr(dir_.path().size() + 1) + " ";
  EXPECT_EQ(names, "a/b/c.txt a/z.md a-b/x.txt a.txt b.txt ");
}

TEST_F(TextFiles, AnyFileCanBeNamed) {
  const TextDocuments documents = find_documents(put("book", "abc"));
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(total_bytes(documents), 3);
}

TEST_F(TextFiles, MissingOrEmptyTextIsAnError) {
  EXPECT_THROWS(find_documents(dir_.path() + "/x"), IoError, "open " + dir_.path() + "/x: No such file or directory");
  EXPECT_THROWS(find_documents(dir_.path()), Error, dir_.path() + " has no *.txt or *.md files; give a folder with");
  const std::string empty = put("a.txt", "");
  EXPECT_THROWS(find_documents(empty), Error, "text: " + empty + " is empty; give a file with text");
  EXPECT_THROWS(find_documents(dir_.path()), Error, "text: all 1 text files of " + dir_.path() + " are empty");
  EXPECT_THROWS(find_documents("/dev/null"), IoError, "it is a device; a regular file is required");
}

TEST_F(TextFiles, BinaryFilesAreErrorsWithThePosition) {
  const auto error = [&](const std::string& text, const std::string& part) {
    const std::string path = put("x.txt", text);
    EXPECT_THROWS(pieces_of(find_documents(path)), Error, "text: " + path + " is not text in UTF-8: byte " + part);
  };
  error(std::string("ab\0c", 4), "0x00 at position 2; convert it");
  error("caf\xe9 au lait", "0xe9 at position 3");
  error("\x89PNG\r\n", "0x89 at position 0");
  error("cut \xe2\x82", "0xe2 at position 4");
  error("surrogate \xed\xa0\x80", "0xed at position 10");
  error(std::string(3'000'000, 'a') + " b\xff", "0xff at position 3000002");
}

TEST_F(TextFiles, PiecesJoinToTheDocuments) {
  std::string words, lines, one_line(5'000'000, 'x'), wide;
  while (words.size() < 5'000'000) words += "word " + std::to_string(words.size());
  while (lines.size() < 3'000'000) lines += "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\n";
  while (wide.size() < (size_t{40} << 20)) wide += "\xf0\x9f\x98\x80";
  const std::string exact(1 << 20, 'y'), more((1 << 20) + 8, 'z');
  const std::vector<std::string> texts = {words, "", lines, one_line, wide, exact, more, "end"};
  TextDocuments memory, disk;
  for (size_t i = 0; i < texts.size(); ++i) {
    memory.push_back(document(texts[i]));
    disk.push_back({put(std::to_string(i), texts[i]), std::ssize(texts[i])});
  }
  std::vector<std::string> joined(1);
  const std::vector<TextPiece> pieces = pieces_of(memory);
  for (const TextPiece& piece : pieces) {
    EXPECT_EQ(piece.document + 1, joined.size());
    EXPECT_LE(piece.text.size(), size_t{16} << 20);
    joined.back() += piece.text;
    if (piece.ends_document) joined.emplace_back();
  }
  joined.pop_back();
  EXPECT_EQ(joined, texts);
  const std::vector<TextPiece> read = pieces_of(disk);
  ASSERT_EQ(read.size(), pieces.size());
  for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i].text, pieces[i].text);
}

TEST_F(TextFiles, PiecesEndBetweenWords) {
  std::string text;
  for (int i = 0; text.size() < 4'000'000; ++i)
    text += i % 7 == 0 ? "  two\n\n" : i % 5 == 0 ? "\xe3\x80\x80 wide" : " word" + std::to_string(i);
  const std::vector<TextPiece> pieces = pieces_of({document(text)});
  ASSERT_GT(pieces.size(), 3u);
  for (size_t i = 1; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].text[0], ' ');
    EXPECT_NE(pieces[i].text[1], ' ');
    EXPECT_FALSE(pieces[i - 1].text.ends_with(" ") || pieces[i - 1].text.ends_with("\xe3\x80\x80"));
  }
}

TEST_F(TextFiles, DistinctCharactersAreSorted) {
  EXPECT_EQ(distinct_characters({document("hello"), document("\xe2\x82\xac\nA\xf0\x9f\x98\x80")}),
            "\nAehlo\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST_F(TextFiles, DigestsDifferByTextAndBoundaries) {
  const auto digest = [](const TextDocuments& documents) {
    Sha256 out;
    add_documents(documents, out);
    return out.hex();
  };
  const std::string path = put("a.txt", "abc");
  EXPECT_EQ(digest({document("abc")}), digest(find_documents(path)));
  EXPECT_NE(digest({document("abc")}), digest({document("abd")}));
  EXPECT_NE(digest({document("abc"), document("d")}), digest({document("ab"), document("cd")}));
}

TEST_F(TextFiles, TokensDoNotDependOnThreads) {
  std::string text;
  for (int i = 0; text.size() < 9'000'000; ++i) text += "line " + std::to_string(i * int64_t{7919}) + " of text\n";
  const TextDocuments documents = {document(text), document("second"), document("third")};
  const std::string expected = text + "\nsecond\nthird";
  for (const int threads : {1, 3, 0}) {
    std::vector<int32_t> ids;
    encode_documents(documents, *byte_tokenizer(), threads,
                     [&](std::span<const int32_t> piece) { ids.insert(ids.end(), piece.begin(), piece.end()); });
    EXPECT_TRUE(byte_tokenizer()->decode(ids) == expected) << threads;
  }
}

TEST_F(TextFiles, CutsDoNotChangeTheTokensOfWords) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const char* const parts[] = {"the",
                               "whale",
                               "a",
                               " ",
                               " ",
                               " ",
                               "\n",
                               "\n\n",
                               "  ",
                               "\t",
                               "\r\n",
                               ".",
                               "'s",
                               "12",
                               "345",
                               "\xe2\x82\xac",
                               "\xe3\x80\x80",
                               "\xc2\xa0",
                               "\xe4\xb8\xad",
                               "--",
                               "<|endoftext|>"};
  std::string text;
  while (text.size() < 3'500'000) text += parts[random() % std::size(parts)];
  const std::string_view sample[] = {std::string_view(text).substr(0, 100'000)};
  const TokenizerPtr trained = train_tokenizer(sample, 600);
  // A tokenizer that puts a space before a text must not do so before each piece.
  std::string json = trained->to_json();
  const std::string off = "\"add_prefix_space\":false";
  json.erase(std::remove(json.begin(), json.end(), ' '), json.end());
  const size_t at = json.find(off);
  ASSERT_NE(at, std::string::npos) << json.substr(0, 500);
  json.replace(at, off.size(), "\"add_prefix_space\":true");
  for (const TokenizerPtr& tokenizer : {trained, tokenizer_from_json(json, "prefixed")}) {
    std::vector<int32_t> ids;
    encode_documents({document(text)}, *tokenizer, 2,
                     [&](std::span<const int32_t> piece) { ids.insert(ids.end(), piece.begin(), piece.end()); });
    EXPECT_TRUE(ids == tokenizer->encode(text)) << tokenizer->name() << ", seed " << kSeed;
  }
}

TEST_F(TextFiles, ErrorsOfTokenizersReachTheCaller) {
  const TokenizerPtr chars = char_tokenizer("abc");
  EXPECT_THROW(encode_documents({document("abcd")}, *chars, 2, [](std::span<const int32_t>) {}), Error);
}

}  // namespace
}  // namespace lockstep::detail
