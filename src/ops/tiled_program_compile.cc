// Compiles a program to the slots and steps of a TiledProgram.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/tiled_program.h"

namespace lockstep {
namespace {

constexpr int64_t kWorkingSet = 32 * 1024;  // bytes of one tile of all slots: fits the L1 cache
constexpr int64_t kMinTile = 128, kMaxTile = 1024;
constexpr int64_t kMinRow = 128;  // shorter rows share tiles
constexpr int64_t kAlign = 64;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// How a value of the program is obtained.
struct ValueSource {
  enum Kind { computed, view, constant } kind = computed;
  int32_t input = -1;           // view: of this input
  View affine;                  // view
  const Attr* value = nullptr;  // constant
};

// Compares bits: 0.0 and -0.0 are different constants.
bool same_element(const Attr& a, const Attr& b, DType t) {
  char x[16] = {}, y[16] = {};
  encode_element(a, t, x);
  encode_element(b, t, y);
  return std::equal(x, x + 16, y);
}

const Shape& iteration_space(const Program& p) {
  LOCKSTEP_CHECK(!p.outputs.empty(), "an elementwise program without outputs");
  return p.types[p.outputs[0]].shape;
}

// How each value is obtained, by ValueId.
std::vector<ValueSource> value_sources(const Program& p) {
  std::vector<ValueSource> all(p.types.size());
  for (size_t i = 0; i < p.inputs.size(); ++i)
    all[p.inputs[i]] = {ValueSource::view, static_cast<int32_t>(i), dense_view(p.types[p.inputs[i]].shape), nullptr};
  for (const Eqn& eqn : p.eqns) {
    LOCKSTEP_CHECK(eqn.out.size() == 1, "{} in an elementwise program", eqn.op->name);
    ValueSource& result = all[eqn.out[0]];
    const Type& type = p.types[eqn.out[0]];
    if (const Attr* value = constant_value(&eqn)) {
      result = {ValueSource::constant, -1, {}, value};
    } else if (eqn.op->view) {
      const ValueSource& from = all[eqn.in[0]];
      const Type& middle = p.types[eqn.in[0]];
      LOCKSTEP_CHECK(from.kind != ValueSource::computed, "{} of a computed value in an elementwise program",
                     eqn.op->name);
      if (from.kind == ValueSource::constant) {
        result = from;
        continue;
      }
      const auto affine = compose(eqn.op->view(middle, type, eqn.attrs), type.shape, from.affine, middle.shape);
      LOCKSTEP_CHECK(affine, "{} in an elementwise program is not affine", eqn.op->name);
      result = {ValueSource::view, from.input, *affine, nullptr};
    } else {
      LOCKSTEP_CHECK(eqn.op->loop, "{} in an elementwise program", eqn.op->name);
      LOCKSTEP_CHECK(type.shape == iteration_space(p), "{} computes {} in an elementwise program over {}", eqn.op->name,
                     to_string(type), to_string(iteration_space(p)));
    }
  }
  return all;
}

}  // namespace

class TiledProgramCompiler {
 public:
  TiledProgramCompiler(const Program& program, std::span<const int> alias)
      : p_(program),
        alias_(program.outputs.size(), -1),
        shape_(iteration_space(program)),
        source_(value_sources(program)),
        slot_of_(program.types.size(), kNone) {
    std::copy(alias.begin(), alias.end(), alias_.begin());
    c_.size_ = count(shape_);
  }

  TiledProgram compile() {
    choose_outputs();
    for (size_t e = 0; e < p_.eqns.size(); ++e)
      if (source_[p_.eqns[e].out[0]].kind == ValueSource::computed) compute(p_.eqns[e]);
    store_deferred();
    const int64_t register_bytes = allocate_registers();
    choose_tile(register_bytes);
    lay_out();
    return std::move(c_);
  }

 private:
  using SlotId = TiledProgram::SlotId;
  using Storage = TiledProgram::Storage;
  static constexpr SlotId kNone = 0xffff;

  // Compile-time facts about a slot.
  struct Life {
    int64_t width;        // bytes of an element
    int first = -1;       // step that writes it
    int last = -1;        // last step that reads it
    bool pinned = false;  // a register that is live during the complete run
    const Attr* value = nullptr;
    DType dtype = DType::f32;  // of a constant
  };

  DType dtype(ValueId v) const { return p_.types[v].dtype; }
  DType reg(ValueId v) const { return register_type(dtype(v)); }

