#include <algorithm>

#include "array/apply.h"
#include "array/promote.h"
#include "array/windows.h"
#include "base/check.h"
#include "lockstep/convolution.h"
#include "lockstep/rearrange.h"
#include "ops/dims.h"
#include "ops/einsum.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// Where each dimension of the canonical order is: [N, spatial..., C] of lhs and the result, [spatial..., I, O] of rhs.
struct ConvPlacesOf {
  Dims lhs, rhs, out;
};

// Position of the letters `order` in `spec`.
Dims letters_in(const std::string& spec, const std::string& order) {
  Dims out;
  for (const char letter : order) out.push_back(static_cast<int64_t>(spec.find(letter)));
  return out;
}

// Reads dimension numbers. The default ones have the channels before the spatial dimensions, or after them.
ConvPlacesOf conv_places(const char* what, ConvDimensionNumbers given, size_t rank, bool channels_first) {
  const std::string spatial_default = std::string("DHW").substr(rank > 5 ? 0 : 5 - rank);
  if (given.lhs.empty() && given.rhs.empty() && given.out.empty()) {
    given.lhs = given.out = channels_first ? "NC" + spatial_default : "N" + spatial_default + "C";
    given.rhs = channels_first ? "OI" + spatial_default : spatial_default + "IO";
  }
  std::string spatial;
  for (const char letter : given.rhs)
    if (letter != 'O' && letter != 'I') spatial += letter;
  const auto fits = [&](const std::string& spec, const std::string& letters) {
    std::string sorted = spec, wanted = letters;
    std::sort(sorted.begin(), sorted.end());
    std::sort(wanted.begin(), wanted.end());
    return spec.size() == rank && sorted == wanted && std::adjacent_find(wanted.begin(), wanted.end()) == wanted.end();
  };
  if (!fits(given.lhs, "NC" + spatial) || !fits(given.rhs, "OI" + spatial) || !fits(given.out, "NC" + spatial))
    throw_error(
        "{}: the dimension numbers are \"{}\", \"{}\", \"{}\" for arrays of rank {}; each needs {} letters: N and C, "
        "in "
        "the filters O and I, and the same letters for the spatial dimensions",
        what, given.lhs, given.rhs, given.out, rank, rank);
  return {letters_in(given.lhs, "N" + spatial + "C"), letters_in(given.rhs, spatial + "IO"),
          letters_in(given.out, "N" + spatial + "C")};
}

Value permuted(Value x, const Dims& order) {
  return std::is_sorted(order.begin(), order.end()) ? x : transpose(x, order);
}

Shape picked(const Shape& shape, const Dims& order) {
  Shape out;
  for (const int64_t d : order) out.push_back(shape[detail::at_axis(d)]);
  return out;
}

std::vector<int64_t> spatial_of(const Shape& canonical) { return {canonical.begin() + 1, canonical.end() - 1}; }

// A convolution whose options have been checked. The shapes are canonical.
struct CheckedConv {
  ConvPlacesOf places;
  std::vector<WindowDim> dims;
  int64_t feature_groups = 1, batch_groups = 1;
};

void check_channels(const char* what, const Shape& x, const Shape& w, const ConvGeneralOptions& o) {
  const int64_t groups = o.feature_group_count, batches = o.batch_group_count, channels = x.back(), made = w.back(),
                taken = w[w.size() - 2];
  if (groups < 1 || batches < 1 || (groups > 1 && batches > 1))
    throw_error("{}: feature_group_count is {} and batch_group_count is {}; both are at least 1 and one of them is 1",
                what, groups, batches);
  if (batches > 1 && (x[0] % batches != 0 || made % batches != 0))
    throw_error(
        "{}: a batch of {} and {} output channels do not divide into {} groups; both must be multiples of "
        "batch_group_count",
        what, x[0], made, batches);
  if (channels != taken * groups || made % groups != 0)
    throw_error(
        "{}: input {} does not fit filters {} with {} group{}: the input has {} channels, the filters take {} per "
        "group "
        "and produce {}; filters must be [window..., channels / groups, a multiple of groups], in canonical order",
        what, to_string(x), to_string(w), groups, groups == 1 ? "" : "s", channels, taken, made);
}

