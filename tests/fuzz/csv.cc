// CSV files, as in `--dataset csv:FILE`.
#include "data/tables/csv_reader.h"

#include "data/tables/table.h"
#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

namespace {

// Reads all records; returns false if the file is rejected.
bool read_records(std::span<const uint8_t> bytes, std::vector<std::vector<std::string>>& out) {
  fuzz::MemoryFile file(bytes);
  return fuzz::accepts([&] {
    detail::CsvReader reader("input", ',', file);
    for (std::vector<std::string_view> cells; reader.next(cells);) out.emplace_back(cells.begin(), cells.end());
  });
}

// Writes records with every cell quoted.
std::string write_records(const std::vector<std::vector<std::string>>& records) {
  std::string out;
  for (const auto& record : records) {
    for (size_t i = 0; i < record.size(); ++i) {
      out += i == 0 ? "\"" : ",\"";
      for (const char c : record[i]) out += c == '"' ? std::string("\"\"") : std::string(1, c);
      out += "\"";
    }
    out += "\r\n";
  }
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::vector<std::string>> records, again;
  if (!read_records({data, size}, records)) return 0;
  if (!records.empty()) {
    const std::string written = write_records(records);
    const bool accepted = read_records({reinterpret_cast<const uint8_t*>(written.data()), written.size()}, again);
    fuzz::require(accepted && again == records, "what is written reads back the same", written);
  }
  fuzz::MemoryFile file({data, size});
  detail::Table table;
  if (!fuzz::accepts([&] { table = detail::read_csv_table("input", {}, file); })) return 0;
  const auto rows = static_cast<size_t>(table.rows());
  fuzz::require(rows > 0 && table.features.size() == rows * static_cast<size_t>(table.columns()),
                "a table has all cells");
  fuzz::require((table.classes > 0 ? table.labels.size() : table.targets.size()) == rows, "every row has a target");
  for (const int32_t label : table.labels) fuzz::require(label >= 0 && label < table.classes, "labels are classes");
  return 0;
}
