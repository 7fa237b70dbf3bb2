#include "plan/lane_conformance.h"

#include <cstring>
#include <thread>

#include "comm/in_process.h"
#include "ops/ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes pattern(int64_t bytes, uint32_t seed) {
  Bytes out(static_cast<size_t>(bytes));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i * 7 + i / 251 + seed);
  return out;
}

Program lowered(std::string_view text) { return lower(parse(text, all_ops())); }

// Small integers, so that every lane computes the same bits.
HostArrays inputs_of(const Program& program, uint32_t seed) {
  HostArrays out;
  for (const Type& type : program.input_types()) out.push_back(small_integers(type, ++seed));
  return out;
}

void expect_same(const HostArrays& got, const HostArrays& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].values(), wanted[i].values()) << "output " << i;
}

constexpr const char* kElementwise = R"(
  program(%0:f32[3,4], %1:f32[4], %2:bool[3,4]) {
    %3:f32[3,4] = broadcast[dims=[1], shape=[3,4]] %1
    %4:f32[3,4] = mul %0 %3
    %5:f32[3,4] = sub %4 %0
    %6:f32[3,4] = select %2 %5 %3
    %7:i32[3,4] = cast[dtype=i32] %6
    return %6 %7
  })";
constexpr const char* kProduct = R"(
  program(%0:f32[5,70], %1:f32[70,33], %2:f32[33]) {
    %3:f32[5,33] = einsum[spec="ik,kj->ij"] %0 %1
    %4:f32[5,33] = broadcast[dims=[1], shape=[5,33]] %2
    %5:f32[5,33] = add %3 %4
    %6:f32[5] = reduce_max[axes=[1]] %5
    return %5 %6
  })";
constexpr const char* kScan = R"(
  program(%0:f32[2], %1:f32[5,2]) {
    %2:f32[2], %3:f32[5,2] = scan[body=program(%0:f32[2], %1:f32[2]) {
      %2:f32[2] = maximum %0 %1
      %3:f32[2] = sub %2 %1
      return %2 %3
    }, carry=1, length=5, reverse=false, xs=1] %0 %1
    return %2 %3
  })";
constexpr const char* kCond = R"(
  program(%0:bool[], %1:i32[6]) {
    %2:i32[6] = cond[if_false=program(%0:i32[6]) {
      return %0
    }, if_true=program(%0:i32[6]) {
      %1:i32[6] = neg %0
      return %1
    }] %0 %1
    return %2
  })";
constexpr const char* kConstants = R"(
  program(%0:i32[4]) {
    %1:i32[4] = iota[dim=0, dtype=i32, shape=[4]]
    %2:i32[4] = full[dtype=i32, shape=[4], value=3]
    %3:i32[4] = mul %1 %2
    %4:i32[4] = add %0 %3
    return %3 %4 %2
  })";
constexpr const char* kInputsAsOutputs = R"(
  program(%0:f32[3], %1:f32[3], %2:f32[]) {
    %3:f32[3] = add %0 %1
    return %1 %0 %3 %3 %2 %0
  })";
constexpr const char* kNoInputs = R"(
  program() {
    %0:f32[2,2] = full[dtype=f32, shape=[2,2], value=0.5]
    return %0
  })";
constexpr const char* kEmptyArrays = R"(
  program(%0:f32[0,3], %1:f32[2]) {
    %2:f32[0,3] = neg %0
    %3:f32[3] = reduce_sum[axes=[0]] %2
    %4:f32[2] = neg %1
    return %2 %3 %4
  })";
constexpr const char* kNarrowTypes = R"(
  program(%0:u8[5], %1:bf16[5], %2:i64[3]) {
    %3:bf16[5] = cast[dtype=bf16] %0
    %4:bf16[5] = add %1 %3
    %5:i64[3] = mul %2 %2
    return %4 %5
  })";
constexpr const char* kUpdate = R"(
  program(%0:f32[40], %1:f32[40], %2:f32[40]) {
    %3:f32[40] = add %0 %2
    %4:f32[40] = sub %1 %2
    return %4 %3
  })";
constexpr const char* kSwap = R"(
  program(%0:f32[40], %1:f32[40]) {
    return %1 %0
  })";