CheckedConv checked_conv(const char* what, const Shape& lhs, const Shape& rhs, const ConvGeneralOptions& o,
                         bool channels_first = true) {
  if (lhs.size() != rhs.size() || lhs.size() < 2 || lhs.size() > 5)
    throw_error(
        "{}: the input is {} and the filters are {}; both have two dimensions for batch and channels, and the same "
        "number of spatial dimensions, at most 3",
        what, to_string(lhs), to_string(rhs));
  CheckedConv c;
  c.places = conv_places(what, o.dimension_numbers, lhs.size(), channels_first);
  const Shape x = picked(lhs, c.places.lhs), w = picked(rhs, c.places.rhs);
  check_channels(what, x, w, o);
  c.dims = detail::window_dims(
      what, spatial_of(x),
      {std::vector<int64_t>(w.begin(), w.end() - 2), o.window_strides, o.padding, o.lhs_dilation, o.rhs_dilation});
  c.feature_groups = o.feature_group_count;
  c.batch_groups = o.batch_group_count;
  return c;
}

// The groups of the batch become groups of the channels: [g * n, s..., c] -> [n, s..., g * c].
Value batch_groups_as_channels(Value x, int64_t groups) {
  if (groups == 1) return x;
  Shape shape = x.shape();
  const int64_t channels = shape.back() * groups;
  shape[0] /= groups;
  Shape parted = prepend(groups, shape);
  const Value moved = transpose(reshape(x, parted), move_dim(x.rank() + 1, 0, x.rank() - 1));
  shape.back() = channels;
  return reshape(moved, shape);
}

Array run_conv(const char* what, const Array& lhs, const Array& rhs, const CheckedConv& c) {
  const Array both[] = {lhs, rhs};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  return detail::apply1(what, {lhs, rhs}, [&](Builder&, const Values& v) {
    const Value x = permuted(detail::convert(v[0], dtype), c.places.lhs);
    const Value w = permuted(detail::convert(v[1], dtype), c.places.rhs);
    const Value y = conv_general(batch_groups_as_channels(x, c.batch_groups), w, c.dims,
                                 std::max(c.feature_groups, c.batch_groups));
    return permuted(y, inverse(c.places.out));
  });
}

// [n, spatial..., c] and [window..., c / groups, co].
const ConvDimensionNumbers& channels_last(size_t spatial) {
  static const ConvDimensionNumbers numbers[] = {
      {"NWC", "WIO", "NWC"}, {"NHWC", "HWIO", "NHWC"}, {"NDHWC", "DHWIO", "NDHWC"}};
  return numbers[spatial - 1];
}

Array conv_nd(const char* what, const Array& x, const Array& w, const ConvOptionsNd& o, size_t spatial,
              int64_t groups) {
  if (x.shape().size() != spatial + 2 || w.shape().size() != spatial + 2)
    throw_error("{}: the input is {} and the filters are {}; both must have {} dimensions: use expand_dims to add some",
                what, to_string(x.shape()), to_string(w.shape()), spatial + 2);
  return run_conv(what, x, w,
                  checked_conv(what, x.shape(), w.shape(),
                               {.window_strides = o.stride,
                                .padding = o.padding,
                                .rhs_dilation = o.dilation,
                                .feature_group_count = groups,
                                .dimension_numbers = channels_last(spatial)}));
}

// The padding of a transposed convolution with a window that spans k, and the stride s.
std::pair<int64_t, int64_t> transposed_padding(int64_t k, int64_t s, bool same) {
  const int64_t total = k + s - 2 + (same ? 0 : std::max<int64_t>(k - s, 0));
  const int64_t before = !same || s > k - 1 ? k - 1 : (total + 1) / 2;
  return {before, total - before};
}

