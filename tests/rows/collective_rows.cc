// References and samples of the collectives. Operands and results that vary over the axis have a
// leading dimension of devices.
#include "rows/rows.h"

namespace lockstep {
namespace {

using Combine = Real (*)(Real, Real);
const std::vector<std::string> kVarying = {kAxis};

// Combines the values of all devices.
Reference over_devices(Combine combine) {
  return [=](const RefArrays& in, const Attrs&, RefArrays& y) {
    const auto n = static_cast<size_t>(in[0].shape()[0]), block = y[0].data.size();
    for (size_t i = 0; i < block; ++i) {
      y[0].data[i] = in[0].data[i];
      for (size_t device = 1; device < n; ++device)
        y[0].data[i] = combine(y[0].data[i], in[0].data[device * block + i]);
    }
  };
}

void pvary_reference(const RefArrays& in, const Attrs&, RefArrays& y) {
  for (size_t i = 0; i < y[0].data.size(); ++i) y[0].data[i] = in[0].data[i % in[0].data.size()];
}

// The position, in the stacked array, of dimension `dim` of one device's array.
std::ptrdiff_t stacked_dim(const Attrs& attrs) { return static_cast<std::ptrdiff_t>(attrs.integer("dim")) + 1; }

void all_gather_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  const auto dim = stacked_dim(attrs);
  for_each_index(y[0].shape(), [&](Dims at, int64_t i) {
    at[0] = at[static_cast<size_t>(dim)];
    at.erase(at.begin() + dim);
    y[0].data[static_cast<size_t>(i)] = in[0].at(at);
  });
}

void psum_scatter_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  for_each_index(y[0].shape(), [&](Dims at, int64_t i) {
    at.insert(at.begin() + stacked_dim(attrs), at[0]);
    Real sum = 0;
    for (at[0] = 0; at[0] < in[0].shape()[0]; ++at[0]) sum += in[0].at(at);
    y[0].data[static_cast<size_t>(i)] = sum;
  });
}

void all_to_all_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  for_each_index(y[0].shape(), [&](Dims at, int64_t i) {
    std::swap(at[0], at[static_cast<size_t>(stacked_dim(attrs))]);
    y[0].data[static_cast<size_t>(i)] = in[0].at(at);
  });
}

void ppermute_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  const Dims& pairs = attrs.ints("permutation");
  for_each_index(y[0].shape(), [&](Dims at, int64_t i) {
    Real& mine = y[0].data[static_cast<size_t>(i)];
    const int64_t device = at[0];
    mine = 0;
    for (size_t k = 0; k < pairs.size(); k += 2) {
      if (pairs[k + 1] != device) continue;
      at[0] = pairs[k];
      mine = in[0].at(at);
    }
  });
}

void axis_index_reference(const RefArrays&, const Attrs&, RefArrays& y) {
  for (size_t device = 0; device < y[0].data.size(); ++device) y[0].data[device] = static_cast<Real>(device);
}

Sample sample(int64_t devices, DType dtype, Shape shape, Attrs attrs = {}, Domain domain = {}) {
  attrs.set("axis", std::string(kAxis));
  Sample s{{{{dtype, std::move(shape), kVarying}, domain}}, std::move(attrs)};
  s.devices = devices;
  return s;
}

std::vector<Sample> reductions(const std::vector<DType>& dtypes, Domain domain) {
  std::vector<Sample> out;
  for (DType t : dtypes) out.push_back(sample(3, t, {2, 4}, {}, domain));
  for (int64_t devices : {1, 2, 8}) out.push_back(sample(devices, f32, {3}, {}, domain));
  out.push_back(sample(4, f64, {}, {}, domain));
  out.push_back(sample(2, f32, {0, 3}, {}, domain));
  return out;
}

Attrs along(int64_t devices, int64_t dim) { return {{"size", devices}, {"dim", dim}}; }

// Samples whose dimension `dim`, on one device, has the extent of the axis.
std::vector<Sample> dealt_out(const std::vector<DType>& dtypes) {
  std::vector<Sample> out;
  for (DType t : dtypes) out.push_back(sample(3, t, {2, 3}, along(3, 1)));
  for (int64_t dim : {0, 1, 2}) out.push_back(sample(2, f32, {2, 2, 2}, along(2, dim)));
  out.push_back(sample(4, f32, {4}, along(4, 0)));
  out.push_back(sample(1, f32, {2, 1, 3}, along(1, 1)));
  out.push_back(sample(2, f32, {0, 2}, along(2, 1)));
  return out;
}

}  // namespace

void add_collective_rows(std::vector<Row>& out) {
  const std::vector<DType> numbers = {f32, f64, bf16, f16, i32, i64, u8, u32};
  std::vector<Sample> invariant = reductions(kAllDTypes, {});
  for (Sample& s : invariant) s.in[0].type.varying.clear();
  out.push_back({&pvary_op, pvary_reference, invariant});
  out.push_back({&psum_op, over_devices([](Real a, Real b) { return a + b; }), reductions(numbers, {})});
  const Domain distinct{Domain::distinct};
  out.push_back(
      {&pmax_op, over_devices([](Real a, Real b) { return std::max(a, b); }), reductions(kAllDTypes, distinct)});
  out.push_back(
      {&pmin_op, over_devices([](Real a, Real b) { return std::min(a, b); }), reductions(kAllDTypes, distinct)});

  std::vector<Sample> gathered;
  for (DType t : kAllDTypes) gathered.push_back(sample(3, t, {2, 4}, along(3, 1)));
  for (int64_t dim : {0, 1, 2}) gathered.push_back(sample(2, f32, {2, 3}, along(2, dim)));
  gathered.push_back(sample(4, f32, {}, along(4, 0)));
  gathered.push_back(sample(1, f32, {3}, along(1, 1)));
  gathered.push_back(sample(2, f32, {0}, along(2, 0)));
  out.push_back({&all_gather_op, all_gather_reference, gathered});
  out.push_back({&psum_scatter_op, psum_scatter_reference, dealt_out(numbers)});
  out.push_back({&all_to_all_op, all_to_all_reference, dealt_out(kAllDTypes)});

  std::vector<Sample> permuted;
  auto permute = [&](int64_t devices, DType t, Shape shape, Dims pairs) {
    permuted.push_back(sample(devices, t, std::move(shape), {{"size", devices}, {"permutation", std::move(pairs)}}));
  };
  for (DType t : kAllDTypes) permute(4, t, {2, 3}, {0, 1, 1, 2, 2, 3, 3, 0});
  permute(4, f32, {2}, {0, 3, 3, 0});
  permute(5, f32, {2}, {4, 0, 3, 1, 2, 2});
  permute(3, f32, {}, {1, 1});
  permute(2, f32, {2}, {});
  permute(1, f32, {2}, {0, 0});
  permute(2, f32, {0}, {0, 1, 1, 0});
  out.push_back({&ppermute_op, ppermute_reference, permuted});

  std::vector<Sample> places;
  for (int64_t devices : {1, 2, 3, 8}) {
    places.push_back({{}, {{"axis", std::string(kAxis)}, {"size", devices}}});
    places.back().devices = devices;
  }
  out.push_back({&axis_index_op, axis_index_reference, places});
}

}  // namespace lockstep
