// What every kernel here shares: 16-byte packs, conversions to and from float, block numbers.
//
// Device code only, and no header that NVRTC can't open: nvcc and NVRTC compile the same text.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using int64 = long long;

// NVRTC has no <type_traits> and no <limits>.
template <typename A, typename B>
constexpr bool kSame = false;
template <typename A>
constexpr bool kSame<A, A> = true;

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// Sixteen bytes: the widest access that one thread makes on sm_80 and sm_90. Kept as the words that
// a load returns, so that nothing waits for the load before its floats are asked for.
template <typename T>
struct Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  static constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  unsigned words[4];
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Round to nearest even. Named conversions, since torch's build hides the implicit ones.
template <typename T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (kSame<T, float>) {
    return value;
  } else if constexpr (kSame<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

__device__ __forceinline__ unsigned bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ unsigned bits_of(__half value) { return __half_as_ushort(value); }
__device__ __forceinline__ unsigned bits_of(__nv_bfloat16 value) {
  return __bfloat16_as_ushort(value);
}

// The one or two elements of a 4-byte word.
template <typename T>
__device__ __forceinline__ void unpack_word(unsigned word, float* values) {
  if constexpr (kSame<T, float>) {
    values[0] = __uint_as_float(word);
  } else if constexpr (kSame<T, __half>) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word));
    values[0] = pair.x;
    values[1] = pair.y;
  } else {  // a bfloat16 is the upper half of a float
    values[0] = __uint_as_float(word << 16);
    values[1] = __uint_as_float(word & 0xffff0000u);
  }
}

// 16-bit types are rounded two at a time: one instruction, which also packs them.
template <typename T>
__device__ __forceinline__ unsigned pack_word(const float* values) {
  if constexpr (kSame<T, float>) {
    return __float_as_uint(values[0]);
  } else if constexpr (kSame<T, __half>) {
    const __half2 pair = __floats2half2_rn(values[0], values[1]);
    return *reinterpret_cast<const unsigned*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[0], values[1]);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
}

template <typename T>
__device__ __forceinline__ void unpack(const Pack<T>& pack, float (&values)[Pack<T>::kSize]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) unpack_word<T>(pack.words[w], &values[w * Pack<T>::kPerWord]);
}

template <typename T>
__device__ __forceinline__ Pack<T> pack_floats(const float (&values)[Pack<T>::kSize]) {
  Pack<T> pack;
#pragma unroll
  for (int w = 0; w < 4; ++w) pack.words[w] = pack_word<T>(&values[w * Pack<T>::kPerWord]);
  return pack;
}

// Element by element, for packs at an edge and for memory that isn't 16-byte aligned.
// element(i): the i-th value of type T.
template <typename T, typename Element>
__device__ __forceinline__ Pack<T> gather(Element element) {
  constexpr int kPerWord = Pack<T>::kPerWord;
  Pack<T> pack;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    pack.words[w] = bits_of(element(w * kPerWord));
    if constexpr (kPerWord == 2) pack.words[w] |= bits_of(element(w * kPerWord + 1)) << 16;
  }
  return pack;
}

// Data that is read once: it takes no place in L1. `from` is 16-byte aligned.
template <typename T>
__device__ __forceinline__ Pack<T> load_once(const T* from) {
  Pack<T> pack;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]), "=r"(pack.words[3])
      : "l"(from));
  return pack;
}

// Data that is written and not read again: first out of L2. `to` is 16-byte aligned.
template <typename T>
__device__ __forceinline__ void store_once(T* to, const Pack<T>& pack) {
  __stcs(reinterpret_cast<uint4*>(to),
         make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]));
}

// max and min that keep a NaN, as PyTorch's do; fmaxf and fminf drop it.
__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float min_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// value held within [-limit, limit]; a NaN stays one. From sm_86 on one instruction: the smaller
// magnitude, with the sign of value (limit's is +).
__device__ __forceinline__ float clamp_nan(float value, float limit) {
#if __CUDA_ARCH__ >= 860
  float result;
  asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(limit));
  return result;
#else
  return min_nan(max_nan(value, -limit), limit);
#endif
}

// Blocks are counted over x, then y: x alone ends at 2^31 - 1.
__device__ __forceinline__ int64 block_number() {
  return static_cast<int64>(blockIdx.y) * gridDim.x + blockIdx.x;
}
