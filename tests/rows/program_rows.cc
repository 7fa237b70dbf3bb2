// References and samples of the rows that contain programs: those that lowering emits, and scan,
// cond, remat, custom_vjp and custom_jvp.
#include <fmt/format.h>

#include <algorithm>

#include "ops/host_call.h"
#include "ops/ops.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

ProgramPtr body(std::string_view text) { return std::make_shared<const Program>(parse(text, all_ops())); }

void run_body(const RefArrays& in, const Attrs& attrs, RefArrays& y) { y = reference_of(attrs.program("body"), in); }

void add_fused_row(std::vector<Row>& out) {
  Row fused{&fused_op, run_body, {}, false, true};
  auto add = [&](std::vector<SampleOperand> in, std::string_view text) {
    fused.samples.push_back({std::move(in), {{"body", body(text)}}});
  };
  add({{{f32, {3, 4}}}, {{f32, {4}}}}, R"(
    program(%0:f32[3,4], %1:f32[4]) {
      %2:f32[3,4] = broadcast[dims=[1], shape=[3,4]] %1
      %3:f32[3,4] = add %0 %2
      %4:f32[3,4] = tanh %3
      %5:f32[3,4] = mul %4 %0
      return %5 %3
    })");
  add({{{f32, {4, 3}}}, {{f32, {3, 4}}}, {{boolean, {}}}}, R"(
    program(%0:f32[4,3], %1:f32[3,4], %2:bool[]) {
      %3:f32[3,4] = transpose[permutation=[1,0]] %0
      %4:bool[3,4] = broadcast[dims=[], shape=[3,4]] %2
      %5:f32[3,4] = select %4 %3 %1
      %6:i32[3,4] = cast[dtype=i32] %5
      return %6
    })");
  add({{{bf16, {20, 300}}}, {{f32, {20, 300}}}}, R"(
    program(%0:bf16[20,300], %1:f32[20,300]) {
      %2:f32[20,300] = cast[dtype=f32] %0
      %3:f32[20,300] = full[dtype=f32, shape=[20,300], value=0.5]
      %4:f32[20,300] = mul %2 %3
      %5:f32[20,300] = sub %1 %4
      %6:bf16[20,300] = cast[dtype=bf16] %5
      return %5 %6
    })");
  add({{{i32, {0, 3}}}}, R"(
    program(%0:i32[0,3]) {
      %1:i32[0,3] = neg %0
      return %1
    })");
  add({{{f64, {6}}}}, R"(
    program(%0:f64[6]) {
      %1:f64[3] = slice[limits=[6], starts=[1], strides=[2]] %0
      %2:f64[3] = reverse[axes=[0]] %1
      %3:f64[3] = exp %2
      return %3
    })");
  out.push_back(std::move(fused));
}

void add_fused_einsum_row(std::vector<Row>& out) {
  Row einsum{&einsum_fused_op,
             [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
               RefArrays operands = reference_of(einsum_op, attrs, {in[0], in[1]});
               operands.insert(operands.end(), in.begin() + 2, in.end());
               y = reference_of(attrs.program("body"), operands);
             },
             {},
             false,
             true};
  auto add_einsum = [&](Type a, Type b, Type other, std::string spec, std::string_view text) {
    einsum.samples.push_back(
        {{{std::move(a)}, {std::move(b)}, {std::move(other)}}, {{"spec", std::move(spec)}, {"body", body(text)}}});
  };
  for (const char* t : {"f32", "f64", "bf16", "i32"}) {
    const DType dtype = *dtype_from_name(t);
    add_einsum({dtype, {5, 4}}, {dtype, {4, 6}}, {dtype, {6}}, "ik,kj->ij",
               fmt::format(R"(
      program(%0:{0}[5,6], %1:{0}[6]) {{
        %2:{0}[5,6] = broadcast[dims=[1], shape=[5,6]] %1
        %3:{0}[5,6] = add %0 %2
        %4:{0}[5,6] = abs %3
        return %4
      }})",
                           t));
  }
  add_einsum({f32, {2, 70, 30}}, {f32, {2, 30, 40}}, {f32, {2, 70, 40}}, "bik,bkj->bij", R"(
    program(%0:f32[2,70,40], %1:f32[2,70,40]) {
      %2:f32[2,70,40] = full[dtype=f32, shape=[2,70,40], value=0.1]
      %3:f32[2,70,40] = mul %0 %2
      %4:f32[2,70,40] = sub %1 %3
      return %4 %0
    })");
  add_einsum({f32, {4, 3}}, {f32, {5, 4}}, {f32, {5, 3}}, "ki,jk->ji", R"(
    program(%0:f32[5,3], %1:f32[5,3]) {
      %2:f32[5,3] = mul %0 %1
      return %2
    })");
  add_einsum({f32, {0, 3}}, {f32, {3, 2}}, {f32, {2}}, "ik,kj->ij", R"(
    program(%0:f32[0,2], %1:f32[2]) {
      %2:f32[0,2] = tanh %0
      return %2
    })");
  out.push_back(std::move(einsum));
}

