// Tables in memory: numeric features and a target for each example. Functions are safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/source.h"

namespace lockstep::detail {

struct Table {
  std::string name;                        // the file, for messages
  std::vector<std::string> feature_names;  // "1", "2" if the file has no names
  std::string target_name;
  std::vector<float> features;           // (rows, features)
  std::vector<float> targets;            // (rows), if the target is a number
  std::vector<int32_t> labels;           // (rows), if it is a category
  std::vector<std::string> class_names;  // of categories by name, sorted
  int64_t classes = 0;                   // 0: the target is a number

  int64_t columns() const { return std::ssize(feature_names); }
  int64_t rows() const { return columns() == 0 ? 0 : std::ssize(features) / columns(); }
};

struct TableFormat {
  std::string target = {};      // see TableDataOptions
  std::string header = "auto";  // auto, yes, no
  std::string kind = "auto";    // auto, number, category
  const Table* like = nullptr;  // a second file must have these columns, this kind and these classes
};

// Reads a CSV file. Throws as open_table_data() does.
Table read_csv_table(const std::string& path, const TableFormat& format, FileSystem& files = FileSystem::real());

// Reads features (n, k) and targets (n) from .npy files. Throws as open_table_data() does.
Table read_npy_table(const std::string& x_path, const std::string& y_path, const TableFormat& format);

// The table as a source with the fields "features" and "labels" or "targets".
SourcePtr table_source(Table table);

}  // namespace lockstep::detail
