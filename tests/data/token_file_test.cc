#include "data/text/token_file.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/faulty_files.h"
#include "base/throws.h"

namespace lockstep::detail {
namespace {

class TokenFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string put(const std::string& name, const std::vector<uint8_t>& bytes) const {
    FileSystem::real().write(path(name), bytes);
    return path(name);
  }
  // A header of 256 integers and some bytes after it.
  static std::vector<uint8_t> with_header(std::vector<uint32_t> start, const std::vector<uint8_t>& rest) {
    start.resize(256);
    const auto* bytes = reinterpret_cast<const uint8_t*>(start.data());
    std::vector<uint8_t> out(bytes, bytes + 1024);
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  }
  static std::vector<int32_t> all(const TokenFile& file) {
    std::vector<int32_t> out(static_cast<size_t>(file.count()));
    file.read(0, out, kMaxTokenVocabulary);
    return out;
  }

  const TempDir dir_;
};

TEST_F(TokenFiles, FlatIdsOfNanoGptAreRead) {
  const TokenFile file(put("flat", {1, 0, 0x57, 0xc2, 0xff, 0xff}));
  EXPECT_EQ(file.count(), 3);
  EXPECT_EQ(all(file), (std::vector<int32_t>{1, 0xc257, 0xffff}));
}

TEST_F(TokenFiles, HeadersOfLlmcAreRead) {
  const TokenFile narrow(put("narrow", with_header({20240520, 1, 2}, {5, 0, 6, 1})));
  EXPECT_EQ(all(narrow), (std::vector<int32_t>{5, 262}));
  const TokenFile wide(put("wide", with_header({20240801, 7, 2}, {5, 0, 0, 0, 0, 0, 2, 0})));
  EXPECT_EQ(wide.width(), 4);
  EXPECT_EQ(all(wide), (std::vector<int32_t>{5, 131072}));
}

TEST_F(TokenFiles, WrittenFilesReadBackTheSame) {
  for (const int64_t vocabulary : {10, 65536, 65537, 200000}) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < 10000; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % vocabulary));
    ids.push_back(static_cast<int32_t>(vocabulary - 1));
    TokenFileWriter writer(path("x"), vocabulary);
    writer.append(std::span(ids).first(5000));
    writer.append(std::span(ids).subspan(5000));
    EXPECT_EQ(writer.count(), 10001);
    writer.finish();
    const TokenFile file(path("x"));
    EXPECT_EQ(file.width(), vocabulary > 65536 ? 4 : 2);
    EXPECT_EQ(all(file), ids);
    std::vector<int32_t> part(4097);
    file.read(5903, part, vocabulary);
    EXPECT_EQ(part, std::vector<int32_t>(ids.begin() + 5903, ids.begin() + 10000));
    EXPECT_EQ(file.largest(0, 10001), vocabulary - 1);
    EXPECT_EQ(file.largest(5, 5), -1);
    EXPECT_EQ(FileSystem::real().list(dir_.path()), std::vector<std::string>{"x"}) << "no temporary files remain";
  }
}

