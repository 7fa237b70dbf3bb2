#include "data/tables/csv_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "base/throws.h"
#include "data/npy_files.h"
#include "data/tables/table.h"

namespace lockstep::detail {
namespace {

using Rows = std::vector<std::vector<std::string>>;

class CsvFiles : public testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "t.csv") {
    const std::string path = dir_.path() + "/" + name;
    FileSystem::real().write(path, bytes_of(text));
    return path;
  }
  Rows read(const std::string& text) {
    CsvReader reader(write(text), ',');
    Rows out;
    for (std::vector<std::string_view> cells; reader.next(cells);) out.emplace_back(cells.begin(), cells.end());
    return out;
  }
  Table table(const std::string& text, const TableFormat& format = {}) { return read_csv_table(write(text), format); }
  std::string place(const std::string& text) { return "read " + dir_.path() + "/t.csv: " + text; }

  const TempDir dir_;
};

TEST_F(CsvFiles, RecordsAndCells) {
  EXPECT_EQ(read("a,b\n1,2\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(read("a,b\n1,2"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(read("a,b\r\n1,2\r\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a,b\n"),
            (Rows{{"a", "b"}}));
  EXPECT_EQ(read("a,,\n,\n"), (Rows{{"a", "", ""}, {"", ""}}));
  EXPECT_EQ(read("a,"), (Rows{{"a", ""}}));
  EXPECT_EQ(read("\n\na,b\n\n\r\n1,2\n\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(read("\n"), Rows{});
}

TEST_F(CsvFiles, QuotedCells) {
  EXPECT_EQ(read("\"a,b\",c\n"), (Rows{{"a,b", "c"}}));
  EXPECT_EQ(read("\"a\nb\",c\r\n\"x\"\"y\",\"\"\r\n"), (Rows{{"a\nb", "c"}, {"x\"y", ""}}));
  EXPECT_EQ(read("a,\"b\""), (Rows{{"a", "b"}}));
  EXPECT_EQ(read("a\"b,c"), (Rows{{"a\"b", "c"}}));
  EXPECT_EQ(read("\"\"\n"), (Rows{{""}}));
  EXPECT_THROWS(read("a,b\n1,\"x\n"), Error, place("a quote on line 3 is not closed"));
  EXPECT_THROWS(read("a,b\n\"x\"y,2\n"), Error, place("line 2 has text after a closing quote"));
}

TEST_F(CsvFiles, RecordsMayCrossTheParts) {
  std::string text;
  Rows expected;
  for (int i = 0; text.size() < (3u << 20); ++i) {
    const std::string cell = "row " + std::to_string(i) + ", \"quoted\"\r\nline";
    std::string quoted;
    for (const char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += "\"" + quoted + "\"," + std::to_string(i) + "\r\n";
    expected.push_back({cell, std::to_string(i)});
  }
  EXPECT_EQ(read(text), expected);
}

TEST_F(CsvFiles, LinesAreCounted) {
  CsvReader reader(write("a\n\n\"x\ny\"\nb\n"), ',');
  std::vector<std::string_view> cells;
  std::vector<int64_t> lines;
  while (reader.next(cells)) lines.push_back(reader.line());
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 3, 5}));
}

TEST_F(CsvFiles, WrongFilesAreErrors) {
  EXPECT_THROWS(read(""), Error, place("the file is empty"));
  EXPECT_THROWS(read(std::string("\xff\xfe"
                                 "a\0,\0",
                                 6)),
                Error, place("the text is UTF-16; save it as UTF-8"));
  EXPECT_THROWS(CsvReader(dir_.path() + "/none.csv", ','), IoError, "none.csv");
  EXPECT_THROWS(read("\"" + std::string(static_cast<size_t>(CsvReader::kMaxCsvRecord) + (2 << 20), 'x')), Error,
                place("line 1 begins a record of more than 16 MiB; is a quote not closed?"));
}

TEST(CsvNumbers, AreThoseOfStrtod) {
  std::vector<std::string> texts = {"0",
                                    "1",
                                    "-1",
                                    "+2.5",
                                    ".5",
                                    "-.25",
                                    "3.",
                                    "1e3",
                                    "1E-3",
                                    "1e+300",
                                    "0.1",
                                    "1e-320",
                                    " 7 ",
                                    "-0",
                                    "123456789012345",
                                    "1234567890123456789",
                                    "0.000000000000001",
                                    "999999999999999.9",
                                    "5e-324"};
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(static_cast<int64_t>(random())), static_cast<int>(random() % 40) - 60);
    texts.push_back(fmt::format("{}", value));
    texts.push_back(fmt::format("{:.{}f}", value, random() % 8));
  }
  for (const std::string& text : texts) {
    double value = 99;
    ASSERT_TRUE(parse_csv_number(text, value)) << text;
    ASSERT_EQ(value, std::strtod(text.c_str(), nullptr)) << text;
  }
}

TEST(CsvNumbers, OtherTextsAreNotNumbers) {
  for (const char* text : {"",   " ",   "a",   "1a",   "1 2",  "-",   "+",     ".",     "-.",  "+-1",
                           "1e", "nan", "inf", "-inf", "0x10", "1,5", "1_000", "1e999", "--1", "\t1"}) {
    double value = 0;
    EXPECT_FALSE(parse_csv_number(text, value)) << text;
  }
}

