#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "lane/buffer.h"
#include "ops/control.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// The operands and results of a scan by role: n carries, m xs, then constants.
struct Parts {
  const Program& body;
  size_t carry, xs, constants, ys;
  int64_t length;
  bool reverse;

  explicit Parts(const Attrs& attrs)
      : body(attrs.program("body")),
        carry(static_cast<size_t>(attrs.integer("carry"))),
        xs(static_cast<size_t>(attrs.integer("xs"))),
        constants(body.inputs.size() - carry - xs),
        ys(body.outputs.size() - carry),
        length(attrs.integer("length")),
        reverse(attrs.get<bool>("reverse")) {}
  const Type& in(size_t i) const { return body.types[body.inputs[i]]; }
  const Type& out(size_t i) const { return body.types[body.outputs[i]]; }
};

Type stacked(const Type& t, int64_t n) { return {t.dtype, prepend(n, t.shape), t.varying}; }

std::vector<Type> scan_type(Types in, const Attrs& attrs) {
  const Parts p(attrs);
  if (in.size() != p.body.inputs.size())
    throw_error("scan: the body takes {} arrays and got {}", p.body.inputs.size(), in.size());
  std::vector<Type> out;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool is_x = i >= p.carry && i < p.carry + p.xs;
    const Type wanted = is_x ? stacked(p.in(i), p.length) : p.in(i);
    if (in[i] != wanted)
      throw_error("scan: operand {} is {}, but the body takes {}", i, to_string(in[i]), to_string(wanted));
  }
  for (size_t i = 0; i < p.body.outputs.size(); ++i) {
    if (i < p.carry && p.out(i) != p.in(i))
      throw_error("scan: carry {} is {} before and {} after an iteration; the body must keep its type", i,
                  to_string(p.in(i)), to_string(p.out(i)));
    out.push_back(i < p.carry ? p.out(i) : stacked(p.out(i), p.length));
  }
  return out;
}

std::vector<bool> dependent_results(const Parts& p, std::vector<bool>& on);

// By output: whether a gradient flows from it to one of the inputs in `on`, as in joint().
std::vector<bool> dependent_outputs(const Program& p, const std::vector<bool>& on) {
  std::vector<bool> active(p.types.size(), false), out;
  for (size_t i = 0; i < p.inputs.size(); ++i) active[p.inputs[i]] = on[i];
  for (const Eqn& eqn : p.eqns) {
    std::vector<bool> operands;
    for (ValueId id : eqn.in) operands.push_back(active[id]);
    if (!eqn.op->vjp || std::find(operands.begin(), operands.end(), true) == operands.end()) continue;
    std::vector<bool> results(eqn.out.size(), true);
    if (eqn.op == &scan_op) results = dependent_results(Parts(eqn.attrs), operands);
    for (size_t k = 0; k < results.size(); ++k)
      active[eqn.out[k]] = results[k] && is_inexact(p.types[eqn.out[k]].dtype);
  }
  for (ValueId id : p.outputs) out.push_back(active[id]);
  return out;
}

// By result of a scan: the same for its operands in `on`, to which the carries are added that depend on them.
std::vector<bool> dependent_results(const Parts& p, std::vector<bool>& on) {
  while (true) {
    std::vector<bool> out = dependent_outputs(p.body, on);
    bool grew = false;
    for (size_t i = 0; i < p.carry; ++i)
      if (on[i]) {
        out[i] = true;
      } else if (out[i]) {
        on[i] = grew = true;
      }
    if (!grew) return out;
  }
}

// The parts of this scan's gradient. Carries that depend on a wanted operand take part.
struct Gradient {
  Split split;
  std::vector<bool> wanted;  // per body input
  // The backward loop finds a residual among the xs or constants of the forward loop, or stacked by it.
  std::vector<size_t> stacked;  // indices of the residuals that the forward loop stacks

  Gradient(const Parts& p, const std::vector<bool>& operand_wanted, const SubPrograms& passes) {
    for (size_t i = 0; i < p.body.inputs.size(); ++i) wanted.push_back(is_inexact(p.in(i).dtype) && operand_wanted[i]);
    dependent_results(p, wanted);
    split = passes.split(passes.joint(p.body, wanted), p.body.inputs.size(), p.body.outputs.size());
    for (size_t r = 0; r < split.residual_input.size(); ++r)
      if (split.residual_input[r] < static_cast<int>(p.carry)) stacked.push_back(r);  // -1 or a carry
  }
};

