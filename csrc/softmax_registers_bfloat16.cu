#include "softmax_registers.h"

template cudaError_t softmax_registers_of<__nv_bfloat16>(const void*, void*, int64_t, int64_t, int,
                                                         int, int, bool, cudaStream_t);
