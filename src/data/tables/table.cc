#include "data/tables/table.h"

#include <utility>

#include "data/images/labelled_images.h"

namespace lockstep::detail {

SourcePtr table_source(Table table) {
  const int64_t rows = table.rows();
  BatchArrays arrays;
  if (table.classes > 0) {
    arrays["labels"] = label_array(table.labels, table.classes);
  } else {
    arrays["targets"] = Array::from(std::move(table.targets), {rows});
  }
  const int64_t columns = table.columns();
  arrays["features"] = Array::from(std::move(table.features), {rows, columns});
  return array_source(std::move(arrays), table.name);
}

}  // namespace lockstep::detail