  // Decides which outputs are written when they are computed, and which are deferred until the last read of the memory
  // that they share.
  void choose_outputs() {
    const int end = static_cast<int>(p_.eqns.size());
    std::vector<int> last_read(p_.inputs.size(), -1), defined(p_.types.size(), -1);
    reads_.assign(p_.types.size(), 0);
    const auto note_read = [&](ValueId v, int when) {
      if (source_[v].kind == ValueSource::view) last_read[static_cast<size_t>(source_[v].input)] = when;
    };
    for (int e = 0; e < end; ++e) {
      const Eqn& eqn = p_.eqns[static_cast<size_t>(e)];
      if (source_[eqn.out[0]].kind != ValueSource::computed) continue;
      defined[eqn.out[0]] = e;
      for (ValueId v : eqn.in) {
        note_read(v, e);
        ++reads_[v];
      }
    }
    for (ValueId v : p_.outputs) {
      LOCKSTEP_CHECK(p_.types[v].shape == shape_, "outputs of different shapes in an elementwise program");
      note_read(v, end);
    }
    direct_.assign(p_.types.size(), -1);
    for (size_t o = 0; o < p_.outputs.size(); ++o) {
      const ValueId v = p_.outputs[o];
      const int shared = alias_[o];
      LOCKSTEP_CHECK(shared < 0 || reads_same_index(p_, static_cast<size_t>(shared)),
                     "output {} may not share the memory of input {}", o, shared);
      const bool free = shared < 0 || last_read[static_cast<size_t>(shared)] <= defined[v];
      if (source_[v].kind == ValueSource::computed && direct_[v] < 0 && free)
        direct_[v] = static_cast<int>(o);
      else
        deferred_.push_back(o);
    }
  }

  SlotId add_slot(Storage storage, int32_t index, int64_t offset, int64_t step, Life life) {
    LOCKSTEP_CHECK(c_.slots_.size() < kNone, "an elementwise program of too many values");
    c_.slots_.push_back({storage, index, offset, step});
    lives_.push_back(life);
    return static_cast<SlotId>(c_.slots_.size() - 1);
  }

  bool is_uniform_slot(SlotId s) const { return c_.slots_[s].storage == Storage::constant || lives_[s].pinned; }

  SlotId register_slot(DType t) { return add_slot(Storage::reg, -1, 0, 0, {.width = size_of(t)}); }

  SlotId output_slot(size_t o) {
    const int64_t width = size_of(dtype(p_.outputs[o]));
    return add_slot(Storage::output, static_cast<int32_t>(o), 0, width, {.width = width});
  }

  void add_step(Loop loop, std::span<const SlotId> in, SlotId out) {
    const int now = static_cast<int>(c_.steps_.size());
    TiledProgram::Step step{loop, {0, 0, 0}, out, -1};
    for (size_t i = 0; i < in.size(); ++i) {
      step.in[i] = in[i];
      lives_[in[i]].last = now;
    }
    c_.steps_.push_back(step);
    if (lives_[out].first < 0) lives_[out].first = now;
    lives_[out].last = std::max(lives_[out].last, now);
  }
  void add_step(Loop loop, SlotId in, SlotId out) { add_step(loop, {&in, 1}, out); }

  // The slot from which a value is read, created on first use.
  SlotId operand(ValueId v) {
    if (slot_of_[v] != kNone) return slot_of_[v];
    const ValueSource& m = source_[v];
    const int64_t width = size_of(reg(v));
    if (m.kind == ValueSource::constant) {
      for (SlotId s = 0; s < lives_.size(); ++s)
        if (lives_[s].value && lives_[s].dtype == dtype(v) && same_element(*lives_[s].value, *m.value, dtype(v)))
          return slot_of_[v] = s;
      return slot_of_[v] = add_slot(Storage::constant, -1, 0, 0, {.width = width, .value = m.value, .dtype = dtype(v)});
    }
    LOCKSTEP_CHECK(m.kind == ValueSource::view && p_.types[v].shape == shape_,
                   "an operand of {} in an elementwise program over {}", to_string(p_.types[v]), to_string(shape_));
    const int64_t element = size_of(dtype(v)), offset = m.affine.offset * element;
    if (!is_narrow(dtype(v)) && is_contiguous(m.affine, shape_))
      return slot_of_[v] = add_slot(Storage::input, m.input, offset, element, {.width = width});
    const SlotId slot = register_slot(reg(v));
    TiledProgram::Gather g{loops().load[static_cast<int>(dtype(v))], slot, m.input, offset, element, width, false, {}};
    c_.cost_ += 1;
    // A single element of an input may be a compact block, so it is gathered like any other operand.
    if (is_uniform(m.affine, shape_) && c_.size_ > 1) {
      lives_[slot].pinned = true;
      c_.uniform_.push_back(std::move(g));
      return slot_of_[v] = slot;
    }
    g.dims = collapse(m.affine, shape_);
    if (g.dims.empty()) g.dims.push_back({1, 1});
    std::reverse(g.dims.begin(), g.dims.end());
    LOCKSTEP_CHECK(g.dims.size() <= TiledProgram::kMaxDims, "an operand of {} dimensions", g.dims.size());
    g.may_be_in_place = !is_narrow(dtype(v)) && g.dims[0].stride == 1;
    lives_[slot].first = lives_[slot].last = static_cast<int>(c_.steps_.size());
    c_.steps_.push_back({nullptr, {0, 0, 0}, slot, static_cast<int32_t>(c_.gathers_.size())});
    c_.gathers_.push_back(std::move(g));
    return slot_of_[v] = slot;
  }