constexpr const char* kReversed = R"(
  program(%0:f32[40], %1:i32[40]) {
    %2:f32[40] = reverse[axes=[0]] %0
    %3:f32[40] = add %0 %2
    %4:f32[] = reduce_sum[axes=[0]] %0
    return %3 %4 %2
  })";
const std::vector<const char*> kPrograms = {kElementwise, kProduct,         kScan,     kCond,
                                            kConstants,   kInputsAsOutputs, kNoInputs, kEmptyArrays,
                                            kNarrowTypes, kUpdate,          kSwap,     kReversed};

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LaneConformance);

void LaneConformance::SetUp() {
  lane_ = GetParam().make(0);
  if (!lane_) GTEST_SKIP() << "no such lane on this machine";
}

BufferPtr LaneConformance::on_lane(const HostArray& array) {
  BufferPtr out = lane().allocate(array.type.bytes());
  lane().copy_from_host(out->data(), array.buffer->data(), array.type.bytes());
  return out;
}

HostArray LaneConformance::from_lane(const Type& type, const void* data) {
  HostArray out(type);
  lane().copy_to_host(out.buffer->data(), data, type.bytes());
  return out;
}

std::unique_ptr<LanePlan> LaneConformance::compile(const Program& program, const std::vector<bool>& donated) {
  const Program temporary = program;  // a plan outlives its program
  return lane().compile(temporary, {.donated = donated});
}

HostArrays LaneConformance::run(LanePlan& plan, const Program& program, const HostArrays& inputs,
                                const std::vector<bool>& donated) {
  std::vector<BufferPtr> held, made;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const HostArray& input : inputs) in.push_back(held.emplace_back(on_lane(input))->data());
  const std::vector<Type> types = program.output_types();
  for (size_t i = 0; i < types.size(); ++i) {
    const int from = plan.donated_input(i);
    made.push_back(from >= 0 ? held.at(static_cast<size_t>(from)) : lane().allocate(types[i].bytes()));
    out.push_back(made.back()->data());
  }
  plan.run(in.data(), out.data());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < donated.size() && donated[i]) continue;
    EXPECT_EQ(from_lane(inputs[i].type, in[i]).values(), inputs[i].values()) << "input " << i << " has changed";
  }
  HostArrays results;
  for (size_t i = 0; i < types.size(); ++i) results.push_back(from_lane(types[i], out[i]));
  return results;
}

// ---- memory

TEST_P(LaneConformance, InfoNamesTheLane) {
  EXPECT_NE(lane().info().platform, "");
  EXPECT_NE(lane().info().name, "");
}

TEST_P(LaneConformance, AllocatesAnySizeInItsSpace) {
  std::vector<BufferPtr> all;
  for (const int64_t bytes : {0, 1, 3, 64, 1000, 0, 5 << 20}) {
    const BufferPtr& made = all.emplace_back(lane().allocate(bytes, "a test"));
    EXPECT_EQ(made->size(), bytes);
    EXPECT_EQ(made->space(), lane().info().space);
    EXPECT_TRUE(lane().can_use(*made));
    EXPECT_TRUE(made->unique());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(made->data()) % 64, 0u) << bytes << " bytes";
  }
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (all[i]->size() == 0 || all[j]->size() == 0) continue;
      const std::byte *const a = all[i]->data(), *const b = all[j]->data();
      EXPECT_TRUE(a + all[i]->size() <= b || b + all[j]->size() <= a) << i << " and " << j << " overlap";
    }
}

TEST_P(LaneConformance, BuffersMayBeFreedOnAnotherThread) {
  BufferPtr made = lane().allocate(1000, "a test");
  std::thread([made = std::move(made)]() mutable { made.reset(); }).join();
}

// ---- copies

TEST_P(LaneConformance, CopiesFromAndToHostMemory) {
  for (const int64_t bytes : {0, 1, 63, 4096, 3 << 20}) {
    const Bytes wanted = pattern(bytes, 1);
    const BufferPtr there = lane().allocate(bytes, "a test");
    Bytes from = wanted, to(wanted.size());
    lane().copy_from_host(there->data(), from.data(), bytes);
    std::fill(from.begin(), from.end(), uint8_t{0});  // may be reused
    lane().copy_to_host(to.data(), there->data(), bytes);
    EXPECT_EQ(to, wanted) << bytes << " bytes";
  }
}