TEST_F(TokenFiles, WrongFilesAreErrors) {
  const auto error = [&](const std::vector<uint8_t>& bytes, const std::string& text) {
    EXPECT_THROWS(TokenFile(put("bad", bytes)), Error, path("bad") + text);
  };
  error({}, " is empty; give a file with tokens");
  error({1, 2, 3}, " has 3 bytes, an odd number, so it has no 16-bit tokens");
  error(with_header({20240520, 2, 0}, {}), " has version 2 of the format with magic 20240520; version 1 is supported");
  error(with_header({20240801, 1, 0}, {}), " has version 1 of the format with magic 20240801; version 7 is supported");
  error(with_header({20240520, 1, 3}, {0, 0, 0, 0}), " declares 3 tokens, but 4 bytes follow its header");
  error(with_header({20240520, 1, 1}, {0, 0, 0, 0}), " declares 1 tokens, but 4 bytes follow its header");
  error(with_header({20240520, 1, 2}, {0, 0, 0, 0, 0}), " declares 2 tokens, but 5 bytes follow its header");
  error(with_header({20240520, 1, 2, 1}, {0, 0, 0, 0}), " declares 4294967298 tokens, but 4 bytes follow");
  error(with_header({20240520, 1, 0xffffffff, 0xffffffff}, {0, 0}), " declares 18446744073709551615 tokens");
  error(with_header({20240520, 1, 0}, {}), " has no tokens");
  std::vector<uint8_t> truncated = with_header({20240520, 1, 0}, {});
  truncated.resize(1022);
  error(truncated, " ends after 1022 of the 1024 bytes of its header");
  error(with_header({20240522, 1, 0}, {}), " is not a token file but an evaluation set of llm.c");
  error(with_header({20240326, 1, 0}, {}), " is not a token file but a model of llm.c");
  error({0x01, 0x34, 0xd8, 0x88, 0, 0, 0, 1}, " is not a token file but a big-endian token file");
  error({0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0}, " is not a token file but a .npy file");
  error({0x1f, 0x8b, 8, 0, 0, 0}, " is not a token file but gzip: run `gunzip -k` on it");
  error({0x7f, 'E', 'L', 'F', 2, 1}, " is not a token file but a program");
  error(std::vector<uint8_t>(100, 'a'), " is a text file; give it as text:" + path("bad") + ", or tokenize it");
  EXPECT_NO_THROW(TokenFile(put("short", {'a', 'b', 'c', 'd'})));
  EXPECT_THROWS(TokenFile(path("missing")), IoError, "No such file or directory");
  EXPECT_THROWS(TokenFile(dir_.path()), IoError, "give a file, not a folder");
}

TEST_F(TokenFiles, IdOutsideTheVocabularyIsNamedWithItsPosition) {
  std::vector<int32_t> ids(9000, 3);
  ids[8123] = 50;
  write_token_file(path("x"), ids, 100);
  const TokenFile file(path("x"));
  std::vector<int32_t> out(500);
  EXPECT_NO_THROW(file.read(7000, out, 50));
  EXPECT_THROWS(file.read(8000, out, 50), Error,
                "tokens: " + path("x") + " has token 50 at position 8123, but the vocabulary has 50 tokens");
  EXPECT_NO_THROW(file.read(8000, out, 51));

  const TokenFile negative(put("negative", with_header({20240801, 7, 2}, {5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})));
  EXPECT_THROWS(all(negative), Error, "has token 4294967295 at position 1, but the vocabulary has 2147483648 tokens");
  TokenFileWriter writer(path("y"), 4);
  EXPECT_THROWS(writer.append(std::vector<int32_t>{3, 4}), Error, "has token 4 at position 1");
}

TEST_F(TokenFiles, FileThatShrinksIsAnError) {
  write_token_file(path("x"), std::vector<int32_t>(1000, 1), 2);
  const TokenFile file(path("x"));
  std::vector<uint8_t> bytes = FileSystem::real().read_file(path("x"));
  bytes.resize(2000);
  FileSystem::real().write(path("x"), bytes);
  std::vector<int32_t> out(100);
  EXPECT_NO_THROW(file.read(0, out, 2));
  EXPECT_THROWS(file.read(900, out, 2), IoError,
                "read " + path("x") + ": it ends before token 999 of 1000 although it was complete when opened");
}

TEST_F(TokenFiles, FailedWriteLeavesNothing) {
  for (const char* operation : {"write", "sync", "rename"}) {
    FaultyFiles files;
    files.fail(operation, ENOSPC);
    EXPECT_THROWS(write_token_file(path("x"), std::vector<int32_t>(1000, 1), 2, files), IoError, "the disk is full");
    EXPECT_TRUE(FileSystem::real().list(dir_.path()).empty()) << operation;
  }
}

}  // namespace
}  // namespace lockstep::detail
