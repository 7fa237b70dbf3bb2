#include "train/safetensors.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/throws.h"

namespace lockstep::detail {
namespace {

std::string with_length(const std::string& header, uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  return out + header;
}

class Safetensors : public testing::Test {
 protected:
  SafetensorsHeader read(const std::string& bytes) {
    FileSystem::real().write(path_, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    return read_safetensors_header(FileSystem::real(), path_);
  }
  // A file with this header and `data` bytes of data.
  SafetensorsHeader read(const std::string& header, size_t data) {
    return read(with_length(header, header.size()) + std::string(data, 'x'));
  }
  const TempDir dir_;
  const std::string path_ = dir_.path() + "/x.safetensors";
};

TEST_F(Safetensors, EncodesLengthHeaderAndPadding) {
  const std::string text = encode_safetensors({{"w", {f32, {2, 3}}, 0}, {"b", {u8, {}}, 24}}, {{"k", "v"}});
  ASSERT_GT(text.size(), 8u);
  EXPECT_EQ(text.size() % 8, 0u);
  EXPECT_EQ(static_cast<size_t>(static_cast<uint8_t>(text[0])), text.size() - 8);
  EXPECT_EQ(text.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(text[8], '{');
  const std::string json = text.substr(8, text.find_last_not_of(' ') - 7);
  EXPECT_EQ(json, R"({"__metadata__":{"k":"v"},"w":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]},)"
                  R"("b":{"data_offsets":[24,25],"dtype":"U8","shape":[]}})");
}

TEST_F(Safetensors, RoundTrips) {
  std::vector<SafetensorsEntry> tensors;
  int64_t offset = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == c128) continue;
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{3}, Shape{2, 1, 2}}) {
      tensors.push_back({fmt::format("{} \"{}\" \u00e4\x01", name(dtype), to_string(shape)), {dtype, shape}, offset});
      offset = tensors.back().end();
    }
  }
  const std::map<std::string, std::string> metadata = {{"a", "\u20ac"}, {"b\n", ""}};
  const std::string text = encode_safetensors(tensors, metadata);
  const SafetensorsHeader header = read(text + std::string(static_cast<size_t>(offset), 'x'));
  EXPECT_EQ(header.metadata, metadata);
  EXPECT_EQ(header.data_begin, static_cast<int64_t>(text.size()));
  EXPECT_EQ(header.tensors, tensors);
}

TEST_F(Safetensors, HasNoC128) {
  EXPECT_THROWS(encode_safetensors({{"z", {c128, {1}}, 0}}, {}), Error,
                "safetensors: the format has no element type for c128; save real() and imag(), or cast it to c64");
}

TEST_F(Safetensors, FileWithoutTensorsIsRead) {
  EXPECT_TRUE(read(encode_safetensors({}, {})).tensors.empty());
  EXPECT_TRUE(read("{}", 0).tensors.empty());
}

TEST_F(Safetensors, TensorsAreSortedByOffset) {
  const SafetensorsHeader header = read(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
                                        R"("a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}  )",
                                        6);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].type, (Type{f32, {1}}));
}

TEST_F(Safetensors, LargerElementsComeFirst) {
  const std::vector<Type> types = {{u8, {3}}, {f32, {1}}, {f64, {}}, {bf16, {1}}, {i32, {2}}, {i64, {1}}};
  EXPECT_EQ(safetensors_order(types), (std::vector<size_t>{2, 5, 1, 4, 3, 0}));
}

TEST_F(Safetensors, WrongLengthsAreRejected) {
  EXPECT_THROWS(read("1234567"), Error, path_ + " has only 7 bytes; a safetensors file has at least 8");
  EXPECT_THROWS(read(with_length("{}", 100'000'001)), Error, "has a header of 100000001 bytes; the limit is 100000000");
  EXPECT_THROWS(read(with_length("{}", ~uint64_t{0})), Error, "has a header of 18446744073709551615 bytes");
  EXPECT_THROWS(read(with_length("{}", 3)), Error, "has 10 bytes, but its header alone should have 3");
  EXPECT_THROWS(read(with_length("{} x", 4)), Error, "not JSON");
  EXPECT_THROWS(read(with_length("", 0)), Error, "does not begin with {");
  EXPECT_THROWS(read(" {}", 0), Error, "does not begin with {");
  EXPECT_THROWS(read("[]", 0), Error, "does not begin with {");
  EXPECT_THROWS(read("{\"a\":", 0), Error, "not JSON");
  EXPECT_THROWS(read("{\"\xff\":1}", 0), Error, "not JSON");
  EXPECT_THROWS(read_safetensors_header(FileSystem::real(), dir_.path() + "/missing"), IoError, "missing");
}

TEST_F(Safetensors, DeeplyNestedHeadersAreRejected) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& entry : {R"("dtype":)" + deep + R"(,"shape":[])", R"("dtype":"U8","shape":)" + deep})
    EXPECT_THROWS(read("{\"a\":{" + entry + ",\"data_offsets\":[0,1]}}", 1), Error, "more than 8 objects or lists");
}