RefArray slice_of(const RefArray& x, int64_t i) {
  RefArray out({x.type.dtype, Shape(x.shape().begin() + 1, x.shape().end())});
  std::copy_n(x.data.begin() + i * static_cast<std::ptrdiff_t>(out.data.size()), out.data.size(), out.data.begin());
  return out;
}

void scan_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  const auto carries = static_cast<size_t>(attrs.integer("carry")), xs = static_cast<size_t>(attrs.integer("xs"));
  const int64_t length = attrs.integer("length");
  RefArrays carry(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carries));
  for (int64_t step = 0; step < length; ++step) {
    const int64_t at = attrs.get<bool>("reverse") ? length - 1 - step : step;
    RefArrays args = carry;
    for (size_t i = carries; i < in.size(); ++i) args.push_back(i < carries + xs ? slice_of(in[i], at) : in[i]);
    const RefArrays results = reference_of(attrs.program("body"), args);
    for (size_t i = 0; i < results.size(); ++i) {
      if (i < carries)
        carry[i] = results[i];
      else
        std::copy(results[i].data.begin(), results[i].data.end(),
                  y[i].data.begin() + at * static_cast<std::ptrdiff_t>(results[i].data.size()));
    }
  }
  for (size_t i = 0; i < carries; ++i) y[i] = carry[i];
}

void add_scan(std::vector<Row>& out) {
  Row row{&scan_op, scan_reference, {}};
  auto add = [&](std::vector<SampleOperand> in, int64_t carry, int64_t xs, int64_t length, bool reverse,
                 std::string_view text) {
    row.samples.push_back(
        {std::move(in),
         {{"body", body(text)}, {"carry", carry}, {"xs", xs}, {"length", length}, {"reverse", reverse}}});
  };
  const char* recurrence = R"(
    program(%0:f32[3], %1:f32[3], %2:f32[3,3]) {
      %3:f32[3] = einsum[spec="ij,j->i"] %2 %0
      %4:f32[3] = add %3 %1
      %5:f32[3] = tanh %4
      %6:f32[3] = mul %5 %1
      return %5 %6
    })";
  for (const auto& [length, reverse] : {std::pair{4, false}, {5, true}, {1, false}, {0, false}})
    add({{{f32, {3}}}, {{f32, {length, 3}}}, {{f32, {3, 3}}}}, 1, 1, length, reverse, recurrence);
  add({{{i32, {}}}, {{f32, {2}}}, {{f32, {6, 2}}}}, 2, 1, 6, false, R"(
    program(%0:i32[], %1:f32[2], %2:f32[2]) {
      %3:i32[] = full[dtype=i32, shape=[], value=1]
      %4:i32[] = add %0 %3
      %5:f32[] = cast[dtype=f32] %0
      %6:f32[2] = broadcast[dims=[], shape=[2]] %5
      %7:f32[2] = mul %2 %6
      %8:f32[2] = add %1 %7
      return %4 %8
    })");
  // Carries that are swapped, a result that is an input, an output used twice.
  add({{{f64, {2}}}, {{f64, {2}}}, {{f64, {3, 2}}}, {{f64, {2}}}}, 2, 1, 3, false, R"(
    program(%0:f64[2], %1:f64[2], %2:f64[2], %3:f64[2]) {
      %4:f64[2] = mul %0 %3
      %5:f64[2] = add %4 %2
      return %1 %5 %0 %5
    })");
  // No xs: a plain loop.
  add({{{f64, {}}, {Domain::real, 0.5, 1.5}}}, 1, 0, 5, false, R"(
    program(%0:f64[]) {
      %1:f64[] = sqrt %0
      return %1 %0
    })");
  out.push_back(std::move(row));
}

