// 16-byte packs: how the kernels that are not first drafts move memory.
#pragma once

#include "scalars.cuh"

// Sixteen bytes: the widest access that one thread makes on sm_80 and sm_90. Kept as the words that
// a load returns, so that nothing waits for the load before its floats are asked for.
template <typename T>
struct Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  static constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  unsigned words[4];
};

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

// Element i, a constant.
template <typename T>
__device__ __forceinline__ T element_of(const Pack<T>& pack, int i) {
  constexpr int kPerWord = Pack<T>::kPerWord;
  float values[kPerWord];
  unpack_word<T>(pack.words[i / kPerWord], values);
  return from_float<T>(values[i % kPerWord]);
}

// Data that is read once. `from` is 16-byte aligned.
//
// It may stay in L1, although nobody asks for it again. With L1::no_allocate a kernel had two
// speeds on an H200, by what had run before it: softmax at 1024 columns took 258 or 269 us, chain
// at 2^28 bfloat16 372 or 395. Without, it has one: 261 and 371.
template <typename T>
__device__ __forceinline__ Pack<T> load_once(const T* from) {
  Pack<T> pack;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
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
