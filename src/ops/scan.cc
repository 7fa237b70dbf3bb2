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

// The parts of this scan's gradient. Every floating carry takes part.
struct Gradient {
  Split split;
  std::vector<bool> wanted;  // per body input
  // The backward loop finds a residual among the xs or constants of the forward loop, or stacked by it.
  std::vector<size_t> stacked;  // indices of the residuals that the forward loop stacks

  Gradient(const Parts& p, const std::vector<bool>& operand_wanted, const SubPrograms& passes) {
    for (size_t i = 0; i < p.body.inputs.size(); ++i)
      wanted.push_back(is_floating(p.in(i).dtype) && (i < p.carry || operand_wanted[i]));
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

// The backward loop. Its carries are the cotangents of the carries and the sums of the constants' gradients.
Grads scan_vjp(const Vjp& v) {
  const Parts p(v.attrs);
  const Gradient linear(p, v.wanted, v.passes);
  Builder& outer = v.in[0].builder();
  Builder b;
  Values carry_in, xs_in, constants_in;    // operands of the backward loop
  Values ct_carry, sums, residual, ct_ys;  // values of its body
  const size_t first_constant = p.carry + p.xs;
  auto cotangent = [&](size_t output, const Type& type) {
    return v.cts[output] ? v.cts[output] : full(outer, type, 0.0);
  };
  for (size_t i = 0; i < p.carry; ++i) {
    if (!linear.wanted[i]) continue;
    carry_in.push_back(cotangent(i, p.out(i)));
    ct_carry.push_back(b.input(p.out(i)));
  }
  for (size_t i = first_constant; i < p.body.inputs.size(); ++i) {
    if (!linear.wanted[i]) continue;
    carry_in.push_back(full(outer, p.in(i), 0.0));
    sums.push_back(b.input(p.in(i)));
  }
  // Inputs of a program come in the order carry, xs, constants.
  residual.resize(linear.split.residual_input.size());
  size_t next = 0;
  for (size_t r = 0; r < residual.size(); ++r) {
    const int from = linear.split.residual_input[r];
    if (from >= static_cast<int>(first_constant)) continue;
    const bool is_stacked = from < static_cast<int>(p.carry);
    xs_in.push_back(is_stacked ? v.residuals[next++] : v.in[static_cast<size_t>(from)]);
    const Type& t = xs_in.back().type();
    residual[r] = b.input({t.dtype, Shape(t.shape.begin() + 1, t.shape.end()), t.varying});
  }
  for (size_t i = p.carry; i < p.body.outputs.size(); ++i) {
    if (!is_floating(p.out(i).dtype)) continue;
    xs_in.push_back(cotangent(i, stacked(p.out(i), p.length)));
    ct_ys.push_back(b.input(p.out(i)));
  }
  for (size_t r = 0; r < residual.size(); ++r) {
    const int from = linear.split.residual_input[r];
    if (from < static_cast<int>(first_constant)) continue;
    constants_in.push_back(v.in[static_cast<size_t>(from)]);
    residual[r] = b.input(constants_in.back().type());
  }
  Values args = residual;
  args.insert(args.end(), ct_carry.begin(), ct_carry.end());
  args.insert(args.end(), ct_ys.begin(), ct_ys.end());
  const Values grads = b.inline_program(linear.split.rest, args);
  Values results, ys;
  size_t g = 0, s = 0;
  for (size_t i = 0; i < p.body.inputs.size(); ++i) {
    if (!linear.wanted[i]) continue;
    if (i < p.carry)
      results.push_back(grads[g]);
    else if (i < first_constant)
      ys.push_back(grads[g]);
    else
      results.push_back(add(sums[s++], grads[g]));
    ++g;
  }
  const size_t carries = results.size();
  results.insert(results.end(), ys.begin(), ys.end());
  auto body = std::make_shared<const Program>(b.take(results));
  const Values out = scan(outer, body, carry_in, xs_in, constants_in, p.length, !p.reverse);
  Grads result(p.body.inputs.size());
  size_t c = 0, y = carries;
  for (size_t i = 0; i < result.size(); ++i)
    if (linear.wanted[i]) result[i] = i >= p.carry && i < first_constant ? out[y++] : out[c++];
  return result;
}

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

Kernel scan_cpu(const KernelSpec& spec) {
  return scan_kernel(spec, {allocate, [](void* to, const void* from, int64_t bytes) {
                              if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
                            }});
}

}  // namespace

Kernel scan_kernel(const KernelSpec& spec, ScanMemory memory) {
  const Parts p(spec.attrs);
  struct State {
    Kernel body;
    ScanMemory memory;
    size_t carry, xs, ys;
    int64_t length;
    bool reverse;
    std::vector<int64_t> carry_bytes, x_bytes, y_bytes;
    std::vector<BufferPtr> even, odd;  // carries between iterations
    std::vector<BufferPtr> x, y;       // copied slices; null: used in place
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  auto state = std::make_shared<State>();
  State& s = *state;
  s.body = spec.compile(p.body);
  s.memory = std::move(memory);
  s.carry = p.carry;
  s.xs = p.xs;
  s.ys = p.ys;
  s.length = p.length;
  s.reverse = p.reverse;
  for (size_t i = 0; i < p.carry; ++i) {
    s.carry_bytes.push_back(p.in(i).bytes());
    s.even.push_back(s.memory.allocate(p.in(i).bytes()));
    s.odd.push_back(s.memory.allocate(p.in(i).bytes()));
  }
  const auto slice = [&](int64_t bytes) {
    return p.length > 1 && bytes % s.memory.alignment != 0 ? s.memory.allocate(bytes) : BufferPtr();
  };
  for (size_t i = 0; i < p.xs; ++i) {
    s.x_bytes.push_back(p.in(p.carry + i).bytes());
    s.x.push_back(slice(s.x_bytes[i]));
  }
  for (size_t i = 0; i < p.ys; ++i) {
    s.y_bytes.push_back(p.out(p.carry + i).bytes());
    s.y.push_back(slice(s.y_bytes[i]));
  }
  s.in.resize(p.body.inputs.size());
  s.out.resize(p.body.outputs.size());
  return [state](const void* const* in, void* const* out) {
    State& t = *state;
    if (t.length == 0)
      for (size_t i = 0; i < t.carry; ++i) t.memory.copy(out[i], in[i], t.carry_bytes[i]);
    for (size_t i = t.carry + t.xs; i < t.in.size(); ++i) t.in[i] = in[i];
    for (int64_t step = 0; step < t.length; ++step) {
      const int64_t at = t.reverse ? t.length - 1 - step : step;
      for (size_t i = 0; i < t.carry; ++i) {
        t.in[i] = step == 0 ? in[i] : (step % 2 ? t.even : t.odd)[i]->data();
        t.out[i] = step == t.length - 1 ? out[i] : (step % 2 ? t.odd : t.even)[i]->data();
      }
      for (size_t i = 0; i < t.xs; ++i) {
        const void* x = static_cast<const std::byte*>(in[t.carry + i]) + at * t.x_bytes[i];
        if (t.x[i]) t.memory.copy(t.x[i]->data(), x, t.x_bytes[i]);
        t.in[t.carry + i] = t.x[i] ? t.x[i]->data() : x;
      }
      const auto y = [&](size_t i) { return static_cast<std::byte*>(out[t.carry + i]) + at * t.y_bytes[i]; };
      for (size_t i = 0; i < t.ys; ++i) t.out[t.carry + i] = t.y[i] ? t.y[i]->data() : y(i);
      t.body(t.in.data(), t.out.data());
      for (size_t i = 0; i < t.ys; ++i)
        if (t.y[i]) t.memory.copy(y(i), t.y[i]->data(), t.y_bytes[i]);
    }
  };
}

constinit const Op scan_op = {
    .name = "scan",
    .type = scan_type,
    .forward = scan_forward,
    .vjp = scan_vjp,
    .batch = scan_batch,
    .alias = scan_alias,
    .own_varying = true,
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