void while_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  const Program &cond = attrs.program("cond"), &body = attrs.program("body");
  const auto carries = static_cast<std::ptrdiff_t>(body.outputs.size()),
             seen = static_cast<std::ptrdiff_t>(cond.inputs.size()) - carries;
  y.assign(in.end() - carries, in.end());
  while (true) {
    RefArrays args(in.begin(), in.begin() + seen);
    args.insert(args.end(), y.begin(), y.end());
    if (reference_of(cond, args)[0].data[0] == 0) return;
    args.assign(in.begin() + seen, in.end() - carries);
    args.insert(args.end(), y.begin(), y.end());
    y = reference_of(body, args);
  }
}

void add_while_loop(std::vector<Row>& out) {
  Row row{&while_loop_op, while_reference, {}};
  auto add = [&](std::vector<SampleOperand> in, std::string_view cond, std::string_view text) {
    row.samples.push_back({std::move(in), {{"cond", body(cond)}, {"body", body(text)}}, false});
  };
  // Constants of both programs, and carries of two types.
  add({{{i32, {}}, {Domain::real, 0, 5}}, {{f32, {3}}}, {{i32, {}}, {Domain::real, 0, 4}}, {{f32, {3}}}}, R"(
    program(%0:i32[], %1:i32[], %2:f32[3]) {
      %3:bool[] = lt %1 %0
      return %3
    })",
      R"(
    program(%0:f32[3], %1:i32[], %2:f32[3]) {
      %3:i32[] = full[dtype=i32, shape=[], value=1]
      %4:i32[] = add %1 %3
      %5:f32[3] = mul %2 %0
      %6:f32[3] = sub %5 %0
      return %4 %6
    })");
  // Halves until the sum is small.
  add({{{f32, {4}}}}, R"(
    program(%0:f32[4]) {
      %1:f32[4] = abs %0
      %2:f32[] = reduce_sum[axes=[0]] %1
      %3:f32[] = full[dtype=f32, shape=[], value=0.75]
      %4:bool[] = lt %3 %2
      return %4
    })",
      R"(
    program(%0:f32[4]) {
      %1:f32[4] = full[dtype=f32, shape=[4], value=0.5]
      %2:f32[4] = mul %0 %1
      return %2
    })");
  // Carries that are swapped, and one that stays; no round, one and two.
  for (int rounds : {0, 1, 2})
    add({{{i32, {}}, {Domain::real, double(rounds), double(rounds)}}, {{i32, {2}}}, {{i32, {2}}}, {{f64, {2}}}}, R"(
    program(%0:i32[], %1:i32[2], %2:i32[2], %3:f64[2]) {
      %4:i32[] = full[dtype=i32, shape=[], value=0]
      %5:bool[] = lt %4 %0
      return %5
    })",
        R"(
    program(%0:i32[], %1:i32[2], %2:i32[2], %3:f64[2]) {
      %4:i32[] = full[dtype=i32, shape=[], value=1]
      %5:i32[] = sub %0 %4
      return %5 %2 %1 %3
    })");
  out.push_back(std::move(row));
}

void cond_reference(const RefArrays& in, const Attrs& attrs, RefArrays& y) {
  const RefArrays operands(in.begin() + 1, in.end());
  const bool by_index = attrs.find("branch0") != nullptr;
  const int64_t last = attrs.find("branch2") ? 2 : 0, at = static_cast<int64_t>(in[0].data[0]);
  const std::string branch = by_index  ? fmt::format("branch{}", std::clamp<int64_t>(at, 0, last))
                             : at != 0 ? "if_true"
                                       : "if_false";
  y = reference_of(attrs.program(branch), operands);
}

