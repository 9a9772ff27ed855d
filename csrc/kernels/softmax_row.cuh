// A row of any length and alignment seen as 16-byte packs, and the sums that threads combine.
#pragma once

#include "packs.cuh"
#include "special_functions.cuh"

// Bytes at whose multiples the warps of a block divide a row between them: a line of L1 and L2.
constexpr int kLine = 128;

// A row counted from a boundary at or before its first element, so that every pack but the first
// and the last is whole and can move in one access, wherever the row starts.
//
// kWhole: rows of x and out start at such boundaries and end at them, so that all packs are whole.
template <typename T, typename Index, bool kWhole>
struct Row {
  static constexpr int kSize = Pack<T>::kSize;
  const T* start;  // elements before `first` belong to somebody else
  Index first;     // the row's elements are start[first] ... start[last - 1]
  Index last;

  // boundary: a multiple of 16 bytes
  __device__ __forceinline__ Row(const T* row, Index cols, int boundary) {
    const auto address = reinterpret_cast<unsigned long long>(row);
    first = kWhole ? 0 : static_cast<Index>(address % boundary / sizeof(T));
    last = first + cols;
    start = row - first;
  }

  // The same row with packs counted from pack `by` on: a thread's packs are then constants, and so
  // are the distances between their addresses. `first` and `last` may be below 0.
  __device__ __forceinline__ Row from(Index by) const {
    Row row = *this;
    row.start += by * kSize;
    row.first -= by * kSize;
    row.last -= by * kSize;
    return row;
  }

  __device__ __forceinline__ bool has(Index element) const {
    return element >= first && element < last;
  }

  __device__ __forceinline__ bool whole(Index pack) const {
    if constexpr (kWhole) return pack * kSize < last;
    return pack * kSize >= first && (pack + 1) * kSize <= last;
  }

  // Packs first, first + step, ..., with -inf where they reach past the row: it weighs nothing in
  // max and sum. All loads go out at once, also those of packs that are the row's in part: 16 bytes
  // that hold an element of it can be read, whatever else they hold. Element by element, the warp
  // at a row's end would wait for memory twice, and all others for that warp: 0.73 of a copy at
  // 50257 columns of bfloat16.
  template <int kPacks>
  __device__ __forceinline__ void load(Pack<T> (&packs)[kPacks], Index first_pack,
                                       Index step) const {
    const auto nothing = from_float<T>(-infinity());
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const Index pack = first_pack + k * step;
      const bool touches = (kWhole || (pack + 1) * kSize > first) && pack * kSize < last;
      packs[k] =
          touches ? load_once(start + pack * kSize) : gather<T>([&](int) { return nothing; });
    }
    if constexpr (!kWhole) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) packs[k] = clip(packs[k], first_pack + k * step);
    }
  }

  // What a pack holds of the row, and -inf.
  __device__ __forceinline__ Pack<T> clip(const Pack<T>& read, Index pack) const {
    if (whole(pack)) return read;
    return gather<T>([&](int i) {
      return !kWhole && has(pack * kSize + i) ? element_of(read, i) : from_float<T>(-infinity());
    });
  }

  // `out` is counted as `start` is. It is whole where the row is whole, if it is aligned too.
  __device__ __forceinline__ void store(T* __restrict__ out, Index pack,
                                        const float (&values)[kSize]) const {
    const bool aligned = kWhole || reinterpret_cast<unsigned long long>(out) % 16 == 0;
    if (whole(pack) && aligned) {
      store_once(out + pack * kSize, pack_floats<T>(values));
    } else if constexpr (!kWhole) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const Index element = pack * kSize + i;
        if (has(element)) out[element] = from_float<T>(values[i]);
      }
    }
  }
};

// What some elements contribute to a row: their maximum and sum of exp(x - max).
// No elements, or only -inf: {-inf, 0}. Aligned, so that it moves in one access.
struct alignas(8) Partial {
  float max;
  float sum;
};

// exp(x - max). The difference is taken before the scaling by log2(e): one multiply-add instead
// of the two would lose all precision beside a large common offset. Against a maximum of -inf
// every x is -inf, and weighs 0 rather than NaN.
__device__ __forceinline__ float exp_below(float x, float max) {
  return exp2_approx((x - (max == -infinity() ? 0.0f : max)) * kLog2e);
}

__device__ __forceinline__ Partial combine(const Partial& a, const Partial& b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * exp_below(a.max, max) + b.sum * exp_below(b.max, max)};
}

// All-reduce over groups of kWidth lanes, a power of two. Every lane of the warp takes part.
// A NaN that fmaxf drops is in the sum already.
template <int kWidth>
__device__ __forceinline__ Partial combine_lanes(Partial mine) {
  float max = mine.max;
#pragma unroll
  for (int lanes = kWidth / 2; lanes > 0; lanes /= 2) {
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, lanes));
  }
  float sum = mine.sum * exp_below(mine.max, max);
#pragma unroll
  for (int lanes = kWidth / 2; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  }
  return {max, sum};
}

// Every warp reduces all kCount partials for itself, so that one barrier before is enough.
template <int kCount>
__device__ __forceinline__ Partial combine_shared(const Partial* partials) {  // [kCount]
  constexpr int kWidth = kCount > 16 ? 32 : kCount > 8 ? 16 : kCount > 4 ? 8 : kCount > 2 ? 4 : 2;
  constexpr int kEach = (kCount + kWidth - 1) / kWidth;
  Partial each[kEach];
  float max = -infinity();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int index = i * kWidth + threadIdx.x % kWidth;
    each[i] = {-infinity(), 0.0f};
    if (kCount % kWidth == 0 || index < kCount) each[i] = partials[index];
    max = fmaxf(max, each[i].max);
  }
  // One exponential a partial. Combining one after another would take two.
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += each[i].sum * exp_below(each[i].max, max);
  return combine_lanes<kWidth>({max, sum});
}