  void compute(const Eqn& eqn) {
    const ValueId v = eqn.out[0];
    LOCKSTEP_CHECK(eqn.in.size() >= 1 && eqn.in.size() <= 3);
    SlotId in[3];
    DType types[3];
    for (size_t i = 0; i < eqn.in.size(); ++i) {
      in[i] = operand(eqn.in[i]);
      types[i] = reg(eqn.in[i]);
    }
    const std::span<const SlotId> operands(in, eqn.in.size());
    Loop loop = eqn.op->loop({types, eqn.in.size()}, dtype(v));
    LOCKSTEP_CHECK(loop, "{} has no loop for {}", eqn.op->name, to_string(p_.types[v]));
    c_.cost_ += elementwise_cost(*eqn.op);
    for (size_t i = 0; i < 2 && eqn.in.size() == 2; ++i)
      if (is_uniform_slot(in[i])) loop = loops().with_uniform(loop, i);
    const bool copies = eqn.in.size() == 1 && loop == loops().copy(types[0]);
    const int out = direct_[v];
    const bool narrow = is_narrow(dtype(v));
    if (copies && !narrow && out < 0 && c_.slots_[in[0]].storage != Storage::input) {
      slot_of_[v] = in[0];
      return;
    }
    const bool rounds = narrow && reads_[v] > 0;  // if it is only stored, the store rounds it
    if (copies && rounds) loop = loops().round[narrow_index(dtype(v))];
    slot_of_[v] = out >= 0 && !narrow ? output_slot(static_cast<size_t>(out)) : register_slot(reg(v));
    add_step(loop, operands, slot_of_[v]);
    if (rounds && !copies) add_step(loops().round[narrow_index(dtype(v))], slot_of_[v], slot_of_[v]);
    if (out >= 0 && narrow)
      add_step(loops().narrow[narrow_index(dtype(v))], slot_of_[v], output_slot(static_cast<size_t>(out)));
  }

  void store_deferred() {
    std::map<size_t, SlotId> from;
    // Read everything before writing memory that inputs may share.
    for (size_t o : deferred_) {
      const ValueId v = p_.outputs[o];
      from[o] = operand(v);
      const auto shares = [&](int a) { return a >= 0 && a == source_[v].input; };
      if (c_.slots_[from[o]].storage == Storage::input && std::any_of(alias_.begin(), alias_.end(), shares)) {
        const SlotId copy = register_slot(reg(v));
        add_step(loops().copy(reg(v)), from[o], copy);
        from[o] = copy;
      }
    }
    for (size_t o : deferred_) {
      const DType t = dtype(p_.outputs[o]);
      add_step(is_narrow(t) ? loops().narrow[narrow_index(t)] : loops().copy(t), from[o], output_slot(o));
      c_.cost_ += 1;
    }
  }

