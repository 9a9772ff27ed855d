// matmul's functions of cuda_impl._C.
//
// Unlike the other ops' inputs, a and b come with strides of their own: a slice needs no copy.
#include <tuple>

#include "bindings.h"
#include "landing.h"
#include "matmul_checks.h"
#include "matmul_launchers.h"

namespace {

// As by_rows in cuda_impl/matrices.py would leave it.
bool lies_by_rows(const at::Tensor& x) {
  return x.stride(1) == 1 && (x.size(0) > 1 || x.stride(0) == (x.size(1) + 7) / 8 * 8);
}

// Where to write; what is stored of b, by rows; whether that is a weight [n, k]; whether its rows
// and a's are aligned as check_rows_aligned wants them.
std::optional<std::tuple<at::Tensor, at::Tensor, bool, bool>> matmul_landing(pybind11::handle a,
                                                                             pybind11::handle b,
                                                                             pybind11::handle out) {
  const at::Tensor *left = plain(a), *right = plain(b);
  if (left == nullptr || right == nullptr || left->dim() != 2 || right->dim() != 2 ||
      left->size(1) != right->size(0) || !lies_by_rows(*left)) {
    return {};
  }
  const int64_t k = right->size(0), n = right->size(1);
  // is_weight of cuda_impl/matrices.py
  const bool weight = right->stride(0) == 1 && (n == 1 || (k > 1 && right->stride(1) >= k));
  const at::Tensor stored = weight ? right->t() : *right;
  if (!lies_by_rows(stored)) return {};
  const int64_t shape[] = {left->size(0), n};
  const Landing target = land(out, shape, {left, right});
  // A single row of out may have any stride, and the kernels are told a plain one.
  if (!target || target->stride(0) != n) return {};
  return std::make_tuple(
      *target, stored, weight,
      rows_aligned(*left, left->stride(0)) && rows_aligned(stored, stored.stride(0)));
}

void matmul_naive_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                          int threads) {
  check_operands(a, b, false, out);
  check_threads(threads);
  const Scope scope(a);
  check_launch("matmul_naive",
               matmul_naive(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                            out.size(0), out.size(1), a.size(1), a.stride(0), b.stride(0),
                            b.stride(1), dtype_of(a), threads, scope.stream));
}

void matmul_tiled_binding(const at::Tensor& a, const at::Tensor& b, bool weight,
                          const at::Tensor& out, int tile) {
  check_operands(a, b, weight, out);
  check_by_rows("b", b);
  const Scope scope(a);
  check_launch("matmul_tiled",
               matmul_tiled(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                            out.size(0), out.size(1), a.size(1), a.stride(0), b.stride(0), weight,
                            dtype_of(a), tile, scope.stream));
}

void matmul_mma_binding(const at::Tensor& a, const at::Tensor& b, bool weight,
                        const at::Tensor& out, int tile_m, int tile_n, int depth, int stages,
                        int warps_m, int warps_n, int resident) {
  check_operands(a, b, weight, out);
  check_by_rows("b", b);
  check_rows_aligned("a", a, a.stride(0));
  check_rows_aligned("b", b, b.stride(0));
  const Scope scope(a);
  check_capability("mma.sync and cp.async", 8);
  check_launch(
      "matmul_mma",
      matmul_mma(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(), out.size(0),
                 out.size(1), a.size(1), a.stride(0), b.stride(0), weight, dtype_of(a), tile_m,
                 tile_n, depth, stages, warps_m, warps_n, resident, scope.stream));
}

void matmul_wgmma_binding(const at::Tensor& a, const at::Tensor& b, bool weight,
                          const at::Tensor& out, int tile_m, int tile_n, int stages, int cluster,
                          int blocks, bool bulk) {
  check_operands(a, b, weight, out);
  check_by_rows("b", b);
  check_rows_aligned("a", a, a.stride(0));
  check_rows_aligned("b", b, b.stride(0));
  if (bulk) check_rows_aligned("out", out, out.size(1));
  check_counted(out, a.size(1));
  TORCH_CHECK_VALUE(blocks > 0, "the plan has no blocks");
  const Scope scope(a);
  check_hopper("wgmma");
  check_launch(
      "matmul_wgmma",
      matmul_wgmma(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(), out.size(0),
                   out.size(1), a.size(1), a.stride(0), b.stride(0), weight, dtype_of(a), tile_m,
                   tile_n, stages, cluster, blocks, bulk, scope.stream));
}

// What gemv and decode ask for alike.
void check_few_rows(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, int batch,
                    bool vector) {
  check_operands(a, b, true, out);
  check_by_rows("b", b);
  if (vector) {
    check_rows_aligned("a", a, a.stride(0));
    check_rows_aligned("b", b, b.stride(0));
    TORCH_CHECK_VALUE(a.size(1) % 8 == 0, "the plan moves 16-byte packs, but K is ", a.size(1));
  }
  TORCH_CHECK_VALUE(out.size(0) <= batch, "the plan is for ", batch, " rows of a, got ",
                    out.size(0));
}

void matmul_gemv_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                         int threads, int batch, bool vector) {
  check_few_rows(a, b, out, batch, vector);
  const Scope scope(a);
  check_launch("matmul_gemv",
               matmul_gemv(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                           out.size(0), out.size(1), a.size(1), a.stride(0), b.stride(0),
                           dtype_of(a), threads, batch, vector, scope.stream));
}

void matmul_decode_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                           int rows, int batch, int stages, int splits, int blocks, int64_t tiles,
                           bool vector) {
  check_few_rows(a, b, out, batch, vector);
  TORCH_CHECK_VALUE(blocks > 0 && tiles > 0, "the plan has no tiles or no blocks");
  const Scope scope(a);
  check_capability("clusters of blocks", 9);
  check_launch(
      "matmul_decode",
      matmul_decode(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(), out.size(0),
                    out.size(1), a.size(1), a.stride(0), b.stride(0), dtype_of(a), rows, batch,
                    stages, splits, blocks, tiles, vector, scope.stream));
}

void matmul_skinny_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                           int rows, int batch, int stages, int splits) {
  check_operands(a, b, true, out);
  check_by_rows("b", b);
  check_rows_aligned("a", a, a.stride(0));
  check_rows_aligned("b", b, b.stride(0));
  check_counted(out, a.size(1));
  TORCH_CHECK_VALUE(out.size(0) <= batch, "the plan is for ", batch, " rows of a, got ",
                    out.size(0));
  const Scope scope(a);
  check_hopper("wgmma");
  check_launch("matmul_skinny",
               matmul_skinny(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                             out.size(0), out.size(1), a.size(1), a.stride(0), b.stride(0),
                             dtype_of(a), rows, batch, stages, splits, scope.stream));
}

}  // namespace

void bind_matmul(pybind11::module_& module) {
  module.def("matmul_landing", &matmul_landing);
  module.def("matmul_naive", &matmul_naive_binding);
  module.def("matmul_tiled", &matmul_tiled_binding);
  module.def("matmul_mma", &matmul_mma_binding);
  module.def("matmul_wgmma", &matmul_wgmma_binding);
  module.def("matmul_gemv", &matmul_gemv_binding);
  module.def("matmul_decode", &matmul_decode_binding);
  module.def("matmul_skinny", &matmul_skinny_binding);
}