// lhs without groups, whose windows are `filter_shape`; the patches are in canonical order.
struct CheckedPatches {
  ConvPlacesOf places;
  std::vector<WindowDim> dims;
};

CheckedPatches checked_patches(const char* what, const Array& lhs, const std::vector<int64_t>& filter_shape,
                               const ConvGeneralOptions& o) {
  const size_t rank = lhs.shape().size();
  if (rank < 2 || rank > 5 || filter_shape.size() != rank - 2)
    throw_error("{}: the input is {} and the filter shape {}; give an extent for each spatial dimension, at most 3",
                what, to_string(lhs.shape()), to_string(filter_shape));
  if (o.feature_group_count != 1 || o.batch_group_count != 1)
    throw_error("{}: feature_group_count is {} and batch_group_count is {}; both must be 1", what,
                o.feature_group_count, o.batch_group_count);
  CheckedPatches c{conv_places(what, o.dimension_numbers, rank, true), {}};
  c.dims = detail::window_dims(what, spatial_of(picked(lhs.shape(), c.places.lhs)),
                               {filter_shape, o.window_strides, o.padding, o.lhs_dilation, o.rhs_dilation});
  return c;
}

}  // namespace

Array conv1d(const Operand& x, const Operand& w, const ConvOptionsNd& options) {
  return conv_nd("conv1d", x, w, options, 1, options.groups);
}
Array conv3d(const Operand& x, const Operand& w, const ConvOptionsNd& options) {
  return conv_nd("conv3d", x, w, options, 3, options.groups);
}

Array depthwise_conv(const Operand& x, const Operand& w, const ConvOptionsNd& options) {
  const int64_t rank = x.rank();
  if (rank < 3 || rank > 5 || w.rank() != rank || w.shape(-2) != 1 || x.shape(-1) < 1 || w.shape(-1) % x.shape(-1) != 0)
    throw_error(
        "depthwise_conv: input {} does not fit filters {}; they must be [n, spatial..., c] with 1 to 3 spatial "
        "dimensions and [window..., 1, a multiple of c]",
        to_string(x.shape()), to_string(w.shape()));
  return conv_nd("depthwise_conv", x, w, options, static_cast<size_t>(rank - 2), x.shape(-1));
}

Array conv_general_dilated(const Operand& lhs, const Operand& rhs, const ConvGeneralOptions& options) {
  constexpr const char* kWhat = "conv_general_dilated";
  return run_conv(kWhat, lhs, rhs, checked_conv(kWhat, lhs.shape(), rhs.shape(), options));
}

Array conv(const Operand& lhs, const Operand& rhs, const WindowExtents& window_strides, const WindowPadding& padding) {
  return run_conv(
      "conv", lhs, rhs,
      checked_conv("conv", lhs.shape(), rhs.shape(), {.window_strides = window_strides, .padding = padding}));
}

Array conv_with_general_padding(const Operand& lhs, const Operand& rhs, const WindowExtents& window_strides,
                                const WindowPadding& padding, const WindowExtents& lhs_dilation,
                                const WindowExtents& rhs_dilation) {
  constexpr const char* kWhat = "conv_with_general_padding";
  return run_conv(kWhat, lhs, rhs,
                  checked_conv(kWhat, lhs.shape(), rhs.shape(),
                               {.window_strides = window_strides,
                                .padding = padding,
                                .lhs_dilation = lhs_dilation,
                                .rhs_dilation = rhs_dilation}));
}

