// Random programs of all rows, and of collectives, under shard_map: the program of one device, batched over the devices
// along a mesh axis, equals a loop over the devices, also when lanes share them.
#include <gtest/gtest.h>

#include <map>

#include "passes/lanes_difference.h"
#include "passes/random_property.h"
#include "rows/device_loop.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

// `./dev test --long` checks more of them.
uint32_t device_programs() { return long_tests() && !kSanitized ? 1000 : 250; }
uint32_t few_device_programs() { return device_programs() * 2 / 5; }  // for properties of many passes

constexpr int64_t kMostDevices = 4;

const RandomRows& rows_for(bool smooth, int64_t devices) {
  static std::map<std::pair<bool, int64_t>, RandomRows> all;
  const RandomRowOptions options{.smooth = smooth, .examples = static_cast<size_t>(devices), .devices = devices};
  return all.try_emplace({smooth, devices}, options).first->second;
}

RandomProgram program_of_device(uint32_t seed, bool smooth) {
  const int64_t devices = 1 + seed % kMostDevices;
  return RandomPrograms(seed, RandomOptions{.smooth = smooth,
                                            .more = std::cref(rows_for(smooth, devices)),
                                            .more_every = 2,
                                            .examples = static_cast<size_t>(devices),
                                            .axis = kAxis,
                                            .evaluate = eager_on_devices})
      .make();
}

void expect_of_devices(const Property& property, uint32_t programs, bool smooth = false) {
  expect_always(property, programs, [&](uint32_t seed) { return program_of_device(seed, smooth); });
}

TEST(RandomDevices, EveryRowIsGenerated) {
  std::map<std::string_view, int> seen;
  for (uint32_t seed = 0; seed < device_programs(); ++seed)
    for (const Eqn& eqn : program_of_device(seed, false).program.eqns) ++seen[eqn.op->name];
  for (const Op* op : all_ops()) {
    if (op->is_collective() || kNotGenerated.contains(op->name)) continue;
    EXPECT_GE(seen[op->name], 3) << op->name;
  }
}

std::vector<bool> varying(const std::vector<Type>& types) {
  std::vector<bool> out;
  for (const Type& t : types) out.push_back(!t.varying.empty());
  return out;
}

// The program of all devices. Values that vary over the axis get a leading dimension of devices.
Program on_all_devices(const Program& p, size_t devices) {
  const std::vector<bool> out = varying(p.output_types());
  const BatchedProgram all = batch(p, varying(p.input_types()), static_cast<int64_t>(devices), out, kAxis);
  check(all.program);
  if (all.batched != out) throw_error("an output varies over the axis, but has a type that does not");
  return all.program;
}

HostArrays on_all_devices(const std::vector<Type>& types, const std::vector<HostArrays>& each) {
  HostArrays out;
  for (size_t i = 0; i < types.size(); ++i) out.push_back(types[i].varying.empty() ? each[0][i] : stack(each, i));
  return out;
}

std::string devices_differ(const RandomProgram& r, uint32_t) {
  const std::vector<HostArrays> each = eager_on_devices(r.program, r.examples);
  const std::vector<Type> outputs = r.program.output_types();
  for (size_t k = 0; k < outputs.size(); ++k)
    for (const HostArrays& device : each)
      if (outputs[k].varying.empty() && !same_bits(device[k], each[0][k]))
        return fmt::format("output {} varies over the axis, but has a type that does not", k);
  const HostArrays inputs = on_all_devices(r.program.input_types(), r.examples);
  return difference(planned(on_all_devices(r.program, r.examples.size()), inputs), on_all_devices(outputs, each),
                    r.error);
}

TEST(RandomDevices, BatchOverAxisEqualsALoopOverDevices) { expect_of_devices(devices_differ, device_programs()); }

TEST(RandomDevices, LanesThatShareDevicesMatchOneLane) {
  expect_of_devices(
      [](const RandomProgram& r, uint32_t seed) {
        const RandomProgram all{on_all_devices(r.program, r.examples.size()), r.error,
                                on_all_devices(r.program.input_types(), r.examples)};
        return difference_on_lanes(all, seed);
      },
      few_device_programs());
}

// The programs of one device are lowered after batching only.
TEST(RandomDevices, EveryPassReturnsValidProgramsThatRoundTrip) {
  expect_of_devices(
      [](const RandomProgram& r, uint32_t) {
        std::vector<Program> all = transformed(r);
        all.push_back(on_all_devices(r.program, r.examples.size()));
        all.push_back(lower(all.back()));
        return some_invalid(all);
      },
      few_device_programs());
}

// Two examples for each device: its own inputs, and those of the next device.
std::string batch_on_devices_differs(const RandomProgram& r, uint32_t) {
  const Program& p = r.program;
  const size_t n = r.examples.size();
  const auto all = [](size_t size) { return std::vector<bool>(size, true); };
  const Program both = batch(p, all(p.inputs.size()), 2, all(p.outputs.size())).program;
  std::vector<HostArrays> rotated = r.examples;
  std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
  const std::vector<HostArrays> own = eager_on_devices(p, r.examples), next = eager_on_devices(p, rotated);
  std::vector<HostArrays> inputs, wanted;
  for (size_t d = 0; d < n; ++d) {
    inputs.push_back(stacked({r.examples[d], rotated[d]}));
    wanted.push_back(stacked({own[d], next[d]}));
  }
  return difference(planned(on_all_devices(both, n), on_all_devices(both.input_types(), inputs)),
                    on_all_devices(both.output_types(), wanted), r.error);
}

TEST(RandomDevices, BatchOnDevicesEqualsALoopOverExamples) {
  expect_of_devices(batch_on_devices_differs, device_programs());
}

// In the program of one device, the gradient of a value that does not vary is the sum of those of all devices.
std::string derivative_on_devices_differs(const RandomProgram& r, uint32_t seed) {
  const Program& p = r.program;
  const size_t n = r.examples.size();
  const HostArrays inputs = on_all_devices(p.input_types(), r.examples);
  const auto compare = [&](const Program& of_all, const Program& of_one) {
    const Program each = on_all_devices(of_one, n);
    const HostArrays args = joined(inputs, numbers_for(each, inputs.size(), seed));
    return far_apart(planned(each, args), planned(of_all, args));
  };
  std::string wrong = compare(joint(on_all_devices(p, n), r.wanted), joint(p, r.wanted));
  if (wrong.empty() && has_tangents(p)) wrong = compare(jvp(on_all_devices(p, n), r.wanted), jvp(p, r.wanted));
  return wrong;
}

TEST(RandomDevices, DerivativeOfAllDevicesIsThatOfEach) {
  expect_of_devices(derivative_on_devices_differs, few_device_programs(), true);
}

}  // namespace
}  // namespace lockstep
