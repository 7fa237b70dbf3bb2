// Rearranging, creating and indexing arrays.
#include "conformance/suite.h"

namespace lockstep::conformance {
namespace {

// jax.lax.pad: {before, after, between} for each dimension.
Array lax_pad(const Array& x, const Array& value, const Json& config) {
  std::vector<PadConfig> widths;
  for (const Json& each : config) widths.push_back({each[0], each[1], each[2]});
  return pad_general(x, value, widths);
}

constexpr const char* kOutOfRange = "the gradient at an index out of range goes to the element that was read; JAX drops it";

bool is_out_of_range(const Case& c) { return c.gradients && has_type(c, "i32") && c.inputs[1].find("]any") != std::string::npos; }

}  // namespace

// clang-format off
Functions shape_functions() {
  return {
      FUNCTION("jnp.reshape", reshape(x, shape)),
      FUNCTION("jnp.transpose", attrs.at("axes").is_null() ? transpose(x) : transpose(x, integers("axes"))),
      FUNCTION("jnp.swapaxes", swapaxes(x, a, b)),
      FUNCTION("jnp.moveaxis", moveaxis(x, a, b)),
      FUNCTION("jnp.expand_dims", expand_dims(x, axis)),
      FUNCTION("jnp.squeeze", squeeze(x, axes)),
      FUNCTION("jnp.ravel", ravel(x)),
      FUNCTION("jnp.broadcast_to", broadcast_to(x, shape)),
      FUNCTION("jnp.concatenate", concatenate(xs, axis)),
      FUNCTION("jnp.stack", stack(xs, axis)),
      FUNCTION("jnp.hstack", hstack(xs)),
      FUNCTION("jnp.vstack", vstack(xs)),
      FUNCTION("jnp.dstack", dstack(xs)),
      FUNCTION("jnp.column_stack", column_stack(xs)),
      FUNCTION("jnp.split", split(x, n, axis)),
      FUNCTION("jnp.array_split", array_split(x, n, axis)),
      FUNCTION("jnp.tile", tile(x, integers("reps"))),
      FUNCTION("jnp.repeat", maybe_axis ? repeat(x, repeats, axis) : repeat(ravel(x), repeats, 0)),
      FUNCTION("jnp.flip", flip(x, axes)),
      FUNCTION("jnp.fliplr", fliplr(x)),
      FUNCTION("jnp.flipud", flipud(x)),
      FUNCTION("jnp.rot90", rot90(x, k)),
      FUNCTION("jnp.roll", roll(x, shift, maybe_axis)),
      FUNCTION("jnp.tril", tril(x, k)),
      FUNCTION("jnp.triu", triu(x, k)),
      FUNCTION("jnp.diagonal", diagonal(x, k)),
      FUNCTION("jnp.trace", trace(x, k)),
      FUNCTION("jnp.diag", diag(x, k)),
      FUNCTION("jnp.pad", pad(x, pairs("width"), mode)),
      FUNCTION("lax.pad", lax_pad(x, y, attrs.at("config"))),
      FUNCTION("jnp.kron", kron(x, y)),
      FUNCTION("jnp.outer", outer(x, y)),
      FUNCTION("jnp.cross", cross(x, y)),
      FUNCTION("jnp.meshgrid", meshgrid(xs, {.ij = indexing == "ij"})),
      FUNCTION("jnp.convolve", convolve(x, y, mode)),
      FUNCTION("jnp.correlate", correlate(x, y, mode)),
      FUNCTION("jnp.gradient", gradient(x)),
      FUNCTION("jnp.vander", vander(x, n, increasing)),
      FUNCTION("jnp.unwrap", unwrap(x)),
      FUNCTION("jnp.ediff1d", ediff1d(x)),
      FUNCTION("jnp.polyval", polyval(x, y)),
      FUNCTION("jnp.append", append(x, y, axis)),
      FUNCTION("jnp.arange", arange(start, stop, step)),
      FUNCTION("jnp.linspace", linspace(from, to, n, {.endpoint = endpoint, .dtype = dtype})),
      FUNCTION("jnp.logspace", logspace(from, to, n, 10, {.dtype = dtype})),
      FUNCTION("jnp.geomspace", geomspace(from, to, n, {.dtype = dtype})),
      FUNCTION("jnp.eye", eye(n, m, k, dtype)),
      FUNCTION("jnp.tri", tri(n, m, k, dtype)),
      FUNCTION("jax.nn.one_hot", moveaxis(one_hot(x, n), -1, axis)),
      FUNCTION("index x[0]", x(0)),
      FUNCTION("index x[-1]", x(-1)),
      FUNCTION("index x[:, 1]", x(_, 1)),
      FUNCTION("index x[..., -1]", x(ellipsis, -1)),
      FUNCTION("index x[:, -1, 0]", x(_, -1, 0)),
      FUNCTION("index x[1:]", x(range(1, _))),
      FUNCTION("index x[:-1]", x(range(_, -1))),
      FUNCTION("index x[..., ::2]", x(ellipsis, range(_, _, 2))),
      FUNCTION("index x[..., ::-1]", x(ellipsis, range(_, _, -1))),
      FUNCTION("index x[..., 3:0:-2]", x(ellipsis, range(3, 0, -2))),
      FUNCTION("index x[None]", x(new_axis)),
      FUNCTION("index x[:, None, 1:3]", x(_, new_axis, range(1, 3))),
      FUNCTION("index x[5:2]", x(range(5, 2))),
      FUNCTION("index x[-100:100]", x(range(-100, 100))),
      FUNCTION("index x[1, ..., 0]", x(1, ellipsis, 0)),
      FUNCTION("index x[0, 1, 2]", x(0, 1, 2)),
      DIFFERS("index x[i]", (x(y)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[:, i]", (x(_, y)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[i, j]", (x(y, z)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[i, :, j]", (x(y, _, z)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[:, i, j]", (x(_, y, z)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[i, 1:]", (x(y, range(1, _))), kOutOfRange, is_out_of_range),
      DIFFERS("index x[i[:, None], j]", (x(y(_, new_axis), z)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[0, i]", (x(0, y)), kOutOfRange, is_out_of_range),
      DIFFERS("index x[i, None, j]", (x(y, new_axis, z)), kOutOfRange, is_out_of_range),
      FUNCTION("x.at[i].set", x.at(y).set(z)),
      FUNCTION("x.at[i].add", x.at(y).add(z)),
      FUNCTION("x.at[i].multiply", x.at(y).multiply(z)),
      FUNCTION("x.at[i].min", x.at(y).min(z)),
      FUNCTION("x.at[i].max", x.at(y).max(z)),
      FUNCTION("x.at[1:4, 0].set", x.at(range(1, 4), 0).set(y)),
      FUNCTION("x.at[1:4, 0].add", x.at(range(1, 4), 0).add(y)),
      FUNCTION("x.at[1:4, 0].multiply", x.at(range(1, 4), 0).multiply(y)),
      FUNCTION("x.at[1:4, 0].min", x.at(range(1, 4), 0).min(y)),
      FUNCTION("x.at[1:4, 0].max", x.at(range(1, 4), 0).max(y)),
      FUNCTION("x.at[i].get", x.at(y).get({.mode = mode == "clip" ? IndexMode::clip : IndexMode::fill})),
      FUNCTION("jnp.take_along_axis", take_along_axis(x, y, axis)),
      FUNCTION("jnp.take", take(x, y, axis)),
      FUNCTION("lax.dynamic_slice", dynamic_slice(x, {y, z}, {2, 2})),
      FUNCTION("lax.dynamic_update_slice", dynamic_update_slice(x, y, {z, z})),
      FUNCTION("jnp.unique", unique(x, {.size = count})),
      FUNCTION("jnp.nonzero", nonzero(x, {.size = count})),
      FUNCTION("jnp.isin", isin(x, y)),
  };
}
// clang-format on

}  // namespace lockstep::conformance
