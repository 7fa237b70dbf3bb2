#include "ops/cuda/element_writer.h"

#include <algorithm>

#include "base/check.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// The exact text of a constant of the register type.
std::string constant_text(const Attr& value, DType dtype) {
  alignas(16) char bytes[16] = {};
  encode_element(value, dtype, bytes);
  uint64_t u = 0;
  uint32_t v = 0;
  std::copy(bytes, bytes + 8, reinterpret_cast<char*>(&u));
  std::copy(bytes, bytes + 4, reinterpret_cast<char*>(&v));
  switch (dtype) {
    case DType::f64:
      return fmt::format("__builtin_bit_cast(double, {}ull)", u);
    case DType::f32:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::bf16:
    case DType::f16:
      return fmt::format("__builtin_bit_cast(float, {}u)", v);
    case DType::c64:
      return fmt::format("math::Complex<float>{{__builtin_bit_cast(float, {}u), 0.0f}}", v);
    case DType::c128:
      return fmt::format("math::Complex<double>{{__builtin_bit_cast(double, {}ull), 0.0}}", u);
    case DType::i64:
    case DType::u64:
      return fmt::format("{}({}ull)", memory_type(dtype), u);
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
      return fmt::format("{}({}u)", memory_type(dtype), v);
    default:
      return fmt::format("{}({}u)", memory_type(dtype), v & (dtype == DType::u32 ? 0xffffffffu : 0xffu));
  }
}

// Divide an array of this shape along its first dimension, and `size` elements, into the same number of equal ranges.
// Whether each range of the array reads only the corresponding range of the elements, for any number of ranges.
bool is_own(const View& view, const Shape& shape, int64_t size) {
  if (shape.empty() || view.offset != 0 || view.strides[0] * shape[0] != size) return false;
  int64_t last = 0;
  for (size_t d = 1; d < shape.size(); ++d) {
    if (view.strides[d] < 0) return false;
    last += (shape[d] - 1) * view.strides[d];
  }
  return last < view.strides[0];
}

// Whether the view reads a dense array of this shape in order.
bool is_dense(const View& view, const Shape& shape) {
  const Dims strides = dense_strides(shape);
  if (view.offset != 0) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1 && view.strides[d] != strides[d]) return false;
  return true;
}

// Whether every aligned vector of `vector_width` elements reads an aligned vector of the input.
bool reads_aligned_vector(const View& view, const Shape& shape, int vector_width) {
  const std::vector<AffineDim> dims = collapse(view, shape);
  if (dims.empty() || dims.back().stride != 1 || dims.back().extent % vector_width != 0 ||
      view.offset % vector_width != 0)
    return false;
  return std::all_of(dims.begin(), dims.end() - 1,
                     [&](const AffineDim& dim) { return dim.stride % vector_width == 0; });
}

std::vector<size_t> those_not(const std::vector<bool>& flags) {
  std::vector<size_t> out;
  for (size_t i = 0; i < flags.size(); ++i)
    if (!flags[i]) out.push_back(i);
  return out;
}

}  // namespace

ElementWriter::ElementWriter(const Program& p, Options options)
    : p_(p),
      shape_(p.types[p.outputs[0]].shape),
      options_(std::move(options)),
      elsewhere_(p.inputs.size()),
      others_(p.inputs.size()),
      names_(p.types.size()) {
  views_.resize(p.types.size());
  for (size_t i = 0; i < p.inputs.size(); ++i)
    views_[p.inputs[i]] = InputView{i, dense_view(p.types[p.inputs[i]].shape)};
}

void ElementWriter::compute_input(size_t k) {
  if (computed_.empty()) computed_.resize(p_.inputs.size());
  computed_[k] = true;
}

std::pair<std::string, std::string> ElementWriter::only_result() {
  for (const Eqn& eqn : p_.eqns) write(eqn);
  const std::string value = operand(p_.outputs[0]);
  return {body_, value};
}

std::string ElementWriter::body() {
  for (const Eqn& eqn : p_.eqns) write(eqn);
  const bool wide = options_.vector_width > 1;
  std::string made, stores, written;
  for (size_t o = 0; o < p_.outputs.size(); ++o) {
    const char* type = memory_type(p_.types[p_.outputs[o]].dtype);
    stores += fmt::format("  {} = Store<{}>::of({});\n", fmt::format(fmt::runtime(wide ? "w{}.v[q]" : "out{}[i]"), o),
                          type, operand(p_.outputs[o]));
    made += fmt::format("  Side<{}, {}> w{};\n", type, options_.vector_width, o);
    written += fmt::format("  store_vector(out{}, i, w{});\n", o, o);
  }
  if (!wide) return body_ + stores;
  return fmt::format("{}#pragma unroll\n  for (int q = 0; q < {}; ++q) {{\n{}{}  }}\n{}", made, options_.vector_width,
                     body_, stores, written);
}

