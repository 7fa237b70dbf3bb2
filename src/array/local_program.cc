#include "array/local_program.h"

namespace lockstep::detail {

LocalProgram::LocalProgram(Lane& lane, Program program, const PlanOptions& options)
    : lane_(lane), lowered_(std::move(program)), plan_(lane.compile(lowered_, options)) {
  for (const Type& type : lowered_.output_types()) out_bytes_.push_back(type.bytes());
  held_.resize(lowered_.inputs.size());
  in_.resize(lowered_.inputs.size());
  made_.resize(lowered_.outputs.size());
  out_.resize(lowered_.outputs.size());
}

void LocalProgram::run() {
  for (size_t j = 0; j < out_.size(); ++j) {
    const int from = plan_->donated_input(j);
    made_[j] = from >= 0 ? held_[static_cast<size_t>(from)] : lane_.allocate(out_bytes_[j]);
    out_[j] = made_[j]->data();
  }
  plan_->run(in_.data(), out_.data());
}

void LocalProgram::release_buffers() {
  for (BufferPtr& buffer : held_) buffer.reset();
  for (BufferPtr& buffer : made_) buffer.reset();
}

}  // namespace lockstep::detail
