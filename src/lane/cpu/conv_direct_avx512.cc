// The loops of direct convolutions for AVX-512.
#if defined(__x86_64__)
#include "lane/cpu/conv_direct_impl.h"

namespace lockstep::detail {

extern const DirectConvTables kDirectConvAvx512;
constinit const DirectConvTables kDirectConvAvx512 = make_direct_conv_tables();

}  // namespace lockstep::detail
#endif
