// ProtoMessage: writes a message in the wire format of Protocol Buffers. A field is a key, which is its number and a
// wire type, and a value: a varint, 4 bytes, or a length and bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

class ProtoMessage {
 public:
  void integer(int field, int64_t value);
  void real(int field, float value);
  void bytes(int field, std::string_view value);  // also strings
  void message(int field, const ProtoMessage& value) { bytes(field, value.data()); }
  void packed(int field, std::span<const int64_t> values);

  const std::string& data() const { return data_; }

 private:
  void key(int field, int wire_type);
  void varint(uint64_t value);

  std::string data_;
};

}  // namespace lockstep
