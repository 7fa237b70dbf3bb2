#include "train/read_examples.h"

namespace lockstep {

BatchArrays read_examples(const Source& source, std::span<const int64_t> examples) {
  std::vector<int64_t> rows;
  for (const int64_t example : examples) rows.push_back(source.row(0, example));
  const auto n = std::ssize(rows);
  if (!source.resident().empty()) {
    const std::vector<int32_t> numbers(rows.begin(), rows.end());
    return source.gather(source.resident(), Array::from(numbers, {n}));
  }
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> buffers;
  const std::vector<Field> fields = source.fields();
  for (const Field& field : fields) {
    memory.emplace_back(static_cast<size_t>(n * field.example.bytes()));
    buffers.push_back(memory.back().data());
  }
  source.read(rows, buffers);
  BatchArrays out;
  for (size_t i = 0; i < fields.size(); ++i) {
    Type type = fields[i].example;
    type.shape.insert(type.shape.begin(), n);
    out[fields[i].name] = detail::from_bytes(memory[i].data(), type);
  }
  return out;
}

}  // namespace lockstep
