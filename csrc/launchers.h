// The launchers of softmax, chain and chain_sfu, one .cu each.
//
// Pointers are device pointers to contiguous data on the current device. A launcher returns what
// the launch returned; kNoInstance means that no such instance is compiled.
#pragma once

#include "launch.h"

// x, out: [rows, cols]; rows, cols > 0; threads: of a block, here and below
cudaError_t softmax_naive(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                          int threads, cudaStream_t stream);
cudaError_t softmax_block(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                          int threads, cudaStream_t stream);
cudaError_t softmax_online(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                           int threads, cudaStream_t stream);

// threads: a row's threads (in each of `cluster` blocks); elements: a thread's share of the row;
// whole: every row of x and out starts and ends at a 16-byte boundary.
// elements = 0 chooses the online kernel, which holds nothing in registers.
cudaError_t softmax_registers(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                              int threads, int elements, int cluster, bool whole,
                              cudaStream_t stream);

// x, residual, out: [count]; bias: [cols]; count = rows * cols > 0
cudaError_t chain_naive(const void* x, const void* residual, const void* bias, void* out,
                        int64_t count, int64_t cols, DType dtype, int threads, cudaStream_t stream);
cudaError_t chain_sfu_naive(const void* x, const void* residual, const void* bias, void* out,
                            int64_t count, int64_t cols, DType dtype, int threads,
                            cudaStream_t stream);

// x, residual, out: [count]; bias: [cols]; count = rows * cols > 0
// packs: 16-byte packs a thread
// vector: x, residual and out are 16-byte aligned; bias_packs: so is bias, and so are all rows
struct PackedChain {
  const void* x;
  const void* residual;
  const void* bias;
  void* out;
  int64_t count;
  int64_t cols;
  DType dtype;
  int threads;
  int packs;
  bool vector;
  bool bias_packs;
};

cudaError_t chain_packed(const PackedChain& chain, cudaStream_t stream);
cudaError_t chain_sfu_exact(const PackedChain& chain, cudaStream_t stream);
cudaError_t chain_sfu_approx(const PackedChain& chain, cudaStream_t stream);
cudaError_t chain_sfu_tanh(const PackedChain& chain, cudaStream_t stream);
cudaError_t chain_sfu_packed(const PackedChain& chain, cudaStream_t stream);

// x, residual, out: [rows, cols]; bias: [cols]; all 16-byte aligned, and so are all rows
// depth: rows of a thread that are on their way or computed; resident: threads an SM; groups:
// blocks that share out the rows
cudaError_t chain_streamed(const void* x, const void* residual, const void* bias, void* out,
                           int64_t rows, int64_t cols, DType dtype, int threads, int depth,
                           int resident, int groups, cudaStream_t stream);
