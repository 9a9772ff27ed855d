// A warp's own products on the tensor cores (mma.sync, sm_80), for 16-bit operands.
#pragma once

#include "scalars.cuh"

// Four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of
// matrix l / 8. Lane l gets of each the elements 2 (l % 4) and the next of row l / 4.
__device__ __forceinline__ void load_matrices(unsigned (&words)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

// The same, each matrix transposed: lane l gets of column l / 4 the elements of rows 2 (l % 4) and
// the next.
__device__ __forceinline__ void load_transposed(unsigned (&words)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

// d += left * right: 16 rows, 8 columns, 16 steps of k. With g = lane / 4 and t = lane % 4:
//   left   words 0 to 3: row g, row g + 8, and both again 8 steps on; steps 2 t, 2 t + 1
//   right  words 0, 1: column g, steps 2 t, 2 t + 1, and 8 steps on
//   d      floats 0 to 3: row g, columns 2 t, 2 t + 1; the same of row g + 8
template <typename T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const unsigned (&left)[4],
                                             unsigned right0, unsigned right1) {
  if constexpr (kSame<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  }
}