TEST_F(CsvFiles, HeaderIsRecognized) {
  const Table named = table("width,height,price\n1,2,3\n4,5,6\n");
  EXPECT_EQ(named.feature_names, (std::vector<std::string>{"width", "height"}));
  EXPECT_EQ(named.target_name, "price");
  EXPECT_EQ(named.features, (std::vector<float>{1, 2, 4, 5}));
  EXPECT_EQ(named.targets, (std::vector<float>{3, 6}));
  EXPECT_EQ(named.classes, 0);
  const Table plain = table("1,2,3\n4,5,6\n");
  EXPECT_EQ(plain.feature_names, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(plain.rows(), 2);
  EXPECT_EQ(table("5.1,3.5,setosa\n", {.header = "auto"}).rows(), 1);
  EXPECT_EQ(table("2019,2020\n1,2\n", {.header = "yes"}).feature_names[0], "2019");
  EXPECT_THROWS(table("a,b\n1,2\n", {.header = "no"}), Error, place("line 1, column 1: \"a\" is not a number"));
}

TEST_F(CsvFiles, TargetIsNamedOrLast) {
  const Table first = table("price,width,height\n1,2,3\n", {.target = "price"});
  EXPECT_EQ(first.targets, std::vector<float>{1});
  EXPECT_EQ(first.features, (std::vector<float>{2, 3}));
  EXPECT_EQ(table("7,8,9\n", {.target = "2"}).targets, std::vector<float>{8});
  EXPECT_THROWS(table("width,price\n1,2\n", {.target = "prise"}), Error,
                place("it has no column \"prise\"; the columns are width, price; did you mean \"price\"?"));
  EXPECT_THROWS(table("1,2\n", {.target = "price"}), Error,
                place("it has no column \"price\" and no names of columns; the columns are 1, 2"));
  EXPECT_THROWS(table("a,a,b\n1,2,3\n", {.target = "a"}), Error, place("it has two columns \"a\""));
}

TEST_F(CsvFiles, NamesOfCategoriesAreSorted) {
  const Table set = table("x,kind\n1,pear\n2,apple\n3,pear\n4,fig\n");
  EXPECT_EQ(set.class_names, (std::vector<std::string>{"apple", "fig", "pear"}));
  EXPECT_EQ(set.labels, (std::vector<int32_t>{2, 0, 2, 1}));
  EXPECT_EQ(set.classes, 3);
  EXPECT_TRUE(set.targets.empty());
  EXPECT_EQ(table("x,y\n1,3\n2,1\n3,3\n", {.kind = "category"}).labels, (std::vector<int32_t>{1, 0, 1}));
  EXPECT_THROWS(table("x,y\n1,a\n", {.kind = "number"}), Error, place("line 2, column 2 (y): \"a\" is not a number"));
  EXPECT_THROWS(table("x,y\n1,2\n", {.kind = "text"}), Error, "the kind of a target is \"text\"");
}

TEST_F(CsvFiles, BadCellsAreNamedByLineAndColumn) {
  EXPECT_THROWS(table("x,y,z\n1,2,3\n4,five,6\n"), Error,
                place("line 3, column 2 (y): \"five\" is not a number; fix it, or remove the column"));
  EXPECT_THROWS(table("x,y\n1,2\n3,4x\n"), Error,
                place("line 3, column 2 (y): \"4x\" is not a number; fix it, or make the target a category"));
  EXPECT_THROWS(table("x,y,z\n1,,3\n"), Error, place("line 2, column 2 (y): the cell is empty; fill it"));
  EXPECT_THROWS(table("x,y\n1,a\n2,\n"), Error, place("line 3, column 2 (y): the cell is empty"));
  EXPECT_THROWS(table("1,2\n\n\"3\n4\",5\n"), Error, place("line 3, column 1: \"3\\x0a4\" is not a number"));
  EXPECT_THROWS(table("x,y\n1e39,2\n"), Error, place("line 2, column 1 (x): 1e39 is out of the range of f32"));
  EXPECT_THROWS(table("x,y\nnan,2\n"), Error, place("line 2, column 1 (x): \"nan\" is not a number"));
}

TEST_F(CsvFiles, RaggedAndEmptyTablesAreErrors) {
  EXPECT_THROWS(table("x,y\n1,2\n1,2,3\n"), Error, place("line 3 has 3 cells, but there are 2 columns"));
  EXPECT_THROWS(table("x,y\n1\n"), Error, place("line 2 has 1 cell, but there are 2 columns"));
  EXPECT_THROWS(table("x,y\n"), Error, place("it has the names of the columns, but no examples"));
  EXPECT_THROWS(table("x\n1\n"), Error, place("line 1 has 1 cell; a table has features and a target"));
  EXPECT_THROWS(table("\n\n"), Error, place("the file has no lines with cells"));
  EXPECT_THROWS(table("a;b\n1;2\n"), Error,
                place("line 1 has 1 cell; a table has features and a target, separated by commas"));
}

TEST_F(CsvFiles, SecondFileHasTheColumnsAndClassesOfTheFirst) {
  const Table train = table("x,kind\n1,pear\n2,apple\n");
  const Table test = read_csv_table(write("x,kind\n5,pear\n", "test.csv"), {.like = &train});
  EXPECT_EQ(test.labels, std::vector<int32_t>{1});
  EXPECT_EQ(test.class_names, train.class_names);
  EXPECT_THROWS(read_csv_table(write("x,kind\n5,fig\n", "test.csv"), {.like = &train}), Error,
                "test.csv: line 2, column 2 (kind): the class \"fig\" is not in " + dir_.path() + "/t.csv");
  EXPECT_THROWS(read_csv_table(write("y,kind\n5,pear\n", "test.csv"), {.like = &train}), Error,
                "its columns are not those of " + dir_.path() + "/t.csv");
}

}  // namespace
}  // namespace lockstep::detail