void add_cond(std::vector<Row>& out) {
  Row row{&cond_op, cond_reference, {}};
  const ProgramPtr yes = body(R"(
    program(%0:f32[3], %1:f32[3]) {
      %2:f32[3] = mul %0 %1
      %3:f32[3] = sin %2
      return %3 %0
    })"),
                   no = body(R"(
    program(%0:f32[3], %1:f32[3]) {
      %2:f32[3] = full[dtype=f32, shape=[3], value=2.0]
      return %1 %2
    })");
  for (double p : {0.0, 1.0})
    row.samples.push_back(
        {{{{boolean, {}}, {Domain::real, p, p}}, {{f32, {3}}}, {{f32, {3}}}}, {{"if_true", yes}, {"if_false", no}}});
  row.samples.push_back({{{{boolean, {}}}, {{i32, {2, 2}}}},
                         {{"if_true", body("program(%0:i32[2,2]) {\n %1:i32[2,2] = neg %0\n return %1\n}")},
                          {"if_false", body("program(%0:i32[2,2]) {\n return %0\n}")}}});
  // An index, in range and outside of it; one branch.
  const ProgramPtr product = body(R"(
    program(%0:f32[3], %1:f32[3]) {
      %2:f32[3] = mul %0 %1
      return %1 %2
    })");
  for (double at : {-1.0, 0.0, 1.0, 2.0, 7.0})
    row.samples.push_back({{{{i32, {}}, {Domain::real, at, at}}, {{f32, {3}}}, {{f32, {3}}}},
                           {{"branch0", yes}, {"branch1", no}, {"branch2", product}}});
  row.samples.push_back({{{{i32, {}}, {Domain::real, 0, 2}}, {{f32, {3}}}, {{f32, {3}}}},
                         {{"branch0", yes}, {"branch1", no}, {"branch2", product}}});
  row.samples.push_back({{{{i32, {}}}, {{f32, {3}}}, {{f32, {3}}}}, {{"branch0", product}}});
  out.push_back(std::move(row));
}

