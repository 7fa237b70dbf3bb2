// while_loop: repeats `body` while `cond` returns true. The operands are the constants of `cond`, those of `body`, then
// the carries; the results are the last carries. Both programs take their constants, then the carries.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "lane/buffer.h"
#include "ops/control.h"
#include "ops/cuda/kernels.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

std::ptrdiff_t offset(size_t n) { return static_cast<std::ptrdiff_t>(n); }

template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The parts of the operands.
struct WhileParts {
  const Program &cond, &body;
  size_t carries, cond_constants, body_constants;

  explicit WhileParts(const Attrs& attrs)
      : cond(attrs.program("cond")), body(attrs.program("body")), carries(body.outputs.size()) {
    if (cond.inputs.size() < carries || body.inputs.size() < carries)
      throw_error(
          "while_loop: {} carries, but the condition takes {} arrays and the body {}; both must take all carries",
          carries, cond.inputs.size(), body.inputs.size());
    cond_constants = cond.inputs.size() - carries;
    body_constants = body.inputs.size() - carries;
  }
  size_t first_carry() const { return cond_constants + body_constants; }
  size_t operands() const { return first_carry() + carries; }

  template <class Range>
  auto cond_part(const Range& all) const {
    return std::vector(all.begin(), all.begin() + offset(cond_constants));
  }
  template <class Range>
  auto body_part(const Range& all) const {
    return std::vector(all.begin() + offset(cond_constants), all.begin() + offset(first_carry()));
  }
  template <class Range>
  auto carry_part(const Range& all) const {
    return std::vector(all.begin() + offset(first_carry()), all.end());
  }
};

void expect_types(const char* what, const std::vector<Type>& wanted, const std::vector<Type>& got) {
  for (size_t i = 0; i < wanted.size(); ++i)
    if (got[i] != wanted[i])
      throw_error("while_loop: the {} takes {} as array {} and got {}; pass an array of that type", what,
                  to_string(wanted[i]), i, to_string(got[i]));
}

std::vector<Type> while_type(Types in, const Attrs& attrs) {
  const WhileParts p(attrs);
  if (in.size() != p.operands())
    throw_error("while_loop: the programs take {} arrays and got {}", p.operands(), in.size());
  const std::vector<Type> carries = p.carry_part(in), predicate = p.cond.output_types();
  expect_types("condition", p.cond.input_types(), joined(p.cond_part(in), carries));
  expect_types("body", p.body.input_types(), joined(p.body_part(in), carries));
  if (predicate.size() != 1 || predicate[0].dtype != DType::boolean || predicate[0].rank() != 0)
    throw_error("while_loop: the condition returns {}; it must return one bool scalar",
                predicate.size() == 1 ? to_string(predicate[0]) : fmt::format("{} arrays", predicate.size()));
  const std::vector<Type> out = p.body.output_types();
  for (size_t i = 0; i < p.carries; ++i) {
    if (out[i] != carries[i])
      throw_error("while_loop: carry {} is {} before and {} after a round; the body must keep its type", i,
                  to_string(carries[i]), to_string(out[i]));
    if (union_of(out[i].varying, predicate[0].varying) != out[i].varying)
      throw_error("while_loop: carry {} is {}, but the number of rounds varies as the condition {}; pvary the carry", i,
                  to_string(out[i]), to_string(predicate[0]));
  }
  return out;
}

// No gradient flows to what only the condition reads.
Grads while_vjp(const Vjp& v) {
  const WhileParts p(v.attrs);
  if (std::none_of(v.wanted.begin() + offset(p.cond_constants), v.wanted.end(), [](bool wanted) { return wanted; }))
    return Grads(v.in.size());
  throw ForwardModeOnly(detail::with_caller_line(
      "while_loop: has no reverse-mode gradient, because the number of rounds is unknown when the function is traced; "
      "use scan, or fori_loop with integers as bounds, or define the gradient with custom_vjp"));
}

