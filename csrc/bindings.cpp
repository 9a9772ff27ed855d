// The Python module cuda_impl._C: one function per op and variant.
//
// Tensors come contiguous, beside the numbers of a plan that cuda_impl/<op>.py made;
// what a user may pass is checked there, by reference.contract. The checks here are the last line:
// nothing that would read or write out of bounds gets to a launch.
#include "bindings.h"

#include "landing.h"
#include "launchers.h"

// matmul_bindings.cpp
void bind_matmul(pybind11::module_& module);

namespace {

using SoftmaxPlain = decltype(softmax_naive);
using ChainNaive = decltype(chain_naive);
using ChainPacked = decltype(chain_packed);

Landing softmax_landing(pybind11::handle x, pybind11::handle out) {
  const at::Tensor* source = plain(x);
  if (source == nullptr || !source->is_contiguous()) return {};
  return land(out, source->sizes(), {source});
}

Landing chain_landing(pybind11::handle x, pybind11::handle residual, pybind11::handle bias,
                      pybind11::handle out) {
  const at::Tensor *source = plain(x), *beside = plain(residual), *row = plain(bias);
  if (source == nullptr || beside == nullptr || row == nullptr) return {};
  const at::IntArrayRef shape = source->sizes();
  if (!source->is_contiguous() || !beside->is_contiguous() || beside->sizes() != shape ||
      row->sizes() != shape.slice(shape.size() - 1)) {
    return {};
  }
  return land(out, shape, {source, beside, row});
}

template <SoftmaxPlain kLaunch>
void softmax_plain_binding(const at::Tensor& x, const at::Tensor& out, int threads) {
  check_first("x", x);
  check_beside("out", out, x, x.sizes());
  check_threads(threads);
  if (x.numel() == 0) return;
  const Scope scope(x);
  const int64_t cols = x.size(-1);
  check_launch("plain softmax",
               kLaunch(x.const_data_ptr(), out.mutable_data_ptr(), x.numel() / cols, cols,
                       dtype_of(x), threads, scope.stream));
}

void softmax_registers_binding(const at::Tensor& x, const at::Tensor& out, int threads,
                               int elements, int cluster, bool whole) {
  check_first("x", x);
  check_beside("out", out, x, x.sizes());
  const int64_t cols = x.size(-1);
  if (whole) check_packs({x.const_data_ptr(), out.const_data_ptr()}, cols * x.element_size());
  if (x.numel() == 0) return;
  const Scope scope(x);
  if (cluster > 1) check_capability("clusters of blocks", 9);
  check_launch("softmax_registers",
               softmax_registers(x.const_data_ptr(), out.mutable_data_ptr(), x.numel() / cols, cols,
                                 dtype_of(x), threads, elements, cluster, whole, scope.stream));
}

void check_chain(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias,
                 const at::Tensor& out) {
  check_first("x", x);
  check_beside("residual", residual, x, x.sizes());
  check_beside("bias", bias, x, x.sizes().slice(x.dim() - 1));
  check_beside("out", out, x, x.sizes());
}

template <ChainNaive kLaunch>
void chain_naive_binding(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias,
                         const at::Tensor& out, int threads) {
  check_chain(x, residual, bias, out);
  check_threads(threads);
  if (x.numel() == 0) return;
  const Scope scope(x);
  check_launch("naive chain", kLaunch(x.const_data_ptr(), residual.const_data_ptr(),
                                      bias.const_data_ptr(), out.mutable_data_ptr(), x.numel(),
                                      bias.numel(), dtype_of(x), threads, scope.stream));
}

template <ChainPacked kLaunch>
void chain_packed_binding(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias,
                          const at::Tensor& out, int threads, int packs, bool vector,
                          bool bias_packs) {
  check_chain(x, residual, bias, out);
  if (vector) check_packs({x.const_data_ptr(), residual.const_data_ptr(), out.const_data_ptr()}, 0);
  if (bias_packs) check_packs({bias.const_data_ptr()}, bias.nbytes());
  if (x.numel() == 0) return;
  const Scope scope(x);
  const PackedChain chain{x.const_data_ptr(),
                          residual.const_data_ptr(),
                          bias.const_data_ptr(),
                          out.mutable_data_ptr(),
                          x.numel(),
                          bias.numel(),
                          dtype_of(x),
                          threads,
                          packs,
                          vector,
                          bias_packs};
  check_launch("packed chain", kLaunch(chain, scope.stream));
}

void chain_streamed_binding(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias,
                            const at::Tensor& out, int threads, int depth, int resident,
                            int groups) {
  check_chain(x, residual, bias, out);
  check_packs(
      {x.const_data_ptr(), residual.const_data_ptr(), bias.const_data_ptr(), out.const_data_ptr()},
      bias.nbytes());
  if (x.numel() == 0) return;
  const Scope scope(x);
  check_launch("chain_streamed",
               chain_streamed(x.const_data_ptr(), residual.const_data_ptr(), bias.const_data_ptr(),
                              out.mutable_data_ptr(), x.numel() / bias.numel(), bias.numel(),
                              dtype_of(x), threads, depth, resident, groups, scope.stream));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("softmax_landing", &softmax_landing);
  module.def("chain_landing", &chain_landing);
  module.def("softmax_naive", &softmax_plain_binding<softmax_naive>);
  module.def("softmax_block", &softmax_plain_binding<softmax_block>);
  module.def("softmax_online", &softmax_plain_binding<softmax_online>);
  module.def("softmax_registers", &softmax_registers_binding);
  module.def("chain_naive", &chain_naive_binding<chain_naive>);
  module.def("chain_packed", &chain_packed_binding<chain_packed>);
  module.def("chain_streamed", &chain_streamed_binding);
  module.def("chain_sfu_naive", &chain_naive_binding<chain_sfu_naive>);
  module.def("chain_sfu_exact", &chain_packed_binding<chain_sfu_exact>);
  module.def("chain_sfu_approx", &chain_packed_binding<chain_sfu_approx>);
  module.def("chain_sfu_tanh", &chain_packed_binding<chain_sfu_tanh>);
  module.def("chain_sfu_packed", &chain_packed_binding<chain_sfu_packed>);
  bind_matmul(module);
}