ForwardResult scan_forward(const Forward& f) {
  const Parts p(f.attrs);
  const Gradient linear(p, f.wanted, f.passes);
  Program body = linear.split.known;
  const std::vector<ValueId> all = body.outputs;
  body.outputs.resize(linear.split.outputs);
  for (size_t r : linear.stacked) body.outputs.push_back(all[linear.split.outputs + r]);
  const Values in(f.in.begin(), f.in.end());
  auto at = [&](size_t i) { return in.begin() + static_cast<std::ptrdiff_t>(i); };
  Values out = scan(in[0].builder(), std::make_shared<const Program>(std::move(body)), Values(at(0), at(p.carry)),
                    Values(at(p.carry), at(p.carry + p.xs)), Values(at(p.carry + p.xs), in.end()), p.length, p.reverse);
  ForwardResult result;
  result.residuals.assign(out.begin() + static_cast<std::ptrdiff_t>(linear.split.outputs), out.end());
  out.resize(linear.split.outputs);
  result.out = std::move(out);
  return result;
}

// The loop that computes the gradients of a scan, in the reverse direction. Its carries are the cotangents of the
// scan's carries, then the sums of the constants' gradients. Its xs are residuals and the cotangents of the ys; its
// ys are the gradients of the xs.
class BackwardLoop {
 public:
  explicit BackwardLoop(const Vjp& v)
      : v_(v),
        p_(v.attrs),
        linear_(p_, v.wanted, v.passes),
        outer_(v.in[0].builder()),
        first_constant_(p_.carry + p_.xs),
        residual_(linear_.split.residual_input.size()) {}

  // Adds the loop to the builder of the operands.
  Grads emit() {
    // Inputs of a program come in the order carry, xs, constants.
    add_carries();
    add_xs();
    add_constants();
    size_t carries = 0;
    auto body = std::make_shared<const Program>(make_body(carries));
    const Values out = scan(outer_, std::move(body), carry_in_, xs_in_, constants_in_, p_.length, !p_.reverse);
    Grads result(p_.body.inputs.size());
    size_t carry = 0, y = carries;
    for (size_t i = 0; i < result.size(); ++i)
      if (linear_.wanted[i]) result[i] = is_x(i) ? out[y++] : out[carry++];
    return result;
  }

 private:
  bool is_x(size_t input) const { return input >= p_.carry && input < first_constant_; }
  Value cotangent(size_t output, const Type& type) const {
    return v_.cts[output] ? v_.cts[output] : full(outer_, type, 0.0);
  }

  void add_carries() {
    for (size_t i = 0; i < p_.carry; ++i) {
      if (!linear_.wanted[i]) continue;
      carry_in_.push_back(cotangent(i, p_.out(i)));
      ct_carry_.push_back(b_.input(p_.out(i)));
    }
    for (size_t i = first_constant_; i < p_.body.inputs.size(); ++i) {
      if (!linear_.wanted[i]) continue;
      carry_in_.push_back(full(outer_, p_.in(i), 0.0));
      sums_.push_back(b_.input(p_.in(i)));
    }
  }

  void add_xs() {
    size_t next = 0;
    for (size_t r = 0; r < residual_.size(); ++r) {
      const int from = linear_.split.residual_input[r];
      if (from >= static_cast<int>(first_constant_)) continue;
      const bool is_stacked = from < static_cast<int>(p_.carry);
      xs_in_.push_back(is_stacked ? v_.residuals[next++] : v_.in[static_cast<size_t>(from)]);
      const Type& t = xs_in_.back().type();
      residual_[r] = b_.input({t.dtype, Shape(t.shape.begin() + 1, t.shape.end()), t.varying});
    }
    for (size_t i = p_.carry; i < p_.body.outputs.size(); ++i) {
      if (!is_inexact(p_.out(i).dtype)) continue;
      xs_in_.push_back(cotangent(i, stacked(p_.out(i), p_.length)));
      ct_ys_.push_back(b_.input(p_.out(i)));
    }
  }

  void add_constants() {
    for (size_t r = 0; r < residual_.size(); ++r) {
      const int from = linear_.split.residual_input[r];
      if (from < static_cast<int>(first_constant_)) continue;
      constants_in_.push_back(v_.in[static_cast<size_t>(from)]);
      residual_[r] = b_.input(constants_in_.back().type());
    }
  }