Array conv_transpose(const Operand& lhs, const Operand& rhs, const WindowExtents& strides, const WindowPadding& padding,
                     const ConvTransposeOptions& options) {
  constexpr const char* kWhat = "conv_transpose";
  using Kind = WindowPadding::Kind;
  if (padding.kind == Kind::same_lower)
    throw_error("{}: padding is \"SAME_LOWER\"; use \"SAME\", \"VALID\" or widths", kWhat);
  if (lhs.rank() != rhs.rank() || lhs.rank() < 2 || lhs.rank() > 5)
    throw_error("{}: the input is {} and the filters are {}; both must have the same number of dimensions, 2 to 5",
                kWhat, to_string(lhs.shape()), to_string(rhs.shape()));
  const size_t n = lhs.shape().size() - 2;
  ConvPlacesOf places = conv_places(kWhat, options.dimension_numbers, n + 2, false);
  const std::vector<int64_t> steps = detail::extents_of(kWhat, "the stride", strides, n),
                             dilation =
                                 detail::extents_of(kWhat, "the dilation of the window", options.rhs_dilation, n);
  WindowPadding::Widths widths = padding.widths;
  if (padding.kind == Kind::equal_widths) widths.assign(n, padding.widths[0]);
  if (padding.kind == Kind::valid || padding.kind == Kind::same)
    for (size_t d = 0; d < n; ++d)
      widths.push_back(
          transposed_padding((rhs.shape(places.rhs[d]) - 1) * dilation[d] + 1, steps[d], padding.kind == Kind::same));
  Array filter = rhs;
  if (options.transpose_kernel) {
    const std::vector<int64_t> spatial(places.rhs.begin(), places.rhs.end() - 2);
    if (!spatial.empty()) filter = flip(filter, Axes(spatial));
    filter = swapaxes(filter, places.rhs[n], places.rhs[n + 1]);
  }
  CheckedConv c = checked_conv(kWhat, lhs.shape(), filter.shape(),
                               {.padding = widths,
                                .lhs_dilation = steps,
                                .rhs_dilation = dilation,
                                .dimension_numbers = options.dimension_numbers},
                               false);
  return run_conv(kWhat, lhs, filter, c);
}

Array conv_general_dilated_patches(const Operand& lhs, const std::vector<int64_t>& filter_shape,
                                   const ConvGeneralOptions& options) {
  constexpr const char* kWhat = "conv_general_dilated_patches";
  const CheckedPatches c = checked_patches(kWhat, lhs, filter_shape, options);
  return detail::apply1(kWhat, {lhs}, [&](Builder&, const Values& v) {
    return permuted(window_patches(permuted(v[0], c.places.lhs), c.dims), inverse(c.places.out));
  });
}

Array conv_general_dilated_local(const Operand& lhs, const Operand& rhs, const std::vector<int64_t>& filter_shape,
                                 const ConvGeneralOptions& options) {
  constexpr const char* kWhat = "conv_general_dilated_local";
  const CheckedPatches c = checked_patches(kWhat, lhs, filter_shape, options);
  const Shape x = picked(lhs.shape(), c.places.lhs);
  Shape wanted;
  for (size_t d = 0; d < c.dims.size(); ++d) wanted.push_back(c.dims[d].count(x[d + 1]));
  wanted.push_back(x.back() * count(filter_shape));
  Shape given;
  if (rhs.rank() == lhs.rank()) given = picked(rhs.shape(), c.places.rhs);
  if (given.empty() || Shape(given.begin(), given.end() - 1) != wanted)
    throw_error("{}: the filters are {}; in the order [out..., I, O] they must be {} and the output channels", kWhat,
                to_string(rhs.shape()), to_string(wanted));
  const Array both[] = {lhs, rhs};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  return detail::apply1(kWhat, {lhs, rhs}, [&](Builder&, const Values& v) {
    const Value patches = window_patches(permuted(detail::convert(v[0], dtype), c.places.lhs), c.dims);
    const Value filters = permuted(detail::convert(v[1], dtype), c.places.rhs);
    const std::string spatial = std::string("xyz").substr(0, c.dims.size());
    const Value y = einsum("n" + spatial + "i," + spatial + "io->n" + spatial + "o", patches, filters);
    return permuted(y, inverse(c.places.out));
  });
}

}  // namespace lockstep
