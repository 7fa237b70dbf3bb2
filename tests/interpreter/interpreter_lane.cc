#include "interpreter/interpreter_lane.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "comm/comm.h"
#include "comm/in_flight.h"
#include "ops/fused.h"
#include "ops/ops.h"
#include "passes/passes.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

using CommOfAxes = std::function<Comm*(const std::string& axes)>;

// Device memory is host memory at other addresses: this bit is set in all of them, and in none of the host's.
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 54;

template <class T>
T* device_address(T* host) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(host) | kDeviceBit);
}

// Of host memory: the address itself.
template <class T>
T* host_address(T* any) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(any) & ~kDeviceBit);
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// The row whose `with_epilogue` is `op`, or null.
const Op* op_before_epilogue(const Op& op) {
  for (const Op* each : all_ops())
    if (each->with_epilogue == &op) return each;
  return nullptr;
}

bool has_program(const Attrs& attrs) {
  return std::any_of(attrs.begin(), attrs.end(),
                     [](const Attrs::Entry& entry) { return std::holds_alternative<ProgramPtr>(entry.second); });
}

// A program and the memory of all its values. Used by one thread.
class Interpreter {
 public:
  // `comm` as in PlanOptions.
  Interpreter(const Program& program, Lane& lane, Pool& pool, CommOfAxes comm)
      : program_(program),
        lane_(lane),
        pool_(pool),
        comm_(std::move(comm)),
        in_flight_(std::make_shared<InFlight>()),
        values_(program.types.begin(), program.types.end()) {
    for (const Eqn& eqn : program_.eqns) add_steps(*eqn.op, eqn.attrs, arrays(eqn.in), arrays(eqn.out));
  }

  // `in` and `out` are in host memory, and may be the same memory: inputs are read before outputs are written.
  void run(const void* const* in, void* const* out) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const HostArray& value = values_[program_.inputs[i]];
      copy_bytes(value.buffer->data(), in[i], value.type.bytes());
    }
    try {
      for (const auto& step : steps_) step();
    } catch (...) {
      in_flight_->abandon();
      throw;
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const HostArray& value = values_[program_.outputs[i]];
      copy_bytes(out[i], value.buffer->data(), value.type.bytes());
    }
  }

  const Program& program() const { return program_; }
  size_t steps() const { return steps_.size(); }
  int64_t bytes() const {
    int64_t out = 0;
    for (const HostArray& value : values_) out += value.buffer->size();
    return out;
  }

 private:
  // The arrays share the memory of the values.
  HostArrays arrays(const std::vector<ValueId>& ids) const {
    HostArrays out;
    for (const ValueId id : ids) out.push_back(values_[id]);
    return out;
  }

  void add_steps(const Op& op, const Attrs& attrs, const HostArrays& in, const HostArrays& out) {
    if (&op == &fused_op) {
      add_kernel(kernel_of(attrs.program("body")), in, out);
    } else if (const Op* const first = op_before_epilogue(op)) {
      const Program& body = attrs.program("body");
      const auto operands = static_cast<std::ptrdiff_t>(in.size() + 1 - body.inputs.size());
      Attrs without_body = attrs;
      without_body.erase("body");
      HostArrays body_in = {HostArray(body.types[body.inputs[0]])};
      add_steps(*first, without_body, {in.begin(), in.begin() + operands}, body_in);
      body_in.insert(body_in.end(), in.begin() + operands, in.end());
      add_kernel(kernel_of(body), body_in, out);
    } else if (op.is_collective() || has_program(attrs)) {
      const std::vector<Type> in_types = types_of(in), out_types = types_of(out);
      KernelSpec spec{in_types, out_types, attrs, pool_, {}};
      spec.compile = [this](const Program& sub) { return kernel_of(lower(sub)); };
      spec.comm = comm_;
      spec.in_flight = in_flight_;
      spec.copy = [&lane = lane_](void* to, const void* from, int64_t bytes) { lane.copy(to, from, bytes); };
      // A Comm works on memory of the lane.
      add_kernel(op.cpu(spec), in, out, op.is_collective() && lane_.info().space == MemorySpace::device);
    } else {
      steps_.emplace_back([&op, attrs, in, out] {
        RefArrays operands;
        for (const HostArray& x : in) operands.push_back(to_reference(x));
        const RefArrays results = reference_of(op, attrs, operands);
        for (size_t k = 0; k < out.size(); ++k)
          copy_bytes(out[k].buffer->data(), from_reference(results[k]).buffer->data(), out[k].type.bytes());
      });
    }
  }

  // `on_device`: the kernel gets the device addresses of the arrays.
  void add_kernel(Kernel kernel, const HostArrays& in, const HostArrays& out, bool on_device = false) {
    const auto address = [&](const HostArray& x) {
      return on_device ? device_address(x.buffer->data()) : x.buffer->data();
    };
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const HostArray& x : in) from.push_back(address(x));
    for (const HostArray& y : out) to.push_back(address(y));
    // Holds the arrays: those between an op and its epilogue belong to this step.
    steps_.emplace_back([kernel = std::move(kernel), from, to, in, out] { kernel(from.data(), to.data()); });
  }

  Kernel kernel_of(const Program& sub) const {
    auto interpreter = std::make_shared<Interpreter>(sub, lane_, pool_, comm_);
    return [interpreter](const void* const* in, void* const* out) { interpreter->run(in, out); };
  }

  const Program program_;
  Lane& lane_;
  Pool& pool_;
  const CommOfAxes comm_;
  const std::shared_ptr<InFlight> in_flight_;
  const HostArrays values_;
  std::vector<std::function<void()>> steps_;
};

