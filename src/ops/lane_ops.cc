#include "ops/lane_ops.h"

#include <cstring>
#include <numeric>

#include "base/check.h"
#include "comm/comm.h"
#include "comm/in_flight.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "sharding/lanes.h"

namespace lockstep {
namespace {

Reduction reduction(const Attrs& attrs) {
  const auto& kind = attrs.get<std::string>("kind");
  return kind == "sum" ? Reduction::sum : kind == "max" ? Reduction::max : Reduction::min;
}

std::string name_of(PendingReduction kind) {
  LOCKSTEP_CHECK(kind != PendingReduction::none, "no reduction is pending");
  return kind == PendingReduction::sum ? "sum" : kind == PendingReduction::max ? "max" : "min";
}

int64_t total(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

// Elements per row.
int64_t row(const Type& t) {
  int64_t n = 1;
  for (size_t d = 1; d < t.shape.size(); ++d) n *= t.shape[d];
  return n;
}

std::vector<int64_t> elements(const std::vector<int64_t>& counts, int64_t per_row) {
  std::vector<int64_t> out;
  for (int64_t c : counts) out.push_back(c * per_row);
  return out;
}

constexpr int64_t kCopyGrain = 128 << 10;

Comm& comm_of(const KernelSpec& spec) {
  const auto& axes = spec.attrs.get<std::string>("axes");
  Comm* comm = spec.comm ? spec.comm(axes) : nullptr;
  LOCKSTEP_CHECK(comm, "no communicator along {}", axes);
  return *comm;
}

// The kernels serve both the `cpu` and the `cuda` column: a Comm works on the memory of its lanes, host or GPU. The
// copy does, too. The threads of the lane's pool help.
std::function<void(void* to, const void* from, int64_t bytes)> copy_for(const KernelSpec& spec) {
  if (spec.copy) return spec.copy;
  return [&pool = spec.pool](void* to, const void* from, int64_t bytes) {
    if (to == from || bytes == 0) return;
    pool.parallel_range(bytes, kCopyGrain, [&](int64_t begin, int64_t end, int) {
      std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                  static_cast<size_t>(end - begin));
    });
  };
}

int64_t own_count(const Attrs& attrs) { return attrs.ints("counts")[static_cast<size_t>(attrs.integer("index"))]; }

const Type& block(std::string_view op, Types in, int64_t extent) {
  expect_operands(op, in, 1);
  LOCKSTEP_CHECK(!in[0].shape.empty() && in[0].shape[0] == extent, "{}: {} does not have {} rows", op, to_string(in[0]),
                 extent);
  return in[0];
}

Type with_rows(Type t, int64_t rows) {
  t.shape[0] = rows;
  return t;
}

// ---- all_reduce

std::vector<Type> all_reduce_type(Types in, const Attrs&) { return {in.begin(), in.end()}; }

bool all_reduce_alias(Types, Types, const Attrs&, size_t in, size_t out) { return in == out; }

Kernel all_reduce_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  const Reduction kind = reduction(spec.attrs);
  const std::vector<Type> types(spec.in.begin(), spec.in.end());
  auto works = std::make_shared<Works>(types.size());
  return [&comm, &pool = spec.pool, kind, types, works](const void* const* in, void* const* out) {
    try {
      for (size_t i = 0; i < types.size(); ++i)
        (*works)[i] = comm.start_all_reduce(in[i], out[i], count(types[i].shape), types[i].dtype, kind);
      for (Work& work : *works) work.wait(&pool);
    } catch (...) {
      abandon(*works);
      throw;
    }
  };
}

// ---- all_reduce in a start and a done equation

Works& works_of(const KernelSpec& spec, size_t operations) {
  LOCKSTEP_CHECK(spec.in_flight, "a collective was started outside of a plan");
  Works& works = spec.in_flight->of(spec.attrs.integer("id"));
  works.resize(operations);
  return works;
}

// Runs in place on the results, so that the operands' memory is free when this returns.
Kernel all_reduce_start_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  const std::vector<Type> types(spec.in.begin(), spec.in.end());
  return [&comm, kind = reduction(spec.attrs), types, copy = copy_for(spec), kept = spec.in_flight,
          works = &works_of(spec, spec.in.size())](const void* const* in, void* const* out) {
    for (size_t i = 0; i < types.size(); ++i) {
      copy(out[i], in[i], types[i].bytes());
      (*works)[i] = comm.start_all_reduce(out[i], out[i], count(types[i].shape), types[i].dtype, kind);
    }
  };
}

Kernel all_reduce_done_kernel(const KernelSpec& spec) {
  std::vector<int64_t> bytes;
  for (const Type& t : spec.in) bytes.push_back(t.bytes());
  return [bytes, &pool = spec.pool, copy = copy_for(spec), kept = spec.in_flight,
          works = &works_of(spec, spec.in.size())](const void* const* in, void* const* out) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      (*works)[i].wait(&pool);
      copy(out[i], in[i], bytes[i]);
    }
  };
}