TEST_P(LaneConformance, CopiesWithinItsMemory) {
  const Bytes wanted = pattern(1000, 2);
  const BufferPtr a = lane().allocate(1000, "a test"), b = lane().allocate(1000, "a test");
  lane().copy_from_host(a->data(), wanted.data(), 1000);
  lane().copy(b->data() + 5, a->data(), 500);
  lane().copy(b->data(), a->data() + 995, 5);
  lane().copy(b->data(), a->data(), 0);
  const BufferPtr part = lane().copy_of(*b, 3, 400);
  EXPECT_EQ(part->size(), 400);
  Bytes got(400);
  lane().copy_to_host(got.data(), part->data(), 400);
  Bytes all(wanted.begin() + 995, wanted.end());
  all.insert(all.end(), wanted.begin(), wanted.end());
  EXPECT_EQ(got, Bytes(all.begin() + 3, all.begin() + 403));
}

TEST_P(LaneConformance, UploadsAndDownloads) {
  const BufferPtr host = lockstep::allocate(100);
  const Bytes wanted = pattern(100, 3);
  std::memcpy(host->data(), wanted.data(), wanted.size());
  const BufferPtr there = lane().upload(host);
  EXPECT_TRUE(lane().can_use(*there));
  EXPECT_EQ(there == host, lane().info().space == MemorySpace::host);
  EXPECT_TRUE(lane().upload(there) == there) << "memory of the lane needs no upload";
  const BufferPtr back = lane().download(there);
  EXPECT_EQ(back->space(), MemorySpace::host);
  EXPECT_EQ(back == there, lane().info().space == MemorySpace::host);
  EXPECT_EQ(std::memcmp(back->data(), wanted.data(), wanted.size()), 0);
}

// ---- order

TEST_P(LaneConformance, CopiesAndRunsKeepTheOrderOfTheCalls) {
  const Program program = lowered(kUpdate);
  const auto plan = compile(program);
  const HostArrays first = inputs_of(program, 1), second = inputs_of(program, 4);
  std::vector<BufferPtr> memory;
  for (const HostArray& input : first) memory.push_back(on_lane(input));
  const BufferPtr a = lane().allocate(160), b = lane().allocate(160), saved = lane().allocate(160);
  const void* const in[] = {memory[0]->data(), memory[1]->data(), memory[2]->data()};
  void* const out[] = {a->data(), b->data()};
  plan->run(in, out);
  lane().copy(saved->data(), a->data(), 160);  // a result
  for (size_t i = 0; i < 3; ++i)               // overwrites what the run has read
    lane().copy_from_host(memory[i]->data(), second[i].buffer->data(), 160);
  plan->run(in, out);
  lane().copy(memory[0]->data(), memory[1]->data(), 160);
  const Type type = program.output_types()[0];
  expect_same({from_lane(type, saved->data())}, {eager(program, first)[0]});
  expect_same({from_lane(type, a->data()), from_lane(type, b->data())}, eager(program, second));
  EXPECT_EQ(from_lane(type, memory[0]->data()).values(), second[1].values());
}

TEST_P(LaneConformance, WaitReturnsWhenWorkIsDone) {
  lane().wait();
  const Program program = lowered(kProduct);
  const auto plan = compile(program);
  run(*plan, program, inputs_of(program, 1));
  lane().wait();
  lane().wait();
}

