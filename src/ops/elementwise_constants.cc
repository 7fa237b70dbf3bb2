// The elements of constants in register format.
#include <complex>
#include <cstring>

#include "base/dispatch.h"
#include "ops/elementwise.h"

namespace lockstep {

const Attr* constant_value(const Eqn* eqn) { return eqn && eqn->in.empty() ? eqn->attrs.find("value") : nullptr; }

void encode_element(const Attr& value, DType dtype, void* element) {
  const auto put = [&](auto x) { std::memcpy(element, &x, sizeof x); };
  if (is_inexact(dtype)) {
    const double x = std::get<double>(value);
    switch (dtype) {
      case DType::f64:
        return put(x);
      case DType::c64:
        return put(std::complex<float>(static_cast<float>(x)));
      case DType::c128:
        return put(std::complex<double>(x));
      default:
        return put(static_cast<float>(round_to(dtype, x)));
    }
  }
  const int64_t x = std::get<int64_t>(value);
  switch (dtype) {
    case DType::boolean:
      return put(x != 0);
    case DType::u8:
      return put(static_cast<uint8_t>(x));
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
      return put(static_cast<int32_t>(x));
    case DType::u32:
      return put(static_cast<uint32_t>(x));
    default:
      return put(x);
  }
}

Value decode_element(const void* element, Builder& builder, const Type& type) {
  const auto get = [&]<class T>(T x) {
    std::memcpy(&x, element, sizeof x);
    return x;
  };
  switch (type.dtype) {
    case DType::boolean:
      return full(builder, type, static_cast<int64_t>(get(bool())));
    case DType::u8:
      return full(builder, type, static_cast<int64_t>(get(uint8_t())));
    case DType::u16:
      return full(builder, type, static_cast<int64_t>(static_cast<uint16_t>(get(int32_t()))));
    case DType::u32:
      return full(builder, type, static_cast<int64_t>(get(uint32_t())));
    case DType::i8:
      return full(builder, type, static_cast<int64_t>(static_cast<int8_t>(get(int32_t()))));
    case DType::i16:
      return full(builder, type, static_cast<int64_t>(static_cast<int16_t>(get(int32_t()))));
    case DType::i32:
      return full(builder, type, static_cast<int64_t>(get(int32_t())));
    case DType::i64:
    case DType::u64:
      return full(builder, type, get(int64_t()));
    case DType::f64:
      return full(builder, type, get(double()));
    default:
      return full(builder, type, static_cast<double>(get(float())));
  }
}

}  // namespace lockstep
