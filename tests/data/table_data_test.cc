#include "lockstep/table_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/throws.h"
#include "data/npy_files.h"
#include "data/source_rows.h"

namespace lockstep {
namespace {

class TableFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    FileSystem::real().write(dir_.path() + "/" + name, bytes_of(text));
    return dir_.path() + "/" + name;
  }
  // x is i, constant is 5, y is 2 i.
  std::string numbers(const std::string& name, int from, int to) {
    std::string text = "x,constant,y\n";
    for (int i = from; i < to; ++i) text += fmt::format("{},5,{}\n", i, 2 * i);
    return write(name, text);
  }

  const TempDir dir_;
};

TEST_F(TableFiles, CsvIsHeldOutAndMeasuredOnTheTrainingSet) {
  const TableData data = open_table_data({.dataset = "csv:" + numbers("t.csv", 0, 100), .validation = "0.2"});
  EXPECT_EQ(data.train->count(), 72);
  EXPECT_EQ(data.validation->count(), 18);
  EXPECT_EQ(data.test->count(), 10);
  EXPECT_EQ(data.features, 2);
  EXPECT_EQ(data.feature_names, (std::vector<std::string>{"x", "constant"}));
  EXPECT_EQ(data.target_name, "y");
  EXPECT_EQ(data.classes, 0);
  EXPECT_EQ(data.train->fields()[0].name, "features");
  EXPECT_EQ(data.train->fields()[0].example, (Type{f32, {2}}));
  EXPECT_EQ(data.train->fields()[1].name, "targets");

  const BatchArrays train = all_rows(*data.train);
  double sum = 0, squares = 0;
  const std::vector<float> features = train.at("features").to_vector<float>();
  for (size_t i = 0; i < 72; ++i) sum += features[2 * i];
  for (size_t i = 0; i < 72; ++i) squares += std::pow(features[2 * i] - sum / 72, 2);
  EXPECT_FLOAT_EQ(data.means[0], static_cast<float>(sum / 72));
  EXPECT_FLOAT_EQ(data.deviations[0], static_cast<float>(std::sqrt(squares / 72)));
  EXPECT_EQ(data.means[1], 5);
  EXPECT_EQ(data.deviations[1], 1);  // a constant
  EXPECT_FLOAT_EQ(data.target_mean, 2 * data.means[0]);
  EXPECT_FLOAT_EQ(data.target_deviation, 2 * data.deviations[0]);
}

TEST_F(TableFiles, TestAndValidationFilesOfTheirOwn) {
  const TableData data = open_table_data({.dataset = "csv:" + numbers("t.csv", 0, 10) + "," + numbers("e.csv", 10, 13),
                                          .validation = numbers("v.csv", 20, 22)});
  EXPECT_EQ(data.train->count(), 10);
  EXPECT_EQ(all_rows(*data.test).at("targets").to_vector<float>(), (std::vector<float>{20, 22, 24}));
  EXPECT_EQ(all_rows(*data.validation).at("targets").to_vector<float>(), (std::vector<float>{40, 42}));
}

TEST_F(TableFiles, CategoriesAreLabels) {
  std::string text = "x,kind\n";
  for (int i = 0; i < 20; ++i) text += fmt::format("{},{}\n", i, i % 2 ? "odd" : "even");
  const TableData data = open_table_data({.dataset = "csv:" + write("t.csv", text)});
  EXPECT_EQ(data.classes, 2);
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"even", "odd"}));
  const BatchArrays rows = all_rows(*data.train);
  EXPECT_EQ(rows.at("labels").dtype(), u8);
  for (int64_t i = 0; i < data.train->count(); ++i)
    EXPECT_EQ(rows.at("labels").to_vector<int>()[static_cast<size_t>(i)],
              static_cast<int>(rows.at("features").to_vector<float>()[static_cast<size_t>(i)]) % 2);
}

TEST_F(TableFiles, NpyTables) {
  std::vector<double> x;
  std::vector<int16_t> labels;
  std::vector<float> targets;
  for (int i = 0; i < 40; ++i) {
    x.insert(x.end(), {i + 0.5, -i * 1.0});
    labels.push_back(static_cast<int16_t>(i % 3));
    targets.push_back(static_cast<float>(i));
  }
  const std::string base = dir_.path() + "/";
  write_npy(base + "x.npy", "<f8", "(40, 2)", elements_of(x));
  write_npy(base + "labels.npy", "<i2", "(40,)", elements_of(labels));
  write_npy(base + "targets.npy", "<f4", "(40,)", elements_of(targets));
  const TableData classes = open_table_data({.dataset = "npy:" + base + "x.npy," + base + "labels.npy"});
  EXPECT_EQ(classes.classes, 3);
  EXPECT_EQ(classes.train->count(), 36);
  const TableData numbers = open_table_data({.dataset = "npy:" + base + "x.npy," + base + "targets.npy"});
  EXPECT_EQ(numbers.classes, 0);
  const BatchArrays rows = all_rows(*numbers.train);
  EXPECT_EQ(rows.at("features").type(), (Type{f32, {36, 2}}));
  EXPECT_FLOAT_EQ(rows.at("features").to_vector<float>()[0], rows.at("targets").to_vector<float>()[0] + 0.5f);
  EXPECT_EQ(open_table_data({.dataset = "npy:" + base + "x.npy," + base + "labels.npy", .kind = "number"}).classes, 0);
  EXPECT_THROWS(open_table_data({.dataset = "npy:" + base + "targets.npy," + base + "labels.npy"}), Error,
                "targets.npy: it has shape [40]; features have two dimensions");
  EXPECT_THROWS(open_table_data({.dataset = "npy:" + base + "x.npy," + base + "x.npy"}), Error,
                "x.npy: it has shape [40, 2]; targets have one dimension");
  write_npy(base + "nan.npy", "<f4", "(2, 1)", elements_of<float>({1, NAN}));
  write_npy(base + "two.npy", "<f4", "(2,)", elements_of<float>({1, 2}));
  EXPECT_THROWS(open_table_data({.dataset = "npy:" + base + "nan.npy," + base + "two.npy"}), Error,
                "nan.npy: element 0 of example 1 is nan; a table has finite numbers");
  EXPECT_THROWS(open_table_data({.dataset = "npy:" + base + "x.npy," + base + "two.npy"}), Error,
                "x.npy: it has 40 examples, but " + base + "two.npy has 2 targets");
}

TEST_F(TableFiles, WrongNamesAreErrors) {
  EXPECT_THROWS(open_table_data({.dataset = "mnist"}), Error, "data: \"mnist\" is not a table; give csv:FILE");
  EXPECT_THROWS(open_table_data({.dataset = "csv:"}), Error, "data: \"csv:\" has 1 paths, some of them empty");
  EXPECT_THROWS(open_table_data({.dataset = "csv:a,b,c"}), Error, "has 3 paths");
  EXPECT_THROWS(open_table_data({.dataset = "csv:/none.csv"}), IoError, "/none.csv");
  const std::string path = numbers("t.csv", 0, 10);
  EXPECT_THROWS(open_table_data({.dataset = "csv:" + path, .validation = "2"}), Error, "a validation share of 2");
}

}  // namespace
}  // namespace lockstep