TEST_P(LaneConformance, ReadBackReturnsTheValuesOfItsStart) {
  const Program program = lowered(kUpdate);
  const auto plan = compile(program);
  const HostArrays inputs = inputs_of(program, 1), wanted = eager(program, inputs);
  std::vector<std::unique_ptr<Readback>> started;
  for (int time = 0; time < 3; ++time) {
    std::vector<BufferPtr> memory;
    for (const HostArray& input : inputs) memory.push_back(on_lane(input));
    const BufferPtr a = lane().allocate(160), b = lane().allocate(160);
    const void* const in[] = {memory[0]->data(), memory[1]->data(), memory[2]->data()};
    void* const out[] = {a->data(), b->data()};
    plan->run(in, out);
    started.push_back(lane().read_back(a));
    started.push_back(lane().read_back(b));
  }  // the readbacks hold the memory, which later work must not reuse
  const HostArrays others = inputs_of(program, 10);
  expect_same(run(*plan, program, others), eager(program, others));
  started[3].reset();  // need not be waited for
  for (const size_t i : {5, 0, 4, 1, 2}) {
    const BufferPtr host = started[i]->wait();
    EXPECT_NE(host->space(), MemorySpace::device);
    EXPECT_EQ(std::memcmp(host->data(), wanted[i % 2].buffer->data(), 160), 0) << i;
  }
}

// ---- programs

TEST_P(LaneConformance, ComputesProgramsAndKeepsTheirInputs) {
  for (const char* text : kPrograms) {
    SCOPED_TRACE(text);
    const Program program = lowered(text);
    const auto plan = compile(program);
    for (size_t i = 0; i < program.outputs.size(); ++i) EXPECT_EQ(plan->donated_input(i), -1) << "nothing is donated";
    for (uint32_t seed = 0; seed < 3; ++seed) {  // in other memory each time
      const HostArrays inputs = inputs_of(program, seed * 10);
      expect_same(run(*plan, program, inputs), eager(program, inputs));
    }
  }
}

TEST_P(LaneConformance, RunsAgainInTheSameMemory) {
  const Program program = lowered(kUpdate);
  const auto plan = compile(program);
  std::vector<BufferPtr> memory;
  for (int i = 0; i < 5; ++i) memory.push_back(lane().allocate(160));
  const void* const in[] = {memory[0]->data(), memory[1]->data(), memory[2]->data()};
  void* const out[] = {memory[3]->data(), memory[4]->data()};
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const HostArrays inputs = inputs_of(program, seed * 10);
    for (size_t i = 0; i < 3; ++i) lane().copy_from_host(memory[i]->data(), inputs[i].buffer->data(), 160);
    plan->run(in, out);
    const Type type = program.output_types()[0];
    expect_same({from_lane(type, out[0]), from_lane(type, out[1])}, eager(program, inputs));
  }
}

TEST_P(LaneConformance, HasSeveralPlansAtOnce) {
  std::vector<Program> programs;
  std::vector<std::unique_ptr<LanePlan>> plans;
  for (const char* text : kPrograms) {
    programs.push_back(lowered(text));
    plans.push_back(compile(programs.back()));
    plans.back()->compile_in_background();
  }
  for (int time = 0; time < 2; ++time)
    for (size_t i = 0; i < plans.size(); ++i) {
      SCOPED_TRACE(kPrograms[i]);
      const HostArrays inputs = inputs_of(programs[i], static_cast<uint32_t>(i));
      expect_same(run(*plans[i], programs[i], inputs), eager(programs[i], inputs));
    }
}

TEST_P(LaneConformance, UsesPartsOfBuffers) {
  const Program program = lowered(R"(
    program(%0:f32[40], %1:f32[], %2:f32[2]) {
      %3:f32[40] = broadcast[dims=[], shape=[40]] %1
      %4:f32[40] = mul %0 %3
      %5:f32[2] = neg %2
      return %4 %5
    })");
  const auto plan = compile(program);
  const HostArrays inputs = inputs_of(program, 1);
  const BufferPtr memory = lane().allocate(1024);
  std::byte* const at = memory->data();
  // 64 bytes, and below 16 bytes the size of the array.
  const void* const in[] = {at + 64, at + 4, at + 8};
  void* const out[] = {at + 256, at + 24};
  for (size_t i = 0; i < 3; ++i)
    lane().copy_from_host(const_cast<void*>(in[i]), inputs[i].buffer->data(), inputs[i].type.bytes());
  plan->run(in, out);
  const std::vector<Type> types = program.output_types();
  expect_same({from_lane(types[0], out[0]), from_lane(types[1], out[1])}, eager(program, inputs));
}

