#include "data/idx.h"

#include <cerrno>
#include <cstdlib>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "data/digits.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

// An IDX header with these extents, which may be wrong.
Bytes header(std::initializer_list<uint32_t> extents) {
  Bytes bytes = {0, 0, 8, static_cast<uint8_t>(extents.size())};
  for (uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(extent >> shift));
  return bytes;
}

Bytes with_payload(Bytes bytes, size_t n) {
  for (size_t i = 0; i < n; ++i) bytes.push_back(static_cast<uint8_t>(i));
  return bytes;
}

class IdxFile : public testing::Test {
 protected:
  // The path of a file with these bytes.
  std::string file(const Bytes& bytes) {
    FileSystem::real().write(path_, bytes);
    return path_;
  }
  const TempDir dir_;
  const std::string path_ = dir_.path() + "/x";
};

TEST_F(IdxFile, ReadsRawAndGzipAlike) {
  const Bytes raw = with_payload(header({2, 3, 4}), 24);
  for (const Bytes& bytes : {raw, gzip(raw)}) {
    const IdxData data = read_idx(file(bytes));
    EXPECT_EQ(data.shape, (Shape{2, 3, 4}));
    EXPECT_EQ(data.bytes, Bytes(raw.begin() + 16, raw.end()));
    EXPECT_EQ(encode_idx(data), raw);
  }
}

TEST_F(IdxFile, ReadsGzipInSeveralMembers) {
  const Bytes raw = with_payload(header({100}), 100);
  Bytes both = gzip(Bytes(raw.begin(), raw.begin() + 50));
  const Bytes second = gzip(Bytes(raw.begin() + 50, raw.end()));
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(encode_idx(read_idx(file(both))), raw);
}

TEST_F(IdxFile, EmptyDimensionsAreRead) { EXPECT_EQ(read_idx(file(header({0, 28, 28}))).bytes.size(), 0u); }

TEST_F(IdxFile, MissingFileIsAnIoError) { EXPECT_THROWS(read_idx(path_), IoError, path_ + ": No such file"); }

TEST_F(IdxFile, WrongMagicNumberIsReported) {
  EXPECT_THROWS(read_idx(file({'<', 'h', 't', 'm', 'l'})), Error, path_ + ": it starts with 3c 68 74 6d");
  EXPECT_THROWS(read_idx(file({0, 0, 7, 1, 0, 0, 0, 0})), Error, "not an IDX file");
  EXPECT_THROWS(read_idx(file({})), Error, "ends within the 4-byte magic number");
  EXPECT_THROWS(read_idx(file({0, 0, 8})), Error, "ends within the 4-byte magic number");
}

TEST_F(IdxFile, OtherElementTypesAreReported) {
  EXPECT_THROWS(read_idx(file({0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0})), Error,
                "it contains 32-bit floats (IDX type 0x0d)");
  EXPECT_THROWS(read_idx(file({0, 0, 0x0b, 1})), Error, "16-bit integers");
}

TEST_F(IdxFile, NoDimensionsIsAnError) { EXPECT_THROWS(read_idx(file({0, 0, 8, 0, 1})), Error, "no dimensions"); }

TEST_F(IdxFile, TruncationAtEveryLengthIsAnError) {
  const Bytes raw = with_payload(header({2, 3}), 6);
  for (size_t length = 0; length < raw.size(); ++length)
    EXPECT_THROWS(read_idx(file(Bytes(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(length)))), Error, path_);
  EXPECT_THROWS(read_idx(file(with_payload(header({2, 3}), 5))), Error,
                "declares [2, 3] = 6 bytes, but at most 5 follow");
}

TEST_F(IdxFile, TrailingBytesAreAnError) {
  const Bytes raw = with_payload(header({2, 3}), 7);
  EXPECT_THROWS(read_idx(file(raw)), Error, "there are bytes after the [2, 3] = 6");
  EXPECT_THROWS(read_idx(file(gzip(raw))), Error, "there are bytes after the [2, 3] = 6");
}

