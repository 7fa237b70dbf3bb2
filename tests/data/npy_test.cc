#include "data/tables/npy.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "data/npy_files.h"
#include "data/source_rows.h"
#include "lockstep/table_data.h"

namespace lockstep {
namespace {

class NpyFiles : public testing::Test {
 protected:
  std::string write(const std::string& descr, const std::string& shape, const std::string& elements, int version = 1) {
    write_npy(path_, descr, shape, elements, version);
    return path_;
  }
  std::string write_text(const std::string& text) {
    FileSystem::real().write(path_, bytes_of(text));
    return path_;
  }
  std::string write_header(const std::string& dictionary) { return write_text(npy_text(dictionary, "")); }

  const TempDir dir_;
  const std::string path_ = dir_.path() + "/x.npy";
};

TEST_F(NpyFiles, ElementTypesBecomeThoseOfArrays) {
  const auto expect = [&](const std::string& descr, const std::string& elements, const std::string& text) {
    EXPECT_EQ(load_npy(write(descr, "(3,)", elements)).to_string(), text);
  };
  expect("|u1", elements_of<uint8_t>({1, 2, 255}), "u8[3] [1, 2, 255]");
  expect("|i1", elements_of<int8_t>({1, -2, -128}), "i8[3] [1, -2, -128]");
  expect("<i2", elements_of<int16_t>({1, -2, 32767}), "i16[3] [1, -2, 32767]");
  expect("<u2", elements_of<uint16_t>({1, 2, 65535}), "u16[3] [1, 2, 65535]");
  expect("<i4", elements_of<int32_t>({1, -2, 3}), "i32[3] [1, -2, 3]");
  expect("<u4", elements_of<uint32_t>({1, 2, 4294967295}), "u32[3] [1, 2, 4294967295]");
  expect("<i8", elements_of<int64_t>({1, -2, int64_t{1} << 40}), "i64[3] [1, -2, 1099511627776]");
  expect("<u8", elements_of<uint64_t>({1, 2, ~uint64_t{0}}), "u64[3] [1, 2, 18446744073709551615]");
  expect("<c8", elements_of<float>({1, -2, 0, 1, 3, 0}), "c64[3] [1-2i, 0+1i, 3+0i]");
  expect("<c16", elements_of<double>({1, -2, 0, 1, 3, 0}), "c128[3] [1-2i, 0+1i, 3+0i]");
  expect("<f2", elements_of<Float16>({Float16(1.5f), Float16(-2.f), Float16(0.f)}), "f16[3] [1.5, -2, 0]");
  expect("<f4", elements_of<float>({1.5f, -2.f, 0.f}), "f32[3] [1.5, -2, 0]");
  expect("<f8", elements_of<double>({1.5, -2, 0}), "f64[3] [1.5, -2, 0]");
  expect("|b1", std::string{1, 0, 7}, "bool[3] [true, false, true]");
}

TEST_F(NpyFiles, AllVersionsAreRead) {
  for (const int version : {1, 2, 3})
    EXPECT_EQ(load_npy(write("<f4", "(2, 3)", elements_of<float>({1, 2, 3, 4, 5, 6}), version)).to_string(),
              "f32[2,3] [[1, 2, 3], [4, 5, 6]]");
}

TEST_F(NpyFiles, KeysMayBeInAnyOrder) {
  const std::string elements = elements_of<float>({1, 2});
  for (const char* header :
       {"{'shape': (2,), 'descr': '<f4', 'fortran_order': False}",
        "{\"fortran_order\":False,\"shape\":(2L,),\"descr\":\"<f4\",}",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }"})  // one dimension has one order
    EXPECT_EQ(load_npy(write_text(npy_text(header, elements))).to_string(), "f32[2] [1, 2]") << header;
}

TEST_F(NpyFiles, SourceHasTheFieldsOfItsFiles) {
  write_npy(dir_.path() + "/y.npy", "|u1", "(4,)", std::string{9, 8, 7, 6});
  write("<f4", "(4, 2)", elements_of<float>({0, 1, 2, 3, 4, 5, 6, 7}));
  const std::map<std::string, std::string> files = {{"x", path_}, {"y", dir_.path() + "/y.npy"}};
  const SourcePtr resident = npy_source(files, "off"), streamed = npy_source(files, "on");
  EXPECT_EQ(resident->count(), 4);
  EXPECT_EQ(streamed->fields()[0].example, (Type{f32, {2}}));
  EXPECT_EQ(streamed->fields()[1].example, (Type{u8, {}}));
  EXPECT_TRUE(streamed->resident().empty());
  expect_same_rows(*resident, *streamed);
  EXPECT_EQ(streamed->origin("y"), dir_.path() + "/y.npy");

  const std::vector<int64_t> rows = {3, 0, 1};
  std::vector<float> x(6);
  std::vector<uint8_t> y(3);
  std::byte* buffers[] = {reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(y.data())};
  streamed->read(rows, buffers);
  EXPECT_EQ(x, (std::vector<float>{6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(y, (std::vector<uint8_t>{6, 9, 8}));
}

TEST_F(NpyFiles, StreamedSmallIntegersKeepTheirType) {
  const SourcePtr streamed =
      npy_source({{"x", write("<i2", "(3, 2)", elements_of<int16_t>({1, -2, 3, -4, 5, -6}))}}, "on");
  EXPECT_EQ(all_rows(*streamed).at("x").to_string(), "i16[3,2] [[1, -2], [3, -4], [5, -6]]");
}

TEST_F(NpyFiles, DifferentNumbersOfRowsAreAnError) {
  write("<f4", "(2,)", elements_of<float>({1, 2}));
  write_npy(dir_.path() + "/y.npy", "|u1", "(3,)", std::string(3, '\0'));
  EXPECT_THROWS(npy_source({{"x", path_}, {"y", dir_.path() + "/y.npy"}}), Error,
                "npy_source: " + path_ + " has 2 rows, but " + dir_.path() + "/y.npy has 3");
  EXPECT_THROWS(npy_source({}), Error, "npy_source: no files");
}

TEST_F(NpyFiles, OtherFilesAreErrors) {
  EXPECT_THROWS(load_npy(dir_.path() + "/none.npy"), IoError, "none.npy");
  EXPECT_THROWS(load_npy(write_text("")), Error, "it is not a .npy file");
  EXPECT_THROWS(load_npy(write_text("PK\x03\x04 a zip archive, as .npz files are")), Error, "it is not a .npy file");
  EXPECT_THROWS(load_npy(write("<f4", "(1,)", std::string(4, '\0'), 9)), Error, ".npy format version 9.0");
}

TEST_F(NpyFiles, TypesThatAreNotSupportedAreErrors) {
  const auto expect = [&](const std::string& descr, const std::string& part) {
    EXPECT_THROWS(load_npy(write(descr, "(1,)", std::string(8, '\0'))), Error, part);
  };
  expect(">f4", "its elements (>f4) are big-endian; save x.astype");
  expect("<f16", "its elements are \"<f16\"; supported are bool");
  expect("<c32", "its elements are \"<c32\"");
  expect("|O", "its elements are \"|O\"");
  expect("<U4", "its elements are \"<U4\"");
  expect("", "its elements are \"\"");
  EXPECT_THROWS(load_npy(write_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }")), Error,
                "it has structured elements [('a', '<f4')]");
  EXPECT_THROWS(load_npy(write_header("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 1), }")), Error,
                "it is in Fortran order; save numpy.ascontiguousarray(x)");
}

TEST_F(NpyFiles, SizesAreComparedWithTheFile) {
  EXPECT_THROWS(load_npy(write("<f4", "(3,)", std::string(8, '\0'))), Error,
                "shape [3] of float32 needs 12 bytes, but 8 follow the header; the file is truncated");
  EXPECT_THROWS(load_npy(write("<f4", "(1,)", std::string(8, '\0'))), Error, "needs 4 bytes, but 8 follow the header");
  EXPECT_THROWS(load_npy(write("<f8", "(9223372036854775807, 4)", "")), Error, "which is more than a file can have");
  EXPECT_THROWS(load_npy(write("<f4", "(1000000000000,)", "")), Error, "the file is truncated");
  std::string text = npy_text(npy_dictionary("<f4", "(1,)"), std::string(4, '\0'));
  text[9] = '\x7f';  // the length of the header
  EXPECT_THROWS(load_npy(write_text(text)), Error, "in a file of");
  EXPECT_THROWS(load_npy(write("<f4", "()", std::string(4, '\0'))), Error, "it is a scalar");
  EXPECT_THROWS(load_npy(write("<f4", "(0, 3)", "")), Error, "it has no elements: its shape is [0, 3]");
}

TEST_F(NpyFiles, DamagedHeadersAreErrors) {
  for (const char* header :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (a,), }", "{'descr': '<f4, 'fortran_order': False",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}"})
    EXPECT_THROWS(load_npy(write_header(header)), Error, "read " + path_ + ": the header is ");
}

}  // namespace
}  // namespace lockstep