TEST_F(Safetensors, DuplicateNamesAreRejected) {
  EXPECT_THROWS(read(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                     R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                     1),
                Error, "\"a\" occurs twice");
  EXPECT_THROWS(read(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1), Error,
                "\"dtype\" occurs twice");
  EXPECT_THROWS(encode_safetensors({{"a", {u8, {}}, 0}, {"a", {u8, {}}, 1}}, {}), Error, "two tensors are named \"a\"");
}

TEST_F(Safetensors, InvalidNamesAreNotWritten) {
  EXPECT_THROWS(encode_safetensors({{"__metadata__", {u8, {}}, 0}}, {}), Error, "is not a valid tensor name");
  EXPECT_THROWS(encode_safetensors({{"a\xff", {u8, {}}, 0}}, {}), Error, "is not UTF-8");
  EXPECT_THROWS(encode_safetensors({}, {{"a", "\xff"}}), Error, "metadata \"a\" is not UTF-8");
}

TEST_F(Safetensors, InvalidTensorsAreRejected) {
  const auto one = [&](const std::string& entry, size_t data = 1) { read("{\"a\":" + entry + "}", data); };
  EXPECT_THROWS(one("1"), Error, "has no object for \"a\"");
  EXPECT_THROWS(one(R"({"shape":[],"data_offsets":[0,1]})"), Error, "has no \"dtype\" for \"a\"");
  EXPECT_THROWS(one(R"({"dtype":"U8","data_offsets":[0,1]})"), Error, "has no \"shape\" for \"a\"");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[]})"), Error, "has no \"data_offsets\" for \"a\"");
  EXPECT_THROWS(one(R"({"dtype":"F8_E8M0","shape":[],"data_offsets":[0,1]})"), Error,
                "elements of type \"F8_E8M0\"; lockstep reads BOOL");
  EXPECT_THROWS(one(R"({"dtype":7,"shape":[],"data_offsets":[0,1]})"), Error, "elements of type 7");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})"), Error, "that is not a list");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"), Error, "the extent -1, which is negative");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})"), Error,
                "the extent 1.0, which is not a whole number");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":["1"],"data_offsets":[0,1]})"), Error,
                "the extent \"1\", which is not a whole number");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]})"), Error,
                "the extent 9223372036854775808, which is too large");
  EXPECT_THROWS(one(R"({"dtype":"F64","shape":[4294967296,4294967296,8],"data_offsets":[0,1]})"), Error,
                "which is too large");
  EXPECT_THROWS(one(R"({"dtype":"F64","shape":[2305843009213693951],"data_offsets":[0,1]})"), Error,
                "which is too large");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[],"data_offsets":[0]})"), Error, "does not have two data_offsets");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[],"data_offsets":[-1,0]})"), Error, "the offset -1, which is negative");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[],"data_offsets":[1,0]})"), Error, "the bytes 1 to 0, but u8[] has 1");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,1]})"), Error, "the bytes 0 to 1, but u8[2] has 2");
  EXPECT_THROWS(one(R"({"dtype":"U8","shape":[],"data_offsets":[9223372036854775807,18446744073709551615]})"), Error,
                "the offset 18446744073709551615, which is too large");
  EXPECT_THROWS(read(R"({"__metadata__":{"a":1}})", 0), Error, "metadata \"a\" that is not a string");
  EXPECT_THROWS(read(R"({"__metadata__":[]})", 0), Error, "is not an object");
}

TEST_F(Safetensors, GapsOverlapsAndWrongEndsAreRejected) {
  const auto two = [&](const char* first, const char* second, size_t data) {
    read(fmt::format(R"({{"a":{{"dtype":"U8","shape":[2],"data_offsets":{}}},)"
                     R"("b":{{"dtype":"U8","shape":[2],"data_offsets":{}}}}})",
                     first, second),
         data);
  };
  EXPECT_NO_THROW(two("[0,2]", "[2,4]", 4));
  EXPECT_THROWS(two("[0,2]", "[3,5]", 5), Error, "a gap of 1 bytes before \"b\"");
  EXPECT_THROWS(two("[1,3]", "[3,5]", 5), Error, "a gap of 1 bytes before \"a\"");
  EXPECT_THROWS(two("[0,2]", "[1,3]", 3), Error, "\"b\" that overlaps");
  EXPECT_THROWS(two("[0,2]", "[0,2]", 2), Error, "overlap");
  EXPECT_THROWS(two("[0,2]", "[2,4]", 3), Error, "ends within \"b\": it has 3 bytes of data, but needs 4");
  EXPECT_THROWS(two("[0,2]", "[2,4]", 5), Error, "has 1 bytes after its last tensor");
}

}  // namespace
}  // namespace lockstep::detail