// ---- gathers and scatters in a start and a done equation

// Takes the operand and the result of the start.
std::vector<Type> done_type(Types in, const Attrs&) {
  expect_operands("the done equation of a collective", in, 2);
  return {in[1]};
}

bool done_alias(Types, Types, const Attrs&, size_t in, size_t) { return in == 1; }

Kernel done_kernel(const KernelSpec& spec) {
  return [bytes = spec.in[1].bytes(), &pool = spec.pool, copy = copy_for(spec), kept = spec.in_flight,
          works = &works_of(spec, 1)](const void* const* in, void* const* out) {
    (*works)[0].wait(&pool);
    copy(out[0], in[1], bytes);
  };
}

// ---- all_gather

std::vector<Type> lane_all_gather_type(Types in, const Attrs& attrs) {
  return {with_rows(block("lane_all_gather", in, own_count(attrs)), total(attrs.ints("counts")))};
}

Kernel all_gather_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  return [&comm, &pool = spec.pool, counts = elements(spec.attrs.ints("counts"), row(spec.in[0])),
          dtype = spec.in[0].dtype](const void* const* in, void* const* out) {
    const PoolOfComm help(comm, pool);
    comm.all_gather(in[0], out[0], counts, dtype);
  };
}

Kernel all_gather_start_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  return [&comm, counts = elements(spec.attrs.ints("counts"), row(spec.in[0])), dtype = spec.in[0].dtype,
          kept = spec.in_flight, works = &works_of(spec, 1)](const void* const* in, void* const* out) {
    (*works)[0] = comm.start_all_gather(in[0], out[0], counts, dtype);
  };
}

// ---- reduce_scatter

std::vector<Type> reduce_scatter_type(Types in, const Attrs& attrs) {
  return {with_rows(block("lane_reduce_scatter", in, total(attrs.ints("counts"))), own_count(attrs))};
}

Kernel reduce_scatter_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  return [&comm, counts = elements(spec.attrs.ints("counts"), row(spec.in[0])), dtype = spec.in[0].dtype,
          &pool = spec.pool, kind = reduction(spec.attrs)](const void* const* in, void* const* out) {
    const PoolOfComm help(comm, pool);
    comm.reduce_scatter(in[0], out[0], counts, dtype, kind);
  };
}

Kernel reduce_scatter_start_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  return [&comm, counts = elements(spec.attrs.ints("counts"), row(spec.in[0])), dtype = spec.in[0].dtype,
          kind = reduction(spec.attrs), kept = spec.in_flight,
          works = &works_of(spec, 1)](const void* const* in, void* const* out) {
    (*works)[0] = comm.start_reduce_scatter(in[0], out[0], counts, dtype, kind);
  };
}

// ---- all_to_all

std::vector<Type> lane_all_to_all_type(Types in, const Attrs& attrs) {
  return {with_rows(block("lane_all_to_all", in, total(attrs.ints("send"))), total(attrs.ints("receive")))};
}

Kernel all_to_all_kernel(const KernelSpec& spec) {
  Comm& comm = comm_of(spec);
  return [&comm, &pool = spec.pool, send = spec.attrs.ints("send"), receive = spec.attrs.ints("receive"),
          dtype = spec.in[0].dtype](const void* const* in, void* const* out) {
    const PoolOfComm help(comm, pool);
    comm.all_to_all(in[0], out[0], send, receive, dtype);
  };
}

Value emit1(const Op& op, Value x, Attrs attrs) { return x.builder().emit(op, Values{x}, std::move(attrs))[0]; }

using Kind = LaneCollective::Kind;
constexpr LaneCollective kAllReduce = {Kind::all_reduce, &lane_all_reduce_op, &lane_all_reduce_start_op,
                                       &lane_all_reduce_done_op};
constexpr LaneCollective kAllGather = {Kind::all_gather, &lane_all_gather_op, &lane_all_gather_start_op,
                                       &lane_all_gather_done_op};
constexpr LaneCollective kReduceScatter = {Kind::reduce_scatter, &lane_reduce_scatter_op, &lane_reduce_scatter_start_op,
                                           &lane_reduce_scatter_done_op};
constexpr LaneCollective kAllToAll = {Kind::all_to_all, &lane_all_to_all_op};

bool is_whole(const Op& op, Kind kind) {
  return op.collective && op.collective->kind == kind && op.collective->whole == &op;
}

}  // namespace

