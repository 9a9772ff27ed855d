// The launchers of matmul, one .cu each: out[m, n] = a[m, k] times b[k, n], all sizes above 0.
//
// Pointers are device pointers on the current device; out is contiguous. The numbers before
// `stream` are the plan that cuda_impl/matmul.py made. kNoInstance: that plan is not compiled.
#pragma once

#include "launch.h"

// a: element (i, j) at i * a_row + j; b: element (i, j) at i * b_row + j * b_col
cudaError_t matmul_naive(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                         int64_t a_row, int64_t b_row, int64_t b_col, DType dtype, int threads,
                         cudaStream_t stream);

// Rows of a are a_stride elements apart. weight: b is stored [n, k], else [k, n], and the rows of
// what is stored are b_stride elements apart.
cudaError_t matmul_tiled(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                         int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int tile,
                         cudaStream_t stream);

// The same, for 16-bit types. a and b start, and their rows follow, at multiples of 16 bytes.
// tile_m x tile_n: of the output, a block; depth: steps of k in each of `stages` stages; warps_m x
// warps_n: warps that share out the tile; resident: blocks a multiprocessor.
cudaError_t matmul_mma(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                       int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int tile_m,
                       int tile_n, int depth, int stages, int warps_m, int warps_n, int resident,
                       cudaStream_t stream);

// The same, for 16-bit types on compute capability 9.0. a and b start, and their rows follow, at
// multiples of 16 bytes; bulk: so do out's. Sizes are below 2^31.
cudaError_t matmul_wgmma(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                         int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int tile_m,
                         int tile_n, int stages, int cluster, int blocks, bool bulk,
                         cudaStream_t stream);

// The same for 16-bit types and b stored [n, k], m <= batch. vector: a and b start, and their rows
// follow, at multiples of 16 bytes, and k is a multiple of 8.
cudaError_t matmul_gemv(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                        int64_t a_stride, int64_t b_stride, DType dtype, int threads, int batch,
                        bool vector, cudaStream_t stream);

// The same on compute capability 9.0. b's rows are shared out in `tiles`, none of them longer than
// another by more than one row; splits: blocks of a cluster that share out k.
cudaError_t matmul_decode(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                          int64_t a_stride, int64_t b_stride, DType dtype, int rows, int batch,
                          int stages, int splits, int blocks, int64_t tiles, bool vector,
                          cudaStream_t stream);

// The same with `rows` rows of b a tile. a and b start, and their rows follow, at multiples of 16
// bytes; sizes are below 2^30.
cudaError_t matmul_skinny(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                          int64_t a_stride, int64_t b_stride, DType dtype, int rows, int batch,
                          int stages, int splits, cudaStream_t stream);