std::vector<size_t> ElementWriter::in_place() const { return those_not(elsewhere_); }
std::vector<size_t> ElementWriter::own() const { return those_not(others_); }

void ElementWriter::write(const Eqn& eqn) {
  const ValueId v = eqn.out[0];
  const Type& type = p_.types[v];
  if (const Attr* value = constant_value(&eqn)) {
    names_[v] = constant_text(*value, type.dtype);
  } else if (eqn.op->view) {
    const ValueId from = eqn.in[0];
    if (!views_[from]) {
      names_[v] = names_[from];  // a view of a constant
      return;
    }
    const auto view =
        compose(eqn.op->view(p_.types[from], type, eqn.attrs), type.shape, views_[from]->view, p_.types[from].shape);
    LOCKSTEP_CHECK(view, "{} in an elementwise program is not affine", eqn.op->name);
    views_[v] = InputView{views_[from]->input, *view};
  } else {
    compute(eqn);
  }
}

// The expression of a value; loads it on first use.
const std::string& ElementWriter::operand(ValueId v) {
  std::string& name = names_[v];
  if (!name.empty()) return name;
  const InputView& read = *views_[v];
  if (!options_.given.empty() && read.input == 0) {
    possible_ &= is_dense(read.view, shape_);
    return name = options_.given;
  }
  if (!computed_.empty() && computed_[read.input]) {
    possible_ &= is_dense(read.view, shape_);
    return name = fmt::format("load(y{}[e])", read.input);
  }
  const DType dtype = p_.types[v].dtype;
  read_bytes_ += size_of(dtype);
  if (!is_dense(read.view, shape_)) elsewhere_[read.input] = true;
  if (!is_own(read.view, shape_, count(p_.types[p_.inputs[read.input]].shape))) others_[read.input] = true;
  const auto at = [&](const char* i) { return position_text(read.view, shape_, i); };
  if (options_.vector_width == 1) {
    fields_ += fmt::format("    {} v{};\n", register_name(dtype), v);
    reads_ += fmt::format("  r.v{} = load(in{}[{}]);\n", v, read.input, at("i"));
    return name = fmt::format("r.v{}", v);
  }
  const char* type = memory_type(dtype);
  if (is_uniform(read.view, shape_)) {
    fields_ += fmt::format("    {} v{};\n", type, v);
    reads_ += fmt::format("  r.v{} = in{}[{}];\n", v, read.input, at("i"));
    return name = fmt::format("load(r.v{})", v);
  }
  fields_ += fmt::format("    Side<{}, {}> v{};\n", type, options_.vector_width, v);
  reads_ += reads_aligned_vector(read.view, shape_, options_.vector_width)
                ? fmt::format("  load_vector(r.v{}, in{}, {});\n", v, read.input, at("i"))
                : fmt::format("#pragma unroll\n  for (int q = 0; q < {}; ++q) r.v{}.v[q] = in{}[{}];\n",
                              options_.vector_width, v, read.input, at("(i + q)"));
  return name = fmt::format("load(r.v{}.v[q])", v);
}

// The approximate function for an op, or null. Used only if products may use TF32, which is less exact
// than any of them.
const char* ElementWriter::approximation_of(const Op& op, DType dtype) const {
  if (!options_.approximate || cuda_math() != CudaMath::tf32) return nullptr;
  return dtype == DType::bf16 ? op.cuda_expression.bf16_approximation : op.cuda_expression.approximation;
}

void ElementWriter::compute(const Eqn& eqn) {
  const ValueId v = eqn.out[0];
  const DType t = p_.types[v].dtype;
  std::string arguments;
  for (ValueId id : eqn.in) arguments += (arguments.empty() ? "" : ", ") + operand(id);
  const char* result = register_name(t);
  std::string what;
  if (const char* text = eqn.op->cuda_expression.text)
    what = fmt::format(fmt::runtime(text), result, arguments);
  else if (const char* function = approximation_of(*eqn.op, t))
    what = fmt::format("{}({})", function, arguments);
  else
    what = fmt::format("{}_({})", eqn.op->name, arguments);
  if (is_16_bit(t) || is_float8(t)) what = fmt::format("rounded<{}>({})", memory_type(t), what);
  names_[v] = fmt::format("v{}", v);
  body_ += fmt::format("  const {} {} = {};\n", result, names_[v], what);
}

}  // namespace lockstep
