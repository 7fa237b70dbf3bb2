#include "ops/tiled_program.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

void TiledProgram::execute(const void* const* in, void* const* out, int64_t begin, int64_t end, void* scratch,
                           const void* compact) const {
  if (begin >= end) return;
  auto* const memory = static_cast<char*>(scratch);
  // The address at which input k would begin if its compact block were part of a complete array. An integer, because
  // that address may be outside of any array.
  const auto input = [&](int32_t k, int64_t element) {
    return k == 0 && compact ? reinterpret_cast<uintptr_t>(compact) - static_cast<uintptr_t>(begin * element)
                             : reinterpret_cast<uintptr_t>(in[k]);
  };
  auto** const at = static_cast<char**>(scratch);  // address of each slot for the current tile
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    const auto start = static_cast<uintptr_t>(slot.offset + begin * slot.step);
    switch (slot.storage) {
      case Storage::input:
        at[s] = reinterpret_cast<char*>(input(slot.index, slot.step) + start);
        break;
      case Storage::output:
        at[s] = static_cast<char*>(out[slot.index]) + start;
        break;
      case Storage::reg:
        at[s] = memory + slot.offset;
        break;
      case Storage::constant:
        at[s] = const_cast<char*>(reinterpret_cast<const char*>(constants_.data())) + slot.offset;
        break;
    }
  }
  for (const Gather& g : uniform_)
    g.load(at[g.slot], static_cast<const char*>(in[g.input]) + g.offset, 0, std::min(tile_, end - begin));

  int64_t left_in_row = row_ > 0 ? row_ - begin % row_ : end - begin;
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min({tile_, end - i, left_in_row});
    for (const Step& step : steps_) {
      if (step.loop) {
        const void* const operands[3] = {at[step.in[0]], at[step.in[1]], at[step.in[2]]};
        step.loop(at[step.out], operands, n);
      } else {
        const Gather& g = gathers_[static_cast<size_t>(step.gather)];
        const auto* array = reinterpret_cast<const char*>(input(g.input, g.element) + static_cast<uintptr_t>(g.offset));
        gather(g, array, memory + slots_[g.slot].offset, at, i, n);
      }
    }
    i += n;
    left_in_row -= n;
    if (left_in_row == 0) left_in_row = row_;
    if (i < end)
      for (size_t s = 0; s < slots_.size(); ++s) at[s] += n * slots_[s].step;
  }
}

void TiledProgram::gather(const Gather& g, const char* array, char* reg, char** at, int64_t begin, int64_t n) {
  const size_t rank = g.dims.size();
  int64_t index[kMaxDims];
  int64_t position = 0, rest = begin;
  for (size_t d = 0; d < rank; ++d) {
    index[d] = d + 1 < rank ? rest % g.dims[d].extent : rest;
    rest = d + 1 < rank ? rest / g.dims[d].extent : 0;
    position += index[d] * g.dims[d].stride;
  }
  const auto [row, stride] = g.dims[0];
  if (g.may_be_in_place && index[0] + n <= row) {
    at[g.slot] = const_cast<char*>(array) + position * g.element;
    return;
  }
  at[g.slot] = reg;
  const bool repeats = rank == 2 && g.dims[1].stride == 0;  // all rows are equal
  int64_t done = 0;
  for (const int64_t rows_end = repeats ? std::min(n, row) : n; done < rows_end;) {
    const int64_t piece = std::min(row - index[0], rows_end - done);
    g.load(reg + done * g.width, array + position * g.element, stride, piece);
    done += piece;
    index[0] += piece;
    position += piece * stride;
    for (size_t d = 0; d + 1 < rank && index[d] == g.dims[d].extent; ++d) {
      position += g.dims[d + 1].stride - index[d] * g.dims[d].stride;
      index[d] = 0;
      ++index[d + 1];
    }
  }
  for (; done < n; done += std::min(done, n - done))
    std::memcpy(reg + done * g.width, reg, static_cast<size_t>(std::min(done, n - done) * g.width));
}

}  // namespace lockstep
