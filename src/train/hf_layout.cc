#include "train/hf_layout.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kTile = 32;  // a tile of a transposition stays in cache

// Collects the slots of a model.
class SlotList {
 public:
  SlotList(std::string prefix, bool transposed) : prefix_(std::move(prefix)), transposed_(transposed) {}

  // A tensor with the shape of the parameter.
  void add(const std::string& name, Array& leaf) { slots_.push_back({prefix_ + name, leaf.shape(), &leaf}); }
  void add(const std::string& name, std::optional<Array>& leaf, const Shape& shape) {
    if (leaf)
      add(name, *leaf);
    else
      slots_.push_back({prefix_ + name, shape});
  }
  // `columns` outputs of a layer, from `first` on.
  void add(const std::string& name, nn::Linear& layer, int64_t first, int64_t columns, bool with_bias) {
    const int64_t in = layer.w.shape(0);
    const Shape shape = transposed_ ? Shape{columns, in} : Shape{in, columns};
    slots_.push_back({prefix_ + name + ".weight", shape, &layer.w, first, transposed_});
    if (with_bias) slots_.push_back({prefix_ + name + ".bias", {columns}, layer.b ? &*layer.b : nullptr, first});
  }
  void add(const std::string& name, nn::Linear& layer, bool with_bias) {
    add(name, layer, 0, layer.w.shape(1), with_bias);
  }
  void add_output(std::optional<Array>& output) {
    if (output) slots_.push_back({"lm_head.weight", {output->shape(1), output->shape(0)}, &*output, 0, true});
  }
  std::vector<HfSlot> take() { return std::move(slots_); }

 private:
  std::string prefix_;
  bool transposed_;
  std::vector<HfSlot> slots_;
};

std::vector<HfSlot> gpt2_slots(const GptConfig& config, const std::string& prefix, Gpt& params) {
  SlotList slots(prefix, false);
  const Shape width = {config.width};
  slots.add("wte.weight", params.token_embedding);
  slots.add("wpe.weight", params.position_embedding, {});
  for (size_t i = 0; i < params.blocks.size(); ++i) {
    nn::TransformerBlock& block = params.blocks[i];
    const std::string at = fmt::format("h.{}.", i);
    slots.add(at + "ln_1.weight", block.attention_norm.scale);
    slots.add(at + "ln_1.bias", block.attention_norm.bias, width);
    slots.add(at + "attn.c_attn", block.attention.qkv, true);
    slots.add(at + "attn.c_proj", block.attention.projection, true);
    slots.add(at + "ln_2.weight", block.feed_forward_norm.scale);
    slots.add(at + "ln_2.bias", block.feed_forward_norm.bias, width);
    slots.add(at + "mlp.c_fc", block.feed_forward.up, true);
    slots.add(at + "mlp.c_proj", block.feed_forward.down, true);
  }
  slots.add("ln_f.weight", params.norm.scale);
  slots.add("ln_f.bias", params.norm.bias, width);
  slots.add_output(params.output);
  return slots.take();
}

std::vector<HfSlot> llama_slots(const GptConfig& config, const std::string& prefix, Gpt& params) {
  const nn::TransformerConfig blocks = config.blocks();
  const int64_t queries = blocks.heads * blocks.head_width, keys = blocks.kv_heads * blocks.head_width;
  SlotList slots(prefix, true);
  slots.add("embed_tokens.weight", params.token_embedding);
  for (size_t i = 0; i < params.blocks.size(); ++i) {
    nn::TransformerBlock& block = params.blocks[i];
    const std::string at = fmt::format("layers.{}.", i);
    slots.add(at + "input_layernorm.weight", block.attention_norm.scale);
    slots.add(at + "self_attn.q_proj", block.attention.qkv, 0, queries, config.bias);
    slots.add(at + "self_attn.k_proj", block.attention.qkv, queries, keys, config.bias);
    slots.add(at + "self_attn.v_proj", block.attention.qkv, queries + keys, keys, config.bias);
    slots.add(at + "self_attn.o_proj", block.attention.projection, config.bias);
    slots.add(at + "post_attention_layernorm.weight", block.feed_forward_norm.scale);
    LOCKSTEP_CHECK(block.feed_forward.gate, "block {} has no gate", i);
    slots.add(at + "mlp.gate_proj", *block.feed_forward.gate, config.bias);
    slots.add(at + "mlp.up_proj", block.feed_forward.up, config.bias);
    slots.add(at + "mlp.down_proj", block.feed_forward.down, config.bias);
  }
  slots.add("norm.weight", params.norm.scale);
  slots.add_output(params.output);
  return slots.take();
}

// Calls f(index in the tensor, index in the leaf) for every element, tile by tile.
template <class F>
void for_each_element(const HfSlot& slot, F&& f) {
  const Shape& leaf = slot.leaf->shape();
  const int64_t all = leaf.back(), rows = leaf.size() == 2 ? leaf[0] : 1;
  const int64_t columns = slot.transposed ? slot.shape[0] : slot.shape.back();
  if (!slot.transposed) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        f(static_cast<size_t>(row * columns + column), static_cast<size_t>(row * all + slot.first + column));
    return;
  }
  for (int64_t row0 = 0; row0 < rows; row0 += kTile)
    for (int64_t column0 = 0; column0 < columns; column0 += kTile)
      for (int64_t column = column0; column < std::min(column0 + kTile, columns); ++column)
        for (int64_t row = row0; row < std::min(row0 + kTile, rows); ++row)
          f(static_cast<size_t>(column * rows + row), static_cast<size_t>(row * all + slot.first + column));
}

}  // namespace

std::vector<HfSlot> hf_slots(const GptConfig& config, HfFamily family, const std::string& prefix, Gpt& params) {
  return family == HfFamily::llama ? llama_slots(config, prefix, params) : gpt2_slots(config, prefix, params);
}

std::string hf_prefix(HfFamily family) { return family == HfFamily::llama ? "model." : "transformer."; }

std::string hf_embedding_name(HfFamily family) {
  return family == HfFamily::llama ? "embed_tokens.weight" : "wte.weight";
}

bool is_hf_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

void copy_from_tensor(const HfSlot& slot, const std::vector<float>& tensor, std::vector<float>& leaf) {
  for_each_element(slot, [&](size_t in_tensor, size_t in_leaf) { leaf[in_leaf] = tensor[in_tensor]; });
}

std::vector<float> copy_to_tensor(const HfSlot& slot, std::span<const float> leaf) {
  std::vector<float> out(static_cast<size_t>(count(slot.shape)));
  for_each_element(slot, [&](size_t in_tensor, size_t in_leaf) { out[in_tensor] = leaf[in_leaf]; });
  return out;
}

}  // namespace lockstep::detail
