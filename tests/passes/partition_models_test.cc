// Training steps over many lanes: exactly the required collectives.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/ops.h"
#include "passes/partition.h"
#include "passes/passes.h"
#include "support/models.h"

namespace lockstep {
namespace {

using models::Batch;
using models::Params;
using models::State;
using Lines = std::vector<std::string>;

const LaneGrid kDataGrid{{{"data", 2, 1}}};
const LaneGrid kDataModel{{{"data", 2, 1}, {"model", 2, 1}}};
constexpr int64_t kImages = 128;

class EightDevices : public testing::Environment {
  void SetUp() override { set_cpu_devices(8); }
};
testing::Environment* const environment = testing::AddGlobalTestEnvironment(new EightDevices);

// The operands for tracing a step; only the types matter.
State state_of(const std::string& model) {
  Params params;
  for (const Shape& shape : models::weight_shapes(model)) params.push_back({zeros(shape), zeros({shape.back()})});
  return models::create_state(params);
}
Batch batch_of() { return {zeros({kImages, 784}), zeros({kImages}, i32)}; }

Program simplified(const detail::Traced& traced) { return simplify(inline_bodies(*traced.program, Inline::early)); }

Program step_of(const std::string& model, const std::string& optimizer) {
  return simplified(detail::trace_call(
                        "step",
                        [&](State state, Batch batch) {
                          return models::train_step(std::move(state), std::move(batch), optimizer, 0.1f);
                        },
                        state_of(model), batch_of())
                        .traced);
}

LaneSpec along(size_t rank, size_t dimension, const std::string& axis) {
  LaneSpec lane_spec(rank);
  lane_spec[dimension] = {axis};
  return lane_spec;
}

// Parameters, then momentum and squares, all with the same lane spec, then the step count, images and labels sharded by
// "data". Results have the lane specs of the values they replace.
struct Layouts {
  LaneConstraints in, out;
};
template <class Layout>
Layouts layouts(const Program& p, size_t parameters, const Layout& layout) {
  Layouts said;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const size_t rank = p.types[p.inputs[i]].shape.size();
    if (i < 3 * parameters)
      said.in.emplace_back(layout(i % parameters, rank));
    else
      said.in.emplace_back(rank == 0 ? LaneSpec() : along(rank, 0, "data"));
  }
  said.out.assign(said.in.begin(), said.in.begin() + static_cast<std::ptrdiff_t>(3 * parameters + 1));
  said.out.emplace_back(LaneSpec());
  said.out.emplace_back(LaneSpec());
  return said;
}
LaneSpec not_cut(size_t, size_t rank) { return LaneSpec(rank); }
LaneSpec first_dimension(size_t, size_t rank) { return along(rank, 0, "data"); }

// The collectives of the first lane, one line each, sorted: `lane_all_reduce data f32[4,3]`.
Lines collectives_of(const Program& p, const LaneGrid& grid, const Layouts& said) {
  const Program local = partition(p, grid, place(p, grid, said.in, said.out), 0);
  Lines out;
  for (const Eqn& eqn : local.eqns) {
    if (!eqn.op->is_collective()) continue;
    std::string line = std::string(eqn.op->name) + " " + eqn.attrs.get<std::string>("axes");
    for (ValueId id : eqn.in) line += " " + to_string(local.types[id]);
    out.push_back(line);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// A function of parameters and a batch.
template <class F, class B>
Program program_of(const F& f, const Params& params, const B& batch) {
  return simplified(detail::trace_call("test", f, params, batch).traced);
}
// The first inputs and all results replicated, the other inputs sharded by "data".
Layouts batch_cut(const Program& p, size_t whole_inputs) {
  Layouts said;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const size_t rank = p.types[p.inputs[i]].shape.size();
    said.in.emplace_back(i < whole_inputs || rank == 0 ? LaneSpec(rank) : along(rank, 0, "data"));
  }
  for (ValueId id : p.outputs) said.out.emplace_back(LaneSpec(p.types[id].shape.size()));
  return said;
}

const Lines kMlpGradients = {"lane_all_reduce data f32[10]",  "lane_all_reduce data f32[128,10]",
                             "lane_all_reduce data f32[128]", "lane_all_reduce data f32[256,128]",
                             "lane_all_reduce data f32[256]", "lane_all_reduce data f32[784,256]"};
const Lines kCnnGradients = {"lane_all_reduce data f32[10]",        "lane_all_reduce data f32[128,10]",
                             "lane_all_reduce data f32[128]",       "lane_all_reduce data f32[3136,128]",
                             "lane_all_reduce data f32[32]",        "lane_all_reduce data f32[5,5,1,32]",
                             "lane_all_reduce data f32[5,5,32,64]", "lane_all_reduce data f32[64]"};

Lines with(Lines lines, const Lines& more) {
  lines.insert(lines.end(), more.begin(), more.end());
  std::sort(lines.begin(), lines.end());
  return lines;
}
const std::string kScalar = "lane_all_reduce data f32[]";

TEST(PartitionOfModels, DataParallelStepSumsEachGradientAndTheLossOnce) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    SCOPED_TRACE(optimizer);
    const Program mlp = step_of("mlp", optimizer), cnn = step_of("cnn", optimizer);
    EXPECT_EQ(collectives_of(mlp, kDataGrid, layouts(mlp, 6, not_cut)), with(kMlpGradients, {kScalar}));
    EXPECT_EQ(collectives_of(cnn, kDataGrid, layouts(cnn, 8, not_cut)), with(kCnnGradients, {kScalar}));
  }
}

