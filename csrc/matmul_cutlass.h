// The launcher of cuda_impl._cutlass, whose sources include CUTLASS and no header of torch's.
#pragma once

#include <string>

#include "launch.h"

// out[m, n] = a[m, k] times b[k, n] for 16-bit types on compute capability 9.0, all sizes above 0
// and below 2^31, k and n multiples of 8. a, b and out start, and their rows follow, at multiples
// of 16 bytes. Rows of a are a_stride elements apart. weight: b is stored [n, k], else [k, n], and
// the rows of what is stored are b_stride elements apart. swizzle: 1, 2, 4 or 8 rows of tiles at a
// time.
// "" or CUTLASS's word for what is wrong.
std::string matmul_cutlass(const void* a, const void* b, void* out, int m, int n, int k,
                           int64_t a_stride, int64_t b_stride, bool weight, DType dtype,
                           int swizzle, cudaStream_t stream);