  // Returns the body and the number of its carries.
  Program make_body(size_t& carries) {
    Values args = residual_;
    for (size_t i = 0, next = 0; i < p_.carry; ++i) {
      if (linear_.wanted[i])
        args.push_back(ct_carry_[next++]);
      else if (is_inexact(p_.out(i).dtype))
        args.push_back(full(b_, p_.out(i), 0.0));  // no gradient flows through it
    }
    args.insert(args.end(), ct_ys_.begin(), ct_ys_.end());
    const Values grads = b_.inline_program(linear_.split.rest, args);
    Values results, ys;
    size_t grad = 0, sum = 0;
    for (size_t i = 0; i < p_.body.inputs.size(); ++i) {
      if (!linear_.wanted[i]) continue;
      if (i < p_.carry)
        results.push_back(grads[grad]);
      else if (is_x(i))
        ys.push_back(grads[grad]);
      else
        results.push_back(add(sums_[sum++], grads[grad]));
      ++grad;
    }
    carries = results.size();
    results.insert(results.end(), ys.begin(), ys.end());
    return b_.take(results);
  }

  const Vjp& v_;
  const Parts p_;
  const Gradient linear_;
  Builder& outer_;
  const size_t first_constant_;                // input of the scan's body
  Values carry_in_, xs_in_, constants_in_;     // operands of the backward loop
  Builder b_;                                  // of its body
  Values ct_carry_, sums_, residual_, ct_ys_;  // values of its body
};

Grads scan_vjp(const Vjp& v) { return BackwardLoop(v).emit(); }

// The loop that computes a scan with its tangents. Every role (carry, xs, constants, ys) has the scan's own values
// first, then the tangents of those that have one.
class TangentLoop {
 public:
  explicit TangentLoop(const Jvp& v) : v_(v), p_(v.attrs), has_tangent_(v.in.size()), y_has_tangent_(p_.ys) {
    for (size_t i = 0; i < has_tangent_.size(); ++i) has_tangent_[i] = static_cast<bool>(v.tangents[i]);
  }

  JvpResult emit() {
    Program body;
    while (!make_body(body)) {
    }
    const Values out =
        scan(v_.builder, std::make_shared<const Program>(std::move(body)), operands(0, p_.carry),
             operands(p_.carry, p_.carry + p_.xs), operands(p_.carry + p_.xs, v_.in.size()), p_.length, p_.reverse);
    JvpResult result{Values(v_.out.size()), {}};
    const auto own = [&](size_t first, size_t n) {
      result.out.insert(result.out.end(), out.begin() + static_cast<std::ptrdiff_t>(first),
                        out.begin() + static_cast<std::ptrdiff_t>(first + n));
      return first + n;
    };
    size_t next = own(0, p_.carry);
    for (size_t i = 0; i < p_.carry; ++i)
      if (has_tangent_[i]) result.tangents[i] = out[next++];
    next = own(next, p_.ys);
    for (size_t i = 0; i < p_.ys; ++i)
      if (y_has_tangent_[i]) result.tangents[p_.carry + i] = out[next++];
    return result;
  }

 private:
  // The operands [first, last) of the scan, then their tangents.
  Values operands(size_t first, size_t last) const {
    Values out(v_.in.begin() + static_cast<std::ptrdiff_t>(first), v_.in.begin() + static_cast<std::ptrdiff_t>(last));
    for (size_t i = first; i < last; ++i)
      if (has_tangent_[i]) out.push_back(v_.tangents[i] ? v_.tangents[i] : zeros_like(v_.in[i]));
    return out;
  }