// Parameters are gathered before use and gradients scattered after; what remains are the loss and the gradients' norm.
TEST(PartitionOfModels, ShardedParametersAreGatheredAndGradientsScattered) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    SCOPED_TRACE(optimizer);
    const Program p = step_of("mlp", optimizer);
    EXPECT_EQ(collectives_of(p, kDataGrid, layouts(p, 6, first_dimension)),
              Lines({"lane_all_gather data f32[128,128]", "lane_all_gather data f32[128]",
                     "lane_all_gather data f32[392,256]", "lane_all_gather data f32[5]",
                     "lane_all_gather data f32[64,10]", "lane_all_gather data f32[64]", kScalar, kScalar,
                     "lane_reduce_scatter data f32[10]", "lane_reduce_scatter data f32[128,10]",
                     "lane_reduce_scatter data f32[128]", "lane_reduce_scatter data f32[256,128]",
                     "lane_reduce_scatter data f32[256]", "lane_reduce_scatter data f32[784,256]"}));
  }
}

// The first layer sharded by columns and the second by rows: the activations between them need no collective.
TEST(PartitionOfModels, TensorParallelStepSumsActivationsOnce) {
  const Program p = step_of("mlp", "adam");
  const auto tensor = [](size_t i, size_t rank) {
    return i == 0 ? along(rank, 1, "model") : i <= 2 ? along(rank, 0, "model") : LaneSpec(rank);
  };
  EXPECT_EQ(
      collectives_of(p, kDataModel, layouts(p, 6, tensor)),
      Lines({"lane_all_reduce data f32[10]", "lane_all_reduce data f32[128,10]", "lane_all_reduce data f32[128,128]",
             "lane_all_reduce data f32[128]", "lane_all_reduce data f32[128]", "lane_all_reduce data f32[784,128]",
             kScalar, "lane_all_reduce model f32[64,128]", "lane_all_reduce model f32[]"}));
}

TEST(PartitionOfModels, EvaluationNeedsItsSumsOnly) {
  const auto evaluate = [](const Params& params, const Batch& batch) {
    const Array out = models::logits(params, batch.image);
    const Array right = astype(argmax(out, -1) == batch.label, i32);
    const Array answers = astype(one_hot(argmax(out, -1), 10), i32);
    return std::vector<Array>{models::loss(params, batch), sum(right), sum(answers, 0),
                              sum(answers * expand_dims(right, 1), 0)};
  };
  for (const char* model : {"mlp", "cnn"}) {
    const Params params = state_of(model).params;
    const Program p = program_of(evaluate, params, batch_of());
    EXPECT_EQ(
        collectives_of(p, kDataGrid, batch_cut(p, 2 * params.size())),
        Lines({kScalar, "lane_all_reduce data i32[10]", "lane_all_reduce data i32[10]", "lane_all_reduce data i32[]"}));
  }
}