// Tangents are carried beside their carries. Every floating carry has one. The condition reads the carries only.
JvpResult while_jvp(const Jvp& j) {
  const WhileParts p(j.attrs);
  const Values in(j.in.begin(), j.in.end()), given(j.tangents.begin(), j.tangents.end());
  std::vector<bool> wanted;
  Values constants = p.body_part(in), carries = p.carry_part(in), constant_tangents, carry_tangents;
  for (const Value& t : p.body_part(given)) {
    wanted.push_back(static_cast<bool>(t));
    if (t) constant_tangents.push_back(t);
  }
  for (size_t i = 0; i < p.carries; ++i) {
    const Value& x = carries[i];
    const Value& t = given[p.first_carry() + i];
    wanted.push_back(is_inexact(x.dtype()));
    if (wanted.back()) carry_tangents.push_back(t ? t : full(j.builder, x.type(), 0.0));
  }
  const Program both = j.passes.jvp(p.body, wanted);
  // The inputs of `both` come in the order constants, carries, tangents of constants, tangents of carries.
  Builder body, cond;
  const auto inputs = [](Builder& b, const Values& like) {
    Values out;
    for (const Value& v : like) out.push_back(b.input(v.type()));
    return out;
  };
  const Values c = inputs(body, constants), ct = inputs(body, constant_tangents), x = inputs(body, carries),
               xt = inputs(body, carry_tangents);
  const Program new_body = body.take(body.inline_program(both, joined(joined(c, x), joined(ct, xt))));
  const Values seen = inputs(cond, joined(p.cond_part(in), carries));
  inputs(cond, carry_tangents);
  const Program new_cond = cond.take(cond.inline_program(p.cond, seen));
  Values out =
      while_loop(j.builder, std::make_shared<const Program>(new_cond), std::make_shared<const Program>(new_body),
                 p.cond_part(in), joined(constants, constant_tangents), joined(carries, carry_tangents));
  JvpResult result;
  for (size_t i = 0, t = p.carries; i < p.carries; ++i)
    result.tangents.push_back(wanted[p.body_constants + i] ? out[t++] : Value());
  out.resize(p.carries);
  result.out = std::move(out);
  return result;
}

// The batch of a loop whose condition differs between examples: it runs until all examples are done, and those that are
// done keep their carries. The first carry says which examples go on.
class LoopUntilAllAreDone {
 public:
  LoopUntilAllAreDone(const WhileParts& p, const Program& cond, const Program& body)
      : p_(p), cond_(cond), body_(body) {}

  Values emit(Builder& b, const Values& in) const {
    const Values carries = p_.carry_part(in), seen = p_.cond_part(in);
    const Value going = b.inline_program(cond_, joined(seen, carries))[0];
    Values out = while_loop(b, any_going(going, carries), next_round(going, in), {}, joined(seen, p_.body_part(in)),
                            joined({going}, carries));
    out.erase(out.begin());
    return out;
  }

 private:
  static ProgramPtr any_going(Value going, const Values& carries) {
    Builder b;
    const Value input = b.input(going.type());
    for (const Value& x : carries) b.input(x.type());
    return std::make_shared<const Program>(b.take(Values{reduce_or(input, {0})}));
  }

  // (constants..., going, carries...) -> (going, carries...)
  ProgramPtr next_round(Value going, const Values& in) const {
    Builder b;
    Values args;
    for (size_t i = 0; i < p_.first_carry(); ++i) args.push_back(b.input(in[i].type()));
    const Value now = b.input(going.type());
    for (const Value& x : p_.carry_part(in)) args.push_back(b.input(x.type()));
    const Values before = p_.carry_part(args);
    Values after = b.inline_program(body_, joined(p_.body_part(args), before));
    for (size_t i = 0; i < after.size(); ++i)
      if (after[i] != before[i]) after[i] = select(broadcast(now, after[i].shape(), {0}), after[i], before[i]);
    const Value next = b.inline_program(cond_, joined(p_.cond_part(args), after))[0];
    return std::make_shared<const Program>(b.take(joined({next}, after)));
  }

  const WhileParts& p_;
  const Program &cond_, &body_;
};

Batched while_batch(const Batch& b) {
  const WhileParts p(b.attrs);
  std::vector<bool> batched = p.carry_part(b.batched);
  // A carry is batched if its initial value is, if the body makes it so, or if the body changes it and the condition is
  // batched.
  while (true) {
    const BatchedProgram cond = b.passes.batch(p.cond, joined(p.cond_part(b.batched), batched), b.size, {}, b.axis);
    const auto body_with = [&](const std::vector<bool>& force) {
      return b.passes.batch(p.body, joined(p.body_part(b.batched), batched), b.size, force, b.axis);
    };
    BatchedProgram body = body_with(batched);
    if (cond.batched[0]) {
      std::vector<bool> force = batched;
      for (size_t i = 0; i < p.carries; ++i)
        force[i] = force[i] || body.program.outputs[i] != body.program.inputs[p.body_constants + i];
      body = body_with(force);
    }
    if (body.batched != batched) {
      batched = body.batched;
      continue;
    }
    Values in(b.in.begin(), b.in.end());
    for (size_t i = 0; i < p.carries; ++i)
      if (batched[i]) in[p.first_carry() + i] = with_batch(b, p.first_carry() + i);
    if (cond.batched[0]) return {LoopUntilAllAreDone(p, cond.program, body.program).emit(b.builder, in), batched};
    return {
        while_loop(b.builder, std::make_shared<const Program>(cond.program),
                   std::make_shared<const Program>(body.program), p.cond_part(in), p.body_part(in), p.carry_part(in)),
        batched};
  }
}

