// Reflection for plain structs without macros: the number of fields, references to them, and their names.
// Everything is evaluated at compile time.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

// Some names below are only declared, for their type or spelling. T may be local to a file.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif

inline constexpr size_t kMaxFields = 24;

// Converts to any type but T, so that T{any} initializes a field instead of copying.
template <class T>
struct AnyField {
  template <class U>
  requires(!std::is_same_v<std::remove_cvref_t<U>, T>) operator U() const;
};

template <class T, size_t... I>
constexpr bool is_initializable_with(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyField<T>{})...}; };
}

// The number of fields: the first n of initializers where n + 1 are too many. Fewer may not do, because the other fields
// need default constructors.
template <class T, size_t N = 0>
constexpr size_t field_count() {
  if constexpr (N > kMaxFields)
    return 0;
  else if constexpr (!is_initializable_with<T>(std::make_index_sequence<N>{}))
    return field_count<T, N + 1>();
  else if constexpr (N == kMaxFields)
    return N;
  else if constexpr (!is_initializable_with<T>(std::make_index_sequence<N + 1>{}))
    return N;
  else
    return field_count<T, N + 1>();
}
template <class T>
inline constexpr size_t field_count_of = field_count<T>();

// Calls use with references to all fields, in order. Fails to compile for more than kMaxFields fields.
template <class T, class F>
constexpr auto with_fields(T& x, const F& use) {
  constexpr size_t n = field_count_of<std::remove_const_t<T>>;
  if constexpr (n == kMaxFields)
    static_assert(!is_initializable_with<std::remove_const_t<T>>(std::make_index_sequence<kMaxFields + 1>{}),
                  "a struct in a tree may have at most 24 fields; group some of them into a nested struct");
  if constexpr (n == 0) {
    return use();
  }
#define LOCKSTEP_TIE(N, ...)   \
  else if constexpr (n == N) { \
    auto& [__VA_ARGS__] = x;   \
    return use(__VA_ARGS__);   \
  }
  LOCKSTEP_TIE(1, a)
  LOCKSTEP_TIE(2, a, b)
  LOCKSTEP_TIE(3, a, b, c)
  LOCKSTEP_TIE(4, a, b, c, d)
  LOCKSTEP_TIE(5, a, b, c, d, e)
  LOCKSTEP_TIE(6, a, b, c, d, e, f)
  LOCKSTEP_TIE(7, a, b, c, d, e, f, g)
  LOCKSTEP_TIE(8, a, b, c, d, e, f, g, h)
  LOCKSTEP_TIE(9, a, b, c, d, e, f, g, h, i)
  LOCKSTEP_TIE(10, a, b, c, d, e, f, g, h, i, j)
  LOCKSTEP_TIE(11, a, b, c, d, e, f, g, h, i, j, k)
  LOCKSTEP_TIE(12, a, b, c, d, e, f, g, h, i, j, k, l)
  LOCKSTEP_TIE(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  LOCKSTEP_TIE(14, a, b, c, d, e, f, g, h, i, j, k, l, m, o)
  LOCKSTEP_TIE(15, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
  LOCKSTEP_TIE(16, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q)
  LOCKSTEP_TIE(17, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r)
  LOCKSTEP_TIE(18, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s)
  LOCKSTEP_TIE(19, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t)
  LOCKSTEP_TIE(20, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u)
  LOCKSTEP_TIE(21, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v)
  LOCKSTEP_TIE(22, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w)
  LOCKSTEP_TIE(23, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, y)
  LOCKSTEP_TIE(24, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, y, z)
#undef LOCKSTEP_TIE
}

// References to all fields.
template <class T>
constexpr auto tie_fields(T& x) {
  return with_fields(x, [](auto&... field) { return std::tie(field...); });
}

// Names. The address of a field of an object that is declared but never defined is a constant expression. As
// a template argument its spelling ends in the field's name.
template <class T>
struct Holder {
  T value;
};
template <class T>
extern const Holder<T> held;

template <class M>
struct FieldAddress {
  const M* address;
};

template <size_t I>
struct AddressOfField {
  template <class First, class... Rest>
  constexpr auto operator()(First& first, Rest&... rest) const {
    if constexpr (I == 0)
      return FieldAddress<std::remove_const_t<First>>{&first};
    else
      return AddressOfField<I - 1>()(rest...);
  }
};
template <class T, size_t I>
constexpr auto field_address() {
  return with_fields(held<T>.value, AddressOfField<I>());
}

template <auto kAddress>
consteval std::string_view spelled() {
  return __PRETTY_FUNCTION__;
}

template <class T, size_t I>
consteval std::string_view field_name() {
  // "...[P = {&held.value.weight}]" or "...{(& held<Layer>.Holder<Layer>::value.{anonymous}::Layer::weight)};
  // ...".
  std::string_view text = spelled<field_address<T, I>()>();
  const size_t parenthesis = text.rfind(")}");
  text = text.substr(0, parenthesis != text.npos ? parenthesis : text.rfind('}'));
  while (!text.empty() && text.back() == ')') text.remove_suffix(1);
  const size_t begin = text.find_last_of(".:");
  return text.substr(begin + 1);
}

// The names of all fields, followed by an empty one.
template <class T, class Positions>
struct FieldNames;
template <class T, size_t... I>
struct FieldNames<T, std::index_sequence<I...>> {
  static constexpr std::string_view list[] = {field_name<T, I>()..., std::string_view()};
};
template <class T>
constexpr const std::string_view* field_names() {
  return FieldNames<T, std::make_index_sequence<field_count_of<T>>>::list;
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

}  // namespace lockstep::detail