bool is_all_reduce(const Eqn& eqn) { return is_whole(*eqn.op, Kind::all_reduce); }
bool is_all_gather(const Eqn& eqn) { return is_whole(*eqn.op, Kind::all_gather); }
bool is_reduce_scatter(const Eqn& eqn) { return is_whole(*eqn.op, Kind::reduce_scatter); }

constinit const Op lane_all_reduce_op = {.name = "lane_all_reduce",
                                         .type = all_reduce_type,
                                         .alias = all_reduce_alias,
                                         .collective = &kAllReduce,
                                         .cpu = all_reduce_kernel,
                                         .cuda = LOCKSTEP_CUDA(all_reduce_kernel)};
constinit const Op lane_all_reduce_start_op = {.name = "lane_all_reduce_start",
                                               .type = all_reduce_type,
                                               .alias = all_reduce_alias,
                                               .collective = &kAllReduce,
                                               .cpu = all_reduce_start_kernel,
                                               .cuda = LOCKSTEP_CUDA(all_reduce_start_kernel)};
constinit const Op lane_all_reduce_done_op = {.name = "lane_all_reduce_done",
                                              .type = all_reduce_type,
                                              .alias = all_reduce_alias,
                                              .collective = &kAllReduce,
                                              .cpu = all_reduce_done_kernel,
                                              .cuda = LOCKSTEP_CUDA(all_reduce_done_kernel)};
constinit const Op lane_all_gather_op = {.name = "lane_all_gather",
                                         .type = lane_all_gather_type,
                                         .takes_float8 = true,
                                         .collective = &kAllGather,
                                         .cpu = all_gather_kernel,
                                         .cuda = LOCKSTEP_CUDA(all_gather_kernel)};
constinit const Op lane_all_gather_start_op = {.name = "lane_all_gather_start",
                                               .type = lane_all_gather_type,
                                               .takes_float8 = true,
                                               .collective = &kAllGather,
                                               .cpu = all_gather_start_kernel,
                                               .cuda = LOCKSTEP_CUDA(all_gather_start_kernel)};
constinit const Op lane_all_gather_done_op = {.name = "lane_all_gather_done",
                                              .type = done_type,
                                              .alias = done_alias,
                                              .takes_float8 = true,
                                              .collective = &kAllGather,
                                              .cpu = done_kernel,
                                              .cuda = LOCKSTEP_CUDA(done_kernel)};
constinit const Op lane_reduce_scatter_op = {.name = "lane_reduce_scatter",
                                             .type = reduce_scatter_type,
                                             .collective = &kReduceScatter,
                                             .cpu = reduce_scatter_kernel,
                                             .cuda = LOCKSTEP_CUDA(reduce_scatter_kernel)};
constinit const Op lane_reduce_scatter_start_op = {.name = "lane_reduce_scatter_start",
                                                   .type = reduce_scatter_type,
                                                   .collective = &kReduceScatter,
                                                   .cpu = reduce_scatter_start_kernel,
                                                   .cuda = LOCKSTEP_CUDA(reduce_scatter_start_kernel)};
constinit const Op lane_reduce_scatter_done_op = {.name = "lane_reduce_scatter_done",
                                                  .type = done_type,
                                                  .alias = done_alias,
                                                  .collective = &kReduceScatter,
                                                  .cpu = done_kernel,
                                                  .cuda = LOCKSTEP_CUDA(done_kernel)};
constinit const Op lane_all_to_all_op = {.name = "lane_all_to_all",
                                         .type = lane_all_to_all_type,
                                         .takes_float8 = true,
                                         .collective = &kAllToAll,
                                         .cpu = all_to_all_kernel,
                                         .cuda = LOCKSTEP_CUDA(all_to_all_kernel)};

Values lane_all_reduce(const Values& x, const LaneGroup& group, PendingReduction kind) {
  return x[0].builder().emit(lane_all_reduce_op, x, {{"axes", join_axes(group.axes)}, {"kind", name_of(kind)}});
}

Value lane_all_gather(Value x, const LaneGroup& group, std::vector<int64_t> counts) {
  return emit1(lane_all_gather_op, x,
               {{"axes", join_axes(group.axes)}, {"counts", std::move(counts)}, {"index", group.index}});
}

Value lane_reduce_scatter(Value x, const LaneGroup& group, std::vector<int64_t> counts, PendingReduction kind) {
  return emit1(lane_reduce_scatter_op, x,
               {{"axes", join_axes(group.axes)},
                {"counts", std::move(counts)},
                {"index", group.index},
                {"kind", name_of(kind)}});
}

Value lane_all_to_all(Value x, const LaneGroup& group, std::vector<int64_t> send, std::vector<int64_t> receive) {
  return emit1(lane_all_to_all_op, x,
               {{"axes", join_axes(group.axes)}, {"receive", std::move(receive)}, {"send", std::move(send)}});
}

}  // namespace lockstep