struct Rows {
  Array images, labels, rows;
};

TEST(PartitionOfModels, LaneGathersItsOwnRowsOfTheDataSet) {
  const auto gradients = [](const Params& params, const Rows& set) {
    const Batch batch{astype(take(set.images, set.rows, 0), f32) / 255.f, take(set.labels, set.rows, 0)};
    return grad(models::loss)(params, batch);
  };
  const Program p = program_of(gradients, state_of("mlp").params,
                               Rows{zeros({1000, 784}, u8), zeros({1000}, u8), zeros({kImages}, i32)});
  EXPECT_EQ(collectives_of(p, kDataGrid, batch_cut(p, 8)), kMlpGradients);
}

TEST(PartitionOfModels, LaneComputesItsOwnPieceOfADropoutMask) {
  const auto gradients = [](const Params& params, const std::pair<Batch, Array>& in) {
    const auto loss_of = [&](const Params& p, const Batch& batch) {
      const Array h = relu(dot(batch.image, p[0].w) + p[0].b);
      const Array keep = random::bernoulli(in.second, 0.5, h.shape());
      return models::loss({p[1], p[2]}, {where(keep, h * 2.f, zeros_like(h)), batch.label});
    };
    return grad(loss_of)(params, in.first);
  };
  const Program p = program_of(gradients, state_of("mlp").params, std::pair(batch_of(), random::key(0)));
  Layouts said = batch_cut(p, 6);
  said.in[8] = LaneSpec(1);  // the key
  EXPECT_EQ(collectives_of(p, kDataGrid, said), kMlpGradients);
  std::vector<Shape> made;
  for (const Eqn& eqn : partition(p, kDataGrid, place(p, kDataGrid, said.in, said.out), 1).eqns)
    if (eqn.op == &random_bits_op) made.push_back(eqn.attrs.ints("shape"));
  EXPECT_EQ(made, std::vector<Shape>({{kImages / 2, 256}}));
}

TEST(PartitionOfModels, PerExampleGradientNormsNeedNoCollective) {
  const auto norms = [](const Params& params, const Batch& batch) {
    const auto one = [&](const Array& image, const Array& label) {
      const auto g = grad(models::loss)(params, Batch{expand_dims(image, 0), expand_dims(label, 0)});
      Array squares = 0.f;
      for (const Array& leaf : tree_leaves(g)) squares = squares + sum(square(leaf));
      return sqrt(squares);
    };
    return vmap(one)(batch.image, batch.label);
  };
  const Program p = program_of(norms, state_of("mlp").params, batch_of());
  Layouts said = batch_cut(p, 6);
  said.out[0] = along(1, 0, "data");
  EXPECT_EQ(collectives_of(p, kDataGrid, said), Lines());
}

// The devices of a lane are a dimension of its arrays; the same collectives cross lanes as under jit.
TEST(PartitionOfModels, ShardMapOfAStepSumsEachGradientAndTheLossOnce) {
  const Mesh mesh = make_mesh({{"data", 8}});
  const LaneGrid grid{{{"data", 2, 4}}};
  const auto mapped = [&](const Params& params, const Batch& batch) {
    const auto device = [](const Params& p, const Batch& b) {
      auto [value, g] = value_and_grad(models::loss)(p, b);
      return std::pair(pmean(value, "data"), tree_map([](const Array& a) { return a / 8.f; }, g));
    };
    return shard_map(device, {mesh, {P(), P("data")}, {P()}})(params, batch);
  };
  const Program p = program_of(mapped, state_of("mlp").params, batch_of());
  EXPECT_EQ(collectives_of(p, grid, batch_cut(p, 6)), with(kMlpGradients, {kScalar}));
}

}  // namespace
}  // namespace lockstep