  // Returns false if the body gives tangents to carries that had none; these have one from then on.
  bool make_body(Program& body) {
    Builder b;
    Values args, tangents;
    const size_t roles[] = {0, p_.carry, p_.carry + p_.xs, v_.in.size()};
    for (size_t role = 0; role < 3; ++role) {
      for (size_t i = roles[role]; i < roles[role + 1]; ++i) args.push_back(b.input(p_.in(i)));
      for (size_t i = roles[role]; i < roles[role + 1]; ++i)
        if (has_tangent_[i]) tangents.push_back(b.input(p_.in(i)));
    }
    args.insert(args.end(), tangents.begin(), tangents.end());
    const Values out = b.inline_program(v_.passes.jvp(p_.body, has_tangent_), args);
    const size_t outputs = p_.body.outputs.size();
    Values carries(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(p_.carry)),
        ys(out.begin() + static_cast<std::ptrdiff_t>(p_.carry), out.begin() + static_cast<std::ptrdiff_t>(outputs));
    bool grew = false;
    for (size_t i = 0, next = outputs; i < outputs; ++i) {
      if (!is_inexact(p_.out(i).dtype)) continue;
      const Value tangent = out[next++];
      const Attr* constant = full_value(tangent);
      const bool zero = constant && std::get<double>(*constant) == 0;
      if (i >= p_.carry) {
        y_has_tangent_[i - p_.carry] = !zero;
        if (!zero) ys.push_back(tangent);
      } else {
        if (!zero && !has_tangent_[i]) has_tangent_[i] = grew = true;
        if (has_tangent_[i]) carries.push_back(tangent);
      }
    }
    if (grew) return false;
    carries.insert(carries.end(), ys.begin(), ys.end());
    body = b.take(carries);
    return true;
  }

  const Jvp& v_;
  const Parts p_;
  std::vector<bool> has_tangent_;    // by operand
  std::vector<bool> y_has_tangent_;  // by y
};

JvpResult scan_jvp(const Jvp& v) { return TangentLoop(v).emit(); }

Batched scan_batch(const Batch& b) {
  const Parts p(b.attrs);
  std::vector<bool> batched = b.batched;
  BatchedProgram body;
  while (true) {  // a carry is batched if its initial value is, or if the body makes it so
    std::vector<bool> force(p.body.outputs.size(), false);
    for (size_t i = 0; i < p.carry; ++i) force[i] = batched[i];
    body = b.passes.batch(p.body, batched, b.size, force, b.axis);
    bool grew = false;
    for (size_t i = 0; i < p.carry; ++i)
      if (body.batched[i] && !batched[i]) batched[i] = grew = true;
    if (!grew) break;
  }
  Values carry, xs, constants;
  for (size_t i = 0; i < b.in.size(); ++i) {
    if (i < p.carry) {
      carry.push_back(batched[i] ? with_batch(b, i) : b.in[i]);
    } else if (i < p.carry + p.xs) {
      xs.push_back(batched[i] ? transpose(b.in[i], move_dim(b.in[i].rank(), 1, 0))
                              : b.in[i]);  // [B, n, ...] -> [n, B, ...]
    } else {
      constants.push_back(b.in[i]);
    }
  }
  Values out = scan(b.builder, std::make_shared<const Program>(std::move(body.program)), carry, xs, constants, p.length,
                    p.reverse);
  for (size_t i = p.carry; i < out.size(); ++i)
    if (body.batched[i]) out[i] = transpose(out[i], move_dim(out[i].rank(), 1, 0));
  return {std::move(out), body.batched};
}

// The final carry may be written over the initial one.
bool scan_alias(Types, Types, const Attrs& attrs, size_t in, size_t out) {
  const Parts p(attrs);
  return in == out && in < p.carry && p.length > 1;
}

// The kernel of a scan: runs the kernel of its body once per iteration.
class ScanLoop {
 public:
  ScanLoop(const KernelSpec& spec, ScanMemory memory)
      : body_(spec.compile(spec.attrs.program("body"))), memory_(std::move(memory)) {
    const Parts p(spec.attrs);
    length_ = p.length;
    reverse_ = p.reverse;
    for (size_t i = 0; i < p.carry; ++i) {
      carry_bytes_.push_back(p.in(i).bytes());
      even_.push_back(memory_.allocate(p.in(i).bytes()));
      odd_.push_back(memory_.allocate(p.in(i).bytes()));
    }
    for (size_t i = 0; i < p.xs; ++i) xs_.push_back(slice_of(p.in(p.carry + i)));
    for (size_t i = 0; i < p.ys; ++i) ys_.push_back(slice_of(p.out(p.carry + i)));
    in_.resize(p.body.inputs.size());
    out_.resize(p.body.outputs.size());
  }