// Every output takes the memory of the first donated input of its size that is left.
std::vector<int> choose_donated(const Program& program, std::vector<bool> donated) {
  donated.resize(program.inputs.size(), false);
  std::vector<int> out;
  for (const ValueId id : program.outputs) {
    out.push_back(-1);
    for (size_t i = 0; i < donated.size() && out.back() < 0; ++i) {
      if (!donated[i] || program.types[program.inputs[i]].bytes() != program.types[id].bytes()) continue;
      out.back() = static_cast<int>(i);
      donated[i] = false;
    }
  }
  return out;
}

class InterpreterPlan final : public LanePlan {
 public:
  InterpreterPlan(const Program& program, Lane& lane, Pool& pool, const PlanOptions& options)
      : interpreter_(program, lane, pool, options.comm), donated_input_(choose_donated(program, options.donated)) {}

  void run(const void* const* in, void* const* out) override {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (size_t i = 0; i < interpreter_.program().inputs.size(); ++i) from.push_back(host_address(in[i]));
    for (size_t i = 0; i < interpreter_.program().outputs.size(); ++i) to.push_back(host_address(out[i]));
    interpreter_.run(from.data(), to.data());
  }
  int donated_input(size_t output) const override { return donated_input_[output]; }
  int64_t arena_bytes() const override { return interpreter_.bytes(); }
  size_t instructions() const override { return interpreter_.steps(); }
  std::string describe() const override {
    const Program& program = interpreter_.program();
    const auto types = [&](const std::vector<ValueId>& ids) {
      std::string out;
      for (const ValueId id : ids) out += " " + to_string(program.types[id]);
      return out;
    };
    std::string out;
    for (const Eqn& eqn : program.eqns) out += fmt::format("{}{} ->{}\n", eqn.op->name, types(eqn.in), types(eqn.out));
    return out;
  }

 private:
  Interpreter interpreter_;
  const std::vector<int> donated_input_;
};

// The contents are copied at once, so nothing that runs later can change them.
class InterpreterReadback final : public Readback {
 public:
  explicit InterpreterReadback(BufferPtr host) : host_(std::move(host)) {}
  BufferPtr wait() override { return std::move(host_); }

 private:
  BufferPtr host_;
};

// Passes each operation on to a host Comm, with addresses of the host.
class InterpreterComm final : public Comm {
 public:
  explicit InterpreterComm(Comm& host) : Comm(host.rank(), host.size(), host.name(), host.timeout()), host_(host) {}
  explicit InterpreterComm(std::unique_ptr<Comm> host) : InterpreterComm(*host) { owned_ = std::move(host); }

  void abort(const std::string& reason) override { host_.abort(reason); }

 private:
  using Kind = Operation::Kind;

  void* start(const Operation& operation) override { return new Work(start_on_host(operation)); }
  void finish(void* state) override { std::unique_ptr<Work>(static_cast<Work*>(state))->wait(); }
  void abandon(void* state) noexcept override { delete static_cast<Work*>(state); }

  Work start_on_host(const Operation& o) {
    share_timeout();
    const void* const in = host_address(o.in);
    void* const out = host_address(o.out);
    switch (o.kind) {
      case Kind::all_reduce:
        return host_.start_all_reduce(in, out, o.count, o.dtype, o.reduction);
      case Kind::reduce_scatter:
        return host_.start_reduce_scatter(in, out, o.counts, o.dtype, o.reduction);
      case Kind::all_gather:
        return host_.start_all_gather(in, out, o.counts, o.dtype);
      case Kind::all_to_all:
        return host_.start_all_to_all(in, out, o.counts, o.receive_counts, o.dtype);
      case Kind::permute:
        return host_.start_permute(in, out, o.count, o.dtype, o.routes);
      case Kind::broadcast:
        return host_.start_broadcast(out, o.count, o.dtype, o.root);
      case Kind::barrier:
      case Kind::split:
        break;
    }
    return host_.start_barrier();
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override {
    share_timeout();
    return std::make_unique<InterpreterComm>(host_.split(ranks, name));
  }

  // The host Comm waits, so a new timeout of this one is set there.
  void share_timeout() {
    if (timeout() != host_timeout_) host_.set_timeout(host_timeout_ = timeout());
  }

  std::unique_ptr<Comm> owned_;
  Comm& host_;
  std::chrono::nanoseconds host_timeout_ = timeout();
};

}  // namespace

InterpreterLane::InterpreterLane(Pool& pool, MemorySpace space)
    : info_{.platform = "interpreter", .name = "interpreter", .space = space}, pool_(pool) {}

BufferPtr InterpreterLane::allocate(int64_t bytes, const char*) {
  BufferPtr host = lockstep::allocate(bytes);
  if (info_.space != MemorySpace::device) return host;
  std::byte* const data = device_address(host->data());
  return Allocator::host().adopt(
      data, bytes, new BufferPtr(std::move(host)), [](void* owner) { delete static_cast<BufferPtr*>(owner); },
      MemorySpace::device);
}

void InterpreterLane::copy(void* to, const void* from, int64_t bytes) {
  copy_bytes(host_address(to), host_address(from), bytes);
}

std::unique_ptr<Readback> InterpreterLane::read_back(const BufferPtr& buffer) {
  return std::make_unique<InterpreterReadback>(download(buffer));
}

std::unique_ptr<LanePlan> InterpreterLane::compile(const Program& program, const PlanOptions& options) {
  return std::make_unique<InterpreterPlan>(program, *this, pool_, options);
}

std::shared_ptr<Comm> InterpreterLane::device_comm(Comm& host) { return std::make_shared<InterpreterComm>(host); }

}  // namespace lockstep
