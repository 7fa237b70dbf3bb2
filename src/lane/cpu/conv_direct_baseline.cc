// The loops of direct convolutions for every processor.
#include "lane/cpu/conv_direct_impl.h"

namespace lockstep::detail {

extern const DirectConvTables kDirectConvBaseline;
constinit const DirectConvTables kDirectConvBaseline = make_direct_conv_tables();

}  // namespace lockstep::detail