TEST_P(LaneConformance, DescribesPlans) {
  const Program program = lowered(kProduct);
  const auto plan = compile(program);
  EXPECT_GT(plan->instructions(), 0u);
  EXPECT_GE(plan->arena_bytes(), 0);
  EXPECT_NE(plan->describe().find("einsum"), std::string::npos) << plan->describe();
}

// ---- donation

TEST_P(LaneConformance, OutputsReplaceDonatedInputs) {
  for (const char* text : kPrograms) {
    const Program program = lowered(text);
    for (uint32_t bits = 0; bits < 1u << program.inputs.size(); ++bits) {
      SCOPED_TRACE(testing::Message() << text << "\n  donated, as bits: " << bits);
      std::vector<bool> donated;
      for (size_t i = 0; i < program.inputs.size(); ++i) donated.push_back((bits >> i & 1) != 0);
      const auto plan = compile(program, donated);
      std::vector<bool> taken(program.inputs.size(), false);
      for (size_t i = 0; i < program.outputs.size(); ++i) {
        const int from = plan->donated_input(i);
        if (from < 0) continue;
        const auto input = static_cast<size_t>(from);
        ASSERT_LT(input, program.inputs.size());
        EXPECT_TRUE(donated[input]) << "input " << input << " is not donated";
        EXPECT_FALSE(taken[input]) << "two outputs take input " << input;
        taken[input] = true;
        EXPECT_EQ(program.types[program.outputs[i]].bytes(), program.types[program.inputs[input]].bytes());
      }
      const HostArrays inputs = inputs_of(program, 1);
      for (int time = 0; time < 2; ++time) expect_same(run(*plan, program, inputs, donated), eager(program, inputs));
    }
  }
}

// ---- collectives

TEST_P(LaneConformance, SumsOverLanes) {
  const Program program = lowered(R"(
    program(%0:f32[40], %1:i32[3]) {
      %2:f32[40] = add %0 %0
      %3:f32[40] = lane_all_reduce[axes="x", kind="sum"] %2
      %4:f32[40] = sub %3 %0
      %5:i32[3] = lane_all_reduce[axes="x", kind="max"] %1
      return %4 %5
    })");
  const int64_t count = GetParam().lanes;
  const auto hosts = in_process_comms(static_cast<int>(count));
  std::vector<HostArrays> inputs, results(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) inputs.push_back(inputs_of(program, static_cast<uint32_t>(i) * 10));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      const auto at = static_cast<size_t>(i);
      const std::unique_ptr<Lane> own = GetParam().make(i);
      const std::shared_ptr<Comm> device =
          own->info().space == MemorySpace::device ? own->device_comm(*hosts[at]) : nullptr;
      const auto comm = [&](const std::string&) { return device ? device.get() : hosts[at].get(); };
      const auto plan = own->compile(program, {.comm = comm});
      std::vector<BufferPtr> memory;
      std::vector<const void*> in;
      std::vector<void*> out;
      for (const HostArray& input : inputs[at]) {
        in.push_back(memory.emplace_back(own->upload(input.buffer))->data());
        out.push_back(memory.emplace_back(own->allocate(input.type.bytes()))->data());
      }
      for (int time = 0; time < 3; ++time) plan->run(in.data(), out.data());
      for (size_t k = 0; k < 2; ++k) {
        results[at].emplace_back(inputs[at][k].type);
        own->copy_to_host(results[at][k].buffer->data(), out[k], inputs[at][k].type.bytes());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const HostArrays& own : inputs) {
    const auto at = static_cast<size_t>(&own - inputs.data());
    for (int64_t e = 0; e < 40; ++e) {
      double sum = 0;
      for (const HostArrays& other : inputs) sum += 2 * other[0].get(e);
      EXPECT_EQ(results[at][0].get(e), sum - own[0].get(e)) << "lane " << at << ", element " << e;
    }
    for (int64_t e = 0; e < 3; ++e) {
      double largest = -100;
      for (const HostArrays& other : inputs) largest = std::max(largest, other[1].get(e));
      EXPECT_EQ(results[at][1].get(e), largest) << "lane " << at << ", element " << e;
    }
  }
}

}  // namespace lockstep