  void run(const void* const* in, void* const* out) {
    const size_t carries = carry_bytes_.size();
    if (length_ == 0)
      for (size_t i = 0; i < carries; ++i) memory_.copy(out[i], in[i], carry_bytes_[i]);
    for (size_t i = carries + xs_.size(); i < in_.size(); ++i) in_[i] = in[i];
    for (int64_t step = 0; step < length_; ++step) {
      for (size_t i = 0; i < carries; ++i) {
        in_[i] = step == 0 ? in[i] : (step % 2 ? even_ : odd_)[i]->data();
        out_[i] = step == length_ - 1 ? out[i] : (step % 2 ? odd_ : even_)[i]->data();
      }
      run_body(in + carries, out + carries, reverse_ ? length_ - 1 - step : step);
    }
  }

 private:
  // The slice of an x or y that one iteration uses.
  struct Slice {
    int64_t bytes = 0;
    BufferPtr copy;  // null: used in place
  };
  Slice slice_of(const Type& type) const {
    const int64_t bytes = type.bytes();
    const bool copied = length_ > 1 && bytes % memory_.alignment != 0;
    return {bytes, copied ? memory_.allocate(bytes) : BufferPtr()};
  }

  // Runs the body on slice `at` of the xs and ys.
  void run_body(const void* const* xs, void* const* ys, int64_t at) {
    const size_t carries = carry_bytes_.size();
    for (size_t i = 0; i < xs_.size(); ++i) {
      const auto& [bytes, copy] = xs_[i];
      const void* const x = static_cast<const std::byte*>(xs[i]) + at * bytes;
      if (copy) memory_.copy(copy->data(), x, bytes);
      in_[carries + i] = copy ? copy->data() : x;
    }
    const auto y = [&](size_t i) { return static_cast<std::byte*>(ys[i]) + at * ys_[i].bytes; };
    for (size_t i = 0; i < ys_.size(); ++i) out_[carries + i] = ys_[i].copy ? ys_[i].copy->data() : y(i);
    body_(in_.data(), out_.data());
    for (size_t i = 0; i < ys_.size(); ++i)
      if (ys_[i].copy) memory_.copy(y(i), ys_[i].copy->data(), ys_[i].bytes);
  }

  const Kernel body_;
  const ScanMemory memory_;
  int64_t length_ = 0;
  bool reverse_ = false;
  std::vector<int64_t> carry_bytes_;
  std::vector<BufferPtr> even_, odd_;  // carries between iterations
  std::vector<Slice> xs_, ys_;
  std::vector<const void*> in_;  // arguments of the body
  std::vector<void*> out_;
};

// Constants keep their value; carries and slices of xs do not.
int scan_operand(const Eqn& eqn, std::string_view, size_t input) {
  const Parts p(eqn.attrs);
  return input >= p.carry + p.xs ? static_cast<int>(input) : -1;
}

Kernel scan_cpu(const KernelSpec& spec) {
  return scan_kernel(spec, {allocate, [](void* to, const void* from, int64_t bytes) {
                              if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
                            }});
}

}  // namespace

Kernel scan_kernel(const KernelSpec& spec, ScanMemory memory) {
  auto loop = std::make_shared<ScanLoop>(spec, std::move(memory));
  return [loop](const void* const* in, void* const* out) { loop->run(in, out); };
}

constinit const Op scan_op = {
    .name = "scan",
    .type = scan_type,
    .forward = scan_forward,
    .vjp = scan_vjp,
    .jvp = scan_jvp,
    .batch = scan_batch,
    .alias = scan_alias,
    .takes_float8 = true,
    .own_varying = true,
    .operand_of_input = scan_operand,
    .multiply_adds =
        [](Types, Types, const Attrs& attrs, double (*of)(const Program&)) {
          return static_cast<double>(attrs.integer("length")) * of(attrs.program("body"));
        },
    .cpu = scan_cpu,
    .cuda = LOCKSTEP_CUDA(scan_cuda),
};

Values scan(Builder& b, ProgramPtr body, const Values& carry, const Values& xs, const Values& constants, int64_t length,
            bool reverse) {
  Values in = carry;
  in.insert(in.end(), xs.begin(), xs.end());
  in.insert(in.end(), constants.begin(), constants.end());
  return b.emit(scan_op, in,
                {{"body", std::move(body)},
                 {"carry", static_cast<int64_t>(carry.size())},
                 {"xs", static_cast<int64_t>(xs.size())},
                 {"length", length},
                 {"reverse", reverse}});
}

}  // namespace lockstep