  // Assigns a physical register to every register slot. Slots whose live ranges do not overlap share registers; a
  // result may take the register of an operand whose last use is this step. Slot::offset becomes the register's
  // number. Returns the bytes of one element of all registers.
  int64_t allocate_registers() {
    std::map<int64_t, std::vector<int64_t>> free;  // by width
    const auto take = [&](SlotId s) {
      std::vector<int64_t>& list = free[lives_[s].width];
      if (list.empty()) {
        list.push_back(static_cast<int64_t>(registers_.size()));
        registers_.push_back(lives_[s].width);
      }
      c_.slots_[s].offset = list.back();
      list.pop_back();
    };
    const auto give_back = [&](SlotId s) { free[lives_[s].width].push_back(c_.slots_[s].offset); };
    const auto is_register = [&](SlotId s) { return c_.slots_[s].storage == Storage::reg && !lives_[s].pinned; };
    for (SlotId s = 0; s < lives_.size(); ++s)
      if (lives_[s].pinned) take(s);
    std::vector<std::vector<SlotId>> born(c_.steps_.size()), dying(c_.steps_.size());
    for (SlotId s = 0; s < lives_.size(); ++s) {
      if (!is_register(s)) continue;
      born[static_cast<size_t>(lives_[s].first)].push_back(s);
      dying[static_cast<size_t>(lives_[s].last)].push_back(s);
    }
    for (size_t step = 0; step < c_.steps_.size(); ++step) {
      const auto lives_on = [&](SlotId s) { return lives_[s].first == static_cast<int>(step); };
      for (SlotId s : dying[step])
        if (!lives_on(s)) give_back(s);
      for (SlotId s : born[step]) take(s);
      for (SlotId s : dying[step])
        if (lives_on(s)) give_back(s);
    }
    int64_t bytes = 0;
    for (int64_t width : registers_) bytes += width;
    return bytes;
  }

  void choose_tile(int64_t register_bytes) {
    int64_t bytes = register_bytes;
    for (SlotId s = 0; s < lives_.size(); ++s)
      if (c_.slots_[s].storage != Storage::reg) bytes += lives_[s].width;
    int64_t tile = std::clamp(kWorkingSet / std::max<int64_t>(bytes, 1), kMinTile, kMaxTile) / kAlign * kAlign;
    for (const TiledProgram::Gather& g : c_.gathers_)
      if (g.may_be_in_place && g.dims[0].extent >= kMinRow) c_.row_ = std::max(c_.row_, g.dims[0].extent);
    // Rows longer than a tile are divided into equal parts.
    if (c_.row_ > tile)
      tile = round_up((c_.row_ + (c_.row_ + tile - 1) / tile - 1) / ((c_.row_ + tile - 1) / tile), 16);
    c_.tile_ = std::min(tile, round_up(std::max<int64_t>(c_.size_, 1), kAlign));
  }

  void lay_out() {
    int64_t bytes = round_up(static_cast<int64_t>(c_.slots_.size() * sizeof(char*)), kAlign);
    std::vector<int64_t> at;
    for (int64_t width : registers_) {
      at.push_back(bytes);
      bytes += round_up(c_.tile_ * width, kAlign);
    }
    c_.scratch_bytes_ = bytes;
    for (SlotId s = 0; s < lives_.size(); ++s) {
      TiledProgram::Slot& slot = c_.slots_[s];
      if (slot.storage == Storage::reg) slot.offset = at[static_cast<size_t>(slot.offset)];
      if (slot.storage != Storage::constant) continue;
      slot.offset = static_cast<int64_t>(c_.constants_.size());
      c_.constants_.resize(c_.constants_.size() + static_cast<size_t>(round_up(c_.tile_ * lives_[s].width, kAlign)));
      alignas(16) char element[16];
      encode_element(*lives_[s].value, lives_[s].dtype, element);
      loops().load[static_cast<int>(register_type(lives_[s].dtype))](c_.constants_.data() + slot.offset, element, 0,
                                                                     c_.tile_);
    }
  }

  const Program& p_;
  std::vector<int> alias_;
  const Shape& shape_;
  std::vector<ValueSource> source_;
  std::vector<SlotId> slot_of_;     // by value
  std::vector<int> reads_;          // by value: how often it is an operand
  std::vector<int> direct_;         // by value: the output that its computation writes, or -1
  std::vector<size_t> deferred_;    // outputs written last
  std::vector<Life> lives_;         // by slot
  std::vector<int64_t> registers_;  // widths
  TiledProgram c_;
};

TiledProgram TiledProgram::compile(const Program& program, std::span<const int> alias) {
  return TiledProgramCompiler(program, alias).compile();
}

bool reads_same_index(const Program& program, size_t input) {
  const std::vector<ValueSource> all = value_sources(program);
  const Shape& shape = iteration_space(program);
  const auto harmless = [&](ValueId v) {
    const ValueSource& m = all[v];
    return m.kind != ValueSource::view || m.input != static_cast<int32_t>(input) ||
           (m.affine.offset == 0 && is_contiguous(m.affine, shape));
  };
  for (const Eqn& eqn : program.eqns)
    if (all[eqn.out[0]].kind == ValueSource::computed && !std::all_of(eqn.in.begin(), eqn.in.end(), harmless))
      return false;
  return std::all_of(program.outputs.begin(), program.outputs.end(), harmless);
}

}  // namespace lockstep