TEST_F(IdxFile, HugeDimensionsAllocateNothing) {
  const uint32_t most = 0xffffffff;
  EXPECT_THROWS(read_idx(file(header({most, most, most}))), Error, "more than any file can have");
  EXPECT_THROWS(read_idx(file(header({most, most}))), Error, "at most 0 follow");
  EXPECT_THROWS(read_idx(file(gzip(header({most, most})))), Error, "its header declares [4294967295, 4294967295]");
  Bytes many = {0, 0, 8, 255};
  many.resize(4 + 255 * 4, 0xff);
  EXPECT_THROWS(read_idx(file(many)), Error, "more than any file can have");
}

TEST_F(IdxFile, GzipBombStopsAtTheDeclaredSize) {
  // 64 MB of zeros in 64 KB, after a header that declares 10 bytes.
  Bytes bomb = header({10});
  bomb.resize(64 << 20);
  EXPECT_THROWS(read_idx(file(gzip(bomb))), Error, "there are bytes after the [10] = 10");
}

TEST_F(IdxFile, GzipWithLessThanDeclaredIsTruncated) {
  const Bytes raw = with_payload(header({50000}), 100);
  EXPECT_THROWS(read_idx(file(gzip(raw))), Error, "declares [50000] = 50000 bytes, but 100 follow");
}

TEST_F(IdxFile, TruncatedGzipIsAnErrorAtEveryLength) {
  const Bytes packed = gzip(with_payload(header({2, 30}), 60));
  for (size_t length = 2; length < packed.size(); ++length)
    EXPECT_THROWS(read_idx(file(Bytes(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(length)))), Error,
                  path_);
}

TEST_F(IdxFile, CorruptGzipIsDetected) {
  const Bytes raw = with_payload(header({2, 30}), 60), packed = gzip(raw);
  for (size_t at = 0; at < packed.size(); ++at)
    for (const uint8_t flip : {0x01, 0x80}) {
      Bytes bad = packed;
      bad[at] ^= flip;
      try {
        EXPECT_EQ(encode_idx(read_idx(file(bad))), raw) << "byte " << at;  // some header bytes have no meaning
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
      }
    }
  Bytes bad = packed;
  bad[bad.size() - 8] ^= 1;
  EXPECT_THROWS(read_idx(file(bad)), Error, "the compressed data is corrupt (incorrect data check)");
}

TEST_F(IdxFile, GarbageAfterGzipIsAnError) {
  Bytes packed = gzip(with_payload(header({3}), 3));
  packed.insert(packed.end(), {'x', 'y', 'z'});
  EXPECT_THROWS(read_idx(file(packed)), Error, "3 bytes after the end of the compressed data are not gzip");
}

TEST_F(IdxFile, RandomBytesNeverCrash) {
  std::srand(1);
  for (int i = 0; i < 2000; ++i) {
    Bytes noise(static_cast<size_t>(std::rand() % 64));
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(std::rand());
    if (i % 2 == 0 && noise.size() > 4) noise[0] = noise[1] = 0, noise[2] = 8, noise[3] %= 4;
    if (i % 3 == 0 && noise.size() > 4) noise[0] = 0x1f, noise[1] = 0x8b, noise[2] = 8, noise[3] = 0;
    try {
      parse_idx(noise, "noise");
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("read noise: "), std::string::npos) << error.what();
    }
  }
}

TEST_F(IdxFile, UnexpectedShapeIsReported) {
  const Shape expected = {3, 2};
  EXPECT_THROWS(read_idx(file(with_payload(header({2, 3}), 6)), FileSystem::real(), &expected), Error,
                "its header declares [2, 3], but this file of the data set has [3, 2]");
}

TEST_F(IdxFile, ReadErrorIsAnIoError) {
  FaultyFiles files;
  files.fail("read", EIO);
  EXPECT_THROWS(read_idx(file(with_payload(header({3}), 3)), files), IoError, "Input/output error");
}

}  // namespace
}  // namespace lockstep
