#include "export/protobuf.h"

#include <bit>

namespace lockstep {
namespace {

constexpr int kVarint = 0, kLengthDelimited = 2, kFourBytes = 5;

}  // namespace

void ProtoMessage::key(int field, int wire_type) {
  varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

// Seven bits per byte, the lowest first; the high bit says that more follow.
void ProtoMessage::varint(uint64_t value) {
  constexpr uint64_t kMore = 0x80;
  for (; value >= kMore; value >>= 7) data_.push_back(static_cast<char>(value | kMore));
  data_.push_back(static_cast<char>(value));
}

void ProtoMessage::integer(int field, int64_t value) {
  key(field, kVarint);
  varint(static_cast<uint64_t>(value));
}

void ProtoMessage::real(int field, float value) {
  key(field, kFourBytes);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) data_.push_back(static_cast<char>(bits >> shift));
}

void ProtoMessage::bytes(int field, std::string_view value) {
  key(field, kLengthDelimited);
  varint(value.size());
  data_ += value;
}

void ProtoMessage::packed(int field, std::span<const int64_t> values) {
  ProtoMessage inner;
  for (const int64_t value : values) inner.varint(static_cast<uint64_t>(value));
  bytes(field, inner.data_);
}

}  // namespace lockstep
