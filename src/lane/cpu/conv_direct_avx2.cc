// The loops of direct convolutions for AVX2.
#if defined(__x86_64__)
#include "lane/cpu/conv_direct_impl.h"

namespace lockstep::detail {

extern const DirectConvTables kDirectConvAvx2;
constinit const DirectConvTables kDirectConvAvx2 = make_direct_conv_tables();

}  // namespace lockstep::detail
#endif
