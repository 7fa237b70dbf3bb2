// Source: a data set as a sequence of examples with random access. A Loader turns it into batches.
//
// Data is resident or streamed. A resident source keeps everything in arrays; a batch is then a list of row numbers, and
// the compiled step gathers the rows. A streamed source reads the rows of a batch from disk; a background thread of the
// loader calls it ahead of time.
//
// Sources are immutable and safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/array.h"

namespace lockstep {

// The arrays of a batch by field name: "images", "labels". The first dimension is the example.
using BatchArrays = std::map<std::string, Array>;

// One array of a batch. `example` is the type of one example, without the first dimension.
struct Field {
  std::string name;
  Type example;
};

class Source {
 public:
  virtual ~Source() = default;

  // A description for messages, such as a file name.
  virtual std::string name() const = 0;
  // Where the data of a field comes from, for messages; empty if unknown.
  virtual std::string origin(const std::string& field) const {
    (void)field;
    return name();
  }
  // The number of examples in an epoch.
  virtual int64_t count() const = 0;
  // The fields of a batch, ordered by name.
  virtual std::vector<Field> fields() const = 0;

  // The row of an example in an epoch. Rows identify data in gather() and read(); an example may be another row in
  // another epoch. REQUIRES: 0 <= example < count().
  virtual int64_t row(int64_t epoch, int64_t example) const {
    (void)epoch;
    return example;
  }

  // The arrays of a resident source; empty if it is streamed. Rows of a resident source fit in i32.
  virtual const BatchArrays& resident() const;
  // The batch of these rows, i32 [n], of a resident source. Traced inside the compiled step: `data` has the arrays of
  // resident(). The default takes the rows of every array.
  virtual BatchArrays gather(const BatchArrays& data, const Array& rows) const;
  // Reads rows of a streamed source, one buffer per field, in the order of fields(). Throws IoError.
  // REQUIRES: each buffer has room for rows.size() examples.
  virtual void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const;
};
using SourcePtr = std::shared_ptr<const Source>;

// A resident source of arrays with one row per example. `origins`: see Source::origin(). Throws Error when it has no arrays, no examples, or the numbers
// of rows differ.
SourcePtr array_source(BatchArrays arrays, std::string name = "arrays",
                       std::map<std::string, std::string> origins = {});

// The rows [begin, end) of another source, as a source. Throws Error when the range is empty or not within it.
SourcePtr part_of(SourcePtr source, int64_t begin, int64_t end);

}  // namespace lockstep