// Results are written after the last round.
bool while_alias(Types, Types, const Attrs& attrs, size_t in, size_t out) {
  return in == WhileParts(attrs).first_carry() + out;
}

// Constants keep their value; carries do not.
int while_operand(const Eqn& eqn, std::string_view name, size_t input) {
  const WhileParts p(eqn.attrs);
  if (name == "cond") return input < p.cond_constants ? static_cast<int>(input) : -1;
  return input < p.body_constants ? static_cast<int>(p.cond_constants + input) : -1;
}

// The kernel: evaluates the condition once, then runs one program per round. The carries alternate between two buffers
// each.
class WhileLoop {
 public:
  explicit WhileLoop(const KernelSpec& spec)
      : condition_(spec.compile(while_condition(spec.attrs))),
        step_(spec.compile(while_step(spec.attrs))),
        predicate_(allocate(1)),
        carries_(spec.out.size()),
        constants_(spec.in.size() - carries_),
        in_(spec.in.size()),
        out_(carries_ + 1) {
    for (const Type& type : spec.out) {
      bytes_.push_back(type.bytes());
      for (std::vector<BufferPtr>* each : {&even_, &odd_}) each->push_back(allocate(type.bytes()));
    }
  }

  void run(const void* const* in, void* const* out) {
    std::copy_n(in + constants_, carries_, in_.begin());
    std::copy_n(in, constants_, in_.begin() + offset(carries_));
    void* const predicate = out_.back() = predicate_->data();
    condition_(in, &predicate);
    for (bool odd = false; *predicate_->as<bool>(); odd = !odd) {
      for (size_t i = 0; i < carries_; ++i) out_[i] = (odd ? odd_ : even_)[i]->data();
      step_(in_.data(), out_.data());
      std::copy_n(out_.begin(), carries_, in_.begin());
    }
    for (size_t i = 0; i < carries_; ++i)
      if (in_[i] != out[i] && bytes_[i] > 0) std::memcpy(out[i], in_[i], static_cast<size_t>(bytes_[i]));
  }

 private:
  const Kernel condition_, step_;
  const BufferPtr predicate_;
  const size_t carries_, constants_;
  std::vector<int64_t> bytes_;
  std::vector<BufferPtr> even_, odd_;
  std::vector<const void*> in_;  // of a step: carries, then constants
  std::vector<void*> out_;       // of a step: carries, then the predicate
};

Kernel while_cpu(const KernelSpec& spec) {
  auto loop = std::make_shared<WhileLoop>(spec);
  return [loop](const void* const* in, void* const* out) { loop->run(in, out); };
}

Values inputs_like(Builder& b, const Program& p, size_t first, size_t last) {
  Values out;
  for (size_t i = first; i < last; ++i) out.push_back(b.input(p.types[p.inputs[i]]));
  return out;
}

}  // namespace

Program while_condition(const Attrs& attrs) {
  const WhileParts p(attrs);
  Builder b;
  const Values constants = inputs_like(b, p.cond, 0, p.cond_constants);
  inputs_like(b, p.body, 0, p.body_constants);
  const Values carries = inputs_like(b, p.cond, p.cond_constants, p.cond.inputs.size());
  return b.take(b.inline_program(p.cond, joined(constants, carries)));
}

Program while_step(const Attrs& attrs) {
  const WhileParts p(attrs);
  Builder b;
  const Values carries = inputs_like(b, p.body, p.body_constants, p.body.inputs.size()),
               seen = inputs_like(b, p.cond, 0, p.cond_constants),
               constants = inputs_like(b, p.body, 0, p.body_constants);
  const Values next = b.inline_program(p.body, joined(constants, carries));
  return b.take(joined(next, b.inline_program(p.cond, joined(seen, next))));
}

constinit const Op while_loop_op = {
    .name = "while_loop",
    .type = while_type,
    .vjp = while_vjp,
    .jvp = while_jvp,
    .batch = while_batch,
    .alias = while_alias,
    .takes_float8 = true,
    .own_varying = true,
    .operand_of_input = while_operand,
    .cpu = while_cpu,
    .cuda = LOCKSTEP_CUDA(while_cuda),
};

Values while_loop(Builder& b, ProgramPtr cond, ProgramPtr body, const Values& cond_constants,
                  const Values& body_constants, const Values& carries) {
  return b.emit(while_loop_op, joined(joined(cond_constants, body_constants), carries),
                {{"cond", std::move(cond)}, {"body", std::move(body)}});
}

}  // namespace lockstep
