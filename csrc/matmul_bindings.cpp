// matmul's functions of cuda_impl._C.
//
// Unlike the other ops' inputs, a and b come with strides of their own: a slice needs no copy.
#include "bindings.h"
#include "matmul_checks.h"
#include "matmul_launchers.h"

namespace {

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
void check_shared_out(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, int batch,
                      int blocks, int64_t tiles, bool vector) {
  check_operands(a, b, true, out);
  check_by_rows("b", b);
  if (vector) {
    check_rows_aligned("a", a, a.stride(0));
    check_rows_aligned("b", b, b.stride(0));
    TORCH_CHECK_VALUE(a.size(1) % 8 == 0, "the plan moves 16-byte packs, but K is ", a.size(1));
  }
  TORCH_CHECK_VALUE(out.size(0) <= batch, "the plan is for ", batch, " rows of a, got ",
                    out.size(0));
  TORCH_CHECK_VALUE(blocks > 0 && tiles > 0, "the plan has no tiles or no blocks");
}

void matmul_gemv_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, int batch,
                         int split, int blocks, int64_t tiles, bool vector) {
  check_shared_out(a, b, out, batch, blocks, tiles, vector);
  const Scope scope(a);
  check_launch("matmul_gemv",
               matmul_gemv(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                           out.size(0), out.size(1), a.size(1), a.stride(0), b.stride(0),
                           dtype_of(a), batch, split, blocks, tiles, vector, scope.stream));
}

void matmul_decode_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                           int rows, int batch, int stages, int splits, int blocks, int64_t tiles,
                           bool vector) {
  check_shared_out(a, b, out, batch, blocks, tiles, vector);
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
  module.def("matmul_naive", &matmul_naive_binding);
  module.def("matmul_tiled", &matmul_tiled_binding);
  module.def("matmul_mma", &matmul_mma_binding);
  module.def("matmul_wgmma", &matmul_wgmma_binding);
  module.def("matmul_gemv", &matmul_gemv_binding);
  module.def("matmul_decode", &matmul_decode_binding);
  module.def("matmul_skinny", &matmul_skinny_binding);
}
