// Replaces <cstdint> in kernels, which NVRTC does not have. Also the compiler builtins that ops/math.h and ops/special.h use.
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define __builtin_acos ::acos
#define __builtin_acosh ::acosh
#define __builtin_asin ::asin
#define __builtin_asinh ::asinh
#define __builtin_atan ::atan
#define __builtin_atan2 ::atan2
#define __builtin_atanh ::atanh
#define __builtin_cbrt ::cbrt
#define __builtin_ceil ::ceil
#define __builtin_ceilf ::ceilf
#define __builtin_copysign ::copysign
#define __builtin_copysignf ::copysignf
#define __builtin_cos ::cos
#define __builtin_cosh ::cosh
#define __builtin_erf ::erf
#define __builtin_erfc ::erfc
#define __builtin_exp ::exp
#define __builtin_expm1 ::expm1
#define __builtin_fabs ::fabs
#define __builtin_fabsf ::fabsf
#define __builtin_floor ::floor
#define __builtin_floorf ::floorf
#define __builtin_fmod ::fmod
#define __builtin_fmodf ::fmodf
#define __builtin_hypot ::hypot
#define __builtin_log ::log
#define __builtin_log10 ::log10
#define __builtin_log1p ::log1p
#define __builtin_log2 ::log2
#define __builtin_pow ::pow
#define __builtin_rint ::rint
#define __builtin_sin ::sin
#define __builtin_sinh ::sinh
#define __builtin_sqrt ::sqrt
#define __builtin_sqrtf ::sqrtf
#define __builtin_tan ::tan
#define __builtin_tanh ::tanh
#define __builtin_trunc ::trunc
#define __builtin_truncf ::truncf
#define __builtin_inff() __builtin_bit_cast(float, 0x7f800000u)
#define __builtin_nanf(text) __builtin_bit_cast(float, 0x7fc00000u)
#define __builtin_inf() __builtin_bit_cast(double, 0x7ff0000000000000ull)
#define __builtin_nan(text) __builtin_bit_cast(double, 0x7ff8000000000000ull)
