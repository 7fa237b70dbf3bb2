// Replaces <type_traits> in kernels, which NVRTC does not have: the parts that ops/math.h and ops/loops/scalar.h use.
#pragma once
namespace std {
template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v = !is_floating_point_v<T>;
template <class T>
inline constexpr bool is_signed_v = T(-1) < T(0);
template <class T>
struct make_unsigned {
  using type =
      conditional_t<sizeof(T) == 8, unsigned long long,
                    conditional_t<sizeof(T) == 4, unsigned int,
                                  conditional_t<sizeof(T) == 2, unsigned short, unsigned char>>>;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;
}  // namespace std