void add_remat(std::vector<Row>& out) {
  const ProgramPtr layer = body(R"(
    program(%0:f32[3,4], %1:f32[4,2]) {
      %2:f32[3,2] = einsum[spec="ik,kj->ij"] %0 %1
      %3:f32[3,2] = tanh %2
      %4:f32[3,2] = mul %3 %3
      return %4 %3
    })");
  Row row{&remat_op, run_body, {}};
  row.samples.push_back({{{{f32, {3, 4}}}, {{f32, {4, 2}}}}, {{"body", layer}}});
  for (const char* policy : {"dots_saveable", "everything_saveable"})
    row.samples.push_back({{{{f32, {3, 4}}}, {{f32, {4, 2}}}}, {{"body", layer}, {"policy", std::string(policy)}}});
  row.samples.push_back({{{{i32, {2}}}, {{f32, {2}}}}, {{"body", body(R"(
    program(%0:i32[2], %1:f32[2]) {
      %2:f32[2] = cast[dtype=f32] %0
      %3:f32[2] = mul %1 %2
      %4:f32[2] = mul %3 %1
      return %4 %0
    })")}}});
  out.push_back(std::move(row));

  // A softplus with an explicit gradient, and a scale that is captured.
  Row custom{&custom_vjp_op, run_body, {}};
  custom.samples.push_back({{{{f32, {4}}}, {{f32, {4}}, {}, false}},
                            {{"arguments", int64_t{1}},
                             {"body", body(R"(
      program(%0:f32[4], %1:f32[4]) {
        %2:f32[4] = exp %0
        %3:f32[4] = log1p %2
        %4:f32[4] = mul %3 %1
        return %4
      })")},
                             {"forward", body(R"(
      program(%0:f32[4], %1:f32[4]) {
        %2:f32[4] = exp %0
        %3:f32[4] = log1p %2
        %4:f32[4] = mul %3 %1
        %5:f32[4] = logistic %0
        return %4 %5
      })")},
                             {"backward", body(R"(
      program(%0:f32[4], %1:f32[4], %2:f32[4], %3:f32[4]) {
        %4:f32[4] = mul %0 %1
        %5:f32[4] = mul %4 %3
        return %5
      })")}}});
  out.push_back(std::move(custom));
}

// A softplus with an explicit tangent, and a scale that is captured.
void add_custom_jvp(std::vector<Row>& out) {
  Row row{&custom_jvp_op, run_body, {}};
  row.samples.push_back({{{{f32, {4}}}, {{i32, {4}}}, {{f32, {4}}, {}, false}},
                         {{"arguments", int64_t{2}},
                          {"body", body(R"(
      program(%0:f32[4], %1:i32[4], %2:f32[4]) {
        %3:f32[4] = exp %0
        %4:f32[4] = log1p %3
        %5:f32[4] = mul %4 %2
        return %5 %1
      })")},
                          {"rule", body(R"(
      program(%0:f32[4], %1:i32[4], %2:f32[4], %3:f32[4]) {
        %4:f32[4] = exp %0
        %5:f32[4] = log1p %4
        %6:f32[4] = mul %5 %2
        %7:f32[4] = logistic %0
        %8:f32[4] = mul %7 %3
        %9:f32[4] = mul %8 %2
        return %6 %1 %9
      })")}}});
  out.push_back(std::move(row));
}

// Functions of the host: one that does nothing, and one that doubles its operand.
void add_host_calls(std::vector<Row>& out) {
  Row debug{&debug_callback_op, [](const RefArrays&, const Attrs&, RefArrays&) {}, {}};
  const auto effect = [](Effect each) {
    return Attrs{{"batch", int64_t{0}},
                 {"callback", HostFunction::none()},
                 {"effect", static_cast<int64_t>(each)},
                 {"text", std::string("x")}};
  };
  debug.samples.push_back({{{{f32, {3, 2}}}, {{i32, {}}}}, effect(Effect::once), false});
  debug.samples.push_back({{{{f32, {0}}}}, effect(Effect::everywhere), false});
  Attrs of_examples = effect(Effect::everywhere);
  of_examples.set("batch", int64_t{1});
  debug.samples.push_back({{{{f32, {12, 2}}}}, of_examples, false});
  out.push_back(std::move(debug));

  static const HostFunctionPtr doubled = HostFunction::make([](Types in, const void* const* x, Types, void* const* y) {
    for (int64_t i = 0; i < count(in[0].shape); ++i)
      static_cast<float*>(y[0])[i] = 2 * static_cast<const float*>(x[0])[i];
  });
  Row pure{&pure_callback_op,
           [](const RefArrays& in, const Attrs&, RefArrays& y) {
             for (size_t i = 0; i < y[0].data.size(); ++i) y[0].data[i] = 2 * in[0].data[i];
           },
           {}};
  for (const char* type : {"f32[3,2]", "f32[]"})
    pure.samples.push_back({{{type[4] == '3' ? Type{f32, {3, 2}} : Type{f32, {}}, {}, false}},
                            {{"batch", int64_t{0}},
                             {"callback", doubled},
                             {"results", body(fmt::format("program(%0:{}) {{\n return %0\n}}", type))}},
                            false});
  pure.samples.push_back(
      {{{{f32, {12, 3}}, {}, false}},
       {{"batch", int64_t{1}}, {"callback", doubled}, {"results", body("program(%0:f32[3]) {\n return %0\n}")}},
       false});
  out.push_back(std::move(pure));

  Row name{&checkpoint_name_op, run_body, {}};
  name.samples.push_back(
      {{{{f32, {3}}}}, {{"body", body("program(%0:f32[3]) {\n return %0\n}")}, {"name", std::string("hidden")}}});
  out.push_back(std::move(name));
}

}  // namespace

void add_program_rows(std::vector<Row>& out) {
  add_fused_row(out);
  add_fused_einsum_row(out);
  add_scan(out);
  add_while_loop(out);
  add_cond(out);
  add_remat(out);
  add_custom_jvp(out);
  add_host_calls(out);
}

}  // namespace lockstep
