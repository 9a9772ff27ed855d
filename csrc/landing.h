// Where a kernel writes, for a call that needs nothing but a launch.
//
// What an op accepts is said in reference/contract.py, in Python, with an error for each thing that
// it doesn't: a dozen questions to every tensor. Here they are asked at once. Only what passes all
// of them there, and can be taken without a copy, has a landing here; for anything else Python
// gets None and goes through the contract.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"

using Landing = std::optional<at::Tensor>;

// The tensor that `value` is, if it fills the memory between its first element and its last.
inline const at::Tensor* plain(pybind11::handle value) {
  if (!THPVariable_Check(value.ptr())) return nullptr;
  const at::Tensor& x = THPVariable_Unpack(value.ptr());
  const auto dtype = x.scalar_type();
  const bool taken = x.layout() == at::kStrided && x.is_cuda() && x.numel() > 0 && x.dim() > 0 &&
                     (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16) &&
                     x.is_non_overlapping_and_dense() && !x.is_neg() &&
                     !(x.requires_grad() && c10::GradMode::is_enabled());
  return taken ? &x : nullptr;
}

inline bool goes_with(const at::Tensor& x, const at::Tensor& first) {
  return x.device() == first.device() && x.scalar_type() == first.scalar_type();
}

inline bool share_memory(const at::Tensor& x, const at::Tensor& y) {
  const auto x_start = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  const auto y_start = reinterpret_cast<uintptr_t>(y.const_data_ptr());
  return x_start < y_start + y.nbytes() && y_start < x_start + x.nbytes();
}

// out, or a new tensor for None. inputs: plain ones
inline Landing land(pybind11::handle out, at::IntArrayRef shape,
                    std::initializer_list<const at::Tensor*> inputs) {
  const at::Tensor& first = **inputs.begin();
  for (const at::Tensor* input : inputs) {
    if (!goes_with(*input, first)) return {};
  }
  if (out.is_none()) return at::empty(shape, first.options());
  const at::Tensor* target = plain(out);
  if (target == nullptr || !goes_with(*target, first) || !target->is_contiguous() ||
      target->sizes() != shape) {
    return {};
  }
  for (const at::Tensor* input : inputs) {
    if (share_memory(*target, *input)) return {};
  }
  return *target;
}
