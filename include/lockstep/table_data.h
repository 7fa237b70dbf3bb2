// Tables as sources: CSV and .npy files with numeric features and a target.
//
//   TableData data = open_table_data({.dataset = "csv:houses.csv", .target = "price", .validation = "0.1"});
//   Array x = (batch.features - Array::from(data.means, {k})) / Array::from(data.deviations, {k});
//
// Also any arrays of .npy files as a source. docs/how-to/data.md describes the formats. Safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/source.h"

namespace lockstep {

struct TableDataOptions {
  // "csv:FILE[,TEST_FILE]", or "npy:X.npy,Y.npy[,TEST_X.npy,TEST_Y.npy]" with X (n, features) and Y (n). Without test
  // files, a tenth of the examples is held out as the test set by hold_out().
  std::string dataset;
  // csv: the name of the target column, or its number, from 1 on, in a file without names. Empty: the last column.
  std::string target = {};
  // csv: "yes": the first line has the names of the columns. "no": it is an example. "auto": it has names unless one of
  // its cells is a number.
  std::string header = "auto";
  // What the target is: "number", "category" (names of classes), or "auto". In a CSV file, auto is a number if the cell
  // of the first example is one; in .npy files, integers and bools are categories.
  std::string kind = "auto";
  // Empty: none. A share such as "0.1": held out of the training set by hold_out(). Otherwise files of its own: "FILE",
  // "csv:FILE" or "npy:X.npy,Y.npy".
  std::string validation = {};
};

// Sources in memory. Fields: "features" f32 [features]; and "targets" f32 [], or "labels" [], a class number, u8 for up
// to 256 classes, else i32.
struct TableData {
  SourcePtr train;
  SourcePtr validation = nullptr;  // null: none
  SourcePtr test = nullptr;
  int64_t features = 0;
  std::vector<std::string> feature_names = {};  // "1", "2" if the file has no names
  std::string target_name = {};
  int64_t classes = 0;                        // 0: the target is a number
  std::vector<std::string> class_names = {};  // sorted; empty: the classes have only numbers
  // Of each feature over the training examples, without validation and test. The deviation of a constant is 1.
  std::vector<float> means = {}, deviations = {};
  // The same of a numeric target.
  float target_mean = 0, target_deviation = 1;
};

// Opens a table. Throws Error when a file is empty or damaged, a cell is missing or not a number (naming line and
// column), or files do not match each other. Throws IoError when a file cannot be read.
TableData open_table_data(const TableDataOptions& options);

// Arrays of .npy files, by field name. Their first dimension is the example. `stream`: "on" reads rows from disk, "off"
// reads the files into memory, "auto" streams if they need more than half of the memory. Element types: int8, int16 and
// uint16 become i32, others stay. Throws Error when files are damaged or have different numbers of rows.
SourcePtr npy_source(const std::map<std::string, std::string>& files, const std::string& stream = "auto");

// A .npy file as an array. Throws as npy_source() does.
Array load_npy(const std::string& path);

}  // namespace lockstep
